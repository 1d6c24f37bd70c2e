//! Our module in the client (`deploy/claude-code-plugin/hooks/peerbus.js`): what it tells, and what it is told.
//!
//! It speaks as hooks do, in events of its own: it posts them to the socket of the session, or has `peerbus hook`
//! do so. It is spoken to over a link that it keeps open, `peerbus hook link`. Both ends are the client or stand below
//! it, as all does that the agent runs: nothing that comes in so is more than what the agent itself could bring about.
//! So nobody is told the marks of what was shown. Who says that a request with a mark was answered has been shown the
//! text.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use peerbus_adapter::hooks::{Connection, HookConnection};
use peerbus_adapter::mailbox::{Activity, Evidence};
use peerbus_mcp::{desk_line, desk_rows, is_address, peer_lines, send_text};
use peerbus_wire::jsonrpc::{RpcError, RpcMessage, WRONG_PARAMS};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::occasion::Occasion;
use super::permission::sends_unasked;
use super::server::HookServer;
use crate::transcript::unanswered;

/// Of what the two ends say.
const VERSION: u64 = 1;
/// How long the link may take for a line.
const PATIENCE: Duration = Duration::from_secs(1);
/// So long after the module said that the model answered the transcript has it, too.
const WRITTEN: Duration = Duration::from_secs(5);

/// Mail that wakes the session is read so soon that nobody need be shown it.
const SETTLES: Duration = Duration::from_millis(500);

/// So many links are open at once: who opens one more ends the oldest, and takes no place of a hook's.
const LINKS_MAX: u64 = 4;

/// How long it may take to look for a name.
const LOOK_UP: Duration = Duration::from_millis(500);
/// The model is told so where the client would ask its user before the send tool runs.
const ASKS: &str = "not sent: that is a peer on the message bus, and this tool asks nobody before it reaches \
     one. Call the bus send tool (mcp__peerbus__bus_send) with the same `to`, and the message as `body`: that \
     asks your user";

/// How the module opens its link.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Attach {
    pub(super) version: u64,
}

impl HookServer {
    /// Tells the module what it has to know until the link is gone: whether there is something to look for, and
    /// that the turn is to end.
    pub(super) async fn link(&self, mut link: HookConnection, attach: &Attach) {
        if attach.version != VERSION {
            let why = "peerbus's module in Claude Code is of another version: run `peerbus install \
                       claude-code`, and start the session anew";
            tracing::warn!(version = attach.version, "{why}");
            link.answer::<()>(Err(RpcError::new(WRONG_PARAMS, why)))
                .await;
            return;
        }
        if !link.answer(Ok(json!({ "version": VERSION }))).await {
            return;
        }
        let Connection {
            mut lines,
            mut write,
            ..
        } = link.connection;
        let _linked = self.session.linked();
        let (nth, mut last) = newest(&self.links);
        let mut wishes = self.session.wishes();
        let (mut watches, mut ends) = (!self.mailbox.watched().is_empty(), false);
        let watch = |any: bool| RpcMessage::notification("attached/watch", &json!({ "any": any }));
        // The first line says that there is a link.
        let here = json!({ "socket": self.node.socket().display().to_string() });
        let here = RpcMessage::notification("attached/here", &here).line();
        let mut waits = self.mailbox.waits();
        let mut shown = desk_line(&self.mailbox);
        let mut texts = self.session.texts().subscribe();
        let mut settles = None;
        let mut text = here + &watch(watches).line() + &shows(shown.as_deref());
        loop {
            let written = timeout(PATIENCE, write.write_all(text.as_bytes())).await;
            if !matches!(written, Ok(Ok(()))) {
                return;
            }
            text = tokio::select! {
                // It has nothing to say.
                _ = lines.next() => return,
                _ = last.wait_for(|last| *last >= nth + LINKS_MAX) => return,
                () = self.mailbox.watching(!watches) => {
                    watches = !watches;
                    watch(watches).line()
                }
                Ok(now) = wishes.wait_for(|wish| *wish != ends) => {
                    ends = *now;
                    RpcMessage::notification("attached/interrupt", &json!({ "turn": ends })).line()
                }
                text = texts.recv() => match text {
                    Ok(text) => {
                        RpcMessage::notification("attached/text", &json!({ "text": text })).line()
                    }
                    // It was slow: what it missed goes another way when no proof comes.
                    Err(RecvError::Lagged(_)) => String::new(),
                    Err(RecvError::Closed) => return,
                },
                Ok(()) = waits.changed(), if settles.is_none() => {
                    settles = Some(Instant::now() + SETTLES);
                    String::new()
                }
                () = sleep_until(settles.unwrap_or_else(Instant::now)), if settles.is_some() => {
                    settles = None;
                    let before = std::mem::replace(&mut shown, desk_line(&self.mailbox));
                    match before == shown {
                        true => String::new(),
                        false => shows(shown.as_deref()),
                    }
                }
            };
        }
    }

