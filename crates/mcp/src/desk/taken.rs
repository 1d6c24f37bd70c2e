//! What is on its way to the agent in the result of a tool, or through a hook.

use std::sync::Arc;

use peerbus_adapter::How;
use peerbus_adapter::wake::{EntryId, Outcome, Parcel, ParcelId, Path, Priority};

use super::Desk;
use super::letter::Mail;
use super::state::{Content, HeldBack, State};
use crate::reply::Receipt;

/// Evidence of what the agent read in the result of a tool.
const TOOL_RESULT: &str = "tool_result";
/// The path of an answer that the agent waited for.
const ASK: &str = "ask";

/// Mail and notices that are on their way to the agent. Dropped before they are confirmed, they
/// go back to where they were.
pub(crate) struct Taken {
    desk: Desk,
    parts: Vec<Part>,
    /// It left: the agent may have been shown it.
    left: bool,
    confirmed: bool,
}

/// Things that went the same way.
enum Part {
    /// The agent asked for them.
    Read { parcel: ParcelId, items: Vec<Given> },
    /// They go along with something else.
    Along(ParcelId),
    /// What the governor held.
    Held(Vec<(EntryId, Given)>),
    /// The answer to a question.
    Answer(Given),
}

/// Something in the hands of a tool.
struct Given {
    content: Content,
    order: u64,
    repeat: bool,
    /// Why the governor held it.
    held: Option<String>,
}

/// A message that the agent asked for.
pub(crate) struct Read<'a> {
    pub(crate) mail: &'a Mail,
    /// It may have been shown before.
    pub(crate) repeat: bool,
    /// Why the governor held it.
    pub(crate) held: Option<&'a str>,
}

impl Taken {
    pub(super) fn new(desk: Desk) -> Self {
        Self {
            desk,
            parts: Vec::new(),
            left: false,
            confirmed: false,
        }
    }

    pub(super) fn answer(desk: Desk, mail: Arc<Mail>) -> Self {
        let given = Given {
            repeat: mail.inbound.again,
            content: Content::Message(mail),
            order: 0,
            held: None,
        };
        let mut taken = Self::new(desk);
        taken.parts.push(Part::Answer(given));
        taken
    }

    pub(super) fn along(desk: Desk, parcel: ParcelId) -> Self {
        let mut taken = Self::new(desk);
        taken.parts.push(Part::Along(parcel));
        taken
    }

    /// Adds what the agent asked for.
    pub(super) fn add_read(&mut self, state: &State, parcel: &Parcel) {
        let given = |item: &peerbus_adapter::wake::Item| {
            let waiting = state.waiting.get(&item.entry)?;
            Some(Given {
                content: waiting.content.clone(),
                order: waiting.order,
                repeat: item.repeat,
                held: None,
            })
        };
        let items = parcel.items.iter().filter_map(given).collect();
        let parcel = parcel.id;
        self.parts.push(Part::Read { parcel, items });
    }

    /// Adds what the governor held.
    pub(super) fn add_held(&mut self, held: Vec<(EntryId, HeldBack)>) {
        let given = |(id, held): (EntryId, HeldBack)| {
            let given = Given {
                repeat: held.again,
                content: Content::Message(held.mail),
                order: id.0,
                held: Some(held.reason),
            };
            (id, given)
        };
        let held = held.into_iter().map(given).collect();
        self.parts.push(Part::Held(held));
    }

