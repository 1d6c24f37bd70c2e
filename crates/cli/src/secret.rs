//! `peerbus secret` and `peerbus token keygen`.

use peerbus_adapter::Failure;
use peerbus_adapter::credentials::{self, random_hex};
use peerbus_adapter::paths::Paths;

use crate::args::Secret;
use crate::here::for_people;
use crate::{operator, output};

pub(crate) fn run(verb: Secret) -> Result<(), Failure> {
    for_people("change the secret")?;
    let usual = || Ok::<_, Failure>(Paths::find()?.credentials);
    output::line(&match verb {
        Secret::Rotate(verb) => {
            let file = verb.credentials.map_or_else(usual, Ok)?;
            operator::check_own(&file, "peerbus secret rotate")?;
            credentials::rotate(&file).map_err(Failure::config)?;
            format!(
                "{} has a new secret. What was signed with the old one is accepted until \
                 `peerbus secret retire`.",
                file.display()
            )
        }
        Secret::Retire(verb) => {
            let file = verb.credentials.map_or_else(usual, Ok)?;
            credentials::retire(&file).map_err(Failure::config)?;
            format!(
                "{} has one secret. What was signed with the old one is rejected, unread.",
                file.display()
            )
        }
    })?;
    Ok(())
}

/// Prints a new token and a new HMAC secret, 256 random bits each, as lines of an environment
/// file.
pub(crate) fn generate(json: bool) -> Result<(), Failure> {
    let (token, secret) = (&*random_hex(), &*random_hex());
    if json {
        let keys = serde_json::json!({ "token": token, "hmac_secret": secret });
        return output::line(&keys.to_string());
    }
    output::line(&format!(
        "PEERBUS_TOKEN={token}\nPEERBUS_HMAC_SECRET={secret}"
    ))
}
