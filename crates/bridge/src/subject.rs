//! Names in NATS: of subjects, the stream, its consumers.

/// The stream that carries messages.
pub const STREAM: &str = "PEERBUS";
/// The subjects of the stream, and of what bridges tell each other outside it.
const MAIL: &str = "peerbus.v1";
const BACK: &str = "peerbus.back";
const HERE: &str = "peerbus.here";

/// Where messages of `from` for `to` go.
#[must_use]
pub fn mail(to: &str, from: &str) -> String {
    format!("{MAIL}.{to}.{from}")
}

/// Where `from` tells `to` what became of messages.
#[must_use]
pub fn back(to: &str, from: &str) -> String {
    format!("{BACK}.{to}.{from}")
}

/// Where a domain says that it is there.
#[must_use]
pub fn here(domain: &str) -> String {
    format!("{HERE}.{domain}")
}

/// All that the stream keeps.
#[must_use]
pub fn all_mail() -> String {
    mail("*", "*")
}

/// Where answers to a domain's requests come.
#[must_use]
pub fn inbox(domain: &str) -> String {
    format!("_INBOX_{domain}")
}

/// Who sent something to a domain, by its subject.
///
/// The subject is the server's word, and a subscription is not: whoever asks a consumer for messages
/// chooses where they come.
#[must_use]
pub fn sender<'s>(subject: &'s str, to: &str) -> Option<(Kind, &'s str)> {
    let own = |kind: &str| subject.strip_prefix(kind)?.strip_prefix('.');
    let from = |rest: Option<&'s str>| rest?.strip_prefix(to)?.strip_prefix('.');
    if let Some(from) = from(own(MAIL)) {
        return Some((Kind::Mail, from));
    }
    if let Some(from) = from(own(BACK)) {
        return Some((Kind::Back, from));
    }
    own(HERE).map(|from| (Kind::Here, from))
}

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A message of the stream.
    Mail,
    /// What a bridge tells another.
    Back,
    /// A domain says that it is there.
    Here,
}

/// What the bridge of a domain may publish: its own messages, and of JetStream what its own consumer
/// needs.
#[must_use]
pub fn may_publish(domain: &str) -> Vec<String> {
    vec![
        mail("*", domain),
        back("*", domain),
        here(domain),
        format!("$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{domain}"),
        format!("$JS.API.CONSUMER.INFO.{STREAM}.{domain}"),
        format!("$JS.ACK.{STREAM}.{domain}.>"),
    ]
}

/// What it may subscribe to.
#[must_use]
pub fn may_subscribe(domain: &str) -> Vec<String> {
    vec![back(domain, "*"), here("*"), format!("{}.>", inbox(domain))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_read_from_the_subject_that_was_published_to() {
        let is =
            |subject: &str| sender(subject, "beta").map(|(kind, from)| (kind, from.to_owned()));
        assert_eq!(
            is(&mail("beta", "alpha")),
            Some((Kind::Mail, "alpha".into()))
        );
        assert_eq!(
            is(&back("beta", "alpha")),
            Some((Kind::Back, "alpha".into()))
        );
        assert_eq!(is(&here("alpha")), Some((Kind::Here, "alpha".into())));
        for other in [
            &mail("alpha", "alpha"),
            &back("betax", "alpha"),
            "peerbus.v1.beta",
            "x",
            "",
        ] {
            assert_eq!(is(other), None, "{other}");
        }
    }
}
