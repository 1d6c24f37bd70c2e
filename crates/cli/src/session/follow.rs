//! What becomes of a text that was put into a session.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use peerbus_adapter::{Failure, How, Receipt, Stage, wall_ms};
use peerbus_node::index::LiveSession;
use peerbus_node::{NodeClient, NodeRefusal, SessionNow};
use peerbus_view::{Audience, PeerState, Trail, stage_of};
use peerbus_wire::{MessageId, escape};
use serde_json::{Value, json};

use super::event::lines;
use super::{CELL_CHARS, LINE_CHARS};
use crate::args::{Until, Wait};
use crate::{client, here, operator, output};

/// The last words of a turn may be written a moment after the session is idle.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What became of a text so far.
struct Followed {
    /// How far it is at the session.
    receipt: Receipt,
    /// It stands in the conversation.
    there: bool,
    /// The session does something, as far as its client tells.
    works: bool,
    /// The turn failed: why.
    failed: Option<String>,
    /// What the model said.
    words: Vec<String>,
    /// That the session waits for its user was said.
    told: bool,
    /// How, when it was said last.
    way: Option<String>,
}

impl Followed {
    fn new(session: &LiveSession, id: &str) -> Result<Self, Failure> {
        let id = MessageId::parse(id).map_err(Failure::failed)?;
        let mut receipt = Receipt::new(id, Stage::Delivered);
        receipt.to = Some(session.called().to_owned());
        receipt.at_ms = Some(wall_ms());
        Ok(Self {
            receipt,
            there: false,
            works: false,
            failed: None,
            words: Vec::new(),
            told: false,
            way: None,
        })
    }

    fn is_seen(&self) -> bool {
        matches!(self.receipt.stage, Stage::Acked(Some(How::Seen { .. })))
    }

    /// The model has seen the text, and the turn has ended: whichever was noticed first.
    fn is_over(&self) -> bool {
        self.there && self.is_seen() && !self.works
    }

    /// The turn has failed, and has ended.
    fn has_failed(&self) -> bool {
        self.failed.is_some() && !self.works
    }

    /// Takes what an event says of the text itself.
    fn reaches(&mut self, event: &Value) {
        let text = |member: &str| event[member].as_str().unwrap_or_default().to_owned();
        if let Some(stage) = stage_of(text) {
            self.receipt.stage = stage;
            self.receipt.at_ms = Some(wall_ms());
        }
    }

    /// Says once, while the session waits for its user, how that user lets it go on.
    fn waits(&mut self, session: &LiveSession) {
        if self.told || here::audience() == Audience::Peer {
            return;
        }
        let now = SessionNow::ask(session).ok();
        let now = now.filter(|now| now.state() == PeerState::Waits);
        if let Some(way) = now.and_then(|now| now.way_out()) {
            self.told = true;
            if self.way.as_ref() != Some(&way) {
                output::say(&format!("{} waits for you: {way}", super::called(session)));
                self.way = Some(way);
            }
        }
    }

    /// What the turn came to, with what its client does not say of it.
    fn result(&self, event: Option<&Value>, id: &str) -> Value {
        let mut result = event.cloned().unwrap_or_else(|| {
            let subtype = if self.failed.is_some() {
                "error"
            } else {
                "success"
            };
            let errors: Vec<_> = self.failed.iter().collect();
            json!({ "subtype": subtype, "is_error": self.failed.is_some(), "errors": errors })
        });
        for (name, value) in [
            ("type", json!("result")),
            ("id", json!(id)),
            ("result", json!(self.words.last())),
        ] {
            if result[name].is_null() {
                result[name] = value;
            }
        }
        result
    }

    /// Takes what an event says of the conversation. `tells`: what the model says is printed.
    fn hears(&mut self, event: &Value, id: &str, tells: bool) -> Result<(), Failure> {
        match event["type"].as_str().unwrap_or_default() {
            "message" => {
                let content = event["content"].as_str().unwrap_or_default();
                if event["role"] == "user" {
                    self.there |= content.contains(id);
                } else if self.there && event["error"] == true {
                    self.failed = Some(escape(content, LINE_CHARS));
                } else if self.there {
                    if tells {
                        output::line(&lines(content))?;
                    }
                    self.words.push(content.to_owned());
                }
            }
            "status" => {
                let status = &event["status"];
                self.works = status == "thinking" || status == "waiting_approval";
                self.told &= status == "waiting_approval";
            }
            _ => {}
        }
        Ok(())
    }

