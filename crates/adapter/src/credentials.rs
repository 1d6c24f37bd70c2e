//! The credentials file: one TOML file, mode 0600, written by `peerbus serve` and read by every
//! adapter and CLI verb of the same user.
//!
//! ```toml
//! token = "…"         # admits a connection
//! hmac_secret = "…"   # signs and verifies messages, at least 32 bytes
//! hmac_secret_also = "…"  # optional, while secrets are rotated: verifies, never signs
//! url = "…"           # optional: where the broker is
//! senders = ["…=…"]   # optional: whose mail reaches the agent
//! ```

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use peerbus_core::mailbox::{NoRule, Senders};
use peerbus_wire::{Secret, Token, escape, hex};
use zeroize::Zeroizing;

use crate::url::Url;

/// More than any credentials file has.
const FILE_BYTES_MAX: u64 = 65_536;

/// What the file holds. `Debug` shows no secret.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// `token`: admits a connection.
    pub token: Token,
    /// `hmac_secret`: signs and verifies; accepts `hmac_secret_also`.
    pub secret: Secret,
    /// `url`, optional: where the broker is.
    pub url: Option<Url>,
    /// `senders`, optional: whose mail reaches the agent.
    pub senders: Option<Senders>,
}

/// Why there are no credentials to be had from a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// There is no such file.
    #[error(
        "no credentials at {}: `peerbus serve` makes them, unless it has PEERBUS_TOKENS; or set PEERBUS_TOKEN and \
         PEERBUS_HMAC_SECRET",
        .0.display()
    )]
    Missing(PathBuf),
    /// The file is there and cannot be used; the sentence says why and what to do.
    #[error("{0}")]
    Unusable(String),
}

/// Reads the file at `path`.
///
/// # Errors
///
/// When it is absent, readable by others, or not what it should be.
pub fn load(path: &Path) -> Result<Credentials, CredentialsError> {
    let unusable = |why: String| {
        CredentialsError::Unusable(format!("credentials file {} {why}", path.display()))
    };
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => CredentialsError::Missing(path.into()),
        _ => unusable(format!("cannot be read: {error}")),
    })?;
    let metadata = file
        .metadata()
        .map_err(|error| unusable(format!("cannot be read: {error}")))?;
    if !metadata.is_file() {
        return Err(unusable("is not a file".into()));
    }
    if let Some(mode) = peerbus_os::file::exposed_mode(&metadata) {
        return Err(unusable(format!(
            "can be read by others (mode {mode:04o}): run `chmod 600 {}`",
            path.display()
        )));
    }
    peerbus_os::dir::check_replacing(directory(path))
        .map_err(|error| unusable(format!("cannot be trusted: {error}")))?;
    let mut text = Zeroizing::new(String::new());
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| unusable(format!("cannot be read: {error}")))?;
    parse(&text).map_err(unusable)
}

/// Reads the file's text.
///
/// # Errors
///
/// What is wrong with it, to be read after the file's name, and nothing of what stands in it.
pub fn parse(text: &str) -> Result<Credentials, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        format!("is not TOML (line {line}): delete it, and `peerbus serve` makes a new one")
    })?;
    let member = |name: &str| match table.get(name) {
        None => Ok(None),
        Some(toml::Value::String(value)) => Ok(Some(value.as_str())),
        Some(_) => Err(format!(
            "has a `{name}` that is no string: put it in quotes"
        )),
    };
    let needed = |name: &str| {
        member(name)?
            .filter(|value| !value.is_empty())
            .ok_or_else(|| {
                format!("has no `{name}`: delete it, and `peerbus serve` makes a new one")
            })
    };
    let token = Token::parse(needed("token")?).ok_or("has a `token` of more than 512 bytes")?;
    let usable = |name: &str, text: &str| {
        Secret::new(text.as_bytes()).map_err(|error| format!("has an `{name}` that {error}"))
    };
    let mut secret = usable("hmac_secret", needed("hmac_secret")?)?;
    if let Some(also) = member("hmac_secret_also")? {
        secret = secret.accepting(&usable("hmac_secret_also", also)?);
    }
    let url = match member("url")? {
        Some(url) => Some(Url::parse(url).map_err(|error| format!("has a wrong `url`: {error}"))?),
        None => None,
    };
    let senders = table.get("senders").map(senders).transpose()?;
    Ok(Credentials {
        token,
        secret,
        url,
        senders,
    })
}

/// The rules in an array of texts.
fn senders(value: &toml::Value) -> Result<Senders, String> {
    let wrong = |found: &str| {
        format!(
            "has wrong `senders`: {found} is no rule; write senders = [\"alice=allow\", \
             \"ci-*=hold\", \"*=refuse\"] (allow, hold, refuse or drop)"
        )
    };
    let texts = value.as_array().ok_or_else(|| wrong("what is there"))?;
    let texts = texts
        .iter()
        .map(toml::Value::as_str)
        .collect::<Option<Vec<_>>>();
    let texts = texts.ok_or_else(|| wrong("what is there"))?;
    Senders::parse(texts).map_err(|NoRule(found)| wrong(&format!("\"{}\"", escape(&found, 80))))
}

