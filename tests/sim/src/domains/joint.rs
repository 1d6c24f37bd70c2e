//! A bridge's process, the stream that leads from it, and what goes outside of that.

use peerbus_core::store::PeerKind;
use peerbus_peer::bridge::{Bridge, BridgeEvent as Told, BridgeInput, BridgeOutput};
use peerbus_wire::bridge::{Epoch, Outside, Saying, StreamHead, StreamItem};
use peerbus_wire::{Ack, ClientFrame, Domain, Envelope, Mark, Register, Stage};

use super::home::{Home, NAMES};
use super::net::Who;
use super::oracle::owed_abroad;
use super::stream::Stream;
use super::world::{Event, World};
use crate::failure::{Verdict, ensure};

/// How often a consumer looks into the stream.
const PULL_MS: u64 = 100;

/// The bridge of one domain to one other.
#[derive(Debug)]
pub(super) struct Joint {
    pub(super) home: usize,
    pub(super) abroad: usize,
    domains: [Domain; 2],
    bridge: Option<Bridge>,
    pub(super) conn: Option<u64>,
    /// It wants to be registered with this.
    pub(super) wants: Option<String>,
    /// What it published, on its way to the other domain.
    pub(super) stream: Stream,
    ticks_ms: Option<u64>,
}

impl Joint {
    pub(super) fn new((home, abroad): (usize, usize), domains: &[Domain]) -> Self {
        Self {
            home,
            abroad,
            domains: [domains[home].clone(), domains[abroad].clone()],
            bridge: None,
            conn: None,
            wants: None,
            stream: Stream::default(),
            ticks_ms: None,
        }
    }

    pub(super) fn register(&self, homes: &[Home]) -> Register {
        let name = format!("bridge@{}", homes[self.abroad].domain);
        let epoch = self.wants.as_deref().and_then(Mark::parse);
        Register {
            bridge: epoch,
            window: Some(peerbus_peer::bridge::WINDOW),
            ..super::peer::register(&name, 0, 1)
        }
    }
}

impl World {
    /// The joint at the other end.
    fn other(&self, joint: usize) -> usize {
        let (home, abroad) = (self.joints[joint].home, self.joints[joint].abroad);
        let is_it = |other: &Joint| other.home == abroad && other.abroad == home;
        self.joints.iter().position(is_it).unwrap_or(joint)
    }

    pub(super) fn start(&mut self, joint: usize) -> Verdict {
        if self.joints[joint].bridge.is_some() {
            return Ok(());
        }
        let [home, abroad] = self.joints[joint].domains.clone();
        let mut bridge = Bridge::new(home, abroad, self.now_ms);
        if let Some(mutation) = self.mutation {
            bridge.mutate(mutation);
        }
        self.joints[joint].bridge = Some(bridge);
        self.drain(joint)
    }

    pub(super) fn kill(&mut self, joint: usize) {
        self.trace.note(self.now_ms, "kill", joint as u64, "");
        self.joints[joint].bridge = None;
        self.joints[joint].wants = None;
        self.joints[joint].ticks_ms = None;
        self.hang_up(Who::Bridge(joint));
        let later = self.rng.range(10, 20_000);
        self.after(later, Event::Start(joint));
    }

    /// The bridge is told something.
    pub(super) fn bridge(&mut self, joint: usize, input: BridgeInput) -> Verdict {
        let now_ms = self.now_ms;
        if let Some(bridge) = &mut self.joints[joint].bridge {
            bridge.handle(now_ms, input);
        }
        self.drain(joint)
    }

    pub(super) fn joint_ticks(&mut self, joint: usize) -> Verdict {
        let due = self.joints[joint]
            .ticks_ms
            .is_some_and(|at| at <= self.now_ms);
        if !due {
            return Ok(());
        }
        self.joints[joint].ticks_ms = None;
        self.bridge(joint, BridgeInput::Tick)
    }

