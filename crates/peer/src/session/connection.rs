//! From dialing to the end of a connection, and on to the next one.

use peerbus_wire::{
    ClientFrame, CloseReason, EXT, EXT_AUDIT, NAME_FORBIDDEN, NAME_KEPT, PROTOCOL_VERSION,
    PeerName, PeersFrame, Register, Window, escape,
};

use super::frames::{NO_GROUPS, age};
use super::inbox::{HELD_BYTES_MAX, HELD_MAX, release};
use super::outbox::Expired;
use super::{
    Action, ConnectionCredentials, ConnectionEnd, PeerSession, Phase, QueryFailure,
    RegistrationRefusal, Reply, SendResult, SessionEvent, Status,
};
use peerbus_core::Now;

/// Time for the broker to answer `register`.
pub(super) const REGISTER_MS: u64 = 10_000;
/// After this much silence the broker is pinged.
pub(super) const PING_MS: u64 = 30_000;
/// After this much silence the connection counts as dead.
pub(super) const DEAD_MS: u64 = 75_000;
/// Time between two attempts after a refusal that only a person can lift.
pub(super) const REFUSED_MS: u64 = 30_000;
/// Milliseconds between two attempts while another session holds the name.
pub const IN_USE_MS: u64 = 2_000;
/// Time between two attempts after the token was refused: credentials are read again before each.
pub(super) const TOKEN_MS: u64 = 5_000;
/// Time between two looks at the credentials for another secret, while a connection lasts.
pub(super) const REREAD_MS: u64 = 60_000;
/// A name that was ended is not registered again by this process.
const ENDED_MS: u64 = 365 * 86_400_000;
/// Longest text of a close frame, in bytes.
const CLOSE_TEXT_MAX: usize = 123;

/// What a v1 broker, which knows no window, may send ahead: as much as is held before reading
/// stops.
const NO_WINDOW: Window = Window {
    messages: HELD_MAX as u32,
    bytes: HELD_BYTES_MAX as u32,
};

const _: () = assert!(PING_MS < DEAD_MS);

/// What to do after the end of a connection.
enum Next {
    /// Try again soon.
    Retry {
        why: String,
    },
    /// Try again after so many milliseconds, and say why meanwhile.
    Refused {
        why: RegistrationRefusal,
        after_ms: u64,
    },
    Rename,
    /// The same, for one that begins so.
    RenameTo {
        begins: String,
    },
}

impl PeerSession {
    /// The transport that [`Action::Dial`] asked for is open.
    pub fn handle_connected(&mut self, now: Now, credentials: ConnectionCredentials) {
        if self.phase != Phase::Dialing {
            return self.actions.push_back(Action::HangUp);
        }
        self.control.push_back(ClientFrame::Register(Register {
            protocol_version: PROTOCOL_VERSION.into(),
            token: Some(credentials.token.clone()),
            name: self.config.name.as_str().into(),
            renaming: self.naming.unanswered().map(|name| name.as_str().into()),
            ext: EXT_AUDIT,
            instance: self.config.instance.clone(),
            ephemeral: self.config.ephemeral,
            generated: self.config.generated,
            window: Some(self.config.window),
            presence: self.config.presence.clone(),
            bridge: None,
        }));
        self.presence_changed = false;
        self.credentials = Some(credentials);
        self.phase = Phase::Registering {
            deadline_ms: now.mono_ms + REGISTER_MS,
        };
        self.handle_alive(now);
    }

    /// The broker could not be reached. `local`: it would be on this machine.
    pub fn handle_unreachable(&mut self, now: Now, local: bool, why: String) {
        if self.phase != Phase::Dialing {
            return;
        }
        self.back_off(now, local);
        self.say_connecting(why);
    }

    /// Dials again in a while.
    pub(super) fn back_off(&mut self, now: Now, local: bool) {
        let until_ms = now.mono_ms + self.backoff.next(local);
        self.phase = Phase::Waiting { until_ms };
    }

