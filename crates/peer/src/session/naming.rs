//! Another name for a live session.
//!
//! A name is *asked for* when everything of the present one is to go along: the broker decides. Its
//! answer may be lost with its connection; it is then asked again in the registration, which says
//! both names. A session *goes by* a name of its own choosing where the present one is worth
//! nothing: nobody has it, or it was made up and has a successor, to which the broker is told to
//! lead it.

use peerbus_wire::{ClientFrame, NameAnswer, NameKey, PeerName};

use super::queries::Query;
use super::types::{Answer, Overloaded, QueryFailure, QueryId, Reply};
use super::{Action, PeerSession, Phase, Status};
use peerbus_core::Now;

/// A name that was asked for.
#[derive(Debug)]
struct Request {
    query: Query,
    name: PeerName,
    /// It is on this connection, or was on one that ended without an answer.
    sent: bool,
}

/// The name that takes the place of the present one.
#[derive(Debug)]
struct Successor {
    name: PeerName,
    sent: bool,
}

/// The change of name that is under way, if any.
#[derive(Debug, Default)]
pub(super) struct Naming {
    request: Option<Request>,
    successor: Option<Successor>,
}

impl Naming {
    /// A name is asked for, unless a change is under way already.
    pub(super) fn ask(&mut self, name: PeerName, query: Query) -> Result<QueryId, Overloaded> {
        if self.request.is_some() || self.successor.is_some() {
            return Err(Overloaded {
                waiting: 1,
                bytes: 0,
            });
        }
        let (id, sent) = (query.id, false);
        self.request = Some(Request { query, name, sent });
        Ok(id)
    }

    fn answer(&mut self, outcome: Result<Answer, QueryFailure>) -> Option<Reply> {
        self.request.take()?.query.reply(outcome)
    }

    /// The name that was asked for on a connection that ended without an answer.
    pub(super) fn unanswered(&self) -> Option<&PeerName> {
        let request = self.request.as_ref().filter(|request| request.sent)?;
        Some(&request.name)
    }

    pub(super) fn timeout(&self) -> Option<u64> {
        self.request.as_ref()?.query.due_ms()
    }

    pub(super) fn expire(&mut self, now_ms: u64) -> Option<Reply> {
        let request = self.request.as_mut()?;
        let reply = request.query.expire(now_ms)?;
        self.request.take_if(|request| !request.sent);
        Some(reply)
    }

    pub(super) fn fail(&mut self, failure: QueryFailure) -> Option<Reply> {
        self.answer(Err(failure))
    }

    /// The frame that is to be sent now, if there is one.
    pub(super) fn next(&mut self) -> Option<ClientFrame> {
        if let Some(successor) = self.successor.as_mut().filter(|next| !next.sent) {
            successor.sent = true;
            let successor = Some(successor.name.as_str().into());
            return Some(ClientFrame::Retire { successor });
        }
        let request = self.request.as_mut().filter(|request| !request.sent)?;
        request.sent = true;
        let name = request.name.as_str().into();
        Some(ClientFrame::Rename { name })
    }

    /// The process goes by another name, of its own making.
    pub(super) fn disown(&mut self) {
        if let Some(request) = &mut self.request {
            request.sent = false;
        }
    }
}

impl PeerSession {
    /// Goes by another name, which another one may take the place of when it was `generated`:
    ///
    /// - as the answer to [`Action::Rename`], soon;
    /// - after the broker turned the present name down, at once;
    /// - otherwise only from a made-up name to one that is known and may have a queue: the present
    ///   one is given up and leads there from now on. Nothing happens to a chosen name, nor while
    ///   another change is under way.
    pub fn go_by(&mut self, now: Now, name: PeerName, generated: bool) {
        if self.is_over() {
            return;
        }
        if self.phase == Phase::Renaming {
            self.actions.retain(|action| *action != Action::Rename);
            self.take_name(name);
            self.back_off(now, self.is_local());
        } else if matches!(self.status, Status::Refused { .. }) {
            self.start_as(now, name);
            self.config.generated = generated;
            self.status = Status::Connecting { last_error: None };
            if let Phase::Waiting { until_ms } = &mut self.phase {
                *until_ms = now.mono_ms;
            }
        } else if generated && name.key() != self.config.name.key() {
            self.give_way_to(now, name);
        }
    }

    fn give_way_to(&mut self, now: Now, name: PeerName) {
        if self.naming.request.is_some() || self.naming.successor.is_some() {
            return;
        }
        if matches!(self.phase, Phase::Online { ext: true, .. }) {
            self.naming.successor = Some(Successor { name, sent: false });
        } else {
            self.start_as(now, name);
        }
    }

    /// Whether the present name is about to end.
    #[must_use]
    pub fn is_giving_way(&self) -> bool {
        self.naming.successor.is_some()
    }

    /// Registers anew under this name.
    fn start_as(&mut self, now: Now, name: PeerName) {
        let connected = matches!(self.phase, Phase::Registering { .. } | Phase::Online { .. });
        if connected {
            self.hang_up(now, format!("this session goes by {name}"));
        }
        self.take_name(name);
    }

    /// The broker answered `rename`.
    pub(super) fn renamed(&mut self, answer: NameAnswer) {
        let outcome = match answer.refused {
            Some(why) => Err(QueryFailure::Refused(why)),
            None => Ok(Answer::Renamed),
        };
        if outcome.is_ok() {
            match PeerName::parse(&answer.name) {
                Ok(name) => self.adopt(name),
                Err(_) => self.counters.ignored += 1,
            }
        }
        self.replies.extend(self.naming.answer(outcome));
    }

    /// The broker answered `retire`. If it was refused the successor is free to take all the same.
    pub(super) fn retired(&mut self, now: Now) {
        match self.naming.successor.take() {
            Some(successor) => self.start_as(now, successor.name),
            None => self.counters.ignored += 1,
        }
    }

    /// The connection ended: what is to be done about the name all the same.
    pub(super) fn disconnected(&mut self) {
        if let Some(successor) = self.naming.successor.take() {
            self.take_name(successor.name);
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
            self.replies.extend(self.naming.answer(Ok(Answer::Renamed)));
        } else if self.naming.request.as_ref().is_some_and(|r| r.query.told) {
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
            self.say_registered(ext);
        }
    }
}
