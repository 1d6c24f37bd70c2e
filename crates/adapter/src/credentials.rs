//! The credentials file: one TOML file, mode 0600, written by `peerbus serve` and read by every
//! adapter and CLI verb of the same user.
//!
//! ```toml
//! token = "…"         # admits a connection
//! hmac_secret = "…"   # signs and verifies messages, at least 32 bytes
//! hmac_secret_also = "…"  # optional, while secrets are rotated: verifies, never signs
//! url = "…"           # optional: where the broker is
//! senders = ["…=…"]   # optional: whose mail reaches the agent
//! domain = "…"        # optional: what the broker of this user is called among those of other machines
//! listen = "…"        # optional: where that broker listens with TLS for machines that were invited
//! history = "…"       # optional: how much that broker keeps of what was read, as `serve --history` takes it
//!
//! [domains.beta]      # optional: for what goes to that domain and what comes from there
//! hmac_secret = "…"   # in place of the one above; `hmac_secret_also` likewise
//! allow = ["alice@beta -> bob"]  # who there may write to whom here; without it, everybody
//! ```

mod joining;
mod pairing;
mod rotation;

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use peerbus_os::private::{self, PrivateFile};
use peerbus_peer::bridge::Allow;
use peerbus_peer::mailbox::Senders;
use peerbus_wire::{Domain, Secret, Token, escape, hex};
use zeroize::Zeroizing;

use crate::paths::Paths;
use crate::url::Url;

pub use joining::{check_joinable_file, joined, secret_text, set_listen};
pub use pairing::SenderAllowance;
pub use rotation::{check_rotatable, retire, retired, rotate, rotated};

const FILE: PrivateFile<Credentials> = PrivateFile {
    what: "credentials file",
    bytes_max: 65_536,
    readable: false,
    heading: "",
    instead: "; where that is refused or changes nothing, set PEERBUS_TOKEN and PEERBUS_HMAC_SECRET",
    parse,
};

/// What the file holds. `Debug` shows no secret.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// `token`: admits a connection.
    pub token: Token,
    /// `hmac_secret`: signs and verifies; accepts `hmac_secret_also`. Shares with other domains what
    /// stands in their tables.
    pub secret: Secret,
    /// `url`, optional: where the broker is.
    pub url: Option<Url>,
    /// `senders`, optional: whose mail reaches the agent.
    pub senders: Option<Senders>,
    /// `domain`, optional: that of the broker of this user.
    pub domain: Option<Domain>,
    /// `listen`, optional: where the broker of this user listens for machines that were invited.
    pub listen: Option<SocketAddr>,
    /// `history`, optional: how much the broker of this user keeps of what was read.
    pub history: Option<String>,
    /// `allow` in the tables of other domains: who there may write to whom here.
    pub allow: BTreeMap<Domain, Allow>,
}

/// Why there are no credentials to be had from a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// There is no such file.
    #[error("{}", missing(.0))]
    Missing(PathBuf),
    /// The file is there and cannot be used; the sentence says why and what to do.
    #[error("{0}")]
    Unusable(String),
}

/// What helps where there is no file and never was one.
const MAKE: &str = "`peerbus serve` makes them, unless it has PEERBUS_TOKENS; or set \
                    PEERBUS_TOKEN and PEERBUS_HMAC_SECRET";

fn missing(path: &Path) -> String {
    match lost(path) {
        Some((says, remedy)) => format!("{says}: {remedy}"),
        None => format!("no credentials at {}: {MAKE}", path.display()),
    }
}

/// Where a file that is not there seems to have been, or to be elsewhere: what shows that, and the
/// remedy.
#[must_use]
pub fn lost(path: &Path) -> Option<(String, String)> {
    let says = format!("no credentials at {}", path.display());
    let paths = Paths::find()
        .ok()
        .filter(|paths| paths.credentials == path)?;
    if let Some(other) = paths.other_credentials() {
        return Some((
            format!(
                "{says}, where XDG_CONFIG_HOME leads; there are some at {}",
                other.display()
            ),
            "set XDG_CONFIG_HOME as it was when those were made, or unset it".into(),
        ));
    }
    let database = paths.database;
    database.is_file().then(|| {
        (
            format!("{says}, and a broker has made {}", database.display()),
            format!(
                "if there were some, put that file back: the names and the mail that wait \
                 belong to it, and new ones reach neither; else {MAKE}"
            ),
        )
    })
}

