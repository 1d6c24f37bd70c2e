//! A client written from the protocol alone: v1, or `ext` without a session. It may break rules.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_wire::{
    ClientFrame, Conversation, Delivery, DeliveryKey, Envelope, Instance, MessageId,
    PROTOCOL_VERSION, Received, Register, Secret, Window,
};

use crate::client::{Act, Ctx};
use crate::draw::{answers, body, target, wants};
use crate::failure::Verdict;
use crate::oracle::Surfaced;
use crate::plan::{SECRET, TOKEN, secret, token};

/// A scripted client.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) name: String,
    ext: bool,
    instance: Option<Instance>,
    evil: bool,
    secret: Secret,
    connected: bool,
    registered: bool,
    /// Author and id of what it was shown.
    seen: BTreeSet<(String, String)>,
    /// When it acks what.
    acks: BTreeMap<(u64, u64), DeliveryKey>,
    redial_ms: Option<u64>,
    /// Authors and ids of what wants an answer.
    asked: Vec<(String, String)>,
    next_number: u64,
    next_ack: u64,
    last: Option<(String, String)>,
}

impl Script {
    /// Makes a process.
    #[must_use]
    pub(crate) fn new(ctx: &mut Ctx<'_>, name: &str, evil: bool) -> Self {
        let ext = evil && ctx.rng.chance(600);
        let bits = u128::from(ctx.rng.draw());
        Self {
            name: name.into(),
            ext,
            instance: ext.then(|| Instance::from_entropy(bits)),
            evil,
            secret: secret(SECRET),
            connected: false,
            registered: false,
            seen: BTreeSet::new(),
            acks: BTreeMap::new(),
            redial_ms: None,
            asked: Vec::new(),
            next_number: 1,
            next_ack: 0,
            last: None,
        }
    }

