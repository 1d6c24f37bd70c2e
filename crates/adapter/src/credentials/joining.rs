//! Changes that an invitation makes in the credentials: where the broker listens, and on the other machine
//! which broker is meant.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;

use peerbus_os::{dir, private};
use peerbus_wire::Token;
use zeroize::Zeroizing;

use super::{CredentialsError, FILE, load, parse};
use crate::url::Url;

/// How a file begins that there was not before.
const HEADING: &str = "# Made by `peerbus join`, and taken away by `peerbus uninstall --join`. Whoever has these can join\n\
                       # that bus and sign for its peers.\n";

/// Says in the file at `path` where the broker of this user listens for machines that were invited, or
/// that it does not. Whether that changed anything. Everything else in it stays.
///
/// # Errors
///
/// When the file is not there, or cannot be used or written.
pub fn set_listen(path: &Path, at: Option<SocketAddr>) -> Result<bool, CredentialsError> {
    if load(path)?.listen == at {
        return Ok(false);
    }
    let written = FILE.edit(path, |document, _| {
        match at {
            Some(at) => document["listen"] = at.to_string().as_str().into(),
            None => drop(document.remove("listen")),
        }
        Ok(true)
    });
    written.map_err(CredentialsError::Unusable)
}

/// The HMAC secret in the file at `path`, as text.
///
/// # Errors
///
/// When the file cannot be used.
pub fn secret_text(path: &Path) -> Result<Zeroizing<String>, CredentialsError> {
    let text = FILE.text(path).map_err(CredentialsError::Unusable)?;
    let text = text.ok_or_else(|| CredentialsError::Missing(path.into()))?;
    let table = text.parse::<toml::Table>().unwrap_or_default();
    let secret = table.get("hmac_secret").and_then(toml::Value::as_str);
    let none = || CredentialsError::Unusable(FILE.says(path, "has no `hmac_secret`"));
    secret.map(|text| text.to_owned().into()).ok_or_else(none)
}

/// More than an invitation puts into a file of credentials.
const GRANT_BYTES_MAX: usize = 8_192;

/// Fails where [`joined`] could make of the file at `path`, which need not be there, none that can be used.
///
/// # Errors
///
/// What is in the way, with the remedy.
pub fn check_joinable_file(path: &Path) -> Result<(), CredentialsError> {
    let unusable = |why: &dyn Display| CredentialsError::Unusable(FILE.says(path, why));
    let text = FILE.text(path).map_err(CredentialsError::Unusable)?;
    let text = text.unwrap_or_default();
    let dir = dir::above(path);
    if dir.exists() {
        dir::check_replacing(dir).map_err(|why| unusable(&format!("cannot be trusted: {why}")))?;
    }
    private::edited(&text, |_| Ok(())).map_err(|why| unusable(&why))?;
    check_size(text.len() + GRANT_BYTES_MAX).map_err(|why| unusable(&why))
}

fn check_size(bytes: usize) -> Result<(), String> {
    let most = FILE.bytes_max;
    match bytes as u64 > most {
        false => Ok(()),
        true => Err(format!(
            "would have {bytes} bytes, and {most} are the most: shorten it, or the broker's key"
        )),
    }
}

/// The text of a credentials file with which a machine is at home at the broker at `url`: `text`, what
/// there was before, with these three in the place of its own.
///
/// # Errors
///
/// A reason against it, to be read after the file's name.
pub fn joined(
    text: Option<&str>,
    token: &Token,
    key: &str,
    url: &Url,
) -> Result<Zeroizing<String>, String> {
    let (changed, ()) = private::edited(text.unwrap_or_default(), |document| {
        document["token"] = token.expose().into();
        document["hmac_secret"] = key.into();
        document["url"] = url.written().as_str().into();
        document.remove("hmac_secret_also");
        Ok(())
    })?;
    let heading = if text.is_some() { "" } else { HEADING };
    let changed = Zeroizing::new(format!("{heading}{}", *changed));
    check_size(changed.len())?;
    parse(&changed).map(|_| changed)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::load_or_create;
    use super::*;

    #[test]
    fn where_the_broker_listens_comes_and_goes_and_all_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c/credentials.toml");
        load_or_create(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let secret = secret_text(&path).unwrap();
        assert!(text.contains(&format!("hmac_secret = \"{}\"", *secret)));
        let at = "[::]:47823".parse().unwrap();
        assert!(set_listen(&path, Some(at)).unwrap() && !set_listen(&path, Some(at)).unwrap());
        assert_eq!(load(&path).unwrap().listen, Some(at));
        assert!(set_listen(&path, None).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        fs::write(&path, format!("listen = \"here\"\n{text}")).unwrap();
        let why = load(&path).unwrap_err().to_string();
        assert!(why.contains("has a wrong `listen`"), "{why}");
    }

    #[test]
    fn a_machine_that_joins_keeps_what_is_not_of_the_broker() {
        let token = Token::parse(&"t".repeat(64)).unwrap();
        let pin = "0a".repeat(32);
        let url = Url::parse(&format!("wss://desk:47823#sha256={pin}")).unwrap();
        let key = "k\"".repeat(20);
        let new = joined(None, &token, &key, &url).unwrap();
        let found = parse(&new).unwrap();
        assert!(found.token == token && found.url.as_ref() == Some(&url));
        let long = joined(None, &token, &"k".repeat(70_000), &url);
        let why = long.unwrap_err();
        assert!(why.contains("65536 are the most"), "{why}");
        let old = format!(
            "senders = [\"a=hold\"] # mine\ntoken = \"o\"\nhmac_secret = \"{s}\"\n\
             hmac_secret_also = \"{s}\"\n[domains.beta]\nallow = [\"a -> b\"]\n",
            s = "s".repeat(32)
        );
        let changed = joined(Some(&old), &token, &key, &url).unwrap();
        let found = parse(&changed).unwrap();
        assert!(found.token == token && found.url == Some(url) && !found.secret.is_rotated());
        assert!(changed.starts_with("senders = [\"a=hold\"] # mine\n") && found.allow.len() == 1);
        let url = Url::parse("unix:/a").unwrap();
        assert!(
            joined(None, &token, "short", &url)
                .unwrap_err()
                .contains("at least 32 bytes")
        );
    }

    #[test]
    fn a_file_that_could_not_be_used_afterwards_is_told_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c/credentials.toml");
        check_joinable_file(&path).unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let refused = |words: &str| {
            let why = check_joinable_file(&path).unwrap_err().to_string();
            assert!(why.contains(words), "{words}: {why}");
        };
        fs::create_dir(dir.path().join("c")).unwrap();
        mode(path.parent().unwrap(), 0o777);
        refused("cannot be trusted");
        mode(path.parent().unwrap(), 0o700);
        check_joinable_file(&path).unwrap();
        fs::write(&path, "# mine\n").unwrap();
        mode(&path, 0o644);
        refused("chmod 600");
        mode(&path, 0o600);
        check_joinable_file(&path).unwrap();
        fs::write(&path, "no TOML").unwrap();
        refused("is not TOML");
        fs::write(&path, format!("# {}\n", "x".repeat(60_000))).unwrap();
        refused("65536 are the most");
    }
}