    /// There are no credentials to dial with. `looked` says where they were looked for.
    pub fn handle_no_credentials(&mut self, now: Now, looked: String) {
        if self.phase != Phase::Dialing {
            return;
        }
        self.back_off(now, true);
        self.status = Status::NeedCredentials { looked };
    }

    /// The connection ended.
    pub fn handle_closed(&mut self, now: Now, ended: &ConnectionEnd) {
        if !matches!(self.phase, Phase::Registering { .. } | Phase::Online { .. }) {
            if self.is_over() {
                self.phase = Phase::Closed;
                self.control.clear();
            }
            return;
        }
        let next = self.judge(ended);
        self.disconnect(now, next);
    }

    /// Something came from the broker that is no text message, such as a ping or a pong.
    pub fn handle_alive(&mut self, now: Now) {
        self.heard_ms = now.mono_ms;
        self.pinged = false;
    }

    /// Is somebody else at the broker from now on.
    pub(super) fn take_name(&mut self, name: PeerName) {
        self.config.name = name;
        self.inbox.forget_deliveries();
        self.notices.disown();
        self.naming.disown();
        let disowned = self.outbox.disown();
        self.say_expired(disowned);
    }

    /// A deadline has come.
    pub fn handle_timeout(&mut self, now: Now) {
        match self.phase {
            Phase::Waiting { until_ms } if until_ms <= now.mono_ms => {
                self.phase = Phase::Dialing;
                self.actions.push_back(Action::Dial);
            }
            Phase::Registering { deadline_ms } if deadline_ms <= now.mono_ms => {
                let seconds = REGISTER_MS / 1_000;
                let why = format!("the broker did not answer `register` within {seconds} s");
                self.hang_up(now, why);
            }
            Phase::Online { .. } => {
                if self.reread_ms <= now.mono_ms {
                    self.reread_ms = now.mono_ms + REREAD_MS;
                    self.actions.push_back(Action::Reread);
                }
                self.listen(now);
            }
            _ => {}
        }
        let expired = self.outbox.expire(now.mono_ms);
        self.say_expired(expired);
        self.replies.extend(self.queries.expire(now.mono_ms));
        self.replies.extend(self.naming.expire(now.mono_ms));
    }

    fn say_expired(&mut self, all: Vec<Expired>) {
        for expired in all {
            match expired {
                Expired::Deadline(id, unsent) => self.settle(id, Err(unsent)),
                Expired::GaveUp(id) => {
                    self.notices.push(SessionEvent::GaveUp {
                        id: id.as_str().into(),
                    });
                }
            }
        }
    }

    pub(super) fn connection_timeout(&self) -> Option<u64> {
        match self.phase {
            Phase::Waiting { until_ms } => Some(until_ms),
            Phase::Registering { deadline_ms } => Some(deadline_ms),
            // Nothing can be heard while nothing is read.
            Phase::Online { .. } if self.wants_read() => {
                let silence = if self.pinged { DEAD_MS } else { PING_MS };
                Some(self.reread_ms.min(self.heard_ms + silence))
            }
            _ => None,
        }
    }

    /// The broker answered `register`.
    pub(super) fn online(&mut self, now: Now, frame: &PeersFrame) {
        let ext = frame.ext.is_some_and(|level| level >= EXT);
        self.phase = Phase::Online {
            ext,
            since_ms: now.mono_ms,
        };
        self.domain = frame.domain.clone().filter(|_| ext);
        self.takes_audits = frame.ext.is_some_and(|level| level >= EXT_AUDIT);
        if !self.takes_audits {
            self.audits.clear();
        }
        self.reread_ms = now.mono_ms + REREAD_MS;
        self.window = if ext {
            frame.window.unwrap_or(self.config.window)
        } else {
            NO_WINDOW
        };
        self.registered_as(&frame.names);
        self.status = Status::Online {
            name: self.config.name.clone(),
            ext,
        };
        self.events.clear();
        self.say_registered(ext);
        let lapsed = self.inbox.lapse().into_iter();
        self.events
            .extend(lapsed.map(|key| SessionEvent::Lapsed { key, reason: None }));
        if ext {
            for (key, (reason, at_ms)) in self.inbox.declined() {
                self.decline(key, reason, age(now, at_ms), true);
            }
        }
        let groups = self.config.groups.clone();
        if ext && !groups.is_empty() {
            self.queries.joins(groups.clone());
            self.control.push_back(ClientFrame::Regroup {
                join: groups,
                leave: Vec::new(),
            });
        } else if !groups.is_empty() {
            let why = NO_GROUPS.to_owned();
            self.events.push_back(SessionEvent::NotJoined { why });
        }
        if !ext {
            self.fail(QueryFailure::NotSupported);
        }
    }