    /// A turn begins or ends.
    pub(super) fn turn(&self, on: &Occasion) {
        match on.begins_turn() {
            Some(true) => {
                self.prompted.store(false, Ordering::Relaxed);
                self.does(Activity::Busy);
            }
            // The next prompt may be heard of before the end of the turn before it.
            Some(false) if !self.prompted.load(Ordering::Relaxed) => {
                // How its dialogs ended the transcript tells, a little later.
                self.session.turn_is_over();
                self.does(Activity::Idle);
            }
            Some(false) => {}
            None => {}
        }
    }

    /// A request goes to the model with marks of ours in it, or was answered.
    pub(super) fn step(&self, on: &Occasion) {
        let (marks, answered) = on.requested();
        let watched = self.mailbox.watched();
        let marks = marks.filter(|mark| watched.iter().any(|it| it == mark));
        let marks: Vec<_> = marks.map(str::to_owned).collect();
        for mark in &marks {
            self.mailbox.shows(&match answered {
                true => Evidence::Called(mark.clone()),
                false => Evidence::Requested(mark.clone()),
            });
        }
        if answered {
            self.compare(marks);
        }
    }

    /// The client does not show what was given to the module, marked so.
    pub(super) fn dropped(&self, on: &Occasion) {
        let (marks, _) = on.requested();
        for mark in marks {
            self.mailbox.shows(&Evidence::Unshown(mark.to_owned()));
        }
    }

    /// Sends what the model writes with the client's own tool, as ours does; only where that runs unasked, for the
    /// client has asked nobody. `None`: nobody here is meant.
    pub(super) async fn send(&self, on: &Occasion) -> Option<String> {
        let (to, text) = on.letter()?;
        let unasked =
            self.session.minds_rules() && self.session.settled_in().is_some_and(sends_unasked);
        let sent = match unasked {
            true => send_text(&self.mailbox, to, text).await?,
            false if is_address(to) || self.is_peer(to).await => Err(ASKS.to_owned()),
            false => return None,
        };
        let success = sent.is_ok();
        let (Ok(message) | Err(message)) = sent;
        Some(json!({ "success": success, "message": message }).to_string())
    }

    async fn is_peer(&self, name: &str) -> bool {
        let peers = self.mailbox.bus().peers(LOOK_UP).await;
        peers.is_ok_and(|all| {
            all.entries
                .iter()
                .any(|it| it.name.eq_ignore_ascii_case(name))
        })
    }

    /// The peers, for the client's own list.
    pub(super) async fn list(&self) -> String {
        json!({ "rows": peer_lines(self.mailbox.bus()).await }).to_string()
    }

    /// Rows for the person who asks what waits.
    pub(super) async fn desk(&self) -> String {
        json!({ "rows": desk_rows(&self.mailbox).await }).to_string()
    }

    /// Notes where the transcript does not say the same.
    fn compare(&self, marks: Vec<String>) {
        let Ok(turn) = Arc::clone(&self.compares).try_acquire_owned() else {
            return;
        };
        let session = self.session.clone();
        tokio::spawn(async move {
            sleep(WRITTEN).await;
            for mark in unanswered(&session, marks) {
                tracing::warn!(
                    mark,
                    "the module said that the model answered, and the transcript does not show it"
                );
            }
            drop(turn);
        });
    }
}

/// A line for the person while something waits.
fn shows(line: Option<&str>) -> String {
    RpcMessage::notification("attached/shows", &json!({ "line": line })).line()
}

/// The number of a link that opens now, and the number of the last one from then on.
fn newest(links: &watch::Sender<u64>) -> (u64, watch::Receiver<u64>) {
    let mut nth = 0;
    links.send_modify(|last| {
        *last += 1;
        nth = *last;
    });
    (nth, links.subscribe())
}
