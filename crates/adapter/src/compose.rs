//! From a recipient and a body to a message.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peerbus_core::peer::Draft;
use peerbus_wire::{Address, MessageId, PeerName, RefusalCode};

use crate::error::SendError;

/// What every message of ours says of the program that sent it; v1's word.
const SOURCE: &str = "peer-bus";

/// Checks the recipient's name.
pub(crate) fn recipient(to: &str) -> Result<Address, SendError> {
    if to == "*" {
        let why = "\"*\" is everybody, not a peer: use broadcast for all, or name one peer";
        return Err(SendError::InvalidRecipient(why.into()));
    }
    PeerName::parse(to).map(Address::Peer).map_err(|error| {
        let shown: String = to.chars().take(80).flat_map(char::escape_debug).collect();
        SendError::InvalidRecipient(format!("\"{shown}\" is no peer's name: {error}"))
    })
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

fn timestamp() -> String {
    nanoseconds(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

/// Milliseconds since the Unix epoch as RFC 3339 in UTC, to the millisecond.
#[must_use]
pub fn rfc3339(since_epoch_ms: u64) -> String {
    let seconds = seconds(since_epoch_ms / 1_000);
    format!("{seconds}.{:03}Z", since_epoch_ms % 1_000)
}

/// A time since the Unix epoch as RFC 3339 in UTC with nanoseconds.
fn nanoseconds(since_epoch: Duration) -> String {
    let seconds = seconds(since_epoch.as_secs());
    format!("{seconds}.{:09}Z", since_epoch.subsec_nanos())
}

fn seconds(since_epoch: u64) -> String {
    let (days, second) = (since_epoch / 86_400, since_epoch % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day comes last, in eras of 400 years.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_PER_ERA: u64 = 146_097;
    let from_march_0000 = days + 719_468;
    let (era, day) = (
        from_march_0000 / DAYS_PER_ERA,
        from_march_0000 % DAYS_PER_ERA,
    );
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (400 * era + year + u64::from(month <= 2), month, day)
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
        assert_eq!(rfc3339(1_763_769_600_042), "2025-11-22T00:00:00.042Z");
    }

    #[test]
    fn every_day_of_nine_centuries_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 1..330_000 {
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let last = match month {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > last {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
            assert_eq!(civil(days), (year, month, day));
        }
    }

    #[test]
    fn what_cannot_be_sent_is_said_before_it_is_queued() {
        let me = PeerName::parse("me").unwrap();
        let to = || recipient("you").unwrap();
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
