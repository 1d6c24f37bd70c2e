//! A process with a session of the core, and its host.

mod back;

use std::collections::BTreeMap;

use peerbus_core::Now;
use peerbus_peer::session::{
    Action, ConnectionCredentials, ConnectionEnd, Draft, Key, NoticeId, PeerSession, Question,
    RegistrationRefusal, Reply, SessionConfig, SessionEvent, Status,
};
use peerbus_wire::{
    Address, ClientFrame, DeliveryKey, How, Instance, MessageId, PeerName, Presence, Received,
    Stage, Window,
};

use crate::client::{Act, Ctx};
use crate::draw::{body, groups, step, target, wants};
use crate::failure::{Failure, Verdict, ensure};
use crate::host_mailbox::HostMailbox;
use crate::oracle::Surfaced;
use crate::plan::{SECRET, TOKEN, secret, token};

/// How a process is made.
#[derive(Debug, Clone)]
pub(crate) struct Birth {
    /// Its name.
    pub(crate) name: String,
    /// The name was made up.
    pub(crate) generated: bool,
    /// It is forgotten when it leaves.
    pub(crate) ephemeral: bool,
}

/// A session and what its host holds.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) session: PeerSession,
    mailbox: Option<HostMailbox>,
    mono_zero: u64,
    connected: bool,
    generated: bool,
    lazy: bool,
    /// Taken and not acked.
    held: Vec<Key>,
    /// Delivered on this connection.
    delivered: Vec<DeliveryKey>,
    /// Taken and not told: with whom it is for, and the broker's key.
    untold: Vec<(NoticeId, String, String)>,
    /// Requests that it was delivered: author, id, and the broker's key.
    requests: Vec<(String, String, DeliveryKey)>,
    /// Those among them that it was shown and has not ended.
    owes: Vec<(String, String, DeliveryKey)>,
    next_number: u64,
    /// Audit records so far.
    actions: u32,
    numbers: BTreeMap<String, u64>,
    queries: usize,
    /// The last other name that it asked for.
    wished: Option<String>,
    /// Frames that the transport takes at once, and when it takes more.
    burst: usize,
    more_ms: Option<u64>,
}