/// Loads the file at `path`. When there is none, makes a token and an HMAC secret and writes them
/// to a new one, mode 0600, in a directory of mode 0700 that is made if need be. Says whether it
/// did. A file that another process makes at the same moment is not overwritten but loaded.
///
/// # Errors
///
/// When the file cannot be written, or one that is there cannot be used.
pub fn load_or_create(path: &Path) -> Result<(Credentials, bool), CredentialsError> {
    match load(path) {
        Err(CredentialsError::Missing(_)) => {}
        loaded => return Ok((loaded?, false)),
    }
    let created = create(path).map_err(|error| {
        let path = path.display();
        CredentialsError::Unusable(format!(
            "credentials file {path} cannot be written: {error}"
        ))
    })?;
    Ok((load(path)?, created))
}

/// Writes a whole file beside `path`, then links it there: nobody ever reads half of it, and an
/// existing one stays.
fn create(path: &Path) -> std::io::Result<bool> {
    let dir = directory(path);
    peerbus_os::dir::create_private(dir)?;
    let beside = dir.join(format!(".credentials-{:016x}", rand::random::<u64>()));
    let text = Zeroizing::new(format!(
        "# Made by `peerbus serve`. Whoever has these can join the bus and sign for its peers.\n\
         token = \"{}\"\nhmac_secret = \"{}\"\n",
        *random_hex(),
        *random_hex()
    ));
    let mut file = peerbus_os::file::create_private(&beside)?;
    let linked = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&beside, path));
    fs::remove_file(&beside)?;
    match linked {
        Ok(()) => peerbus_os::dir::sync(dir).map(|()| true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Puts a new secret into the file at `path`, and keeps the one that was there as
/// `hmac_secret_also`. Everything else in it stays.
///
/// # Errors
///
/// When the file cannot be used or written, or a rotation is under way.
pub fn rotate(path: &Path) -> Result<(), CredentialsError> {
    edit(path, rotated)
}

/// Takes `hmac_secret_also` out of the file at `path`. Everything else in it stays.
///
/// # Errors
///
/// When the file cannot be used or written, or has none.
pub fn retire(path: &Path) -> Result<(), CredentialsError> {
    edit(path, retired)
}

/// The text of a credentials file with a new secret, as [`rotate`] writes it.
///
/// # Errors
///
/// What is against it, to be read after the file's name.
pub fn rotated(text: &str) -> Result<Zeroizing<String>, String> {
    if parse(text)?.secret.is_rotated() {
        return Err(
            "has an `hmac_secret_also`: end that rotation first, with `peerbus secret \
                    retire`"
                .into(),
        );
    }
    let fresh = random_hex();
    let mut edited = Zeroizing::new(String::with_capacity(text.len() + 256));
    for line in text.split_inclusive('\n') {
        if let Some(value) = value_of(line, "hmac_secret") {
            for part in ["hmac_secret = \"", &fresh, "\"\nhmac_secret_also =", value] {
                edited.push_str(part);
            }
        } else {
            edited.push_str(line);
        }
    }
    let edited = checked(text, edited)?;
    // What could not be ended is not begun.
    retired(&edited)?;
    Ok(edited)
}

/// The text of a credentials file without `hmac_secret_also`, as [`retire`] writes it.
///
/// # Errors
///
/// As for [`rotated`].
pub fn retired(text: &str) -> Result<Zeroizing<String>, String> {
    if !parse(text)?.secret.is_rotated() {
        return Err("has no `hmac_secret_also`: there is nothing to retire".into());
    }
    let keep = |line: &&str| value_of(line, "hmac_secret_also").is_none();
    let edited = text.split_inclusive('\n').filter(keep).collect();
    checked(text, Zeroizing::new(edited))
}

/// What follows `NAME =` where a line begins so.
fn value_of<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.trim_start().strip_prefix(name)?;
    rest.trim_start().strip_prefix('=')
}

/// The edited text, if it says what the old one did but for the secrets: a file may be laid out in
/// ways that are not looked for here.
fn checked(old: &str, edited: Zeroizing<String>) -> Result<Zeroizing<String>, String> {
    let old = parse(old)?;
    let done = parse(&edited).is_ok_and(|new| {
        let turned = new.secret.is_rotated() != old.secret.is_rotated();
        let same = new.token == old.token && new.url == old.url;
        turned && same && new.secret.accepts(&old.secret)
    });
    if done {
        return Ok(edited);
    }
    Err("is written in a way that is not changed here: give its members a line each".into())
}

/// Replaces the file in one step by what `change` makes of its text.
fn edit(
    path: &Path,
    change: fn(&str) -> Result<Zeroizing<String>, String>,
) -> Result<(), CredentialsError> {
    // As for everybody who uses it, it must be its owner's alone.
    load(path)?;
    let unusable = |why: String| {
        CredentialsError::Unusable(format!("credentials file {} {why}", path.display()))
    };
    let cannot = |error: std::io::Error| unusable(format!("cannot be written: {error}"));
    // A link to the file stays one.
    let file = fs::canonicalize(path).map_err(cannot)?;
    let text = Zeroizing::new(fs::read_to_string(&file).map_err(cannot)?);
    let edited = change(&text).map_err(unusable)?;
    peerbus_os::file::replace(&file, edited.as_bytes()).map_err(cannot)
}

fn directory(path: &Path) -> &Path {
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// 256 random bits as hex: a new token or secret.
#[must_use]
pub fn random_hex() -> Zeroizing<String> {
    Zeroizing::new(hex::encode(&rand::random::<[u8; 32]>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_once_private_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/credentials.toml");
        assert_eq!(
            load(&path).unwrap_err(),
            CredentialsError::Missing(path.clone())
        );
        let (first, created) = load_or_create(&path).unwrap();
        assert!(created && first.token.expose().len() == 64 && first.url.is_none());
        assert!(peerbus_os::file::exposed_mode(&fs::metadata(&path).unwrap()).is_none());
        let (second, created) = load_or_create(&path).unwrap();
        assert!(!created && second.token == first.token);
        assert!(!create(&path).unwrap(), "an existing file stays");
        assert_eq!(load(&path).unwrap().token, first.token);
        let left = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "nothing else is left behind");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_remedy() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials.toml");
        load_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("(mode 0640): run `chmod 600 "), "{error}");
    }

    #[test]
    fn a_file_that_others_can_replace_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials.toml");
        load_or_create(&path).unwrap();
        peerbus_os::file::set_mode(dir.path(), 0o777).unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("(mode 0777): run `chmod o-w "), "{error}");
        peerbus_os::file::set_mode(dir.path(), 0o1777).unwrap();
        load(&path).unwrap();
    }

    #[test]
    fn a_rotation_keeps_the_old_secret_and_all_else_until_it_is_retired() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept/credentials.toml");
        let link = dir.path().join("credentials.toml");
        load_or_create(&path).unwrap();
        let old = load(&path).unwrap().secret;
        let text = fs::read_to_string(&path).unwrap() + "url = \"ws://bus.example:1\" # mine\n";
        fs::write(&path, &text).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let error = retire(&link).unwrap_err().to_string();
        assert!(error.contains("has no `hmac_secret_also`"), "{error}");

        rotate(&link).unwrap();
        let found = load(&link).unwrap();
        assert!(found.secret.accepts(&old) && !old.accepts(&found.secret));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let error = rotate(&link).unwrap_err().to_string();
        assert!(error.contains("peerbus secret retire"), "{error}");

        retire(&link).unwrap();
        let found = load(&link).unwrap();
        assert!(!found.secret.accepts(&old) && !found.secret.is_rotated());
        let rest = |text: &str| -> Vec<String> {
            let other = |line: &&str| !line.starts_with("hmac_secret");
            text.lines().filter(other).map(str::to_owned).collect()
        };
        assert_eq!(rest(&fs::read_to_string(&path).unwrap()), rest(&text));
    }

    #[test]
    fn a_file_that_is_laid_out_otherwise_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials.toml");
        let secret = "s".repeat(32);
        drop(peerbus_os::file::create_private(&path).unwrap());
        for text in [
            format!("token = \"t\"\n\"hmac_secret\" = \"{secret}\"\n"),
            // Its end could not be taken out again.
            format!("token = \"t\"\nhmac_secret = \"\"\"\n{secret}\"\"\"\n"),
        ] {
            fs::write(&path, &text).unwrap();
            let error = rotate(&path).unwrap_err().to_string();
            assert!(error.contains("a line each"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn errors_name_the_member_and_show_no_secret() {
        let long = "s".repeat(32);
        for (text, says) in [
            (
                format!("token = \"hush\"\nhmac_secret = {long}"),
                "is not TOML (line 2)",
            ),
            (format!("hmac_secret = \"{long}\""), "has no `token`"),
            (
                format!("token = 5\nhmac_secret = \"{long}\""),
                "`token` that is no string",
            ),
            (
                "token = \"hush\"\nhmac_secret = \"hush\"".into(),
                "must be at least 32 bytes, got 4",
            ),
            (
                format!("token = \"hush\"\nhmac_secret = \"{long}\"\nhmac_secret_also = \"hush\""),
                "has an `hmac_secret_also` that must be at least 32 bytes, got 4",
            ),
            (
                format!("token = \"hush\"\nhmac_secret = \"{long}\"\nurl = \"ftp:\""),
                "has a wrong `url`: broker URL \"ftp:\"",
            ),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(says), "{error}");
            assert!(!error.contains("hush") && !error.contains(&long), "{error}");
        }
    }
}
