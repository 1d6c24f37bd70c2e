//! What those try who mean the gateway no good.

use std::io::Write as _;

use super::Gateway;
use crate::support::{Broker, Home, eventually};

#[test]
fn who_asks_and_reads_no_answer_keeps_nobody_out_for_long() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let gateway = Gateway::start(&home);
    let file = format!(
        "GET /page/style.css HTTP/1.1\r\nHost: {}\r\n\r\n",
        gateway.address
    );
    // As many as there are places for, each owed more than the system keeps for a connection.
    let files = file.repeat(1_500);
    let rude = |_| {
        let mut stream = gateway.connect();
        stream.set_nonblocking(true).expect("a socket");
        // It takes as much as it has room for.
        let _ = stream.write(files.as_bytes());
        stream
    };
    let all: Vec<_> = (0..512).map(rude).collect();
    eventually("another is served", || {
        let mut stream = gateway.connect();
        let head = format!("GET /healthz HTTP/1.0\r\nHost: {}\r\n\r\n", gateway.address);
        stream.write_all(head.as_bytes()).expect("it reads");
        super::refused::rest_of(stream)
            .starts_with("HTTP/1.0 200")
            .then_some(())
    });
    drop(all);
    broker.stop();
}
