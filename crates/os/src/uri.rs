//! Paths and texts in URIs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What is written otherwise in a path or in the value of a query.
const OTHERS: AsciiSet = NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_');

/// Bytes as they can stand in the path or in a value of the query of a URI.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    percent_encode(bytes, &OTHERS).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_value_is_written_otherwise() {
        assert_eq!(encode(b"/a-b_c.d"), "/a-b_c.d");
        assert_eq!(
            encode("a b&c=#?%é:".as_bytes()),
            "a%20b%26c%3D%23%3F%25%C3%A9%3A"
        );
    }
}
