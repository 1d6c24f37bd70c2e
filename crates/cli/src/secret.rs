//! `peerbus secret`.

use std::path::PathBuf;

use peerbus_adapter::credentials;
use peerbus_adapter::paths::Paths;

use crate::args::Secret;
use crate::failure::Failure;
use crate::output;
use crate::told::for_people;

pub(crate) fn run(verb: Secret) -> Result<(), Failure> {
    for_people("change the secret")?;
    match verb {
        Secret::Rotate(verb) => {
            let file = file(verb.credentials)?;
            credentials::rotate(&file).map_err(Failure::config)?;
            let file = file.display();
            output::line(&format!(
                "{file} has a new secret. What was signed with the old one is accepted until \
                 `peerbus secret retire`."
            ))?;
        }
        Secret::Retire(verb) => {
            let file = file(verb.credentials)?;
            credentials::retire(&file).map_err(Failure::config)?;
            let file = file.display();
            output::line(&format!(
                "{file} has one secret. What was signed with the old one is rejected, unread."
            ))?;
        }
    }
    Ok(())
}

fn file(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    match given {
        Some(file) => Ok(file),
        None => Ok(Paths::find()?.credentials),
    }
}
