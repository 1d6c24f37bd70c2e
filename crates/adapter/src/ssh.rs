//! A broker on another machine, over the user's own ssh: `ssh` runs `peerbus relay` there, whose stdin and stdout are
//! the connection. So nothing has to be kept open, and nothing listens here: a connection's `ssh` ends with it.

use std::io::{ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Pipe;
use std::process::Stdio;
use std::time::Duration;

use peerbus_wire::escape;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The words of the command that carries a connection.
pub(crate) const RELAY: &str = "relay";
/// How long it may take to log in, and to reach the broker there.
pub(crate) const LOGS_IN: Duration = Duration::from_secs(20);
/// How long `ssh` may take to end once nothing is read or written any more.
const ENDS: Duration = Duration::from_secs(5);
/// Most bytes that are taken of what is printed there.
const PRINTED_BYTES_MAX: u64 = 4_096;
/// Longest line of the other side that is repeated, in characters.
const SAID_CHARS: usize = 200;

/// It asks nothing of anybody, since nobody sits before a session, and does no more than to run one program: what the
/// user's configuration forwards and runs elsewhere is left out. A network that is gone is noticed.
const OPTIONS: [&str; 11] = [
    "-T",
    "-a",
    "-x",
    "-oBatchMode=yes",
    "-oClearAllForwardings=yes",
    "-oRemoteCommand=none",
    "-oPermitLocalCommand=no",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=15",
    "-oServerAliveCountMax=3",
    "--",
];

/// The line behind which peerbus speaks there: a login shell may greet before it.
const BEGINS: &str = "peerbus begins";
/// Most bytes of such a greeting.
const GREETING_BYTES_MAX: u64 = 64 * 1_024;

/// Every login shell reads this as one program with two words. The shell of a login without a terminal may not look
/// where peerbus is installed.
fn line(words: &str) -> String {
    let path = r#"PATH="$PATH:$HOME/.local/bin:$HOME/.cargo/bin"; export PATH"#;
    format!("exec sh -c '{path}; echo {BEGINS}; exec peerbus {words}'")
}

/// A running `ssh`, as far as it is not the stream.
pub(crate) struct Login<'t> {
    to: &'t str,
    child: Child,
    says: Pipe,
}

/// Has `ssh` run `peerbus` with these words at `to`, which are letters, digits, dots, hyphens and spaces. Gives what that
/// reads and writes, once it begins or is over.
pub(crate) async fn start<'t>(to: &'t str, words: &str) -> Result<(UnixStream, Login<'t>), String> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => "there is no `ssh` on the PATH".to_owned(),
        _ => format!("ssh cannot be started: {error}"),
    };
    let (ours, theirs) = Pipe::pair().map_err(failed)?;
    let (says, stderr) = Pipe::pair().map_err(failed)?;
    for end in [&ours, &says] {
        end.set_nonblocking(true).map_err(failed)?;
    }
    let stdin = OwnedFd::from(theirs.try_clone().map_err(failed)?);
    let child = Command::new("ssh")
        .args(OPTIONS)
        .args([to, &line(words)])
        .stdin(stdin)
        .stdout(OwnedFd::from(theirs))
        .stderr(Stdio::from(OwnedFd::from(stderr)))
        // Ctrl-C is for the command, which says goodbye.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let mut stream = UnixStream::from_std(ours).map_err(failed)?;
    // Its end says why it does not begin.
    let _begins = timeout(LOGS_IN, begun(&mut stream)).await;
    Ok((stream, Login { to, child, says }))
}

/// Reads up to where peerbus begins, and no byte of that.
async fn begun(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<()> {
    let begins = format!("{BEGINS}\n");
    let mut stream = stream.take(GREETING_BYTES_MAX);
    let mut greeting = Vec::new();
    while !greeting.ends_with(begins.as_bytes()) {
        greeting.push(stream.read_u8().await?);
    }
    Ok(())
}

/// Runs `peerbus` with these words at `to`, and gives the last line that it prints.
pub(crate) async fn run(to: &str, words: &str) -> Result<String, String> {
    let (mut stream, login) = start(to, words).await?;
    let mut printed = Vec::new();
    let read = async {
        stream.shutdown().await?;
        let mut stream = stream.take(PRINTED_BYTES_MAX);
        stream.read_to_end(&mut printed).await
    };
    // Its end says the rest.
    let _all = timeout(LOGS_IN, read).await;
    login.ended().await?;
    let printed = String::from_utf8_lossy(&printed);
    let last = printed.lines().last().unwrap_or_default();
    Ok(last.trim().to_owned())
}

impl Login<'_> {
    /// Waits for its end, now that the stream is gone.
    ///
    /// # Errors
    ///
    /// A sentence: it failed, here or there.
    pub(crate) async fn ended(mut self) -> Result<(), String> {
        let to = self.to;
        let Ok(Ok(status)) = timeout(ENDS, self.child.wait()).await else {
            // It ends by itself, too, when the network is back.
            let _gone = self.child.start_kill();
            return Err(format!("ssh {to} gives no answer"));
        };
        let mut said = Vec::new();
        // A program that ssh left behind may hold the other end open: what is there is all.
        let _would_wait = self.says.by_ref().take(64 * 1_024).read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said);
        // Of one that does not know these words the first line says so.
        let mut lines = said.lines().filter(|line| !line.trim().is_empty());
        let said = match status.code() {
            Some(2) => lines.next(),
            _ => lines.next_back(),
        };
        let said = escape(said.unwrap_or("nothing").trim(), SAID_CHARS);
        match status.code() {
            Some(0) => Ok(()),
            Some(127) => Err(format!(
                "there is no `peerbus` for the login {to}: install it there, into ~/.local/bin or onto its PATH"
            )),
            Some(255) => Err(format!(
                "ssh says \"{said}\": `ssh {to}` must work, and ask nothing"
            )),
            _ => Err(format!("peerbus there says \"{said}\"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_sides_shell_is_given_one_program() {
        let words = line("invite laptop --ssh");
        let inner = words.strip_prefix("exec sh -c '").unwrap();
        let inner = inner.strip_suffix('\'').unwrap();
        assert!(!inner.contains('\'') && inner.ends_with("; exec peerbus invite laptop --ssh"));
    }

    #[tokio::test]
    async fn a_greeting_of_the_other_sides_shell_is_passed_over() {
        for (printed, rest) in [
            (
                &b"peerbus begins\nHTTP/1.1 101"[..],
                Some(&b"HTTP/1.1 101"[..]),
            ),
            (
                b"Welcome!\r\n\x1b[1mpeerbus begins\nxpeerbus begins\n",
                Some(b"xpeerbus begins\n"),
            ),
            (b"Welcome!\n", None),
            (b"", None),
        ] {
            let mut stream = printed;
            let begins = begun(&mut stream).await.is_ok();
            assert_eq!(begins.then_some(stream), rest);
        }
        let mut endless = tokio::io::repeat(b'x');
        assert!(begun(&mut endless).await.is_err());
    }
}