    fn drain(&mut self, joint: usize) -> Verdict {
        let Some(bridge) = &mut self.joints[joint].bridge else {
            return Ok(());
        };
        let outputs: Vec<_> = std::iter::from_fn(|| bridge.poll_output()).collect();
        if let Some(due) = bridge.poll_timeout() {
            let at = due.max(self.now_ms);
            if self.joints[joint].ticks_ms.is_none_or(|ticks| ticks > at) {
                self.joints[joint].ticks_ms = Some(at);
                self.at(at, Event::Tick(joint));
            }
        }
        let dropped = |output: &BridgeOutput| {
            matches!(
                output,
                BridgeOutput::Event(Told::Refused { .. } | Told::Stale)
            )
        };
        let drops = outputs.iter().any(dropped);
        for output in outputs {
            match output {
                BridgeOutput::Register(epoch) => {
                    self.hang_up(Who::Bridge(joint));
                    self.joints[joint].wants = Some(epoch);
                    let later = self.rng.range(5, 300);
                    self.after(later, Event::Dial(Who::Bridge(joint)));
                }
                BridgeOutput::Broker(frame) => self.bridge_says(joint, frame)?,
                BridgeOutput::Publish {
                    number,
                    head,
                    envelope,
                } => self.publish(joint, number, head, &envelope)?,
                BridgeOutput::Ack(stream) => {
                    let other = self.other(joint);
                    let entry = self.joints[other].stream.ack(stream);
                    if let Some(entry) = entry.filter(|_| !drops) {
                        self.acked(joint, &entry.head)?;
                    }
                }
                BridgeOutput::Later(stream) => {
                    let other = self.other(joint);
                    self.joints[other].stream.later(self.now_ms, stream);
                }
                BridgeOutput::Outside(text) => self.outside(joint, text)?,
                BridgeOutput::Event(event) => {
                    let text = format!("{event:?}");
                    self.trace.note(self.now_ms, "event", joint as u64, &text);
                    self.counts(&event);
                }
            }
        }
        Ok(())
    }

    fn counts(&mut self, event: &Told) {
        self.oracle.seen.insert(match event {
            Told::NewEpoch => "new epoch",
            Told::OwnEpoch => "own epoch",
            Told::Resent(_) => "resent",
            Told::Doubled => "doubled",
            Told::Gap { .. } => "gap",
            Told::Stale => "stale",
            Told::Refused { .. } => "not believed",
            Told::Waits(_) => "waits",
            Told::Away => "away",
            Told::Back => "back",
            _ => return,
        });
    }

    /// What it acks in the stream its broker has on disk.
    fn acked(&mut self, joint: usize, head: &str) -> Verdict {
        let Some(head) = StreamHead::parse(head) else {
            return Ok(());
        };
        let (home, abroad) = (self.joints[joint].home, self.joints[joint].abroad);
        let name = format!("bridge@{}", NAMES[abroad]);
        let tables = self.homes[home].store.tables();
        let mut rows = tables.peers.values();
        let mark = rows
            .find(|row| row.kind == PeerKind::Peer && row.name == name)
            .and_then(|row| row.mark.clone());
        let known = mark.as_ref().and_then(|mark| {
            let (epoch, number) = mark.as_str().rsplit_once(':')?;
            Some((epoch, number.parse::<u64>().ok()?))
        });
        let of_today = head.meant_for.as_str() == self.homes[home].epoch();
        let on_disk = known.is_some_and(|(epoch, number)| {
            epoch != head.epoch.as_str() || number >= head.number || number < head.after
        });
        // Without a mark nothing stands before it.
        let on_disk = on_disk || known.is_none() && head.after > 0;
        ensure(on_disk || !of_today, "ack", || {
            format!("{name} acks {head:?} in the stream at {mark:?}")
        })
    }

    fn bridge_says(&mut self, joint: usize, frame: ClientFrame) -> Verdict {
        let dead = matches!(&frame, ClientFrame::Progress { stage, .. } if matches!(stage, Stage::Dead { .. }));
        if dead && self.plan.home_crashes > 0 && self.rng.chance(100) {
            // About when it comes to the disk.
            let soon = self.rng.range(1, 100);
            self.after(soon, Event::Crash(self.joints[joint].home));
        }
        if let ClientFrame::Take {
            envelope: Ok(envelope),
            ..
        } = &frame
        {
            let (abroad, from) = (NAMES[self.joints[joint].abroad], envelope.from.as_str());
            ensure(from.ends_with(&format!("@{abroad}")), "from", || {
                format!("the bridge to {abroad} brings a message of {from}")
            })?;
        }
        if let ClientFrame::Ack(Ack { key, .. }) = &frame {
            let (home, abroad) = (self.joints[joint].home, self.joints[joint].abroad);
            let number = key.as_str().trim_start_matches('n').parse().unwrap_or(0);
            let mut notices = self.homes[home].store.tables().notices.iter();
            let notice = notices.find(|((_, it), _)| *it == number);
            if let Some((_, notice)) = notice {
                let tables = self.homes[abroad].store.tables();
                let ids = tables
                    .messages
                    .values()
                    .filter(|it| it.head.id == notice.id);
                let owed = ids.count() == 1 && owed_abroad(tables, 0, Some(&notice.id));
                // A broker that was brought back has forgotten that it knew.
                ensure(!owed || !self.oracle.forgot_ms.is_empty(), "notice", || {
                    format!("a notice of {} is acked before its home has it", notice.id)
                })?;
            }
        }
        if let Some(conn) = self.joints[joint].conn {
            self.client_sends(conn, frame);
        }
        Ok(())
    }