    pub(super) fn say_registered(&mut self, ext: bool) {
        self.events.push_back(SessionEvent::Registered {
            name: self.config.name.as_str().into(),
            ext,
            window: self.window,
        });
    }

    pub(super) fn hang_up(&mut self, now: Now, why: String) {
        self.actions.push_back(Action::HangUp);
        self.disconnect(now, Next::Retry { why });
    }

    fn listen(&mut self, now: Now) {
        if !self.wants_read() {
            return;
        }
        let silence = now.mono_ms.saturating_sub(self.heard_ms);
        if silence >= DEAD_MS {
            self.hang_up(
                now,
                format!("the broker was silent for {} s", DEAD_MS / 1_000),
            );
        } else if silence >= PING_MS && !self.pinged {
            self.pinged = true;
            self.actions.push_back(Action::Ping);
        }
    }

    fn disconnect(&mut self, now: Now, next: Next) {
        if let Phase::Online { since_ms, .. } = self.phase {
            self.backoff
                .was_online(now.mono_ms.saturating_sub(since_ms));
        }
        self.control.clear();
        self.unverified = None;
        self.counters.resent += self.outbox.rewind() as u64;
        self.queries.rewind();
        self.disconnected();
        match next {
            Next::Retry { why } => {
                self.back_off(now, self.is_local());
                self.say_connecting(why);
            }
            Next::Refused { why, after_ms } => {
                let until_ms = now.mono_ms + after_ms + self.backoff.draw(after_ms / 8);
                self.phase = Phase::Waiting { until_ms };
                let name = self.config.name.clone();
                self.status = Status::Refused { name, why };
            }
            Next::RenameTo { begins } => {
                self.phase = Phase::Renaming;
                self.actions.push_back(Action::Rename);
                // Nobody needs to know: it does as it was told.
                self.status = Status::Connecting { last_error: None };
                self.begins = Some(begins);
            }
            Next::Rename => {
                self.phase = Phase::Renaming;
                self.actions.push_back(Action::Rename);
                let name = &self.config.name;
                self.say_connecting(format!("the name {name} is taken; trying another one"));
            }
        }
    }

    fn say_connecting(&mut self, why: String) {
        let last_error = Some(why);
        self.status = Status::Connecting { last_error };
    }

    pub(super) fn is_local(&self) -> bool {
        self.credentials
            .as_ref()
            .is_none_or(|credentials| credentials.local)
    }

    /// How the names of its token begin, as far as the broker told that.
    #[must_use]
    pub fn begins(&self) -> Option<&str> {
        self.begins.as_deref()
    }

    /// A made-up name does not begin so, and another one can.
    fn may_begin(&self, begins: &str) -> bool {
        let begun = self.config.name.as_str().get(..begins.len());
        let has_begun = begun.is_some_and(|begun| begun.eq_ignore_ascii_case(begins));
        self.config.generated && !has_begun
    }