/// Reads the file at `path`.
///
/// # Errors
///
/// When it is absent, readable by others, or not what it should be.
pub fn load(path: &Path) -> Result<Credentials, CredentialsError> {
    match FILE.read(path) {
        Ok(found) => found.ok_or_else(|| CredentialsError::Missing(path.into())),
        Err(why) => Err(CredentialsError::Unusable(why)),
    }
}

/// What to do about a file that is damaged.
const MEND: &str = "correct it, or put a copy of it back; the names and the mail that waits belong to \
                    the token and the secret in it, which a new file would not have";

/// Reads the file's text.
///
/// # Errors
///
/// What is wrong with it, to be read after the file's name, and nothing of what stands in it.
pub fn parse(text: &str) -> Result<Credentials, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = private::line(text, at);
        let before = text.get(..at).unwrap_or_default().rsplit('\n').next();
        let column = before.map_or(0, |before| before.chars().count()) + 1;
        format!("is not TOML (line {line}, column {column}): {MEND}")
    })?;
    let member = |name: &str| text_of(&table, name);
    let needed = |name: &str| {
        member(name)?
            .filter(|value| !value.is_empty())
            .ok_or_else(|| format!("has no `{name}`: {MEND}"))
    };
    let token = Token::parse(needed("token")?).ok_or("has a `token` of more than 512 bytes")?;
    needed("hmac_secret")?;
    let mut secret = secret(&table)?;
    let mut allow = BTreeMap::new();
    for (domain, table) in domains(&table)? {
        let of = |why: String| format!("{why}, in [domains.{domain}]");
        // A rule that is misspelt would let everybody in.
        let known = ["hmac_secret", "hmac_secret_also", "allow"];
        if let Some(odd) = table.keys().find(|name| !known.contains(&name.as_str())) {
            let odd = escape(odd, 40);
            return Err(of(format!(
                "has a `{odd}`, which is none of {}",
                known.join(", ")
            )));
        }
        let rules = table.get("allow").map(self::allow);
        // A table is for the secret, unless it has something else.
        if rules.is_none() || table.contains_key("hmac_secret") {
            let shared = self::secret(table).map_err(of)?;
            secret = secret.sharing(domain.clone(), shared);
        }
        if let Some(rules) = rules {
            allow.insert(domain.clone(), rules.map_err(of)?);
        }
    }
    let url = member("url")?.map(Url::parse).transpose();
    let url = url.map_err(|error| format!("has a wrong `url`: {error}"))?;
    let no_domain = |name| format!("has a wrong `domain`: {} {NO_DOMAIN}", escape(name, 40));
    let domain = member("domain")?.map(|name| Domain::parse(name).ok_or_else(|| no_domain(name)));
    let domain = domain.transpose()?;
    let senders = table.get("senders").map(senders).transpose()?;
    let history = member("history")?.map(str::to_owned);
    let listen = member("listen")?.map(str::parse).transpose();
    let listen = listen.map_err(|_| "has a wrong `listen`: write an IP:PORT in quotes")?;
    Ok(Credentials {
        token,
        secret,
        url,
        senders,
        domain,
        listen,
        history,
        allow,
    })
}

/// A text in a table.
fn text_of<'t>(table: &'t toml::Table, name: &str) -> Result<Option<&'t str>, String> {
    match table.get(name) {
        None => Ok(None),
        Some(toml::Value::String(value)) => Ok(Some(value)),
        Some(_) => Err(format!(
            "has a `{name}` that is no string: put it in quotes"
        )),
    }
}

/// The secret of a table, with the one that it accepts, too.
fn secret(table: &toml::Table) -> Result<Secret, String> {
    let one = |name: &str| {
        let secret = text_of(table, name)?.map(|text| Secret::new(text.as_bytes()));
        secret
            .transpose()
            .map_err(|error| format!("has an `{name}` that {error}"))
    };
    let secret = one("hmac_secret")?.ok_or("has no `hmac_secret`")?;
    Ok(match one("hmac_secret_also")? {
        Some(also) => secret.accepting(&also),
        None => secret,
    })
}

/// What is wrong with a text that stands where a domain should.
const NO_DOMAIN: &str =
    "names no domain: that is 1 to 16 of a-z 0-9 -, with a letter or a digit at both ends";

