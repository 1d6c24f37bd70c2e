//! Requests that cross domains, as lists have them.

use serde_json::json;

use crate::support::bridge::{Bridge, token};
use crate::support::{Home, Raw};

use super::{PAIR, domain, share};

#[test]
fn a_request_between_domains_is_of_who_asks_and_of_who_is_asked() {
    let ((a, alpha), (b, beta)) = (domain("alpha"), domain("beta"));
    share(&a, "beta", PAIR);
    share(&b, "alpha", PAIR);
    let mut to_beta = Bridge::join(&alpha, &token(&a), "beta", "B1");
    let mut to_alpha = Bridge::join(&beta, &token(&b), "alpha", "A1");
    let _bob = Raw::register(&b, &beta, "bob");
    a.run(&["ask", "bob@beta", "ready?", "--name", "ann", "--detach"])
        .ok();
    let row = |home: &Home| {
        let shown = home.run(&["requests"]).ok();
        let row = shown.lines().nth(1).map(str::to_owned);
        row.unwrap_or(shown)
    };
    assert!(row(&a).contains("  bob@beta  "), "{}", row(&a));
    let (key, envelope) = to_beta.delivery();
    let open = envelope.strip_suffix('}').expect("an object");
    let taken = to_alpha.take(&format!(r#"{open},"within_ms":3600000}}"#));
    assert_eq!(taken["state"], "accepted", "{taken}");
    to_beta.says(&key, json!({ "state": "forwarded" }));
    let forwarded = row(&a);
    assert!(forwarded.contains("  bob@beta  "), "{forwarded}");
    assert!(!forwarded.contains("bridge@"), "{forwarded}");
    let there = row(&b);
    assert!(
        there.contains("ann@alpha") && !there.contains("bridge@"),
        "{there}"
    );
    alpha.stop();
    beta.stop();
}
