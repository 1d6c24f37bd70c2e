//! The adapter's end: it answers hooks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use peerbus_adapter::mailbox::{Activity, Checkout, HOOK, Mailbox, Outcome};
use peerbus_adapter::paths::Paths;
use peerbus_os::process;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::line::{self, Ask, Event, Go, Occasion, Tell, Took};
use super::place::Place;
use super::rewake::Rewake;
use crate::session::SessionFacts;

/// Hooks that are served at a time. Others find nobody, and say nothing.
const HOOKS_MAX: usize = 32;
/// How long a hook may take for one of its lines, and how long to wait when no more connections
/// can be had.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the hook that ends a turn gives the one that starts with it to sit down.
const ARRIVAL: Duration = Duration::from_millis(300);

/// How long a session that starts may take to be on the bus. Its hook waits for less than a second.
const JOINS: Duration = Duration::from_millis(400);

/// Opens the socket for the hooks of the session whose process is `client`. Gives the wake path,
/// and the task that serves the hooks; when that is dropped, hooks that wait end, and the socket is
/// removed.
///
/// `told` hears what each event says about the session; false: it happened in another one. Without
/// `rewakes` no hook is kept waiting. Where there can be no socket, the path is never there.
pub(crate) fn start<F>(
    paths: &Paths,
    client: u32,
    rewakes: bool,
    mailbox: Mailbox,
    told: F,
) -> (Rewake, impl Future<Output = ()> + use<F>)
where
    F: Fn(SessionFacts) -> bool + Send + Sync + 'static,
{
    let rewake = Rewake::new(mailbox.clone());
    let server = Arc::new(HookServer {
        rewake: rewake.clone(),
        client,
        rewakes,
        mailbox,
        told: Box::new(told),
    });
    let bound = bind(paths, client).inspect_err(
        |error| tracing::warn!(%error, "hooks cannot reach this session: no socket for them"),
    );
    let serve = async move {
        let Ok((place, listener)) = bound else {
            return std::future::pending().await;
        };
        server.serve(listener).await;
        drop(place);
    };
    (rewake, serve)
}

fn bind(paths: &Paths, client: u32) -> io::Result<(Place, UnixListener)> {
    let (place, listener) = Place::bind(paths, client)?;
    listener.set_nonblocking(true)?;
    Ok((place, UnixListener::from_std(listener)?))
}

/// What answers hooks.
struct HookServer {
    mailbox: Mailbox,
    rewake: Rewake,
    client: u32,
    rewakes: bool,
    told: Box<dyn Fn(SessionFacts) -> bool + Send + Sync>,
}

/// What a hook is to show.
struct Answer {
    text: String,
    /// The part of it that counts as shown.
    checkout: Option<Checkout>,
}