fn domains(table: &toml::Table) -> Result<Vec<(Domain, &toml::Table)>, String> {
    let Some(tables) = table.get("domains") else {
        return Ok(Vec::new());
    };
    let tables = tables
        .as_table()
        .ok_or("has a `domains` that is no table: write [domains.NAME]")?;
    let each = tables.iter().map(|(name, table)| {
        let shown = escape(name, 40);
        let domain = Domain::parse(name)
            .ok_or_else(|| format!("has [domains.{shown}], which {NO_DOMAIN}"))?;
        let table = table
            .as_table()
            .ok_or_else(|| format!("has a `domains.{shown}` that is no table"))?;
        Ok((domain, table))
    });
    each.collect()
}

fn allow(value: &toml::Value) -> Result<Allow, String> {
    let wrong = |found: &str| {
        format!(
            "has a wrong `allow`: {found} is no rule; write allow = [\"alice -> bob\", \"ci-* -> *\"], \
             sender -> recipient"
        )
    };
    rules(value, Allow::parse).map_err(|found| wrong(&found))
}

/// Reads an array of texts; otherwise what was found in its place, or among them.
fn rules<'t, T>(
    value: &'t toml::Value,
    parse: impl FnOnce(Vec<&'t str>) -> Result<T, &'t str>,
) -> Result<T, String> {
    let texts = value.as_array();
    let texts = texts.and_then(|texts| texts.iter().map(toml::Value::as_str).collect());
    parse(texts.ok_or("what is there")?).map_err(|found| format!("\"{}\"", escape(found, 80)))
}

fn senders(value: &toml::Value) -> Result<Senders, String> {
    let wrong = |found: &str| {
        format!(
            "has wrong `senders`: {found} is no rule; write senders = [\"alice=allow\", \
             \"ci-*=hold\", \"*=refuse\"] (allow, hold, refuse or drop)"
        )
    };
    rules(value, Senders::parse).map_err(|found| wrong(&found))
}

/// The secret that was given, or else that of the file at `path`, with those that the file shares
/// with other domains.
#[must_use]
pub fn secret_of(given: Option<Secret>, path: &Path) -> Option<Secret> {
    let found = load(path).ok().map(|found| found.secret);
    match (given, found) {
        (Some(given), Some(found)) => Some(given.sharing_as(&found)),
        (given, found) => given.or(found),
    }
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
            "credentials file {path} cannot be written: {error}: make its directory one that you \
             can write, or set HOME or XDG_CONFIG_HOME to another"
        ))
    })?;
    Ok((load(path)?, created))
}

/// Writes a whole file beside `path`, then links it there: nobody ever reads half of it, and an
/// existing one stays.
fn create(path: &Path) -> std::io::Result<bool> {
    let dir = peerbus_os::dir::above(path);
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
    fn a_table_of_another_domain_may_say_who_is_let_in_and_nothing_else() {
        let home = "s".repeat(32);
        let text = format!(
            "token = \"t\"\nhmac_secret = \"{home}\"\n[domains.beta]\nallow = [\"alice -> bob\"]\n\
             [domains.gamma]\nhmac_secret = \"{home}\""
        );
        let found = parse(&text).unwrap();
        let beta = Domain::parse("beta").unwrap();
        assert_eq!(found.allow.keys().collect::<Vec<_>>(), [&beta]);
        assert_eq!(found.secret.domains().count(), 1);
    }

    #[test]
    fn errors_name_the_member_and_show_no_secret() {
        let long = "s".repeat(32);
        for (text, says) in [
            (
                format!("token = \"hush\"\nhmac_secret = {long}"),
                "is not TOML (line 2, column 15): correct it",
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
        let shared = |rest: &str| format!("token = \"hush\"\nhmac_secret = \"{long}\"\n{rest}");
        for (rest, says) in [
            ("domains = 1", "has a `domains` that is no table"),
            ("[domains]\nbeta = 1", "a `domains.beta` that is no table"),
            (
                "[domains.Beta]",
                "has [domains.Beta], which names no domain",
            ),
            ("[domains.beta]", "has no `hmac_secret`, in [domains.beta]"),
            (
                "[domains.beta]\nallow = [\"a -> b\", \"b\"]",
                "has a wrong `allow`: \"b\" is no rule; write allow = [",
            ),
            (
                "[domains.beta]\nalow = []",
                "has a `alow`, which is none of hmac_secret, hmac_secret_also, allow, in [domains.beta]",
            ),
            (
                "[domains.beta]\nhmac_secret = \"hush\"",
                "has an `hmac_secret` that must be at least 32 bytes, got 4, in [domains.beta]",
            ),
        ] {
            let error = parse(&shared(rest)).unwrap_err();
            assert!(error.contains(says), "{error}");
            assert!(!error.contains("hush") && !error.contains(&long), "{error}");
        }
    }
}
