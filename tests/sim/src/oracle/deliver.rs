//! A delivery leaves the broker.

use peerbus_core::broker::ConnId;
use peerbus_core::store::PeerId;
use peerbus_wire::limits::{WINDOW_V1_BYTES, WINDOW_V1_MESSAGES};
use peerbus_wire::{Conversation, Delivery, Priority, Received, Seq, Window};

use super::{Flight, Oracle};
use crate::failure::{Failure, Verdict, ensure};

impl Oracle {
    pub(super) fn delivered(&mut self, conn: ConnId, text: &str) -> Verdict {
        let Received::Deliver(delivery) = Received::parse(text.as_bytes()) else {
            return Err(Failure::new(
                "I6",
                format!("a deliver frame cannot be read: {text}"),
            ));
        };
        let Some(seq) = self.keyed(conn, &delivery) else {
            return Err(Failure::new(
                "key",
                format!("{:?} is no key of ours", delivery.key),
            ));
        };
        let Some(peer) = self.conns.get(&conn).and_then(|model| model.peer) else {
            return Ok(());
        };
        let name = self.name_of(peer);
        ensure(self.durable.messages.contains_key(&seq), "I1", || {
            format!(
                "message {} was delivered to {name} and is not on disk",
                seq.0
            )
        })?;
        ensure(self.owed_ever(peer, seq), "I4", || {
            format!(
                "message {} was delivered to {name}, to whom it is not owed",
                seq.0
            )
        })?;
        self.unaltered(seq, text)?;
        let from = &delivery.envelope.envelope.from;
        let author = self
            .history
            .get(&seq)
            .map(|accepted| accepted.from.as_str());
        ensure(author == Some(from), "I10", || {
            format!(
                "message {} of {author:?} was delivered as from {from}",
                seq.0
            )
        })?;
        self.said_again(conn, peer, seq, delivery.remarks.again)?;
        self.lease_delivered(peer, seq, delivery.remarks.again)?;
        self.not_again(conn, peer, seq)?;
        self.in_order(conn, peer, seq)?;
        if let Some(claim) = self.conns.get(&conn).and_then(|it| it.claim.as_ref()) {
            let got = (claim.name.to_ascii_lowercase(), seq);
            self.hosts.got.insert(got, peer);
        }
        let body = delivery.envelope.envelope.body.as_slice();
        let body = std::str::from_utf8(body).unwrap_or_default();
        let urgent = Conversation::of(body).priority == Priority::Now;
        self.in_window(conn, seq, (text.len(), urgent))
    }

    /// What is delivered under this key, if it names nothing else that is in flight here.
    fn keyed(&mut self, conn: ConnId, delivery: &Delivery) -> Option<Seq> {
        let Some(model) = self.conns.get(&conn).filter(|model| !model.ext) else {
            return delivery.key.seq();
        };
        let envelope = &delivery.envelope.envelope;
        let author = (envelope.from.to_ascii_lowercase(), envelope.id.clone());
        // A temporary peer that came back is another sender, and may have sent the same again.
        let same = |seq: &Seq| {
            let head = self.view.messages.get(seq).map(|message| &message.head);
            head.is_some_and(|head| {
                let named = self.any_name(head.sender, |name| *name == author.0);
                named && head.id.as_str() == author.1 && !model.flights.contains_key(seq)
            })
        };
        let owed = self.view.owed_between(model.peer?, Seq(0), Seq(u64::MAX));
        let seq = owed.filter(same).min();
        let seq = seq.or_else(|| self.ever.get(&author).copied())?;
        let name = model.claim.as_ref().map(|claim| claim.name.as_str());
        let form = match envelope.to.as_str() {
            to if to == "*" || to.starts_with('#') => {
                format!("{}|{}", envelope.id, name.unwrap_or_default())
            }
            _ => envelope.id.clone(),
        };
        let key = delivery.key.as_str();
        let is_form = key == form || key == format!("{form}#{}", seq.0);
        let owed = |other: &Seq| {
            let peer = model.peer.unwrap_or_default();
            *other != seq && self.view.debts.contains(&(peer, *other))
        };
        if !is_form || model.keys.get(&delivery.key).is_some_and(owed) {
            return None;
        }
        self.conn(conn).keys.insert(delivery.key.clone(), seq);
        Some(seq)
    }

    fn owed_ever(&self, peer: PeerId, seq: Seq) -> bool {
        let accepted = self.history.get(&seq);
        let owed = accepted.is_some_and(|it| it.recipients.contains_key(&peer));
        owed || self.taken.contains(&(peer, seq))
    }

    /// The envelope on the wire is what was stored, and that is what was signed.
    fn unaltered(&self, seq: Seq, text: &str) -> Verdict {
        const MARK: &str = r#","envelope":"#;
        let at = text.find(MARK).map_or(0, |at| at + MARK.len());
        let envelope = text.get(at..text.len() - 1).unwrap_or_default();
        let Some(message) = self.durable.messages.get(&seq) else {
            return Ok(());
        };
        let signed = self.hosts.is_signed(envelope);
        ensure(*message.envelope == *envelope && signed, "I6", || {
            format!("message {} is not what was signed: {envelope}", seq.0)
        })
    }