impl HookServer {
    async fn serve(self: Arc<Self>, listener: UnixListener) {
        let mut hooks = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = hooks.join_next() => continue,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(PATIENCE).await;
                continue;
            };
            if !is_of(self.client, &stream) {
                tracing::debug!("a process outside the session asked as a hook");
            } else if hooks.len() < HOOKS_MAX {
                let server = Arc::clone(&self);
                hooks.spawn(async move { server.receive(stream).await });
            }
        }
    }

    /// Serves one hook. One that does not keep to the lines is not answered.
    async fn receive(&self, stream: UnixStream) {
        let mut hook = Hook(BufReader::new(stream));
        let Some(ask) = hook.hear::<Ask>().await else {
            return;
        };
        if ask.v != line::VERSION {
            return;
        }
        if !(self.told)(ask.on.facts()) {
            tracing::debug!("a hook of another session asked");
            return;
        }
        if ask.wait {
            if self.rewakes {
                self.wait(&mut hook).await;
            }
            return;
        }
        match self.answer(&ask.on).await {
            Some(answer) => {
                if hook.offer(answer.text).await
                    && let Some(mut checkout) = answer.checkout
                {
                    checkout.taken();
                }
            }
            None => {
                hook.say(&Tell::new(None)).await;
            }
        }
    }

    /// Keeps the hook until something is due, another waits in its place, or it is gone.
    async fn wait(&self, hook: &mut Hook) {
        let mut waiter = self.rewake.wait_here();
        let due = tokio::select! {
            due = waiter.due() => due,
            () = hook.gone() => None,
        };
        if let Some(due) = due {
            let outcome = if hook.offer(due.text).await {
                Outcome::Written
            } else {
                Outcome::Failed
            };
            // The session ends when nobody wants to know.
            let _ = due.outcome.send(outcome);
        }
    }

    /// What a hook is to show. A subagent works on something of its own while the session may be
    /// idle, and its words are no evidence of what the session has read: it gets nothing.
    async fn answer(&self, on: &Occasion) -> Option<Answer> {
        if on.in_subagent() {
            return None;
        }
        match on.event() {
            Event::Start => {
                if on.starts_idle() {
                    self.mailbox.activity(Activity::Idle);
                }
                Some(self.introduce().await)
            }
            Event::Prompt | Event::Tool => {
                self.mailbox.activity(Activity::Busy);
                if let Some(prompt) = on.prompt().filter(|_| on.event() == Event::Prompt) {
                    self.mailbox.prompted(prompt);
                }
                // What a bus tool answers has it already.
                if on.bus_tool() { None } else { self.unseen() }
            }
            Event::Stop => {
                let answer = if self.prevents_stop(on).await {
                    self.unseen()
                } else {
                    None
                };
                if answer.is_none() {
                    self.mailbox.activity(Activity::Idle);
                }
                answer
            }
            Event::Other => None,
        }
    }

    fn unseen(&self) -> Option<Answer> {
        let (push, checkout) = self.mailbox.along(&HOOK)?;
        Some(Answer {
            text: push.text(),
            checkout: Some(checkout),
        })
    }

    async fn introduce(&self) -> Answer {
        let mut text = match self.mailbox.joined(JOINS).await {
            Ok(name) => format!("On the message bus peerbus this session is {name}."),
            Err(why) => {
                format!("This session is not connected to the message bus peerbus: {why}")
            }
        };
        let (push, checkout) = self.mailbox.along(&HOOK).unzip();
        if let Some(push) = push {
            text.push('\n');
            text.push_str(&push.text());
        }
        Answer { text, checkout }
    }

    /// Whether the turn goes on for what nothing has shown yet. Not twice in a row; and not where a
    /// hook waits, which shows it once: what ends a turn this way is shown twice by the client.
    async fn prevents_stop(&self, on: &Occasion) -> bool {
        !on.prevented_before()
            && self.mailbox.has_unshown()
            && timeout(ARRIVAL, self.rewake.waits()).await.is_err()
            && self.mailbox.has_unshown()
    }
}

/// Whether a process of this user's is at the other end, and it is the client or stands below it,
/// as far as the system tells.
fn is_of(client: u32, stream: &UnixStream) -> bool {
    let Ok(peer) = stream.peer_cred() else {
        return false;
    };
    // On Linux, one whose parents cannot be told has ended, and left its connection to another.
    let below = |pid| process::descends(pid, client).unwrap_or(!cfg!(target_os = "linux"));
    let is_hook = |pid| u32::try_from(pid).is_ok_and(|pid| pid == client || below(pid));
    peer.uid() == peerbus_os::user::id() && peer.pid().is_none_or(is_hook)
}

/// The other end of a connection.
struct Hook(BufReader<UnixStream>);

impl Hook {
    /// The next line.
    async fn hear<T: DeserializeOwned>(&mut self) -> Option<T> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.0).take(line::ASK_MAX as u64);
        let read = timeout(PATIENCE, bounded.read_until(b'\n', &mut line)).await;
        read.ok()?.ok()?;
        serde_json::from_slice(&line).ok()
    }

    /// Whether it was written.
    async fn say(&mut self, what: &impl Serialize) -> bool {
        let Some(line) = line::write(what) else {
            return false;
        };
        let written = timeout(PATIENCE, self.0.get_mut().write_all(&line)).await;
        matches!(written, Ok(Ok(())))
    }

    /// Offers a text, and leaves it to the hook if that takes it.
    async fn offer(&mut self, text: String) -> bool {
        self.say(&Tell::new(Some(text))).await
            && self.hear::<Took>().await.is_some_and(|answer| answer.took)
            && self.say(&Go { go: true }).await
    }

    /// Waits until it is gone. It has nothing to say while it waits.
    async fn gone(&mut self) {
        let _ = self.0.fill_buf().await;
    }
}