    /// Takes over what another one holds.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.parts.append(&mut other.parts);
    }

    fn given(&self) -> impl Iterator<Item = &Given> {
        self.parts
            .iter()
            .flat_map(|part| -> Box<dyn Iterator<Item = &Given>> {
                match part {
                    Part::Read { items, .. } => Box::new(items.iter()),
                    Part::Along(_) => Box::new(std::iter::empty()),
                    Part::Held(held) => Box::new(held.iter().map(|(_, given)| given)),
                    Part::Answer(given) => Box::new(std::iter::once(given)),
                }
            })
    }

    /// The messages that were asked for, in order of arrival.
    pub(crate) fn messages(&self) -> impl Iterator<Item = Read<'_>> {
        let mut given: Vec<&Given> = self.given().collect();
        given.sort_by_key(|given| given.order);
        given.into_iter().filter_map(Given::read)
    }

    /// The notices that were asked for.
    pub(crate) fn notices(&self) -> impl Iterator<Item = &str> {
        self.given().filter_map(|given| match &given.content {
            Content::Notice { sentence, .. } => Some(&**sentence),
            Content::Message(_) => None,
        })
    }

    /// There is nothing in it that was asked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.given().next().is_none()
    }

    /// What is told of the answer that it goes with; nothing where nothing is in it.
    pub(crate) fn receipt(self) -> Option<Box<dyn Receipt>> {
        (!self.parts.is_empty()).then(|| Box::new(self) as Box<dyn Receipt>)
    }

    /// The client has it.
    fn confirm(&mut self) {
        self.confirmed = true;
        self.desk.clone().with(|state, now_ms| {
            for part in &self.parts {
                match part {
                    Part::Read { parcel, .. } => state.told(now_ms, *parcel, Outcome::Written),
                    Part::Along(_) => {}
                    Part::Held(held) => {
                        for (_, given) in held {
                            given.seen(state, Path::Inbox.as_str());
                        }
                    }
                    Part::Answer(given) => given.seen(state, ASK),
                }
            }
        });
    }

    /// The client threw it away after all: it goes back when this is dropped.
    fn reopen(&mut self) {
        if !std::mem::take(&mut self.confirmed) {
            return;
        }
        // What was settled is not in the ladder any more: it arrives again.
        self.desk.clone().with(|state, now_ms| {
            for part in std::mem::take(&mut self.parts) {
                match part {
                    Part::Read { items, .. } => {
                        for given in items {
                            given.arrive(state, now_ms, true);
                        }
                    }
                    Part::Along(parcel) => state.told(now_ms, parcel, Outcome::Doubtful),
                    Part::Held(held) => {
                        give_back(state, now_ms, Part::Held(held), true);
                    }
                    Part::Answer(given) => given.arrive(state, now_ms, true),
                }
            }
        });
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.confirmed || self.parts.is_empty() {
            return;
        }
        let parts = std::mem::take(&mut self.parts);
        self.desk.with(|state, now_ms| {
            for part in parts {
                give_back(state, now_ms, part, self.left);
            }
        });
    }
}

impl Receipt for Taken {
    fn flushed(&mut self) {
        self.left = true;
        // Nobody asked for what goes along, and nothing is claimed of it but that it left.
        self.desk.clone().with(|state, now_ms| {
            for part in &self.parts {
                if let Part::Along(parcel) = part {
                    state.told(now_ms, *parcel, Outcome::Written);
                }
            }
        });
    }

    fn taken(&mut self) {
        self.confirm();
    }

    fn cancelled(mut self: Box<Self>) {
        self.reopen();
    }
}

impl Given {
    fn read(&self) -> Option<Read<'_>> {
        match &self.content {
            Content::Message(mail) => Some(Read {
                mail,
                repeat: self.repeat,
                held: self.held.as_deref(),
            }),
            Content::Notice { .. } => None,
        }
    }

    fn seen(&self, state: &mut State, path: &str) {
        let Content::Message(mail) = &self.content else {
            return;
        };
        state.bus.ack(&mail.inbound.key, seen(path, TOOL_RESULT));
        state.recent.add(mail);
    }

    /// `again`: the agent may have been shown it.
    fn arrive(self, state: &mut State, now_ms: u64, again: bool) {
        let priority = match &self.content {
            Content::Message(mail) => super::priority(&mail.talk),
            Content::Notice { .. } => Priority::Quiet,
        };
        let order = (self.order > 0).then_some(self.order);
        state.arrive(now_ms, self.content, priority, order, again || self.repeat);
    }
}

/// How a message counts as seen.
pub(super) fn seen(path: &str, evidence: &str) -> How {
    How::Seen {
        path: path.into(),
        evidence: evidence.into(),
    }
}

/// `again`: the agent may have been shown it.
fn give_back(state: &mut State, now_ms: u64, part: Part, again: bool) {
    match part {
        Part::Read { parcel, .. } | Part::Along(parcel) => {
            if again {
                state.told(now_ms, parcel, Outcome::Doubtful);
            }
            state.told(now_ms, parcel, Outcome::Failed);
        }
        Part::Held(held) => {
            for (id, given) in held {
                if let (Content::Message(mail), Some(reason)) = (given.content, given.held) {
                    let held = HeldBack {
                        mail,
                        reason,
                        again: given.repeat || again,
                        listed: true,
                    };
                    state.held.insert(id, held);
                }
            }
        }
        Part::Answer(given) => given.arrive(state, now_ms, again),
    }
}

/// Text that something shows anyway. Dropped before it is confirmed, it was not shown.
pub struct Handed {
    desk: Desk,
    /// The showing.
    pub parcel: ParcelId,
    /// What to show; holds the mark of the showing.
    pub text: String,
    confirmed: bool,
}

impl Handed {
    pub(super) fn new(desk: Desk, parcel: ParcelId, text: String) -> Self {
        Self {
            desk,
            parcel,
            text,
            confirmed: false,
        }
    }

    /// It was shown, as far as its path can tell.
    pub fn confirm(mut self) {
        self.confirmed = true;
        self.desk.told(self.parcel, Outcome::Written);
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        if !self.confirmed {
            self.desk.told(self.parcel, Outcome::Failed);
        }
    }
}

impl std::fmt::Debug for Handed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handed")
            .field("parcel", &self.parcel)
            .finish_non_exhaustive()
    }
}
