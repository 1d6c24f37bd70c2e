//! Which of two versions is older.

/// Whether a version, `1.2.3`, is older than another one. One that reads otherwise is not.
#[must_use]
pub fn is_older(version: &str, than: &str) -> bool {
    let numbers = |text: &str| -> Option<[u64; 3]> {
        let mut numbers = text.split('.').map(|number| number.parse().ok());
        let found = [numbers.next()??, numbers.next()??, numbers.next()??];
        numbers.next().is_none().then_some(found)
    };
    numbers(version)
        .zip(numbers(than))
        .is_some_and(|(version, than)| version < than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_older_version_is_older() {
        assert!(is_older("0.4.0", "0.4.1") && is_older("0.9.9", "0.10.0"));
        for (version, than) in [
            ("0.4.0", "0.4.0"),
            ("0.5.0", "0.4.9"),
            ("x", "0.4.0"),
            ("0.4", "0.5.0"),
        ] {
            assert!(!is_older(version, than), "{version} {than}");
        }
    }
}