    fn publish(&mut self, joint: usize, number: u64, head: String, text: &str) -> Verdict {
        let mut payload = text.as_bytes().to_vec();
        if self.plan.liar == Some(self.joints[joint].home) && self.rng.chance(300) {
            payload = self.forged(joint, &payload);
        }
        if self.joints[joint].stream.len() >= self.plan.stream_max {
            self.oracle.seen.insert("stream full");
            let never = None;
            return self.bridge(joint, BridgeInput::Unpublished { number, never });
        }
        if self.rng.chance(self.plan.stream_loses) {
            return Ok(());
        }
        let copies = 1 + u64::from(self.rng.chance(self.plan.stream_doubles));
        for _ in 0..copies {
            let later = self.rng.range(0, self.plan.delay_ms);
            self.after(later, Event::Publish(joint, head.clone(), payload.clone()));
        }
        Ok(())
    }

    /// What a bridge says that does not tell the truth.
    fn forged(&mut self, joint: usize, payload: &[u8]) -> Vec<u8> {
        let Ok(decoded) = Envelope::decode(payload) else {
            return Vec::new();
        };
        let other = NAMES[self.joints[joint].abroad];
        let mut envelope = decoded.envelope;
        envelope.from = self
            .rng
            .pick(&["p0", "p1@gamma", "p9@delta", "p2@alpha@delta"])
            .into();
        if self.rng.chance(300) {
            envelope.from = format!("p1@{other}");
        }
        let forged = peerbus_wire::Decoded {
            envelope,
            irregular: None,
        };
        let own = NAMES[self.joints[joint].home];
        let text = forged.carry().ok().map(|it| it.text.as_bytes().to_vec());
        match text {
            Some(text) if !forged.envelope.from.ends_with(&format!("@{own}")) => text,
            _ => payload.to_vec(),
        }
    }

    pub(super) fn arrives(&mut self, joint: usize, head: String, payload: Vec<u8>) {
        let number = self.number();
        let now_ms = self.now_ms;
        self.joints[joint].stream.put(number, now_ms, head, payload);
    }

    /// A bridge's consumer looks into the stream.
    pub(super) fn pull(&mut self, joint: usize) -> Verdict {
        let other = self.other(joint);
        if self.plan.full > 0 && !self.healing && self.joints[other].stream.len() > 1 {
            // What is taken now meets a disk that is full for a moment.
            let home = self.joints[joint].home;
            if self.rng.chance(100) {
                let later = self.rng.range(0, 3);
                self.after(later, Event::Full(home, true));
            }
        }
        while self.joints[joint]
            .bridge
            .as_ref()
            .is_some_and(Bridge::takes)
            && let Some((stream, entry)) = self.joints[other].stream.pull(self.now_ms)
        {
            let payload = entry.payload;
            self.trace
                .note(self.now_ms, "pulled", joint as u64, &entry.head);
            let head = entry.head;
            self.bridge(
                joint,
                BridgeInput::Stream {
                    stream,
                    head,
                    payload,
                },
            )?;
        }
        self.after(PULL_MS, Event::Pull(joint));
        Ok(())
    }

    /// A bridge says something outside of the stream.
    fn outside(&mut self, joint: usize, text: String) -> Verdict {
        self.trace.note(self.now_ms, "outside", joint as u64, &text);
        let outside = Outside::parse(text.as_bytes());
        if let Ok(Outside {
            saying: Saying::Noted(told),
            ..
        }) = &outside
        {
            let tables = self.homes[self.joints[joint].home].store.tables();
            let owed = told
                .iter()
                .find(|told| told.end && told.number > 0 && owed_abroad(tables, told.number, None));
            // Who lies is noted whatever it says.
            ensure(
                owed.is_none() || self.oracle.liar.is_some(),
                "noted",
                || format!("{owed:?} is noted and not on disk"),
            )?;
        }
        let other = self.other(joint);
        let mut texts = vec![text];
        if self.plan.liar == Some(self.joints[joint].home)
            && let Ok(outside) = outside
        {
            texts.extend(self.lie(outside.epoch, outside.meant_for));
        }
        for text in texts {
            if self.rng.chance(self.plan.outside_loses) {
                continue;
            }
            let copies = 1 + u64::from(self.rng.chance(self.plan.outside_doubles));
            for _ in 0..copies {
                let later = self.rng.range(0, self.plan.delay_ms);
                let bytes = text.clone().into_bytes();
                self.after(later, Event::Outside(other, bytes));
            }
        }
        Ok(())
    }

    /// A statement about any message of the other side's.
    fn lie(&mut self, epoch: Epoch, meant_for: Option<Epoch>) -> Option<String> {
        let number = self.rng.range(1, 40);
        let item = StreamItem::new(number, None, 0, Stage::Acked(None));
        let (items, answer) = (vec![item], self.rng.chance(500));
        let lie = Outside {
            epoch,
            meant_for: Some(meant_for?),
            saying: Saying::Stages { items, answer },
        };
        Some(lie.encode())
    }
}
