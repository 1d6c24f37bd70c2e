//! From a recipient and a body to a message.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peerbus_peer::session::Draft;
use peerbus_wire::{Address, GroupName, MessageId, PeerName, RefusalCode, utc};

use crate::error::SendError;
use crate::project::Project;

/// The source that each message of ours names; v1's word.
const SOURCE: &str = "peer-bus";

pub(crate) fn recipient(to: &str) -> Result<Address, SendError> {
    if to == "*" {
        let why = "\"*\" is everybody, not a peer: use broadcast for all, or name one peer";
        return Err(SendError::InvalidRecipient(why.into()));
    }
    if to.starts_with('#') {
        let (group, job) = match to.strip_suffix('!') {
            Some(group) => (group, "!"),
            None => (to, ""),
        };
        let named = project_named(group).map(|group| format!("{group}{job}"));
        return Address::group(named.as_deref().unwrap_or(to)).map_err(|error| {
            let shown = peerbus_wire::escape(to, 80);
            SendError::InvalidRecipient(format!("\"{shown}\" is no group: {error}"))
        });
    }
    PeerName::parse(to).map(Address::Peer).map_err(|error| {
        let shown = peerbus_wire::escape_name(to, 80);
        SendError::InvalidRecipient(format!("\"{shown}\" is no peer's name: {error}"))
    })
}

/// The group of a project whose name is spelt as its directory is, where no group can be called so:
/// that of this process's project, or what another one's comes nearest to.
pub(crate) fn project_named(name: &str) -> Option<GroupName> {
    let title = name.strip_prefix('#').unwrap_or(name);
    if GroupName::parse(title).is_ok() {
        return None;
    }
    let own = Project::here().filter(|here| here.title == title);
    let own = own.and_then(|here| Some(here.group(false)?.name));
    // Other characters are a slip more likely than a name.
    let foreign = |c: char| !c.is_ascii() && !c.is_control();
    let other = || GroupName::near(title).filter(|_| title.chars().any(foreign));
    own.or_else(other)
}

/// Makes a message of `from`, and checks what the broker would check.
pub(crate) fn draft(
    from: &PeerName,
    id: MessageId,
    to: Address,
    body: &str,
) -> Result<Draft, SendError> {
    if body.trim().is_empty() {
        let why = "the body is empty: pass a JSON value, such as a string in quotes";
        return Err(SendError::InvalidBody(why.into()));
    }
    let mut draft = Draft {
        id,
        to,
        ts: timestamp(),
        source: SOURCE.into(),
        body: body.into(),
    };
    draft.validate(from).map_err(|refusal| match refusal.code {
        RefusalCode::TooLarge => SendError::TooLarge(refusal.reason),
        _ => SendError::InvalidBody(refusal.reason),
    })?;
    Ok(draft)
}

/// A UUIDv7 as 32 lower-case hex digits: ids of one process sort by time.
pub(crate) fn new_id() -> MessageId {
    #[expect(clippy::expect_used, reason = "hex digits make a valid id")]
    MessageId::parse(&uuid::Uuid::now_v7().simple().to_string()).expect("hex")
}

pub(crate) fn timestamp() -> String {
    nanoseconds(wall())
}

fn wall() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// The wall clock: milliseconds since the Unix epoch.
#[must_use]
pub fn wall_ms() -> u64 {
    peerbus_os::clock::millis(wall())
}

/// A time since the Unix epoch as RFC 3339 in UTC with nanoseconds.
fn nanoseconds(since_epoch: Duration) -> String {
    let seconds = utc(since_epoch.as_secs());
    format!("{seconds}.{:09}Z", since_epoch.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (seconds, nanos, text) in [
            (0, 0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_399, 999_999_999, "2000-02-28T23:59:59.999999999Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.000000001Z"),
            (1_709_164_800, 0, "2024-02-29T00:00:00.000000000Z"),
            (1_763_769_600, 500, "2025-11-22T00:00:00.000000500Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000000000Z"),
        ] {
            assert_eq!(nanoseconds(Duration::new(seconds, nanos)), text);
        }
    }

    #[test]
    fn what_cannot_be_sent_is_said_before_it_is_queued() {
        let me = PeerName::parse("me").unwrap();
        let to = || recipient("bob").unwrap();
        let sentence = |body: &str| draft(&me, new_id(), to(), body).unwrap_err();
        assert!(matches!(sentence(" "), SendError::InvalidBody(_)));
        assert!(matches!(sentence("{"), SendError::InvalidBody(_)));
        let deep = "[".repeat(65) + &"]".repeat(65);
        assert!(sentence(&deep).to_string().contains("nests 65 deep"));
        let large = format!("\"{}\"", "x".repeat(1_048_576));
        assert!(matches!(sentence(&large), SendError::TooLarge(_)));
        for bad in ["*", "", "a b", "system", "*x"] {
            assert!(
                matches!(recipient(bad), Err(SendError::InvalidRecipient(_))),
                "{bad}"
            );
        }
        let draft = draft(&me, new_id(), to(), "{ \"a\": 1 }").unwrap();
        assert_eq!(draft.body, r#"{"a":1}"#);
        assert_eq!(
            (draft.id.as_str().len(), draft.source.as_str()),
            (32, "peer-bus")
        );
    }
}