    /// That it was not seen, in the words of `peerbus send`.
    fn not_seen(&self) -> Failure {
        let receipts = std::slice::from_ref(&self.receipt);
        let peers = operator::known_peers().unwrap_or_default();
        let trail = Trail::among(self.receipt.id.as_str(), receipts, here::around(&peers));
        Failure::failed(format!("not seen: {}", trail.note))
    }

    /// What it comes to when nothing more is waited for.
    fn ends(self, limit: Option<f64>) -> Result<(), Failure> {
        if self.is_over() {
            return Ok(());
        }
        Err(match self.failed {
            Some(why) if !self.works => Failure::failed(format!("the turn failed: {why}")),
            _ if self.is_seen() => Failure::failed(format!(
                "it was seen, and its turn has not ended within {} s",
                limit.unwrap_or_default()
            )),
            _ => self.not_seen(),
        })
    }
}

/// Says so at once where nothing wakes a session, as far as the broker here knows.
pub(super) fn say_asleep(session: &LiveSession) {
    let Some((name, peers)) = session.name.as_ref().zip(operator::known_peers()) else {
        return;
    };
    let mut peers = peers.iter().filter(|peer| peer.online);
    let peer = peers.find(|peer| peer.name.eq_ignore_ascii_case(name));
    let Some(peer) = peer.map(here::about) else {
        return;
    };
    if let Some(asleep) = peer.asleep() {
        output::say(&format!("{asleep}; the text waits until then"));
    }
}

/// Waits for what a text leads to, which may be that nobody can see it any more.
pub(super) fn follow(
    client: &mut NodeClient,
    session: &LiveSession,
    id: &str,
    Wait { until, limit }: Wait,
    json: bool,
) -> Result<(), Failure> {
    let end = limit.map(|limit| Instant::now() + client::duration(limit));
    let mut so_far = Followed::new(session, id)?;
    so_far.waits(session);
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let settled = so_far.is_over() || so_far.has_failed();
        if left == Some(Duration::ZERO) && !settled {
            return so_far.ends(limit);
        }
        let patience = if settled { Some(LAST_WORDS) } else { left };
        client
            .set_patience(patience)
            .map_err(|error| super::refused(NodeRefusal::Lost(error)))?;
        let event = match client.event() {
            // Nothing more came in time.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if settled && until == Until::Result {
                    return tell(&so_far.result(None, id), json);
                }
                return so_far.ends(limit);
            }
            event => event.map_err(|error| super::refused(NodeRefusal::Lost(error)))?,
        };
        let Some(event) = event else {
            return Err(Failure::failed(match so_far.is_seen() {
                true => "the text was seen, and the session has ended before its turn did",
                false => "not seen: the session has ended",
            }));
        };
        if json && until != Until::Result {
            output::json(&event)?;
        }
        let is = |member: &str, text: &str| event[member] == text;
        if is("type", "bus") && is("id", id) {
            so_far.reaches(&event);
            if so_far.is_seen() && until == Until::Seen {
                if !json {
                    output::line(&format!("{}: seen", escape(id, CELL_CHARS)))?;
                }
                return Ok(());
            }
            if so_far.receipt.stage.is_final() && !so_far.is_seen() {
                return Err(so_far.not_seen());
            }
        }
        if is("type", "result") && so_far.there && until == Until::Result {
            return tell(&so_far.result(Some(&event), id), json);
        }
        so_far.hears(&event, id, until == Until::Answer && !json)?;
        if is("type", "approval_request") || is("status", "waiting_approval") {
            so_far.waits(session);
        }
    }
}

/// Prints what a turn came to. An error, where it failed.
fn tell(result: &Value, json: bool) -> Result<(), Failure> {
    if json {
        output::json(result)?;
    } else if let Some(text) = result["result"].as_str() {
        output::line(&lines(text))?;
    }
    if result["is_error"] != true {
        return Ok(());
    }
    let errors = result["errors"].as_array().into_iter().flatten();
    let errors: Vec<_> = errors.filter_map(Value::as_str).collect();
    let why = match errors.is_empty() {
        true => result["result"].as_str().unwrap_or_default().to_owned(),
        false => errors.join("; "),
    };
    let why = escape(&why, LINE_CHARS);
    let word = escape(result["subtype"].as_str().unwrap_or_default(), CELL_CHARS);
    Err(Failure::failed(format!("the turn failed: {word}: {why}")))
}
