//! Who may do what in NATS: an account with a key for each domain, and one that sets up their streams.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nkeys::KeyPair;
use peerbus_os::private::PrivateFile;
use peerbus_os::{dir, file};
use peerbus_wire::Domain;

use crate::subject;

/// The name of the key that makes the streams and their consumers. No domain has an underscore.
const SETUP: &str = "_setup";
const ACCOUNTS: &str = "accounts.conf";
/// All of the JetStream of an account.
const API: &str = "$JS.API.>";
/// Ending of the files that have keys.
const SEED: &str = "nk";
const SEED_FILE: PrivateFile<String> = PrivateFile {
    what: "key file",
    bytes_max: 256,
    readable: false,
    heading: "",
    instead: "",
    parse: |text| {
        let seed = text.trim();
        let why = "has no key of a user: take it away, and `peerbus bridge account` makes another in its \
                   place, and an accounts.conf that has that one";
        KeyPair::from_seed(seed).map_err(|_| why.to_owned())?;
        Ok(seed.to_owned())
    },
};

/// The files that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounts {
    /// The file for nats-server to include.
    pub accounts: PathBuf,
    /// The key that sets up the streams.
    pub setup: PathBuf,
    /// The key of each domain.
    pub domains: BTreeMap<String, PathBuf>,
}

/// Writes keys for `domains` into `dir`, and the accounts that bind each of them to its domain. Keys
/// that are there are kept, those of other domains, too.
///
/// # Errors
///
/// A sentence about the file that cannot be read or written, or is no key.
pub fn write(dir: &Path, domains: &[String]) -> Result<Accounts, String> {
    dir::ensure_private(dir).map_err(|error| says(dir, &error))?;
    let mut keys = known(dir)?;
    for name in domains.iter().map(String::as_str).chain([SETUP]) {
        if !keys.contains_key(name) {
            keys.insert(name.to_owned(), make(dir, name)?);
        }
    }
    let accounts = dir.join(ACCOUNTS);
    let text = config(&keys);
    file::replace(&accounts, text.as_bytes()).map_err(|error| says(&accounts, &error))?;
    let place = |name: &str| dir.join(name).with_extension(SEED);
    let own = keys.keys().filter(|name| *name != SETUP);
    Ok(Accounts {
        accounts,
        setup: place(SETUP),
        domains: own.map(|name| (name.clone(), place(name))).collect(),
    })
}

/// The key in a file.
///
/// # Errors
///
/// A sentence: it cannot be read, others can read it, or it is none.
pub fn seed(path: &Path) -> Result<String, String> {
    let seed = SEED_FILE.read(path)?;
    seed.ok_or_else(|| SEED_FILE.says(path, "is not there: correct the path"))
}

/// The public keys of those whose seeds are in the directory, by name.
fn known(dir: &Path) -> Result<BTreeMap<String, String>, String> {
    let mut keys = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(|error| says(dir, &error))? {
        let path = entry.map_err(|error| says(dir, &error))?.path();
        if path.extension().is_none_or(|ending| ending != SEED) {
            continue;
        }
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
            continue;
        };
        if name != SETUP && Domain::parse(name).is_none() {
            return Err(format!(
                "{} is no key of a domain, by its name: move it elsewhere",
                path.display()
            ));
        }
        let pair = KeyPair::from_seed(&seed(&path)?).map_err(|error| says(&path, &error))?;
        keys.insert(name.to_owned(), pair.public_key());
    }
    Ok(keys)
}

/// Makes a key, and gives its public half.
fn make(dir: &Path, name: &str) -> Result<String, String> {
    let pair = KeyPair::new_user();
    let path = dir.join(name).with_extension(SEED);
    let seed = pair.seed().map_err(|error| says(&path, &error))?;
    file::replace_private(&path, format!("{seed}\n").as_bytes())
        .map_err(|error| says(&path, &error))?;
    Ok(pair.public_key())
}

fn says(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}

