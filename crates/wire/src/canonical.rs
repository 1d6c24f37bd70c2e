//! The canonical form: the bytes that are signed.

use crate::envelope::{DecodeError, Envelope};

/// The eight signed members as bytes. String members may hold invalid UTF-8, which is written as
/// v1 writes it; `body` is raw JSON.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    /// `protocol_version`, `id`, `from`, `to`, `ts`, `source`, `kind`, in this order.
    pub strings: [&'a [u8]; 7],
    /// `body`; empty counts as `null`.
    pub body: &'a [u8],
}

/// The canonical form of `fields`.
///
/// # Errors
///
/// When the body is no JSON value or nests deeper than
/// [`crate::limits::DECODE_NESTING_MAX`].
pub fn canonical(fields: &Fields<'_>) -> Result<Vec<u8>, DecodeError> {
    unimplemented!("{fields:?}")
}

impl Envelope {
    /// The canonical form of the envelope. See [`canonical`].
    ///
    /// # Errors
    ///
    /// As for [`canonical`].
    pub fn canonical(&self) -> Result<Vec<u8>, DecodeError> {
        unimplemented!()
    }
}
