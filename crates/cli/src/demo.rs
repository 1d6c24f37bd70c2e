//! `peerbus demo`: three scripted peers at a broker that lives for a few seconds.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use peerbus_adapter::signals::Stop;
use peerbus_adapter::{
    Bus, BusConfig, Failure, Flags, How, Key, LinkEnd, LinkState, SessionEvent, Stage, connect,
    credentials, wall_ms,
};
use peerbus_broker::{BrokerOptions, start};
use peerbus_core::TokenHash;
use peerbus_view::{Trail, reached};
use peerbus_wire::{Conversation, MessageId};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::{client, output, status, tail};

/// So long a step stands alone, for whoever reads along.
const PACE: Duration = Duration::from_millis(350);
/// Everything that is waited for takes far less.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run() -> Result<(), Failure> {
    let runtime = client::runtime()?;
    runtime.block_on(async {
        // Before there is anything that could be left behind.
        let mut stop = Stop::catch()?;
        let place = Place::make().map_err(|error| {
            Failure::failed(format!("cannot make a directory for the demo: {error}"))
        })?;
        let shown = show(&place, &mut stop).await;
        let dir = place.0.display().to_string();
        place.remove().map_err(|error| {
            Failure::failed(format!("cannot remove {dir}: {error}; remove it yourself"))
        })?;
        output::say("The demo's broker and its files are gone.");
        shown
    })
}

/// The directory in which everything of the demo lies.
struct Place(PathBuf);

impl Place {
    fn make() -> io::Result<Self> {
        let random: u64 = rand::random();
        let dir = std::env::temp_dir().join(format!("peerbus-demo-{random:016x}"));
        DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(Self(dir))
    }

