//! Another name for a live session, or the end of its name.
//!
//! The broker's answer may be lost with its connection. A rename is then asked for again in the
//! registration, which says both names; a retirement is simply repeated.

use peerbus_wire::{ClientFrame, NameAnswer, NameKey, PeerName};

use super::types::{NameFailure, Overloaded, QueryFailure, QueryId, Reason, Reply};
use super::{Event, Phase, Session, Status};
use crate::Now;

/// What the host wants.
#[derive(Debug, Clone)]
enum Wish {
    Rename(PeerName),
    Retire(Option<PeerName>),
    /// This name ends and another one, which gets what there is of it, takes its place.
    Become(PeerName),
}

#[derive(Debug)]
struct Request {
    query: QueryId,
    wish: Wish,
    deadline_ms: u64,
    /// It is on this connection, or was on one that ended without an answer.
    sent: bool,
    /// The caller was told that nothing is known.
    told: bool,
}

/// The wish that is under way, if any.
#[derive(Debug, Default)]
pub(super) struct Naming {
    request: Option<Request>,
}

impl Naming {
    fn answer(&mut self, outcome: Result<(), NameFailure>) -> Option<Reply> {
        let request = self.request.take()?;
        let query = request.query;
        (!request.told).then_some(Reply::Named { query, outcome })
    }

    /// The name that was asked for on a connection that ended without an answer.
    pub(super) fn unanswered(&self) -> Option<&PeerName> {
        match &self.request {
            Some(Request {
                wish: Wish::Rename(name),
                sent: true,
                ..
            }) => Some(name),
            _ => None,
        }
    }

    pub(super) fn timeout(&self) -> Option<(u64, Reason)> {
        let request = self.request.as_ref().filter(|request| !request.told)?;
        Some((request.deadline_ms, Reason::QueryDeadline))
    }

    pub(super) fn expire(&mut self, now_ms: u64) -> Option<Reply> {
        let due = |request: &&mut Request| !request.told && request.deadline_ms <= now_ms;
        let request = self.request.as_mut().filter(due)?;
        request.told = true;
        let query = request.query;
        if !request.sent {
            self.request = None;
        }
        let outcome = Err(NameFailure::Query(QueryFailure::TimedOut));
        Some(Reply::Named { query, outcome })
    }

    pub(super) fn fail(&mut self, failure: QueryFailure) -> Option<Reply> {
        self.answer(Err(NameFailure::Query(failure)))
    }

    /// The frame that is to be sent now, if there is one.
    pub(super) fn next(&mut self) -> Option<ClientFrame> {
        let request = self.request.as_mut().filter(|request| !request.sent)?;
        request.sent = true;
        Some(match &request.wish {
            Wish::Rename(name) => ClientFrame::Rename {
                name: name.as_str().into(),
            },
            Wish::Retire(successor) => ClientFrame::Retire {
                successor: successor.as_ref().map(|name| name.as_str().into()),
            },
            Wish::Become(name) => ClientFrame::Retire {
                successor: Some(name.as_str().into()),
            },
        })
    }

    /// The name that is to take this one's place, if there is one.
    fn take_successor(&mut self) -> Option<PeerName> {
        let becomes = |request: &mut Request| matches!(request.wish, Wish::Become(_));
        match self.request.take_if(becomes)?.wish {
            Wish::Become(name) => Some(name),
            _ => None,
        }
    }

    /// The process goes by another name, of its own making.
    pub(super) fn disown(&mut self) {
        if let Some(request) = &mut self.request {
            request.sent = false;
        }
    }
}

impl Session {
    /// Asks the broker for another name: the queue goes with it, and mail to the present name
    /// still comes. Answered by [`Reply::Named`], at `deadline_ms` at the latest.
    ///
    /// # Errors
    ///
    /// When such a wish is under way already.
    pub fn request_rename(
        &mut self,
        name: PeerName,
        deadline_ms: u64,
    ) -> Result<QueryId, Overloaded> {
        self.request(Wish::Rename(name), deadline_ms)
    }

    /// Ends this name for good: what it has not acked goes to `successor`, or its senders are told
    /// that it expired. Answered by [`Reply::Named`], at `deadline_ms` at the latest; the session
    /// is closed when it is done.
    ///
    /// # Errors
    ///
    /// When such a wish is under way already.
    pub fn request_retirement(
        &mut self,
        successor: Option<PeerName>,
        deadline_ms: u64,
    ) -> Result<QueryId, Overloaded> {
        self.request(Wish::Retire(successor), deadline_ms)
    }

