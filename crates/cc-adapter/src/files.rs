//! Files that others write.

use std::io::Read as _;
use std::path::Path;

/// Reads a regular file of at most `max` bytes; anything else is none. Whoever may write there can
/// neither make us wait nor fill our memory.
pub(crate) fn read_small(path: &Path, max: u64) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > max {
        return None;
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(max).read_to_string(&mut text).ok()?;
    Some(text)
}
