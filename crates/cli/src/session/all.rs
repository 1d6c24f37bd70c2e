//! What is asked of every session, and of the person who decides by it.

use std::io::{BufRead as _, Read as _};

use peerbus_adapter::Failure;
use peerbus_node::index::LiveSession;
use peerbus_node::{NodeClient, TELLS_WITHIN, each};
use serde_json::{Value, json};

use super::{called, open};
use crate::here::sessions;
use crate::output;

/// More than a person types in a line, or a code has.
const TYPED_BYTES_MAX: u64 = 1_024;

/// Something that waits for the user, and the session in which it does.
pub(crate) struct Waiting {
    pub(crate) session: LiveSession,
    pub(crate) told: Value,
}

/// Sessions that gave no answer, each with a sentence on why.
#[derive(Default)]
pub(crate) struct Silent(pub(crate) Vec<(LiveSession, String)>);

impl Silent {
    /// Says of each that it did not answer.
    pub(crate) fn complain(&self) {
        self.0.iter().for_each(|(_, why)| output::complain(why));
    }

    /// Fails when they may have more.
    pub(crate) fn complete(&self) -> Result<(), Failure> {
        self.complain();
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Failure::failed(
                "there may be more: not every session answered",
            )),
        }
    }
}

/// Asks all sessions at the same time for what waits in them, a list in their answers.
pub(crate) fn waiting(
    list: &str,
    ask: impl Fn(&mut NodeClient) -> Result<Value, Failure> + Sync,
) -> Result<(Vec<Waiting>, Silent), Failure> {
    let all = sessions()?;
    let asked = each(&all, |session| {
        open(session).and_then(|it| ask(&mut it.within(TELLS_WITHIN)))
    });
    let (mut found, mut silent) = (Vec::new(), Silent::default());
    for (session, asked) in all.into_iter().zip(asked) {
        let why = match asked {
            Some(Ok(mut answer)) => {
                let told = answer[list].as_array_mut().map(std::mem::take);
                let waiting = |told| Waiting {
                    session: session.clone(),
                    told,
                };
                found.extend(told.unwrap_or_default().into_iter().map(waiting));
                continue;
            }
            Some(Err(why)) => why.to_string(),
            None => "this process gets no more threads".to_owned(),
        };
        let why = match session.stopped {
            true => why,
            false => format!("the session {} does not answer: {why}", called(&session)),
        };
        silent.0.push((session, why));
    }
    Ok((found, silent))
}

/// Prints what waits, in JSON or for people, who are told `nothing` where nothing does. Fails when there
/// may be more.
pub(crate) fn show(
    (waiting, silent): (&[Waiting], &Silent),
    list: &str,
    json: bool,
    nothing: &str,
    shown: impl Fn(&Waiting) -> String,
) -> Result<(), Failure> {
    if json {
        output::json(&json!({ list: told(waiting) }))?;
    } else if waiting.is_empty() && silent.0.is_empty() {
        output::line(nothing)?;
    } else {
        waiting
            .iter()
            .try_for_each(|it| output::wrapped(&shown(it)))?;
    }
    silent.complete()
}

/// The list in JSON.
pub(crate) fn told(waiting: &[Waiting]) -> Vec<Value> {
    let told = |it: &Waiting| {
        let mut told = it.told.clone();
        told["session"] = json!(it.session.name);
        told["session_id"] = json!(it.session.id);
        told
    };
    waiting.iter().map(told).collect()
}

/// Asks the person at the terminal, who decides by `shown`.
pub(crate) fn agreed(shown: &str, question: &str) -> Result<(), Failure> {
    output::wrapped(&format!("{shown}\n{question}")).map_err(|error| {
        Failure::failed(format!(
            "nothing was answered: the question cannot be shown on stdout: {error}"
        ))
    })?;
    match typed()?.trim() {
        "yes" => Ok(()),
        _ => Err(Failure::failed("nothing was answered")),
    }
}

/// A line that is typed, or the first that stdin has still.
pub(crate) fn typed() -> Result<String, Failure> {
    let mut line = String::new();
    let mut stdin = std::io::stdin().lock().take(TYPED_BYTES_MAX);
    let read = stdin.read_line(&mut line);
    read.map_err(|error| Failure::failed(format!("cannot read the answer: {error}")))?;
    Ok(line)
}