    /// Takes another name, which is known and may have a queue. The present one, which was made up
    /// and is given up, leads there from now on.
    pub fn succeed(&mut self, now: Now, name: PeerName) {
        if self.is_over() || name.key() == self.config.name.key() {
            return;
        }
        let asked = self.request(Wish::Become(name.clone()), u64::MAX);
        if asked.is_ok() && !matches!(self.phase, Phase::Online { ext: true, .. }) {
            self.naming.take_successor();
            self.start_as(now, name);
        }
    }

    /// Registers under this name, at once, after the broker turned the present one down; nothing
    /// otherwise.
    pub fn start_over_as(&mut self, now: Now, name: PeerName) {
        if !matches!(self.status, Status::Refused { .. }) {
            return;
        }
        self.start_as(now, name);
        self.config.generated = false;
        self.status = Status::Connecting {
            since_ms: now.mono_ms,
            last_error: None,
        };
        if let Phase::Waiting { until_ms } = &mut self.phase {
            *until_ms = now.mono_ms;
        }
    }

    /// Whether [`Session::succeed`] is under way: the present name is about to end.
    #[must_use]
    pub fn is_succeeding(&self) -> bool {
        let becomes = |request: &Request| matches!(request.wish, Wish::Become(_));
        self.naming.request.as_ref().is_some_and(becomes)
    }

    /// Registers anew under this name.
    fn start_as(&mut self, now: Now, name: PeerName) {
        let connected = matches!(self.phase, Phase::Registering { .. } | Phase::Online { .. });
        if connected {
            self.hang_up(now, format!("this session goes by {name}"));
        }
        self.take_name(name);
    }

    fn request(&mut self, wish: Wish, deadline_ms: u64) -> Result<QueryId, Overloaded> {
        if self.naming.request.is_some() {
            return Err(Overloaded {
                waiting: 1,
                bytes: 0,
            });
        }
        let query = self.queries.number();
        let becomes = matches!(wish, Wish::Become(_));
        self.naming.request = Some(Request {
            query,
            wish,
            deadline_ms,
            sent: false,
            // Nobody waits for that.
            told: becomes,
        });
        if self.is_over() {
            self.replies.extend(self.naming.fail(QueryFailure::Closed));
        } else if matches!(self.phase, Phase::Online { ext: false, .. }) && !becomes {
            let failure = QueryFailure::NotSupported;
            self.replies.extend(self.naming.fail(failure));
        }
        Ok(query)
    }

    /// The broker answered `rename`.
    pub(super) fn renamed(&mut self, answer: NameAnswer) {
        let outcome = match answer.refused {
            Some(why) => Err(NameFailure::Refused(why)),
            None => Ok(()),
        };
        if outcome.is_ok() {
            match PeerName::parse(&answer.name) {
                Ok(name) => self.adopt(name),
                Err(_) => self.counters.ignored += 1,
            }
        }
        self.replies.extend(self.naming.answer(outcome));
    }

    /// The broker answered `retire`.
    pub(super) fn retired(&mut self, now: Now, answer: NameAnswer) {
        // If it was refused the name is free to take all the same.
        if let Some(name) = self.naming.take_successor() {
            return self.start_as(now, name);
        }
        match answer.refused {
            Some(why) => {
                let outcome = Err(NameFailure::Refused(why));
                self.replies.extend(self.naming.answer(outcome));
            }
            None => {
                self.replies.extend(self.naming.answer(Ok(())));
                self.close();
            }
        }
    }

    /// The connection ended: what is to be done about the name all the same.
    pub(super) fn disconnected(&mut self) {
        if let Some(name) = self.naming.take_successor() {
            self.take_name(name);
        }
    }

    /// The broker registered this session under one of these names: the one of the registration,
    /// or the one that it says it was being renamed to.
    pub(super) fn registered_as(&mut self, names: &[String]) {
        let Some(wanted) = self.naming.unanswered().cloned() else {
            return self.naming.disown();
        };
        let is = |key: &NameKey| {
            let [only] = names else { return false };
            PeerName::parse(only).is_ok_and(|name| name.key() == *key)
        };
        if is(&wanted.key()) {
            self.adopt(wanted);
            self.replies.extend(self.naming.answer(Ok(())));
        } else if self.naming.request.as_ref().is_some_and(|r| r.told) {
            self.naming.request = None;
        } else {
            self.naming.disown();
        }
    }

    /// Goes by another name from now on, to which everything of the old one belongs.
    fn adopt(&mut self, name: PeerName) {
        self.config.name = name;
        self.config.generated = false;
        if let Phase::Online { ext, .. } = self.phase {
            self.status = Status::Online {
                name: self.config.name.clone(),
                ext,
            };
            let name = self.config.name.as_str().into();
            self.registered = Some(Event::Registered { name, ext });
        }
    }

    pub(super) fn expire_naming(&mut self, now: Now) {
        self.replies.extend(self.naming.expire(now.mono_ms));
    }
}