impl Host {
    /// Makes a process.
    ///
    /// # Errors
    ///
    /// When the name is none.
    pub(crate) fn new(ctx: &mut Ctx<'_>, birth: &Birth) -> Result<Self, Failure> {
        let name = PeerName::parse(&birth.name)
            .map_err(|error| Failure::new("world", error.to_string()))?;
        let rng = &mut *ctx.rng;
        let bits = u128::from(rng.draw()) << 64 | u128::from(rng.draw());
        let messages = u32::try_from(rng.range(1, ctx.plan.window_max)).unwrap_or(1);
        let bytes = rng.pick(&[1, 2_000, 1_048_576]);
        let config = SessionConfig {
            name,
            generated: birth.generated,
            instance: Some(Instance::from_entropy(bits)),
            ephemeral: birth.ephemeral,
            window: Window { messages, bytes },
            presence: Presence::parse(r#"{"client":"sim"}"#),
            groups: groups(rng, ctx.plan),
        };
        let mono_zero = rng.range(0, 1 << 40);
        let now = Now {
            mono_ms: mono_zero + ctx.at.now_ms,
            ..Now::default()
        };
        let mut session = PeerSession::new(config, now, rng.draw());
        if let Some(mutation) = ctx.plan.peer_mutation {
            session.mutate(mutation);
        }
        let mailbox = ctx
            .plan
            .mailboxes
            .then(|| HostMailbox::new(rng, now.mono_ms, ctx.plan.mailbox_mutation));
        Ok(Self {
            session,
            mailbox,
            mono_zero,
            connected: false,
            generated: birth.generated,
            lazy: rng.chance(ctx.plan.lazy),
            held: Vec::new(),
            delivered: Vec::new(),
            untold: Vec::new(),
            requests: Vec::new(),
            owes: Vec::new(),
            next_number: 1,
            actions: 0,
            numbers: BTreeMap::new(),
            queries: 0,
            wished: None,
            burst: rng.pick(&[1, 3, 1_000]),
            more_ms: None,
        })
    }

    fn now(&self, ctx: &Ctx<'_>) -> Now {
        Now {
            mono_ms: self.mono_zero + ctx.at.now_ms,
            ..Now::default()
        }
    }

    pub(crate) fn is_online(&self) -> bool {
        matches!(self.session.status(), Status::Online { .. })
    }

    pub(crate) fn wake_ms(&self) -> Option<u64> {
        let mailbox = self.mailbox.as_ref().and_then(HostMailbox::wake_ms);
        let due = self.session.poll_timeout().into_iter().chain(mailbox);
        let due = due.map(|due| due.saturating_sub(self.mono_zero));
        due.chain(self.more_ms).min()
    }

    pub(crate) fn started(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        self.settle(ctx)
    }

    pub(crate) fn connected(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        self.connected = true;
        self.delivered.clear();
        let local = ctx.rng.chance(500);
        let credentials = ConnectionCredentials {
            token: token(TOKEN),
            secret: secret(SECRET),
            local,
        };
        self.session.handle_connected(self.now(ctx), credentials);
        self.settle(ctx)
    }

    pub(crate) fn unreachable(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        let now = self.now(ctx);
        if ctx.rng.chance(100) {
            self.session.handle_no_credentials(now, "nowhere".into());
        } else {
            self.session
                .handle_unreachable(now, ctx.rng.chance(500), "refused".into());
        }
        self.settle(ctx)
    }

    pub(crate) fn text(&mut self, ctx: &mut Ctx<'_>, text: &str) -> Verdict {
        if let Received::Deliver(delivery) = Received::parse(text.as_bytes()) {
            if delivery.remarks.within_ms > 0 {
                let envelope = delivery.envelope.envelope;
                let request = (envelope.from, envelope.id, delivery.key.clone());
                self.requests.push(request);
            }
            self.delivered.push(delivery.key);
        }
        self.session.handle_text(self.now(ctx), text.as_bytes());
        self.settle(ctx)
    }

    pub(crate) fn alive(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        self.session.handle_alive(self.now(ctx));
        self.settle(ctx)
    }

    pub(crate) fn ended(&mut self, ctx: &mut Ctx<'_>, close: Option<(u16, String)>) -> Verdict {
        self.connected = false;
        let ended = match close {
            Some((code, text)) => ConnectionEnd::Closed { code, text },
            None => ConnectionEnd::Broken { why: "cut".into() },
        };
        self.session.handle_closed(self.now(ctx), &ended);
        self.settle(ctx)
    }

    pub(crate) fn timeout(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        let now = self.now(ctx);
        if self
            .session
            .poll_timeout()
            .is_some_and(|due| due <= now.mono_ms)
        {
            self.session.handle_timeout(now);
        }
        if let Some(mailbox) = &mut self.mailbox {
            mailbox.timeout(now.mono_ms)?;
        }
        self.settle(ctx)
    }

    /// Goes by another name.
    pub(crate) fn rename(&mut self, ctx: &mut Ctx<'_>, name: &PeerName) -> Verdict {
        self.session.go_by(self.now(ctx), name.clone(), true);
        self.settle(ctx)
    }

    pub(crate) fn leave(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        self.session.close();
        self.settle(ctx)?;
        ctx.acts.push(Act::Goodbye);
        Ok(())
    }

    pub(crate) fn act(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        if !ctx.healing && ctx.rng.chance(ctx.plan.send) {
            self.send(ctx);
        }
        if !ctx.healing && ctx.rng.chance(30) {
            self.query(ctx);
        }
        if !ctx.healing && ctx.rng.chance(ctx.plan.rename) {
            self.wish(ctx);
        }
        if !ctx.healing && ctx.rng.chance(ctx.plan.release) {
            self.hand_back(ctx);
        }
        if !self.owes.is_empty() && ctx.rng.chance(300) {
            self.answer(ctx);
        }
        if !ctx.healing && ctx.plan.requests > 0 && ctx.rng.chance(40) {
            self.withdraw(ctx);
        }
        // Many in a minute, and not in a moment.
        if !ctx.healing && ctx.rng.chance((ctx.plan.act_ms / 40).clamp(1, 60)) {
            self.tells_of_actions(ctx);
        }
        if ctx.healing {
            self.lazy = false;
        }
        if !self.lazy {
            let most = if ctx.healing { 1_000 } else { ctx.rng.index(6) };
            for _ in 0..most {
                let Some(event) = self.session.poll_event() else {
                    break;
                };
                self.event(ctx, event)?;
            }
        }
        let now_ms = self.now(ctx).mono_ms;
        if let Some(mailbox) = &mut self.mailbox {
            mailbox.act(ctx, now_ms)?;
            return self.settle(ctx);
        }
        if !self.held.is_empty() && ctx.rng.chance(200) {
            let key = self.held[ctx.rng.index(self.held.len())];
            let now = self.now(ctx);
            self.session.reached(now, key, step(ctx.rng));
        }
        while !self.held.is_empty() && (ctx.healing || ctx.rng.chance(400)) {
            let at = ctx.rng.index(self.held.len());
            let key = self.held.swap_remove(at);
            self.finish(ctx, key);
        }
        while !self.untold.is_empty() && (ctx.healing || ctx.rng.chance(400)) {
            let at = ctx.rng.index(self.untold.len());
            let (notice, name, key) = self.untold.swap_remove(at);
            ctx.oracle.told(&name, &key);
            self.session.ack_notice(notice);
        }
        self.settle(ctx)
    }

    fn finish(&mut self, ctx: &mut Ctx<'_>, key: Key) {
        let now = self.now(ctx);
        let how = if ctx.rng.chance(500) {
            How::Pushed {
                path: "channel".into(),
            }
        } else {
            How::Seen {
                path: "drain".into(),
                evidence: "tool_result".into(),
            }
        };
        self.session.reached(now, key, Stage::Acked(Some(how)));
    }

    fn event(&mut self, ctx: &mut Ctx<'_>, event: SessionEvent) -> Verdict {
        match event {
            SessionEvent::Message(inbound) => {
                let shown = Surfaced {
                    proc: ctx.proc,
                    name: self.session.name().as_str(),
                    from: &inbound.from,
                    id: &inbound.id,
                    body: &inbound.body,
                };
                ctx.oracle.surfaced(&shown)?;
                let is_it = |(from, id, _): &(String, String, DeliveryKey)| {
                    *from == inbound.from && *id == inbound.id
                };
                self.owes
                    .extend(self.requests.iter().rfind(|it| is_it(it)).cloned());
                let now_ms = self.now(ctx).mono_ms;
                if let Some(mailbox) = &mut self.mailbox {
                    return mailbox.message(ctx.rng, now_ms, inbound);
                }
                if ctx.rng.chance(ctx.plan.ack_now) {
                    self.finish(ctx, inbound.key);
                } else {
                    self.held.push(inbound.key);
                }
                Ok(())
            }
            SessionEvent::Lapsed { key, reason } => self.lapsed(ctx, key, reason.as_deref()),
            SessionEvent::NotJoined { .. } => Ok(()),
            SessionEvent::Notice {
                receipt,
                id: notice,
            } => {
                if let (Some(notice), Some(key)) = (notice, &receipt.key) {
                    let name = self.session.name().as_str().to_owned();
                    self.untold.push((notice, name, key.as_str().to_owned()));
                }
                let now_ms = self.now(ctx).mono_ms;
                match &mut self.mailbox {
                    Some(mailbox) => mailbox.receipt(now_ms, &receipt, notice),
                    None => Ok(()),
                }
            }
            SessionEvent::Registered { name, window, .. } => {
                let now_ms = self.now(ctx).mono_ms;
                match &mut self.mailbox {
                    Some(mailbox) => mailbox.registered(now_ms, name, window),
                    None => Ok(()),
                }
            }
            SessionEvent::GaveUp { .. } => Ok(()),
        }
    }

    fn send(&mut self, ctx: &mut Ctx<'_>) {
        let to = target(ctx.rng, ctx.names, ctx.plan);
        let talk = wants(ctx.rng, ctx.plan);
        self.send_to(ctx, to, &talk);
    }

    fn send_to(&mut self, ctx: &mut Ctx<'_>, to: Address, talk: &str) {
        let number = self.next_number;
        let id = format!("{:016x}{:016x}", ctx.rng.draw(), ctx.proc);
        let Ok(message_id) = MessageId::parse(&id) else {
            return;
        };
        let draft = Draft {
            id: message_id,
            to,
            ts: "2026-01-01T00:00:00Z".into(),
            source: "sim".into(),
            body: body(ctx.rng, ctx.proc, number, talk),
        };
        let deadline = self.now(ctx).mono_ms + ctx.rng.pick(&[100, 5_000, 60_000]);
        let now = self.now(ctx);
        if let Some(mailbox) = &mut self.mailbox {
            let to = match &draft.to {
                Address::Peer(name) => Some(name.key()),
                Address::Group(_) | Address::One(_) | Address::All => None,
            };
            mailbox.sent(now.mono_ms, to.as_ref(), &id);
        }
        if self.session.send(now, draft, deadline).is_ok() {
            self.next_number += 1;
            self.numbers.insert(id.clone(), number);
            ctx.oracle.asked(ctx.proc, &id);
        }
    }

    /// Wants another name, or none any more.
    fn wish(&mut self, ctx: &mut Ctx<'_>) {
        let deadline = self.now(ctx).mono_ms + ctx.rng.pick(&[50, 20_000]);
        let other = ctx.names[ctx.rng.index(ctx.names.len())].clone();
        let fresh = format!("ren-{:x}", ctx.rng.draw());
        // A made-up name would be replaced, and the process go on under another one.
        if ctx.rng.chance(150) && !self.generated {
            let successor = ctx.rng.chance(700).then_some(other);
            return self.say(ctx, &ClientFrame::Retire { successor });
        }
        // Mostly one that nobody has.
        let name = if ctx.rng.chance(800) { fresh } else { other };
        let Ok(parsed) = PeerName::parse(&name) else {
            return;
        };
        if self.session.ask(Question::Name(parsed), deadline).is_ok() {
            self.wished = Some(name);
            self.queries += 1;
        }
    }

    /// Says what the session does not say by itself.
    fn say(&mut self, ctx: &mut Ctx<'_>, frame: &ClientFrame) {
        if self.connected && self.is_online() {
            ctx.acts.push(Act::Text(frame.encode()));
        }
    }

    /// The name that it may have without knowing it.
    pub(crate) fn wished(&self) -> Option<&str> {
        self.wished.as_deref()
    }

    /// Whether its name has ended, so that it does not come back by itself.
    pub(crate) fn has_ended(&self) -> bool {
        match self.session.status() {
            Status::Refused { why, .. } => *why == RegistrationRefusal::Ended,
            status => *status == Status::Closed,
        }
    }

    fn query(&mut self, ctx: &mut Ctx<'_>) {
        let deadline = self.now(ctx).mono_ms + 10_000;
        let question = if ctx.rng.chance(500) {
            Question::Peers(None)
        } else if ctx.plan.groups && ctx.rng.chance(500) {
            Question::Regroup(groups(ctx.rng, ctx.plan), groups(ctx.rng, ctx.plan))
        } else {
            let ids = self.numbers.keys().take(20);
            Question::Statuses(ids.filter_map(|id| MessageId::parse(id).ok()).collect())
        };
        let asked = self.session.ask(question, deadline);
        self.queries += usize::from(asked.is_ok());
    }

    /// Drains everything that came of an input.
    fn settle(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        let now = self.now(ctx);
        if let Some(mailbox) = &mut self.mailbox {
            mailbox.obey(now, &mut self.session, &mut self.untold, ctx.oracle);
        }
        let burst = if ctx.healing { usize::MAX } else { self.burst };
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Dial => ctx.acts.push(Act::Dial),
                Action::HangUp => {
                    self.connected = false;
                    ctx.acts.push(Act::HangUp);
                }
                Action::Ping => ctx.acts.push(Act::Ping),
                Action::Rename => ctx.acts.push(Act::Rename),
                Action::Reread => self.session.handle_secret(now, None),
            }
        }
        self.more_ms = None;
        if self.connected {
            let mut emptied = false;
            for _ in 0..burst {
                let Some(frame) = self.session.poll_transmit() else {
                    emptied = true;
                    break;
                };
                if let ClientFrame::Envelope(carried) = &frame {
                    let number = self.numbers.get(carried.id.as_str()).copied().unwrap_or(0);
                    ctx.oracle.wrote(&carried.text, Some((ctx.proc, number)));
                }
                ctx.acts.push(Act::Text(frame.encode()));
            }
            if emptied {
                self.session.handle_flushed();
            } else {
                self.more_ms = Some(ctx.at.now_ms + 3);
            }
        }
        while let Some(reply) = self.session.poll_reply() {
            match reply {
                Reply::Sent { id, outcome } => {
                    let name = self.session.name().as_str();
                    ctx.oracle
                        .answered_host(ctx.proc, name, id.as_str(), &outcome)?;
                }
                Reply::Answered { .. } => {
                    ensure(self.queries > 0, "reply", || {
                        "a query was answered twice".into()
                    })?;
                    self.queries -= 1;
                }
            }
        }
        self.session.check();
        Ok(())
    }
}