    pub(crate) fn wake_ms(&self) -> Option<u64> {
        let ack = self.acks.first_key_value().map(|((at, _), _)| *at);
        [ack.filter(|_| self.registered), self.redial_ms]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn started(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        ctx.acts.push(Act::Dial);
        Ok(())
    }

    pub(crate) fn connected(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        self.connected = true;
        let messages = u32::try_from(ctx.rng.range(1, ctx.plan.window_max)).unwrap_or(1);
        let register = ClientFrame::Register(Register {
            protocol_version: PROTOCOL_VERSION.into(),
            token: Some(token(TOKEN)),
            name: self.name.clone(),
            renaming: None,
            ext: u32::from(self.ext),
            instance: self.instance.clone(),
            ephemeral: false,
            generated: false,
            window: self.ext.then_some(Window {
                messages,
                bytes: 1_048_576,
            }),
            presence: None,
            bridge: None,
        });
        ctx.acts.push(Act::Text(register.encode()));
        Ok(())
    }

    pub(crate) fn unreachable(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        self.redial_ms = Some(ctx.at.now_ms + ctx.rng.range(20, 900));
        Ok(())
    }

    pub(crate) fn alive(&mut self, _: &mut Ctx<'_>) -> Verdict {
        Ok(())
    }

    pub(crate) fn ended(&mut self, ctx: &mut Ctx<'_>, close: Option<(u16, String)>) -> Verdict {
        self.connected = false;
        self.registered = false;
        self.acks.clear();
        let pause = if close.is_some() { 1_500 } else { 20 };
        self.redial_ms = Some(ctx.at.now_ms + ctx.rng.range(pause, 2 * pause));
        Ok(())
    }

    pub(crate) fn timeout(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        if self.redial_ms.is_some_and(|at| at <= ctx.at.now_ms) {
            self.redial_ms = None;
            ctx.acts.push(Act::Dial);
        }
        while self.registered
            && let Some(((at_ms, number), _)) = self.acks.first_key_value()
            && *at_ms <= ctx.at.now_ms
        {
            let at = (*at_ms, *number);
            if let Some(key) = self.acks.remove(&at) {
                self.say(ctx, &ClientFrame::ack(key, None));
            }
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        self.connected = false;
        ctx.acts.push(Act::Goodbye);
        Ok(())
    }

    pub(crate) fn text(&mut self, ctx: &mut Ctx<'_>, text: &str) -> Verdict {
        match Received::parse(text.as_bytes()) {
            Received::Peers(_) => self.registered = true,
            Received::Deliver(delivery) => return self.delivered(ctx, *delivery),
            Received::Receipts(receipts) => {
                for key in receipts.into_iter().filter_map(|receipt| receipt.key) {
                    ctx.oracle.told(&self.name, key.as_str());
                    self.say(ctx, &ClientFrame::ack(key, None));
                }
            }
            Received::Recall(_)
            | Received::Renamed(_)
            | Received::Retired(_)
            | Received::Forwarded(_)
            | Received::Joined(_)
            | Received::Unknown => {}
        }
        Ok(())
    }

    fn delivered(&mut self, ctx: &mut Ctx<'_>, delivery: Delivery) -> Verdict {
        let envelope = &delivery.envelope.envelope;
        let (from, id) = (envelope.from.to_ascii_lowercase(), envelope.id.clone());
        if self.secret.verify(envelope).is_err() {
            // v1 drops it; `ext` says why.
            ctx.oracle.dropped(&self.name, &from, &id);
            let key = delivery.key;
            let frame = if self.ext {
                ClientFrame::reject(key, "does not verify".into())
            } else {
                ClientFrame::ack(key, None)
            };
            self.say(ctx, &frame);
            return Ok(());
        }
        if self.seen.insert((from, id)) {
            let body = String::from_utf8_lossy(&envelope.body);
            let shown = Surfaced {
                proc: ctx.proc,
                name: &self.name,
                from: &envelope.from,
                id: &envelope.id,
                body: &body,
            };
            ctx.oracle.surfaced(&shown)?;
            if Conversation::of(&body).within_ms.is_some() {
                self.asked
                    .push((envelope.from.clone(), envelope.id.clone()));
            }
        }
        let late = if ctx.healing {
            0
        } else {
            ctx.rng.pick(&[0, 0, 50, 3_000])
        };
        self.next_ack += 1;
        self.acks
            .insert((ctx.at.now_ms + late, self.next_ack), delivery.key);
        Ok(())
    }

    pub(crate) fn act(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        if !self.registered || ctx.healing {
            return Ok(());
        }
        if ctx.rng.chance(ctx.plan.send) {
            let to = target(ctx.rng, ctx.names, ctx.plan);
            let (to, kind) = match &to {
                peerbus_wire::Address::Peer(name) => (name.as_str().to_owned(), "msg"),
                peerbus_wire::Address::Group(group) => (group.to_string(), "msg"),
                peerbus_wire::Address::One(group) => (format!("{group}!"), "msg"),
                peerbus_wire::Address::All => ("*".to_owned(), "broadcast"),
            };
            let envelope = self.envelope(ctx, &to, kind);
            self.send(ctx, envelope, Wrote::Genuine);
        }
        if ctx.rng.chance(100) {
            self.say(ctx, &ClientFrame::Peers);
        }
        if !self.asked.is_empty() && ctx.rng.chance(300) {
            let at = ctx.rng.index(self.asked.len());
            let (from, id) = self.asked.swap_remove(at);
            let talk = answers(ctx.rng, &id);
            let envelope = self.saying(ctx, (&from, "msg"), &talk);
            self.send(ctx, envelope, Wrote::Genuine);
        }
        if self.evil {
            return self.mischief(ctx);
        }
        Ok(())
    }

    fn envelope(&mut self, ctx: &mut Ctx<'_>, to: &str, kind: &str) -> Envelope {
        let talk = wants(ctx.rng, ctx.plan);
        self.saying(ctx, (to, kind), &talk)
    }

    fn saying(&mut self, ctx: &mut Ctx<'_>, (to, kind): (&str, &str), talk: &str) -> Envelope {
        let number = self.next_number;
        Envelope {
            protocol_version: PROTOCOL_VERSION.into(),
            id: format!("{:016x}-{}", ctx.rng.draw(), ctx.proc),
            from: self.name.clone(),
            to: to.into(),
            ts: "2026-01-01T00:00:00.000000001Z".into(),
            source: "peer-bus".into(),
            kind: kind.into(),
            body: body(ctx.rng, ctx.proc, number, talk).into_bytes(),
            hmac: String::new(),
        }
    }

    /// Signs and sends it, spelled in one of many ways.
    fn send(&mut self, ctx: &mut Ctx<'_>, mut envelope: Envelope, wrote: Wrote) {
        let canonical = envelope.canonical().unwrap_or_default();
        envelope.hmac = match wrote {
            Wrote::Forged => secret(&[b'f'; 32]).sign(&canonical),
            _ => self.secret.sign(&canonical),
        };
        let pause = ctx.rng.pick(&["", " ", "\n\t"]);
        let extra = ctx.rng.pick(&["", r#""x-more":[1,{"id":2}],"#]);
        let members = [
            ("id", &envelope.id),
            ("from", &envelope.from),
            ("kind", &envelope.kind),
            ("to", &envelope.to),
            ("protocol_version", &envelope.protocol_version),
            ("hmac", &envelope.hmac),
            ("ts", &envelope.ts),
            ("source", &envelope.source),
        ];
        let first = ctx.rng.index(members.len());
        let mut text = format!("{{{pause}{extra}");
        for at in 0..members.len() {
            let (name, value) = members[(first + at) % members.len()];
            text.push_str(&format!("{pause}\"{name}\":{pause}\"{value}\","));
        }
        let body = String::from_utf8_lossy(&envelope.body);
        text.push_str(&format!("\"body\":{pause}{body}{pause}}}"));
        self.last = Some((envelope.id.clone(), text.clone()));
        self.put(ctx, &text, wrote);
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, text: &str, wrote: Wrote) {
        if let ClientFrame::Envelope(carried) = ClientFrame::parse(text.as_bytes()) {
            let genuine = matches!(wrote, Wrote::Genuine).then_some((ctx.proc, self.next_number));
            ctx.oracle.wrote(&carried.text, genuine);
            self.next_number += u64::from(genuine.is_some());
        }
        ctx.acts.push(Act::Text(text.to_owned()));
    }

    fn mischief(&mut self, ctx: &mut Ctx<'_>) -> Verdict {
        let victim = ctx.names[ctx.rng.index(ctx.names.len())].clone();
        // What its peer was called before a rename is its own name, too.
        let own = ctx.oracle.was_called(&self.name, &victim);
        if own || victim.eq_ignore_ascii_case(&self.name) {
            return Ok(());
        }
        let mut envelope = self.envelope(ctx, &victim, "msg");
        match ctx.rng.index(13) {
            0 => {
                envelope.from = victim;
                self.send(ctx, envelope, Wrote::Spoofed);
            }
            1 => {
                // The same name in another case, but not the one that this connection registered.
                let upper = self.name.to_ascii_uppercase();
                let lower = self.name.to_ascii_lowercase();
                envelope.from = if upper == self.name { lower } else { upper };
                self.send(ctx, envelope, Wrote::Spoofed);
            }
            2 => self.send(ctx, envelope, Wrote::Forged),
            3 => self.ack_anothers(ctx),
            4 => {
                envelope.to = format!("never-{}", ctx.rng.index(100));
                self.send(ctx, envelope, Wrote::Forged);
            }
            5 => {
                if let Some((_, text)) = self.last.clone() {
                    ctx.acts.push(Act::Text(text));
                }
            }
            6 => {
                if let Some((id, _)) = self.last.clone() {
                    envelope.id = id;
                    self.send(ctx, envelope, Wrote::Forged);
                }
            }
            7 => {
                envelope.kind = "broadcast".into();
                self.send(ctx, envelope, Wrote::Spoofed);
            }
            8 => {
                let junk = [
                    "",
                    "{",
                    "[]",
                    "null",
                    "{\"type\":\"ack\"}",
                    "\u{0}",
                    "{\"type\":9}",
                ];
                ctx.acts.push(Act::Text(ctx.rng.pick(&junk).into()));
            }
            11 => {
                // The id of somebody else's message.
                if let Some(id) = ctx.oracle.some_id(ctx.rng) {
                    envelope.id = id;
                    self.send(ctx, envelope, Wrote::Forged);
                }
            }
            9 => ctx.acts.push(Act::Binary),
            10 => {
                let ids = (0..5).map(|n| format!("{n}{}", ctx.rng.index(9)));
                let ids = ids.filter_map(|id| MessageId::parse(&id).ok()).collect();
                self.say(ctx, &ClientFrame::Status { ids });
            }
            _ => {
                ctx.acts.push(Act::HangUp);
                return self.ended(ctx, None);
            }
        }
        Ok(())
    }

    /// Acks, rejects or hands back what is owed to somebody else.
    fn ack_anothers(&mut self, ctx: &mut Ctx<'_>) {
        let seq = peerbus_wire::Seq(ctx.rng.range(1, ctx.oracle.last_seq() + 3));
        // Where names end, anything may come to be owed to anybody.
        if ctx.plan.rename > 0 || ctx.oracle.may_be_owed(&self.name, seq) {
            return;
        }
        let key = seq.key();
        let frame = match ctx.rng.index(4) {
            0 => ClientFrame::reject(key, "mine".into()),
            1 => ClientFrame::Release { key, again: false },
            _ => ClientFrame::ack(key, None),
        };
        self.say(ctx, &frame);
    }

    fn say(&mut self, ctx: &mut Ctx<'_>, frame: &ClientFrame) {
        if self.connected {
            ctx.acts.push(Act::Text(frame.encode()));
        }
    }
}

/// Who is behind an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrote {
    /// Its author.
    Genuine,
    /// Somebody without the secret.
    Forged,
    /// Somebody with the secret, for another purpose: it must not be accepted.
    Spoofed,
}
