//! Variables and credentials.

use std::path::Path;

use peerbus_adapter::{BusConfig, ConfigError, CredentialsError, Flags, Naming, credentials};

use super::Context;
use super::report::Report;

/// Checks what is configured. Gives what to connect with, if that can be tried.
pub(super) fn check(context: &Context, report: &mut Report) -> Option<BusConfig> {
    let options = (context.check_options)(&variable);
    for says in &options {
        let remedy = "correct or unset that variable: what reads it does not start";
        report.failed("settings", says, remedy);
    }
    let wrong_name = naming().and_then(Result::err);
    if let Some(error) = &wrong_name {
        let remedy = "give PEERBUS_NAME another value, or unset it for a generated name";
        report.failed("name", error.to_string(), remedy);
    }
    let env = |name: &str| variable(name).filter(|_| name != "PEERBUS_NAME");
    let resolved = BusConfig::resolve_with(&context.flags, env);
    if options.is_empty() && wrong_name.is_none() && resolved.is_ok() {
        report.ok(
            "settings",
            "the PEERBUS_ variables of sessions here can be used",
        );
    }
    let mut config = match resolved {
        Ok(config) => config,
        Err(error) => {
            unresolved(context, &error, report);
            return None;
        }
    };
    config.ephemeral = true;
    config.demand = context.demand.clone();
    keys(&config, report).then_some(config)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What `PEERBUS_NAME` means, if it is set.
pub(super) fn naming() -> Option<Result<Naming, ConfigError>> {
    let given = variable("PEERBUS_NAME").filter(|name| !name.is_empty())?;
    let flags = Flags {
        name: Some(given),
        ..Flags::default()
    };
    let resolved = BusConfig::resolve_with(&flags, |_| None);
    Some(resolved.map(|config| config.naming))
}

/// Says what is wrong with the settings of the connection. Each variable is looked at for itself,
/// so that all faults are told.
fn unresolved(context: &Context, error: &ConfigError, report: &mut Report) {
    let own = [
        "PEERBUS_URL",
        "PEERBUS_TOKEN",
        "PEERBUS_HMAC_SECRET",
        "PEERBUS_FROM",
    ];
    // A secret may have another one beside it.
    let alone = |own: &str| {
        let env = |name: &str| variable(name).filter(|_| name.starts_with(own));
        let resolved = BusConfig::resolve_with(&context.flags, env);
        resolved.err().map(|error| error.to_string())
    };
    let mut wrong: Vec<_> = own.into_iter().filter_map(alone).collect();
    wrong.dedup();
    if wrong.is_empty() {
        wrong.push(error.to_string());
    }
    for says in wrong {
        let remedy = "correct the variable or the flag that the sentence names";
        report.failed("settings", says, remedy);
    }
}

/// The token and the secret. `false`: there are none to try.
fn keys(config: &BusConfig, report: &mut Report) -> bool {
    let file = config.credentials.display().to_string();
    let loaded = credentials::load(&config.credentials);
    let own = (&config.token, &config.secret);
    match (own, &loaded) {
        ((Some(_), Some(_)), Err(_)) => {
            report.ok("credentials", "token and secret are in the environment");
            true
        }
        (_, Ok(found)) => {
            if let Err(why) = config.check_place(found) {
                let (says, remedy) = why.rsplit_once("; ").unwrap_or((&why, "correct it"));
                report.failed("credentials", says, remedy);
                return false;
            }
            let ours = config.secret.as_ref();
            let says = match ours
                .map(|ours| (found.secret.accepts(ours), ours.accepts(&found.secret)))
            {
                Some((false, _)) => "whoever uses the file rejects what is sent with it, unread",
                Some((true, false)) => "what others send with the file's is rejected, unread",
                _ => "",
            };
            if !says.is_empty() {
                report.failed(
                    "credentials",
                    format!("PEERBUS_HMAC_SECRET is not the secret of {file}: {says}"),
                    "unset PEERBUS_HMAC_SECRET, or give every session the same one",
                );
            } else if found.secret.is_rotated() {
                report.ok(
                    "credentials",
                    format!(
                        "{file} can be used; `hmac_secret_also` is accepted until that line is removed"
                    ),
                );
            } else {
                report.ok("credentials", format!("{file} can be used"));
            }
            true
        }
        (_, Err(CredentialsError::Missing(path))) => missing(config, path, report),
        (_, Err(error)) => {
            let says = error.to_string();
            // Most sentences end with what to do.
            let verbs = [": run ", ": correct ", ": put ", ": make "];
            let parts = verbs.iter().find_map(|verb| {
                let at = says.rfind(verb)?;
                says.split_at_checked(at)
            });
            let other = "make it a file of your own that only you can read, or set PEERBUS_TOKEN and \
                         PEERBUS_HMAC_SECRET";
            let other = match says.contains("cannot be ") {
                true => other.to_owned(),
                false => format!("correct that in {file}; the rest of it can stay"),
            };
            let (why, remedy) = parts.unwrap_or((&says, &other));
            report.failed("credentials", why, remedy.trim_start_matches(": "));
            false
        }
    }
}

/// There is no credentials file. `false`: nothing is to be tried without one.
fn missing(config: &BusConfig, path: &Path, report: &mut Report) -> bool {
    if let Some((says, remedy)) = credentials::lost(path) {
        // A broker that is started to look on would make new ones.
        report.failed("credentials", says, remedy);
        return false;
    }
    let file = path.display();
    if config.demand.starter().is_some() {
        let says = format!("there is no {file} yet: the first broker makes it");
        report.ok("credentials", says);
        return true;
    }
    report.failed(
        "credentials",
        format!("there is no {file}"),
        "run `peerbus serve` once: it makes them, unless it has PEERBUS_TOKENS; or set \
         PEERBUS_TOKEN and PEERBUS_HMAC_SECRET",
    );
    false
}
