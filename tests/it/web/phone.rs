//! `peerbus invite NAME --web`: a link for a phone, where the gateway's certificate is trusted.

use std::process::Command;

use peerbus_test_support::tls::{Authority, Valid};
use qrcodegen::{QrCode, QrCodeEcc};

use super::Gateway;
use crate::support::{Broker, Finished, Home, Mcp, python};

/// The modules of a code that is shown on a terminal, without the light around it.
fn modules(shown: &str) -> Vec<Vec<bool>> {
    let rows = shown.lines().filter_map(|line| {
        let row = line.strip_prefix("\u{1b}[30;107m")?;
        row.strip_suffix("\u{1b}[0m")
    });
    let mut all = Vec::new();
    for row in rows {
        let halves = |upper| row.chars().map(move |c| c == '█' || c == upper);
        all.push(halves('▀').collect::<Vec<_>>());
        all.push(halves('▄').collect());
    }
    let size = all.first().expect("a code").len() - 8;
    assert!(
        all.iter().take(4).flatten().all(|dark| !dark),
        "light around it"
    );
    let within = all.iter().skip(4).take(size);
    within.map(|row| row[4..4 + size].to_vec()).collect()
}

/// A gateway whose certificate an authority signed for `localhost`.
struct Page {
    home: Home,
    broker: Broker,
    authority: Authority,
    port: String,
    _gateway: Gateway,
}

impl Page {
    fn new() -> Self {
        let home = Home::new();
        let broker = Broker::start(&home);
        let authority = Authority::new(home.path(), "ca");
        let files = authority.sign("server", &["localhost"], Valid::Now);
        let [cert, key] = [files.cert, files.key].map(|it| it.display().to_string());
        let gateway = Gateway::start_with(&home, &["--tls-cert", &cert, "--tls-key", &key]);
        let port = gateway.address.rsplit(':').next().expect("a port");
        Self {
            port: port.to_owned(),
            home,
            broker,
            authority,
            _gateway: gateway,
        }
    }

    fn place(&self, host: &str) -> String {
        format!("{host}:{}", self.port)
    }

    /// On a machine that knows the authority.
    fn invite(&self, host: &str) -> Command {
        let args = ["invite", "phone", "--web", "--address", &self.place(host)];
        self.trusting(self.home.peerbus(&args))
    }

    fn trusting(&self, mut command: Command) -> Command {
        command.env("SSL_CERT_FILE", self.authority.file());
        command
    }

    /// The status with which a browser's request for a link is answered.
    fn opens(&self, link: &str) -> String {
        let curl = "--silent --output /dev/null --write-out %{http_code} --cacert";
        let mut command = self.home.command("curl");
        command.args(curl.split(' ')).arg(self.authority.file());
        let done = command.arg(link.trim()).output().expect("curl");
        String::from_utf8(done.stdout).expect("a number")
    }
}

#[test]
fn a_phone_is_shown_a_link_where_it_trusts_the_certificate_and_told_why_elsewhere() {
    let page = Page::new();
    let said = Finished::of(page.invite("localhost").env_remove("SSL_CERT_FILE")).fails(1);
    let way = "peerbus web --listen 0.0.0.0";
    assert!(
        said.contains("not signed by an authority") && said.contains(way),
        "{said}"
    );
    let said = Finished::of(&mut page.invite("127.0.0.1")).fails(1);
    let at = "a phone cannot open the dashboard at https://127.0.0.1:";
    assert!(said.contains(at), "{said}");

    let link = Finished::of(&mut page.invite("localhost")).ok();
    let begins = format!("https://{}/open/", page.place("localhost"));
    assert!(
        link.starts_with(&begins) && link.lines().count() == 1,
        "{link}"
    );
    assert_eq!(
        [page.opens(&link), page.opens(&link)],
        ["200", "403"],
        "once"
    );

    let mut agent = Mcp::start(&page.home, "generic", "bob", "some-bot");
    agent.call("bus.peers", serde_json::json!({}));
    let said = Finished::of(&mut page.invite("localhost")).fails(1);
    assert!(
        said.contains("an agent, or what it runs, may not"),
        "{said}"
    );
    page.broker.stop();
}

#[test]
fn on_a_terminal_there_is_a_code_of_the_link_for_a_camera() {
    let page = Page::new();
    let mut terminal = page.trusting(page.home.command("python3"));
    terminal.arg(python::script("it/terminal.py")).arg("80");
    terminal.arg(env!("CARGO_BIN_EXE_peerbus"));
    let shown = Finished::of(terminal.args(page.invite("localhost").get_args())).ok();
    let link = shown.lines().find(|line| line.starts_with("https://"));
    let link = link.expect(&shown);
    let code = QrCode::encode_text(link, QrCodeEcc::Low).expect("a code");
    let row = |y| (0..code.size()).map(move |x| (x, y));
    let rows = (0..code.size()).map(row);
    let drawn = rows.map(|row| row.map(|(x, y)| code.get_module(x, y)).collect::<Vec<_>>());
    assert!(modules(&shown) == drawn.collect::<Vec<_>>(), "{shown}");
    assert_eq!(page.opens(link), "200");
    page.broker.stop();
}

#[test]
fn without_a_gateway_the_way_to_one_is_named() {
    let home = Home::new();
    let said = home
        .run(&["invite", "phone", "--web", "--address", "localhost:1"])
        .fails(1);
    for part in [
        "https://localhost:1: ",
        "onnection refused",
        "--tls-cert FILE",
        "--address NAME",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
