//! Bytes as hex digits.

/// Lower-case digits, two for each byte.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text
}

/// Reads exactly 64 digits of either case.
#[must_use]
pub fn decode(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |i: usize| char::from(pair[i]).to_digit(16);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
    }
    Some(bytes)
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
