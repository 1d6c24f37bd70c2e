//! Variables and credentials.

use peerbus_adapter::{Config, CredentialsError, credentials};

use super::Context;
use super::report::Report;

/// Checks what is configured. Gives what to connect with, if that can be tried.
pub(super) fn check(context: &Context, report: &mut Report) -> Option<Config> {
    options(context, report);
    let env = |name: &str| match name {
        // It has a check of its own.
        "PEERBUS_NAME" => None,
        _ => std::env::var(name).ok(),
    };
    let mut config = match Config::resolve_with(&context.flags, env) {
        Ok(config) => config,
        Err(error) => {
            let remedy = "correct the variable or the flag that the sentence names";
            report.failed("settings", error.to_string(), remedy);
            return None;
        }
    };
    config.ephemeral = true;
    config.demand = context.demand.clone();
    keys(&config, report).then_some(config)
}

/// The variables that an adapter reads and this program does not.
fn options(context: &Context, report: &mut Report) {
    let wrong = (context.check_options)(&|name| std::env::var(name).ok());
    for says in &wrong {
        let remedy = "correct or unset that variable: with it an adapter does not start";
        report.failed("settings", says, remedy);
    }
    if wrong.is_empty() {
        report.ok("settings", "the PEERBUS_ variables here can be used");
    }
}

/// The token and the secret. `false`: there are none to try.
fn keys(config: &Config, report: &mut Report) -> bool {
    let file = config.credentials.display().to_string();
    let loaded = credentials::load(&config.credentials);
    let own = (&config.token, &config.secret);
    match (own, &loaded) {
        ((Some(_), Some(_)), Err(_)) => {
            report.ok("credentials", "token and secret are in the environment");
            true
        }
        (_, Ok(found)) => {
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
        (_, Err(CredentialsError::Missing(_))) if config.demand.starter().is_some() => {
            report.ok(
                "credentials",
                format!("there is no {file} yet: the first broker makes it"),
            );
            true
        }
        (_, Err(CredentialsError::Missing(_))) => {
            report.failed(
                "credentials",
                format!("there is no {file}"),
                "run `peerbus serve` once: it makes them, unless it has PEERBUS_TOKENS; or set PEERBUS_TOKEN and \
                 PEERBUS_HMAC_SECRET",
            );
            false
        }
        (_, Err(error)) => {
            let says = error.to_string();
            // Most sentences end with what to do.
            let parts = [": run ", ": correct ", ": put "].iter().find_map(|verb| {
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
