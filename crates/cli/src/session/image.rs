//! The images of `peerbus session inject`.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use peerbus_adapter::Failure;
use peerbus_node::prompt::{self, IMAGE_BYTES_MAX};
use peerbus_wire::escape;
use serde_json::{Value, json};

use super::LINE_CHARS;

/// A text, with these images behind it.
pub(super) fn prompt(text: String, images: &[PathBuf]) -> Result<Value, Failure> {
    if images.is_empty() {
        return Ok(text.into());
    }
    let text = Ok(json!({ "type": "text", "text": text }));
    let images = images.iter().map(|file| block(file));
    std::iter::once(text).chain(images).collect()
}

fn block(file: &Path) -> Result<Value, Failure> {
    let shown = escape(&file.display().to_string(), LINE_CHARS);
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|file| {
            file.take(IMAGE_BYTES_MAX as u64 + 1)
                .read_to_end(&mut bytes)
        })
        .map_err(|error| Failure::config(format!("cannot read {shown}: {error}")))?;
    if bytes.len() > IMAGE_BYTES_MAX {
        return Err(Failure::config(format!(
            "{shown} has more than {IMAGE_BYTES_MAX} bytes: make the image smaller"
        )));
    }
    prompt::block(&bytes).map_err(|why| Failure::config(format!("{shown} {why}")))
}