/// What nats-server is told of them: an account for each domain, with its own mail. What others may do
/// there is to send theirs, each from its own account.
fn config(keys: &BTreeMap<String, String>) -> String {
    let domains: Vec<&str> = keys
        .keys()
        .map(String::as_str)
        .filter(|it| *it != SETUP)
        .collect();
    let mut accounts = String::new();
    for (name, key) in keys {
        accounts += &match name.as_str() {
            SETUP => operator(key, &domains),
            domain => account(domain, key, &domains),
        };
    }
    format!(
        "# Written by `peerbus bridge account`. Lay it beside the configuration of nats-server, have that say\n\
         #     include accounts.conf\n\
         # and start nats-server anew; in a cluster one server after the other. A reload is not enough for\n\
         # what is new in here.\n\
         # A message of peerbus may have more than the 1 MiB that NATS lets through by default.\n\
         max_payload: {}\n\naccounts {{\n{accounts}}}\n",
        crate::PAYLOAD_BYTES_MAX
    )
}

/// The account that makes what the others need.
fn operator(key: &str, domains: &[&str]) -> String {
    let import = |domain: &&str| {
        let (of, to) = (subject::account(domain), subject::api(domain));
        format!("{{ service: {{ account: \"{of}\", subject: \"{API}\" }}, to: \"{to}.>\" }}")
    };
    format!(
        "  # Makes the streams and their consumers.\n  \"{}\" {{\n    users: [ {{ nkey: {key} }} ]\n{}  }}\n",
        subject::OPERATOR,
        lines("imports", domains.iter().map(import)),
    )
}

fn account(domain: &str, key: &str, domains: &[&str]) -> String {
    let others = || domains.iter().filter(|other| **other != domain);
    let mut exports = vec![export("service", API, &[subject::OPERATOR.to_owned()])];
    let mut imports = Vec::new();
    let readers: Vec<_> = others().map(|other| subject::account(other)).collect();
    if !readers.is_empty() {
        exports.push(export("stream", &subject::here(domain), &readers));
    }
    for (other, of) in others().zip(&readers) {
        let only = std::slice::from_ref(of);
        exports.push(export("service", &subject::mail(domain, other), only));
        exports.push(export("stream", &subject::back(other, domain), only));
        imports.push(import("service", of, &subject::mail(other, domain)));
        imports.push(import("stream", of, &subject::back(domain, other)));
        imports.push(import("stream", of, &subject::here(other)));
    }
    format!(
        "  # The bridge of {domain}.\n  \"{}\" {{\n    jetstream: enabled\n    users: [ {{ nkey: {key}, permissions: \
         {{\n      publish: {{ allow: {} }}\n      subscribe: {{ allow: {} }}\n    }} }} ]\n{}{}  }}\n",
        subject::account(domain),
        list(&subject::may_publish(domain)),
        list(&subject::may_subscribe(domain)),
        lines("exports", exports),
        lines("imports", imports),
    )
}

fn export(kind: &str, subject: &str, accounts: &[String]) -> String {
    let accounts = list(accounts);
    format!("{{ {kind}: \"{subject}\", accounts: {accounts} }}")
}

fn import(kind: &str, account: &str, subject: &str) -> String {
    format!("{{ {kind}: {{ account: \"{account}\", subject: \"{subject}\" }} }}")
}

fn lines(name: &str, all: impl IntoIterator<Item = String>) -> String {
    let all: String = all.into_iter().map(|it| format!("      {it}\n")).collect();
    format!("    {name}: [\n{all}    ]\n")
}

fn list(subjects: &[String]) -> String {
    let quoted: Vec<_> = subjects.iter().map(|it| format!("\"{it}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_there_are_kept_and_those_of_new_domains_added() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("nats");
        let first = write(&dir, &["alpha".into()]).unwrap();
        let alpha = seed(&first.domains["alpha"]).unwrap();
        let second = write(&dir, &["beta".into()]).unwrap();
        assert_eq!(seed(&second.domains["alpha"]).unwrap(), alpha);
        let text = fs::read_to_string(&second.accounts).unwrap();
        for pair in [
            &second.domains["alpha"],
            &second.domains["beta"],
            &second.setup,
        ] {
            let public = KeyPair::from_seed(&seed(pair).unwrap())
                .unwrap()
                .public_key();
            assert_eq!(text.matches(&public).count(), 1, "{text}");
        }
        assert!(!text.contains(&alpha), "{text}");
    }

    #[test]
    fn a_key_that_others_can_read_and_what_is_none_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("alpha.nk");
        file::replace_private(&path, b"secret").unwrap();
        assert!(seed(&path).unwrap_err().contains("has no key of a user"));
        file::set_mode(&path, 0o644).unwrap();
        assert!(seed(&path).unwrap_err().contains("chmod 600"));
    }
}