    /// What left for an earlier connection of the name says so when it comes again.
    fn said_again(&mut self, conn: ConnId, peer: PeerId, seq: Seq, again: bool) -> Verdict {
        let before = self.left.insert((peer, seq), Some(conn));
        // Of a broadcast it may have had its own copy before somebody else's.
        let message = self.durable.messages.get(&seq);
        let copy = message.is_some_and(|message| message.head.recipients > 1)
            && self.inherited.contains(&(peer, seq));
        let owed = !copy && before.is_some_and(|before| before != Some(conn));
        let ext = self.conns.get(&conn).is_some_and(|model| model.ext);
        ensure(if ext { again || !owed } else { !again }, "again", || {
            let name = self.name_of(peer);
            format!("message {} comes to {name} as new", seq.0)
        })
    }

    /// What was acked, and the ack committed, before this connection registered does not come
    /// again.
    fn not_again(&self, conn: ConnId, peer: PeerId, seq: Seq) -> Verdict {
        let greeted = self
            .conns
            .get(&conn)
            .and_then(|model| model.greeted)
            .unwrap_or(0);
        let acked = self
            .acked
            .get(&(peer, seq))
            .is_some_and(|commit| *commit < greeted);
        let ended = self
            .end_of(peer, seq)
            .is_some_and(|(_, commit)| commit < greeted);
        // Somebody else's copy of a broadcast.
        let inherited = self.inherited.contains(&(peer, seq));
        ensure(inherited || !acked && !ended, "I8", || {
            let name = self.name_of(peer);
            format!(
                "message {} was settled by {name} and is delivered again",
                seq.0
            )
        })
    }

    /// Of each sender in the order of acceptance; on a v1 connection, of all.
    fn in_order(&mut self, conn: ConnId, peer: PeerId, seq: Seq) -> Verdict {
        let Some(model) = self.conns.get(&conn) else {
            return Ok(());
        };
        let author = self.sender_of(seq);
        let sender = author.filter(|_| model.ext);
        let key = sender.unwrap_or_default();
        let (last, takeover) = (model.last.get(&key).copied(), model.takeover);
        let (last, first) = (last.unwrap_or_default(), last.is_none());
        // What was inherited comes in its own time.
        let handed_back = self.released.contains(&(peer, seq));
        if self.inherited.contains(&(peer, seq)) || handed_back && seq <= last {
            self.conn(conn).last.insert(key, last.max(seq));
            return Ok(());
        }
        ensure(seq > last, "I3", || {
            format!(
                "message {} was delivered after {} on {conn:?}",
                seq.0, last.0
            )
        })?;
        let mut between = self.durable.owed_between(peer, last, seq);
        let skipped = between.find(|seq| {
            let debt = (peer, *seq);
            let same = sender.is_none() || self.sender_of(*seq) == sender;
            same && self.view.debts.contains(&debt) && !self.inherited.contains(&debt)
        });
        let rule = if takeover && first { "I7" } else { "I3" };
        ensure(skipped.is_none(), rule, || {
            let name = self.name_of(peer);
            format!(
                "message {} was delivered to {name} on {conn:?} before {skipped:?}",
                seq.0
            )
        })?;
        drop(between);
        self.conn(conn).last.insert(key, seq);
        Ok(())
    }

    fn sender_of(&self, seq: Seq) -> Option<PeerId> {
        let message = self.durable.messages.get(&seq);
        message.map(|message| message.head.sender)
    }

    /// All that is in flight within the window, what is of one sender within half of it, and within all but
    /// an eighth what was neither its sender's first here nor urgent. What is may count less in bytes.
    fn in_window(&mut self, conn: ConnId, seq: Seq, (bytes, urgent): (usize, bool)) -> Verdict {
        let still_owed = |(peer, seq): (PeerId, Seq)| self.view.debts.contains(&(peer, seq));
        let owed = self.conns.get(&conn).and_then(|model| model.peer);
        let owed = owed.is_some_and(|peer| still_owed((peer, seq)));
        let sender = self.sender_of(seq).unwrap_or_default();
        let model = self.conn(conn);
        // Settled while its delivery waited for the commit.
        if !owed {
            return Ok(());
        }
        // What is exempt on a v1 connection is not counted here, so its bound is wider.
        let v1 = Window {
            messages: 2 * WINDOW_V1_MESSAGES,
            bytes: 2 * WINDOW_V1_BYTES,
        };
        let window = model.window.unwrap_or(v1);
        let half = Window {
            messages: window.messages.div_ceil(2),
            bytes: window.bytes.div_ceil(2),
        };
        let weight = match model.window {
            Some(_) => bytes.min(half.bytes as usize),
            None => bytes,
        };
        let first = model.flights.values().all(|flight| flight.sender != sender);
        let calm = !first && !urgent;
        let flight = Flight {
            sender,
            bytes: if calm || model.window.is_none() {
                weight
            } else {
                0
            },
            calm,
            urgent,
        };
        model.flights.insert(seq, flight);
        let fits = |limit: Window, of: &dyn Fn(&Flight) -> bool| {
            let flights = model.flights.values().filter(|flight| of(flight));
            let sum = |(n, sum), flight: &Flight| (n + 1, sum + flight.bytes);
            let (messages, bytes) = flights.fold((0, 0), sum);
            messages <= 1 || messages <= limit.messages as usize && bytes <= limit.bytes as usize
        };
        let kept = (window.messages / 8).max(u32::from(window.messages > 1));
        let common = Window {
            messages: window.messages - kept,
            bytes: window.bytes - window.bytes / 8,
        };
        let all = fits(window, &|_| true);
        let mine = fits(half, &|flight| flight.sender == sender && !flight.urgent);
        let calm = fits(common, &|flight| flight.calm);
        let shared = mine && calm || model.window.is_none();
        ensure(all && shared, "I5", || {
            format!("{:?} in flight on {conn:?}, {window:?}", model.flights)
        })
    }
}
