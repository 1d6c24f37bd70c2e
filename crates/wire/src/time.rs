//! Times as text.

/// Seconds since the Unix epoch as `2026-01-31T23:59:59`, in UTC.
#[must_use]
pub fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Milliseconds since the Unix epoch as RFC 3339 in UTC, to the millisecond.
#[must_use]
pub fn rfc3339(since_epoch_ms: u64) -> String {
    let seconds = utc(since_epoch_ms / 1_000);
    format!("{seconds}.{:03}Z", since_epoch_ms % 1_000)
}

/// Milliseconds since the Unix epoch from what [`rfc3339`] wrote; `None` for anything else.
#[must_use]
pub fn from_rfc3339(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let day = days(number(0, 4)?, number(5, 7)?, number(8, 10)?)?;
    let seconds = 3_600 * number(11, 13)? + 60 * number(14, 16)? + number(17, 19)?;
    let ms = 1_000 * (86_400 * day + seconds) + number(20, 23)?;
    (rfc3339(ms) == text).then_some(ms)
}

/// The number of a day, counted from 1970-01-01, in the Gregorian calendar. `None` for one that does
/// not exist, or lies before that.
#[must_use]
pub fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    // As in `civil`: years begin in March.
    let from_march = (month + 9) % 12;
    let year_from_march = year.checked_sub(u64::from(month <= 2))?;
    let leaps = year_from_march / 4 - year_from_march / 100 + year_from_march / 400;
    let days = 365 * year_from_march + leaps + (153 * from_march + 2) / 5 + day;
    let days = days.checked_sub(719_469)?;
    (civil(days) == (year, month, day)).then_some(days)
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
            assert_eq!(super::days(year, month, day), Some(days));
        }
    }

    #[test]
    fn times_are_written_as_rfc_3339() {
        let text = "2025-11-22T00:00:00.042Z";
        assert_eq!(rfc3339(1_763_769_600_042), text);
        assert_eq!(from_rfc3339(text), Some(1_763_769_600_042));
        for other in [
            "",
            "2025-11-22",
            "2025-11-22T00:00:00Z",
            "2025-13-22T00:00:00.042Z",
            "é",
        ] {
            assert_eq!(from_rfc3339(other), None, "{other}");
        }
    }
}
