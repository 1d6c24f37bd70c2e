//! Bytes as hex digits.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

/// Lower-case digits, two for each byte.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Reads exactly 64 digits of either case.
#[must_use]
pub fn decode(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let fits = text.len() == 2 * bytes.len();
    let read = |bytes: &mut [u8]| HEXLOWER_PERMISSIVE.decode_mut(text.as_bytes(), bytes);
    (fits && read(&mut bytes).is_ok()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let bytes: [u8; 32] = std::array::from_fn(|n| (n * 8) as u8);
        let text = encode(&bytes);
        assert_eq!(&text[..8], "00081018");
        assert_eq!(decode(&text), Some(bytes));
        assert_eq!(decode(&text.to_uppercase()), Some(bytes));
        for bad in ["", &text[1..], &text.replace('8', "g"), &"é".repeat(32)] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
