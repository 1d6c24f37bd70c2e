//! Mail that this process holds until the host takes it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use peerbus_adapter::{Bus, Event, FateToken, How, Inbound};

use crate::text;

/// Notices in an answer, and those that are kept although the broker does not keep them: of these
/// the oldest go first.
const NOTICES_MAX: usize = 64;

/// Mail in arrival order, unacked. Its size is bounded by the window: the broker sends no more
/// than that ahead of acks.
#[derive(Debug, Clone)]
pub(crate) struct Inbox {
    bus: Bus,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    mail: BTreeMap<u64, Inbound>,
    arrived: u64,
    notices: VecDeque<Notice>,
}

/// What became of a message of this session.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) sentence: String,
    /// The broker keeps it until it is told. There are only so many of these untold.
    token: Option<FateToken>,
}

impl Inbox {
    pub(crate) fn new(bus: Bus) -> Self {
        Self {
            bus,
            held: Arc::default(),
        }
    }

    /// Collects what the bus delivers until it is closed.
    pub(crate) async fn fill(&self) {
        while let Some(event) = self.bus.next().await {
            self.put(event);
        }
    }

    fn put(&self, event: Event) {
        let sentence = text::notice(&event);
        match (event, sentence) {
            (Event::Message(message), _) => self.with(|held| {
                held.arrived += 1;
                held.mail.insert(held.arrived, message);
            }),
            (Event::Fate { token, .. }, Some(sentence)) => self.note(Notice { sentence, token }),
            // It is no news: nothing is to be told.
            (Event::Fate { token, .. }, None) => {
                if let Some(token) = token {
                    self.bus.fate_told(token);
                }
            }
            (_, Some(sentence)) => {
                let token = None;
                self.note(Notice { sentence, token });
            }
            (_, None) => {}
        }
    }

    fn note(&self, notice: Notice) {
        self.with(|held| {
            held.notices.push_back(notice);
            let passing = |notice: &Notice| notice.token.is_none();
            let count = held.notices.iter().filter(|notice| passing(notice)).count();
            if count > NOTICES_MAX
                && let Some(oldest) = held.notices.iter().position(passing)
            {
                held.notices.remove(oldest);
            }
        });
    }

    /// Takes the oldest mail: at most `count` messages and about `bytes` of bodies, and one
    /// message whatever its size. With it go the oldest notices.
    pub(crate) fn take(&self, count: usize, bytes: usize) -> Taken {
        let mut taken = Taken {
            inbox: self.clone(),
            mail: BTreeMap::new(),
            notices: Vec::new(),
            confirmed: false,
        };
        self.with(|held| {
            let mut size = 0;
            while taken.mail.len() < count
                && let Some(next) = held.mail.first_entry()
            {
                size += next.get().body.len() + text::MESSAGE_OVERHEAD;
                if size > bytes && !taken.mail.is_empty() {
                    break;
                }
                let (arrival, message) = next.remove_entry();
                taken.mail.insert(arrival, message);
            }
            let notices = held.notices.len().min(NOTICES_MAX);
            taken.notices.extend(held.notices.drain(..notices));
        });
        taken
    }

    /// Messages and notices that wait here.
    pub(crate) fn waiting(&self) -> usize {
        self.with(|held| held.mail.len() + held.notices.len())
    }

    fn with<T>(&self, f: impl FnOnce(&mut Held) -> T) -> T {
        f(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Mail that is on its way to the host. Dropped before it is confirmed, it goes back to its
/// place in the inbox.
#[derive(Debug)]
pub(crate) struct Taken {
    inbox: Inbox,
    mail: BTreeMap<u64, Inbound>,
    notices: Vec<Notice>,
    confirmed: bool,
}

impl Taken {
    pub(crate) fn messages(&self) -> impl Iterator<Item = &Inbound> {
        self.mail.values()
    }

    /// There is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.mail.is_empty() && self.notices.is_empty()
    }

    pub(crate) fn notices(&self) -> impl Iterator<Item = &str> {
        self.notices.iter().map(|notice| notice.sentence.as_str())
    }

    /// The host has it: the messages are acked as seen, the notices are told.
    pub(crate) fn confirm(&mut self) {
        self.confirmed = true;
        for message in self.mail.values() {
            let how = How::Seen {
                path: "drain".into(),
                evidence: "tool_result".into(),
            };
            self.inbox.bus.ack(&message.key, how);
        }
        for token in self.notices.iter().filter_map(|notice| notice.token) {
            self.inbox.bus.fate_told(token);
        }
    }

    /// The host threw it away after all: it goes back when this is dropped.
    pub(crate) fn reopen(&mut self) {
        self.confirmed = false;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.confirmed {
            return;
        }
        let mail = std::mem::take(&mut self.mail);
        let notices = std::mem::take(&mut self.notices);
        self.inbox.with(|held| {
            held.mail.extend(mail);
            for notice in notices.into_iter().rev() {
                held.notices.push_front(notice);
            }
        });
    }
}
