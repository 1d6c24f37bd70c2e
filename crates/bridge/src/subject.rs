//! Names in NATS: of subjects, the stream, its consumers.

/// The stream that keeps messages for a domain, in that domain's account; without accounts, for all.
pub const STREAM: &str = "PEERBUS";
/// The account of the key that sets up. Each domain's begins so, too.
pub const OPERATOR: &str = "PEERBUS";
/// Where that account reaches the JetStream of the others.
const API: &str = "peerbus.api";
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

/// The account of a domain.
#[must_use]
pub fn account(domain: &str) -> String {
    format!("{OPERATOR}-{domain}")
}

/// What stands before requests to the JetStream of a domain's account where [`OPERATOR`] makes them.
#[must_use]
pub fn api(domain: &str) -> String {
    format!("{API}.{domain}")
}

/// All that a stream keeps that all domains share.
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
pub fn sender<'s>(subject: &'s str, to: &str) -> Option<(SubjectKind, &'s str)> {
    let own = |kind: &str| subject.strip_prefix(kind)?.strip_prefix('.');
    let from = |rest: Option<&'s str>| rest?.strip_prefix(to)?.strip_prefix('.');
    if let Some(from) = from(own(MAIL)) {
        return Some((SubjectKind::Mail, from));
    }
    if let Some(from) = from(own(BACK)) {
        return Some((SubjectKind::Back, from));
    }
    own(HERE).map(|from| (SubjectKind::Here, from))
}

/// What came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectKind {
    /// A message of the stream.
    Mail,
    /// What a bridge tells another.
    Back,
    /// A domain says that it is there.
    Here,
}

/// Where it is asked what the stream keeps.
#[must_use]
pub fn stream_info() -> String {
    format!("$JS.API.STREAM.INFO.{STREAM}")
}

/// What the bridge of a domain may publish: its own messages, and of its account's JetStream what its
/// consumer needs. A server looks at the subjects only, and not at where answers are to go: these lead to
/// nobody else, because all that they reach is in that account.
#[must_use]
pub fn may_publish(domain: &str) -> Vec<String> {
    vec![
        mail("*", domain),
        back("*", domain),
        here(domain),
        format!("$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{domain}"),
        format!("$JS.API.CONSUMER.INFO.{STREAM}.{domain}"),
        stream_info(),
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
            Some((SubjectKind::Mail, "alpha".into()))
        );
        assert_eq!(
            is(&back("beta", "alpha")),
            Some((SubjectKind::Back, "alpha".into()))
        );
        assert_eq!(
            is(&here("alpha")),
            Some((SubjectKind::Here, "alpha".into()))
        );
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
