//! A WebSocket client that costs as little as one can: frames are written with a mask of zeros and
//! read without being copied.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::tls;

const READ_CHUNK: usize = 65_536;

/// Dials and upgrades.
pub(crate) async fn dial(address: SocketAddr) -> Result<(Reader, Writer)> {
    let (reader, writer) = connect(address).await?.into_split();
    upgrade(address, Box::new(reader), Box::new(writer)).await
}

/// Dials with TLS and upgrades.
pub(crate) async fn dial_tls(address: SocketAddr) -> Result<(Reader, Writer)> {
    let stream = tls::connect(connect(address).await?).await?;
    let (reader, writer) = tokio::io::split(stream);
    upgrade(address, Box::new(reader), Box::new(writer)).await
}

async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

async fn upgrade(
    address: SocketAddr,
    mut reader: ReadHalf,
    mut writer: WriteHalf,
) -> Result<(Reader, Writer)> {
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    writer.write_all(request.as_bytes()).await?;
    writer.flush().await?;
    let mut head = Vec::with_capacity(512);
    while !head.ends_with(b"\r\n\r\n") {
        let byte = reader
            .read_u8()
            .await
            .context("the broker hung up in the upgrade")?;
        head.push(byte);
    }
    if !head.starts_with(b"HTTP/1.1 101") {
        bail!("not upgraded: {}", String::from_utf8_lossy(&head));
    }
    Ok((
        Reader {
            stream: reader,
            buffer: Vec::new(),
            start: 0,
        },
        Writer {
            stream: writer,
            buffer: Vec::new(),
        },
    ))
}

/// The sending half.
pub(crate) struct Writer {
    stream: WriteHalf,
    buffer: Vec<u8>,
}

impl Writer {
    /// Adds a text frame to what the next flush sends.
    pub(crate) fn queue(&mut self, text: &[u8]) {
        self.frame(0x81, text);
    }

    /// Adds a pong.
    pub(crate) fn queue_pong(&mut self, payload: &[u8]) {
        self.frame(0x8a, payload);
    }

    fn frame(&mut self, first: u8, payload: &[u8]) {
        self.buffer.push(first);
        match payload.len() {
            n @ 0..=125 => self.buffer.push(0x80 | n as u8),
            n @ 126..=65_535 => {
                self.buffer.push(0x80 | 126);
                self.buffer.extend_from_slice(&(n as u16).to_be_bytes());
            }
            n => {
                self.buffer.push(0x80 | 127);
                self.buffer.extend_from_slice(&(n as u64).to_be_bytes());
            }
        }
        self.buffer.extend_from_slice(&[0; 4]);
        self.buffer.extend_from_slice(payload);
    }

    /// Bytes that wait for a flush.
    pub(crate) fn queued(&self) -> usize {
        self.buffer.len()
    }

    /// Sends what is queued.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.stream.write_all(&self.buffer).await?;
            self.stream.flush().await?;
            self.buffer.clear();
        }
        Ok(())
    }
}

/// What the broker sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Ping,
    Close,
    Other,
}

/// The receiving half.
pub(crate) struct Reader {
    stream: ReadHalf,
    buffer: Vec<u8>,
    start: usize,
}

impl Reader {
    /// The next frame's kind and payload.
    pub(crate) async fn next(&mut self) -> Result<(Kind, &[u8])> {
        let (kind, from, to) = loop {
            if let Some(found) = self.parse() {
                break found;
            }
            self.fill().await?;
        };
        self.start = to;
        Ok((kind, &self.buffer[from..to]))
    }

    /// Whether a whole frame is here already.
    pub(crate) fn has_next(&self) -> bool {
        self.parse().is_some()
    }

    async fn fill(&mut self) -> Result<()> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.reserve(READ_CHUNK);
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            bail!("the broker closed the connection");
        }
        Ok(())
    }

    fn parse(&self) -> Option<(Kind, usize, usize)> {
        let bytes = &self.buffer[self.start..];
        let (&first, &second) = (bytes.first()?, bytes.get(1)?);
        let (head, length) = match second & 0x7f {
            126 => (
                4,
                usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)),
            ),
            127 => (
                10,
                u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?) as usize,
            ),
            n => (2, usize::from(n)),
        };
        bytes.get(head + length - usize::from(head + length > 0))?;
        let kind = match first & 0x0f {
            1 => Kind::Text,
            8 => Kind::Close,
            9 => Kind::Ping,
            _ => Kind::Other,
        };
        let from = self.start + head;
        Some((kind, from, from + length))
    }
}