    fn remove(mut self) -> io::Result<()> {
        fs::remove_dir_all(std::mem::take(&mut self.0))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // What failed before is what is told.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

async fn show(place: &Place, stop: &mut Stop) -> Result<(), Failure> {
    let file = place.0.join("credentials.toml");
    let (keys, _) = credentials::load_or_create(&file).map_err(Failure::failed)?;
    let socket = place.0.join("peerbus.sock");
    let token = TokenHash::of(&keys.token);
    let mut options = BrokerOptions::new(place.0.join("peerbus.db"), vec![token]);
    options.listen = Vec::new();
    options.unix = Some(socket.clone());
    let broker = start(options).await.map_err(Failure::failed)?;
    output::wrapped(
        "A broker of its own, in a temporary directory, and three scripted peers: no agent is asked, \
         nothing of yours is touched. `peerbus tail --follow` shows the same of your bus.\n",
    )?;
    let secret = keys.secret;
    let looks_on = {
        let socket = socket.clone();
        std::thread::spawn(move || tail::live(&socket, secret))
    };
    let played = tokio::select! {
        played = play(&socket, &file) => played.map(Some),
        _ = stop.asked() => Ok(None),
    };
    broker.shutdown(PACE).await;
    // The stream has ended, and the thread with it.
    let seen = tokio::task::spawn_blocking(move || looks_on.join()).await;
    let Some(first) = played? else { return Ok(()) };
    if let Ok(Ok(seen)) = seen {
        seen?;
    }
    output::line("\nThe whole way of the first message:")?;
    status::show(&first)?;
    output::wrapped("\nNext: `peerbus install claude-code`, and start two sessions.")
}

struct Peer {
    bus: Bus,
    driver: JoinHandle<LinkEnd>,
}

impl Peer {
    async fn join(name: &str, socket: &Path, file: &Path) -> Result<Self, Failure> {
        let flags = Flags {
            url: Some(format!("unix:{}", socket.display())),
            name: Some(name.into()),
            credentials: Some(file.to_owned()),
            ca: None,
        };
        // Nothing of the user's environment is meant for this bus.
        let mut config = BusConfig::resolve_with(&flags, |_| None)?;
        config.sessions = None;
        let (bus, link) = connect(config);
        let driver = tokio::spawn(link.run());
        let mut state = bus.link();
        let online = state.wait_for(|state| matches!(state, LinkState::Online { .. }));
        let online = tokio::time::timeout(PATIENCE, online).await;
        online.map_err(late)?.map_err(Failure::failed)?;
        Ok(Self { bus, driver })
    }

    async fn leave(self) -> Result<(), Failure> {
        self.bus.close().await;
        drop(self.bus);
        self.driver.await.map(drop).map_err(Failure::failed)
    }

    async fn say(&self, to: &str, text: &str) -> Result<MessageId, Failure> {
        self.send(to, &json!(text).to_string()).await
    }

    async fn answer(&self, to: &str, asked: &MessageId, text: &str) -> Result<MessageId, Failure> {
        let talk = Conversation {
            reply_to: Some(asked.clone()),
            hops: 1,
            ..Conversation::default()
        };
        self.send(to, &talk.write(&json!(text).to_string())).await
    }

    async fn send(&self, to: &str, body: &str) -> Result<MessageId, Failure> {
        let sent = match to {
            "*" => self.bus.broadcast(body, PATIENCE).await,
            to => self.bus.send(to, body, PATIENCE).await,
        };
        MessageId::parse(&sent?.id).map_err(Failure::failed)
    }

    /// Goes the way of an agent's adapter with the next message: it wakes its agent, the text comes
    /// into the conversation, the model names it.
    async fn read(&self) -> Result<(), Failure> {
        let key = self.next().await?;
        let path = || "demo".to_owned();
        for stage in [
            Stage::Pushed { path: path() },
            Stage::Presented { path: path() },
        ] {
            tokio::time::sleep(PACE).await;
            self.bus.reached(&key, stage);
        }
        tokio::time::sleep(PACE).await;
        let evidence = "tool_call".into();
        self.bus.ack(
            &key,
            How::Seen {
                path: path(),
                evidence,
            },
        );
        Ok(())
    }

    async fn next(&self) -> Result<Key, Failure> {
        let message = async {
            loop {
                match self.bus.next().await {
                    Some(SessionEvent::Message(message)) => return Ok(message.key),
                    Some(_) => {}
                    None => return Err(Failure::failed("the bus was closed")),
                }
            }
        };
        tokio::time::timeout(PATIENCE, message)
            .await
            .map_err(late)?
    }

    /// How far a message is, once it is seen.
    async fn seen(&self, id: &MessageId) -> Result<Trail, Failure> {
        let settled = async {
            loop {
                let receipts = self.bus.statuses(&[id.to_string()], PATIENCE).await?;
                let mut each = reached(receipts.iter()).into_values();
                if each.all(|receipt| receipt.stage.is_final()) {
                    return Ok(Trail::new(id.as_str(), &receipts, wall_ms()));
                }
                tokio::time::sleep(PACE / 10).await;
            }
        };
        tokio::time::timeout(PATIENCE, settled)
            .await
            .map_err(late)?
    }
}

fn late(_: tokio::time::error::Elapsed) -> Failure {
    Failure::failed("the demo's broker did not go on: this machine is very busy, or it is a bug")
}

/// Plays the conversation. Gives the way of its first message.
async fn play(socket: &Path, file: &Path) -> Result<Trail, Failure> {
    // Somebody looks on by now.
    tokio::time::sleep(PACE).await;
    let join = |name| Peer::join(name, socket, file);
    let (alice, bob) = (join("alice").await?, join("bob").await?);
    join("carol").await?.leave().await?;
    tokio::time::sleep(PACE).await;

    part("alice asks, bob's agent is woken, and what shows that its model has read it is told:")?;
    let asked = alice.say("bob", "Are the tests green?").await?;
    bob.read().await?;
    let first = alice.seen(&asked).await?;
    let answer = bob.answer("alice", &asked, "All 412 pass.").await?;
    alice.read().await?;
    bob.seen(&answer).await?;
    tokio::time::sleep(PACE).await;

    part("carol is away. What is for her waits on the disk until she is back:")?;
    let review = alice.say("carol", "Please review fix/x.").await?;
    tokio::time::sleep(2 * PACE).await;
    let carol = join("carol").await?;
    carol.read().await?;
    alice.seen(&review).await?;
    tokio::time::sleep(PACE).await;

    part("carol tells everybody:")?;
    let told = carol.say("*", "fix/x is merged.").await?;
    let (one, other) = tokio::join!(alice.read(), bob.read());
    one.and(other)?;
    carol.seen(&told).await?;
    tokio::time::sleep(PACE).await;
    Ok(first)
}

fn part(text: &str) -> Result<(), Failure> {
    output::wrapped(&format!("\n{text}"))
}
