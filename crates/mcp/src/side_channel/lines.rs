//! Lines to and from a process or a client, one message each.

use peerbus_os::lines::BoundedLines;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

const LINE_BYTES_MAX: usize = 16 * 1_048_576;
/// Lines that may wait to be written, and to be looked at.
const WAITING_MAX: usize = 1_024;

/// Hands out lines until the end, or until one is too long.
pub(crate) fn read(from: impl AsyncRead + Unpin + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut from = BoundedLines::new(from, LINE_BYTES_MAX);
        while let Some(line) = from.whole().await {
            let text = String::from_utf8_lossy(line).trim().to_owned();
            if !text.is_empty() && sender.send(text).await.is_err() {
                return;
            }
        }
    });
    lines
}

/// Writes lines in order. The sender fails when nobody reads them.
pub(crate) fn write(mut to: impl AsyncWrite + Unpin + Send + 'static) -> mpsc::Sender<String> {
    let (sender, mut lines) = mpsc::channel::<String>(WAITING_MAX);
    tokio::spawn(async move {
        while let Some(mut line) = lines.recv().await {
            line.push('\n');
            if to.write_all(line.as_bytes()).await.is_err() || to.flush().await.is_err() {
                return;
            }
        }
    });
    sender
}