    /// What the end of a connection means.
    fn judge(&self, ended: &ConnectionEnd) -> Next {
        let (code, text) = match ended {
            ConnectionEnd::Broken { why } => return Next::Retry { why: why.clone() },
            ConnectionEnd::Closed { code, text } => (*code, text.as_str()),
        };
        let is = |reason: CloseReason| reason.code() == code && reason.text() == text;
        let registering = matches!(self.phase, Phase::Registering { .. });
        let in_use = text.strip_prefix("name in use").filter(|_| code == 1008);
        let taken = is(CloseReason::NameClaimed) || in_use.is_some() || is(CloseReason::NameKnown);
        let kept = text.strip_prefix(NAME_KEPT).filter(|_| code == 1008);
        let taken = taken || kept.is_some();
        let lost = taken || is(CloseReason::NameEnded);
        // The operator took one that was online off the bus.
        if self.config.generated && registering && lost {
            return Next::Rename;
        }
        let allowed = text.strip_prefix(NAME_FORBIDDEN).filter(|_| code == 1008);
        let begins = allowed.and_then(begins_of);
        if let Some(begins) = begins.filter(|it| registering && self.may_begin(it)) {
            return Next::RenameTo { begins };
        }
        let (why, after_ms) = if is(CloseReason::NameClaimed) {
            (RegistrationRefusal::NameClaimed, REFUSED_MS)
        } else if let Some(holder) = in_use {
            let by = holder.strip_prefix(" by ").map(str::to_owned);
            (RegistrationRefusal::InUse { by }, IN_USE_MS)
        } else if is(CloseReason::NameEnded) {
            (RegistrationRefusal::Ended, ENDED_MS)
        } else if is(CloseReason::TakenOver) {
            (RegistrationRefusal::TakenOver, REFUSED_MS)
        } else if is(CloseReason::InvalidToken) {
            (RegistrationRefusal::Token, TOKEN_MS)
        } else if is(CloseReason::TokenExpired) {
            (RegistrationRefusal::Expired, TOKEN_MS)
        } else if code == CloseReason::TokenRevoked.code() {
            (RegistrationRefusal::Revoked, TOKEN_MS)
        } else if let Some(allowed) = allowed {
            let allowed = allowed.to_owned();
            (RegistrationRefusal::NameForbidden { allowed }, REFUSED_MS)
        } else if let Some(kept) = kept {
            let token = kept.split(';').next().unwrap_or_default().to_owned();
            (RegistrationRefusal::NameKept { token }, REFUSED_MS)
        } else if registering && matches!(code, 1003 | 1007 | 1008) {
            (RegistrationRefusal::Other(text.to_owned()), REFUSED_MS)
        } else {
            let said = escape(text, CLOSE_TEXT_MAX);
            let why = format!("the broker closed the connection: \"{said}\" (code {code})");
            return Next::Retry { why };
        };
        Next::Refused { why, after_ms }
    }

    /// Ends the session: answers whatever waits, as things stand. Acks that are due can still be
    /// taken with [`PeerSession::poll_transmit`].
    pub fn close(&mut self) {
        if self.is_over() {
            return;
        }
        self.phase = match self.phase {
            Phase::Online { ext, .. } => Phase::Closing { ext },
            _ => Phase::Closed,
        };
        let audits = self.audits.drain(..).map(ClientFrame::Audit);
        self.control.extend(audits);
        // Others get at once what is not read here.
        let unread = self.inbox.unread_leases().map(release);
        self.control.extend(unread);
        if self.phase == Phase::Closed {
            self.control.clear();
        }
        self.unverified = None;
        self.status = Status::Closed;
        self.actions.clear();
        let unsent = self.outbox.close();
        self.say_expired(unsent);
        self.fail(QueryFailure::Closed);
        self.inbox.close();
        self.notices.close();
        self.events.clear();
    }

    pub(super) fn settle(&mut self, id: peerbus_wire::MessageId, outcome: SendResult) {
        self.replies.push_back(Reply::Sent { id, outcome });
    }
}

/// How the names begin that the first of these patterns means, if they have nothing else in common.
fn begins_of(allowed: &str) -> Option<String> {
    let first = allowed.split(", ").next()?.strip_suffix('*')?;
    let begins = match first.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        true => format!("{first}-"),
        false => first.to_owned(),
    };
    PeerName::parse(&format!("{begins}x")).ok().map(|_| begins)
}
