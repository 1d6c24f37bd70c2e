//! What the broker says of itself over HTTP.

use std::time::Duration;

use peerbus_adapter::demand::ask_over;
use peerbus_adapter::{TlsFiles, Url, reach};
use serde_json::Value;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(3);

/// The members of `GET /healthz`.
pub(super) async fn ask(url: &Url, tls: &TlsFiles) -> Option<Value> {
    let host = match url {
        Url::Tcp { host, .. } if host.contains(':') => format!("[{host}]"),
        Url::Tcp { host, .. } => host.clone(),
        Url::Unix(_) | Url::Ssh(_) => "localhost".to_owned(),
    };
    let asked = async {
        let stream = reach(url, tls).await.ok()?;
        ask_over(stream, &host, "GET", "/healthz").await.ok()
    };
    let (_, body) = timeout(PATIENCE, asked).await.ok()??;
    let (from, to) = (body.find('{')?, body.rfind('}')?);
    serde_json::from_str(body.get(from..=to)?).ok()
}
