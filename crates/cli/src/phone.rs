//! `peerbus invite NAME --web`: a link to the dashboard, for the camera of a phone.

use std::io::IsTerminal as _;

use peerbus_adapter::{Failure, Url, project};
use peerbus_web::Gateway;
use peerbus_wire::TokenName;
use qrcodegen::{QrCode, QrCodeEcc};

use crate::here::for_people;
use crate::{client, output};

/// Where the gateway listens when nothing else is said.
const PORT: u16 = 47_822;
/// Modules of light around a code (ISO/IEC 18004, 5.3.8).
const QUIET: i32 = 4;
/// A terminal's own colours may be the reverse. They come again after it.
const BLACK_ON_WHITE: &str = "\u{1b}[30;107m";
const AS_BEFORE: &str = "\u{1b}[0m";

pub(crate) fn invite(name: &TokenName, given: Option<&str>) -> Result<(), Failure> {
    for_people("let a phone see the dashboard")?;
    let (host, port) = address(given)?;
    let found = client::runtime()?.block_on(Gateway::trusted_link(&host, port));
    let link = found.map_err(|why| {
        Failure::failed(format!(
            "a phone cannot open the dashboard at https://{host}:{port}: {why}. It needs a certificate for a \
             name by which the phone reaches this machine, of an authority that phones trust: `peerbus web \
             --listen 0.0.0.0:{port} --tls-cert FILE --tls-key FILE`, and --address NAME here"
        ))
    })?;
    if std::io::stdout().is_terminal() {
        let code = QrCode::encode_text(&link, QrCodeEcc::Low);
        let code = code.map_err(|error| Failure::failed(format!("no code for it: {error}")))?;
        for row in rows(&code) {
            output::line(&format!("{BLACK_ON_WHITE}{row}{AS_BEFORE}"))?;
        }
    }
    output::line(&link)?;
    output::say(&format!(
        "on {name}: the link opens the dashboard once, within ten minutes, for whoever has it, where {name} knows \
         the certificate's authority, as this machine does"
    ));
    Ok(())
}

/// Host and port of `HOST[:PORT]`, or else of this machine's own name.
fn address(given: Option<&str>) -> Result<(String, u16), Failure> {
    let place = given.map(str::to_owned).or_else(project::host);
    let place = place.ok_or_else(|| Failure::config("say --address HOST: it is not known"))?;
    let whole = match place.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => place,
        _ => format!("{place}:{PORT}"),
    };
    match Url::parse(&format!("wss://{whole}"))? {
        Url::Tcp {
            host, port, path, ..
        } if path == "/" => Ok((host, port)),
        _ => Err(Failure::config("--address: give HOST or HOST:PORT")),
    }
}

/// Two modules of a code in each character, one above the other.
fn rows(code: &QrCode) -> Vec<String> {
    let (from, to) = (-QUIET, code.size() + QUIET);
    let upper = (from..to).step_by(2);
    let row = |y| {
        let character = |x| match (code.get_module(x, y), code.get_module(x, y + 1)) {
            (true, true) => '█',
            (true, false) => '▀',
            (false, true) => '▄',
            (false, false) => ' ',
        };
        (from..to).map(character).collect()
    };
    upper.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_with_a_port_or_the_gateways() {
        let of = |text| address(Some(text)).ok();
        assert_eq!(of("desk.example"), Some(("desk.example".into(), PORT)));
        assert_eq!(of("desk.example:1"), Some(("desk.example".into(), 1)));
        assert_eq!(of("[::1]"), Some(("::1".into(), PORT)));
        assert_eq!(of("[::1]:1"), Some(("::1".into(), 1)));
        for wrong in ["", "a b", "desk/x", "desk:0", "desk#x", "x@desk"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
