//! `peerbus keygen`.

use peerbus_adapter::credentials::random_hex;

use crate::args::Keygen;
use crate::failure::Failure;
use crate::output;

/// Prints a new token and a new HMAC secret, 256 random bits each, as lines of an environment
/// file.
pub(crate) fn run(verb: Keygen) -> Result<(), Failure> {
    let (token, secret) = (&*random_hex(), &*random_hex());
    if verb.json {
        let keys = serde_json::json!({ "token": token, "hmac_secret": secret });
        output::line(&keys.to_string())?;
        return Ok(());
    }
    output::line(&format!(
        "PEERBUS_TOKEN={token}\nPEERBUS_HMAC_SECRET={secret}"
    ))?;
    Ok(())
}
