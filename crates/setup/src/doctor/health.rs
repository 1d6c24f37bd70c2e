//! What the broker says of itself over HTTP.

use std::io::Result;
use std::time::Duration;

use peerbus_adapter::{TlsFiles, Url, reach};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(3);
/// More than any answer has.
const ANSWER_BYTES_MAX: u64 = 65_536;

/// The members of `GET /healthz`.
pub(super) async fn ask(url: &Url, tls: &TlsFiles) -> Option<Value> {
    let host = match url {
        Url::Tcp { host, .. } if host.contains(':') => format!("[{host}]"),
        Url::Tcp { host, .. } => host.clone(),
        Url::Unix(_) => "localhost".to_owned(),
    };
    let asked = async {
        let stream = reach(url, tls).await.ok()?;
        exchange(stream, &host).await.ok()
    };
    let answer = timeout(PATIENCE, asked).await.ok()??;
    let body = answer.split_once("\r\n\r\n")?.1;
    let (from, to) = (body.find('{')?, body.rfind('}')?);
    serde_json::from_str(body.get(from..=to)?).ok()
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, host: &str) -> Result<String> {
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    // What came before an end without a word counts.
    let _ended = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
