//! Files that are ours alone.

use peerbus_adapter::Failure;

use super::config_file::{ConfigFile, Edit};
use super::record::Done;

/// How the words begin that the first lines of each have, whatever version wrote it.
const SIGN: &str = "`peerbus install ";

/// Whether a text begins as ours does: with the command that wrote it.
pub(super) fn is_signed(ours: &str, text: &str) -> bool {
    let sign = ours.find(SIGN).map(|at| &ours[at..]);
    let sign = sign.and_then(|sign| sign.get(..=sign[SIGN.len()..].find('`')? + SIGN.len()));
    sign.is_some_and(|sign| text.lines().take(2).any(|line| line.contains(sign)))
}

/// Whether a text is as peerbus wrote it, as far as is known.
pub(crate) fn is_ours(ours: &str, text: &str, done: Option<&Done>) -> bool {
    text == ours || done.is_some_and(|done| done.original_of(text).is_some())
}

pub(super) fn install(ours: &str, file: ConfigFile, done: Option<&Done>) -> Result<Edit, Failure> {
    let text = match &file.bytes {
        Some(_) => Some(file.text()?.0),
        None => None,
    };
    if let Some(text) = text
        && !is_ours(ours, text, done)
        && !is_signed(ours, text)
    {
        return Err(Failure::failed(format!(
            "{} is not peerbus's; nothing was changed: rename or remove it, and try again",
            file.path.display()
        )));
    }
    let done = match (text, done) {
        (Some(text), Some(done)) => done.updated(text, ours),
        _ => Done::new(true, "", ours),
    };
    Ok(Edit {
        file,
        after: Some(ours.to_owned()),
        done: Some(done),
        stays: Vec::new(),
    })
}

pub(super) fn uninstall(
    ours: &str,
    file: ConfigFile,
    done: Option<&Done>,
) -> Result<Edit, Failure> {
    if file.bytes.is_none() {
        return Ok(Edit::none(file, Vec::new()));
    }
    let (text, mark) = file.text()?;
    if mark.is_empty() && is_ours(ours, text, done) {
        return Ok(Edit {
            file,
            after: None,
            done: None,
            stays: Vec::new(),
        });
    }
    let why = match is_signed(ours, text) {
        true => "it was changed since peerbus wrote it, or another version did",
        false => "it is not peerbus's",
    };
    let stays = format!("{}: {why}: it stays", file.path.display());
    Ok(Edit::none(file, vec![stays]))
}
