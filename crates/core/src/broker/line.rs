//! The mail that waits for a connection, by sender, and whose turn it is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use peerbus_wire::Seq;

use super::flights::{Flights, Payer};
use crate::Delivered;
use crate::store::PeerId;

/// First messages of a token's that are looked at for one that has room in what is kept.
const LOOKS_MAX: usize = 16;

/// By sender: the first of its messages that is pending and was not delivered on a connection.
#[derive(Debug)]
pub(super) struct Line {
    heads: BTreeMap<PeerId, Head>,
    /// Senders whose share has room for the first message of theirs, by that message.
    ready: BTreeMap<Seq, PeerId>,
    /// The same by what they have in flight: no turn looks at all of them.
    least: BTreeMap<(usize, Seq), PeerId>,
    /// Senders who may have their first message in what is kept, by what is known of it and by the
    /// token that it counts for.
    asking: BTreeMap<(Wish, Payer), BTreeMap<Seq, PeerId>>,
    /// What waits on disk is known.
    pub(super) loaded: bool,
}

/// The first message of a sender that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    seq: Seq,
    /// Of its frame, once it did not fit; until then the least.
    bytes: usize,
    wish: Wish,
    /// The token that it counts for in what is kept.
    payer: Payer,
    /// It may be older than what was delivered of its sender.
    inherited: bool,
    /// What its sender has in flight, where its share has room.
    ready: Option<usize>,
    /// It may be in what is kept.
    asks: bool,
}

/// How soon a message wants to be seen. In this order there is room in what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    Urgent,
    /// It was not read.
    Unknown,
    Calm,
}

impl Head {
    fn new(seq: Seq, payer: Payer) -> Self {
        Self {
            seq,
            bytes: 1,
            wish: Wish::Unknown,
            payer,
            inherited: false,
            ready: None,
            asks: false,
        }
    }

    /// One that was read and did not fit.
    fn read(Unfit { seq, bytes, urgent }: Unfit, payer: Payer) -> Self {
        Self {
            bytes,
            wish: if urgent { Wish::Urgent } else { Wish::Calm },
            ..Self::new(seq, payer)
        }
    }

    /// The same as its sender's deliveries are now.
    fn beside(self, sender: PeerId, flights: &Flights) -> Self {
        let has_room = flights.fits_share(sender, self.bytes);
        Self {
            ready: has_room.then(|| flights.held_of(sender)),
            asks: flights.may_keep(sender, self.wish != Wish::Calm),
            ..self
        }
    }
}

/// What is known of a message that did not fit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unfit {
    pub(super) seq: Seq,
    /// Of its frame.
    pub(super) bytes: usize,
    /// It says that it is urgent.
    pub(super) urgent: bool,
}

/// What is read and delivered next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) sender: PeerId,
    /// It goes into what is kept, and counts for this token there.
    pub(super) kept: Option<Payer>,
    /// The first message.
    pub(super) from: Seq,
    /// From here on the message of another is older.
    pub(super) until: Seq,
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

impl Line {
    /// With `loaded`, nothing waits.
    pub(super) fn new(loaded: bool) -> Self {
        Self {
            heads: BTreeMap::new(),
            ready: BTreeMap::new(),
            least: BTreeMap::new(),
            asking: BTreeMap::new(),
            loaded,
        }
    }

    /// Takes what waits on disk.
    pub(super) fn load(&mut self, heads: Vec<(PeerId, Payer, Seq)>, flights: &Flights) {
        *self = Self::new(true);
        for (sender, payer, seq) in heads {
            self.put(sender, Head::new(seq, payer), flights);
        }
    }

    /// A message that was accepted this moment waits, the first of its sender.
    pub(super) fn add(&mut self, of: (PeerId, Payer), unfit: Unfit, flights: &Flights) {
        let (sender, payer) = of;
        self.put(sender, Head::read(unfit, payer), flights);
    }

    /// An older message has come from a name that ended.
    pub(super) fn inherit(&mut self, of: (PeerId, Payer), seq: Seq, flights: &Flights) {
        let (sender, payer) = of;
        let known = self.heads.get(&sender).copied();
        let head = known.filter(|head| head.seq <= seq);
        let mut head = head.unwrap_or(Head::new(seq, payer));
        head.inherited = true;
        self.put(sender, head, flights);
    }

    /// The first message of `sender` that waits from now on, and what is known of it if it did not fit.
    pub(super) fn set(
        &mut self,
        sender: PeerId,
        next: Option<Seq>,
        unfit: Option<Unfit>,
        flights: &Flights,
    ) {
        let Some(old) = self.heads.remove(&sender) else {
            return;
        };
        self.unlist(&old);
        let read = unfit.map(|unfit| Head::read(unfit, old.payer));
        let head = read.or_else(|| next.map(|next| Head::new(next, old.payer)));
        if let Some(head) = head {
            let inherited = old.inherited;
            self.put(sender, Head { inherited, ..head }, flights);
        }
    }

    /// The sender has more in flight, or less.
    pub(super) fn weigh(&mut self, sender: PeerId, flights: &Flights) {
        if let Some(head) = self.heads.get(&sender).copied() {
            self.put(sender, head, flights);
        }
    }

    fn put(&mut self, sender: PeerId, head: Head, flights: &Flights) {
        let head = head.beside(sender, flights);
        if let Some(old) = self.heads.insert(sender, head) {
            if old == head {
                return;
            }
            self.unlist(&old);
        }
        if let Some(holds) = head.ready {
            self.ready.insert(head.seq, sender);
            self.least.insert((holds, head.seq), sender);
        }
        if head.asks {
            let asking = self.asking.entry((head.wish, head.payer)).or_default();
            asking.insert(head.seq, sender);
        }
    }

    fn unlist(&mut self, head: &Head) {
        if let Some(holds) = head.ready {
            self.ready.remove(&head.seq);
            self.least.remove(&(holds, head.seq));
        }
        if let Entry::Occupied(mut asking) = self.asking.entry((head.wish, head.payer)) {
            asking.get_mut().remove(&head.seq);
            if asking.get().is_empty() {
                asking.remove();
            }
        }
    }

    /// Whether each sender is listed as what it has in flight demands.
    pub(super) fn is_weighed(&self, flights: &Flights) -> bool {
        let mut heads = self.heads.iter();
        heads.all(|(sender, head)| *head == head.beside(*sender, flights))
    }

    pub(super) fn has(&self, sender: PeerId) -> bool {
        self.heads.contains_key(&sender)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// What a connection went past whose highest delivery is `cursor`.
    pub(super) fn passed(&self, cursor: Seq) -> Delivered {
        let heads = self.heads.iter();
        // Where older mail came later, newer of the same sender may have been delivered.
        let before = heads.filter(|(_, head)| head.seq <= cursor && !head.inherited);
        Delivered {
            to: cursor,
            except: before.map(|(sender, head)| (*sender, head.seq)).collect(),
        }
    }

    /// What is to be read next and has room. As long as half of the window is free, the oldest
    /// message is next; then the sender with the least in flight is, the first of several.
    pub(super) fn turn(&self, flights: &Flights) -> Option<Turn> {
        let crowded = flights.is_crowded();
        let mut oldest = self.ready.iter();
        let (_, sender) = oldest.next()?;
        let sender = match crowded {
            true => *self.least.first_key_value()?.1,
            false => *sender,
        };
        let other = oldest.next().map(|(seq, _)| *seq);
        let head = self.heads.get(&sender)?;
        let (messages, bytes) = flights.room(sender, head.bytes)?;
        Some(Turn {
            sender,
            kept: None,
            from: head.seq,
            until: other.filter(|_| !crowded).unwrap_or(Seq(u64::MAX)),
            messages: if crowded && other.is_some() {
                1
            } else {
                messages
            },
            bytes,
        })
    }

    /// What waits and has room in what is kept: the oldest that is urgent, or else the oldest one
    /// that was not read, or else the oldest. Of those that count for one token, and whose sender
    /// may have one there, some are looked at: where they have no room, no more of its have.
    pub(super) fn kept_turn(&self, flights: &Flights) -> Option<Turn> {
        if !flights.has_kept_room() {
            return None;
        }
        let turn = |wish: Wish| {
            let urgent = wish != Wish::Calm;
            let asking = self.asking.range((wish, None)..);
            let asking = asking.take_while(|((of, _), _)| *of == wish);
            let fits = asking.filter_map(|((_, payer), heads)| {
                let heads = heads.values().take(LOOKS_MAX);
                heads
                    .filter_map(|sender| Some((*sender, self.heads.get(sender)?)))
                    .find(|(sender, head)| flights.fits_kept((*sender, *payer), head.bytes, urgent))
            });
            fits.min_by_key(|(_, head)| head.seq)
        };
        let mut wishes = [Wish::Urgent, Wish::Unknown, Wish::Calm].into_iter();
        let (sender, head) = wishes.find_map(turn)?;
        Some(Turn {
            sender,
            kept: Some(head.payer),
            from: head.seq,
            until: Seq(u64::MAX),
            messages: 1,
            bytes: 1,
        })
    }

    /// Whether a new message of `sender` is next: none of its own waits, and none of others whose
    /// share has room.
    pub(super) fn is_next(&self, sender: PeerId) -> bool {
        self.loaded && !self.has(sender) && self.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use peerbus_wire::{MessageId, Window};

    use crate::Now;
    use crate::broker::flights::Flight;
    use crate::broker::shares::Shares;
    use crate::store::{DeliveryHistory, MessageHead};

    fn unfit(seq: u32, urgent: bool) -> Unfit {
        Unfit {
            seq: Seq(u64::from(seq)),
            bytes: 100,
            urgent,
        }
    }

    fn flights(messages: u32) -> Flights {
        let window = Window {
            messages,
            bytes: messages * 1_000,
        };
        Flights::new(window, Some(Shares::of(window)))
    }

    fn put(flights: &mut Flights, (sender, seq): (u32, u32), kept: Option<Payer>) {
        let head = MessageHead {
            seq: Seq(u64::from(seq)),
            sender: PeerId(sender),
            id: MessageId::parse("m").unwrap(),
            recipients: 1,
            accepted_ms: 0,
            bytes: 100,
        };
        let flight = Flight::new(head, None, 1, (DeliveryHistory::default(), None));
        flights.insert(flight, kept, Now::default());
    }

    /// A message of a sender is in flight from now on.
    fn fly(line: &mut Line, flights: &mut Flights, (sender, seq): (u32, u32), kept: bool) {
        put(flights, (sender, seq), kept.then_some(None));
        line.weigh(PeerId(sender), flights);
        assert!(line.is_weighed(flights));
    }

    #[test]
    fn whose_turn_it_is_does_not_take_a_look_at_everybody_who_waits() {
        let (mut line, mut flights) = (Line::new(true), flights(4_096));
        for sender in 0..2_200 {
            line.add(
                (PeerId(sender), None),
                unfit(10_000 + sender, false),
                &flights,
            );
            put(&mut flights, (sender, sender), None);
            line.weigh(PeerId(sender), &flights);
        }
        assert!(flights.is_crowded() && line.is_weighed(&flights));
        // This does not end in the time that a test has if each turn looks at all of them.
        for _ in 0..100_000 {
            let turn = line.turn(&flights).unwrap();
            assert_eq!((turn.sender, turn.messages), (PeerId(0), 1));
            assert_eq!(
                line.kept_turn(&flights),
                None,
                "each has something in flight"
            );
            line.weigh(PeerId(7), &flights);
        }
        flights.remove(Seq(2_000));
        line.weigh(PeerId(2_000), &flights);
        let turn = line.turn(&flights).unwrap();
        assert_eq!(turn.sender, PeerId(2_000), "who has nothing in flight");
    }

    #[test]
    fn what_has_room_in_what_is_kept_is_found_without_a_look_at_everybody_who_waits() {
        let (mut line, mut flights) = (Line::new(true), flights(32));
        for n in 0..100_000 {
            line.add((PeerId(n), None), unfit(n, false), &flights);
        }
        // One calm message of a token has room there.
        let turn = line.kept_turn(&flights).unwrap();
        assert_eq!((turn.sender, turn.from), (PeerId(0), Seq(0)));
        fly(&mut line, &mut flights, (0, 0), true);
        // This does not end in the time that a test has if each turn looks at all of them.
        for _ in 0..1_000_000 {
            assert_eq!(line.kept_turn(&flights), None);
        }
        line.add((PeerId(100_000), None), unfit(100_000, true), &flights);
        let turn = line.kept_turn(&flights).unwrap();
        assert_eq!(turn.sender, PeerId(100_000), "what is urgent has room");
    }

    #[test]
    fn the_one_that_holds_least_is_chosen_and_of_several_the_first() {
        for (held, expected) in [
            (&[][..], None),
            (&[2], Some((0, 6))),
            (&[3, 2, 2, 4], Some((1, 1))),
            (&[5, 5], Some((0, 1))),
            (&[6, 4, 0, 0], Some((2, 1))),
        ] {
            let (mut line, mut flights) = (Line::new(true), flights(16));
            // So many of one who waits for nothing make it crowded.
            let crowd = 8_u32.saturating_sub(held.iter().sum());
            let all = held.iter().chain([&crowd]);
            let mut seq = 0;
            for (sender, held) in (0..).zip(all) {
                for _ in 0..*held {
                    seq += 1;
                    fly(&mut line, &mut flights, (sender, seq), false);
                }
            }
            for sender in 0..u32::try_from(held.len()).unwrap() {
                line.add((PeerId(sender), None), unfit(100 + sender, false), &flights);
            }
            let turn = line
                .turn(&flights)
                .map(|turn| (turn.sender.0, turn.messages));
            assert_eq!(turn, expected, "{held:?}");
        }
    }

    #[test]
    fn what_waits_is_found_by_sender_and_by_age_alike() {
        let (mut line, flights) = (Line::new(true), flights(16));
        let by_age = |line: &Line| -> Vec<_> {
            let by_sender = line.heads.iter().map(|(sender, head)| (head.seq, *sender));
            let mut by_sender: Vec<_> = by_sender.collect();
            by_sender.sort_unstable();
            let order: Vec<_> = line.ready.iter().map(|(seq, of)| (*seq, *of)).collect();
            assert_eq!(order, by_sender);
            let asking = line.asking.values().flatten();
            let mut asking: Vec<_> = asking.map(|(seq, of)| (*seq, *of)).collect();
            asking.sort_unstable();
            assert_eq!(order, asking);
            assert!(line.asking.values().all(|heads| !heads.is_empty()));
            assert_eq!(line.least.len(), order.len());
            order.into_iter().map(|(seq, of)| (seq.0, of.0)).collect()
        };
        line.load(
            vec![(PeerId(1), None, Seq(7)), (PeerId(2), None, Seq(5))],
            &flights,
        );
        line.add((PeerId(3), None), unfit(9, false), &flights);
        assert_eq!(by_age(&line), [(5, 2), (7, 1), (9, 3)]);
        line.set(PeerId(2), Some(Seq(8)), None, &flights);
        line.inherit((PeerId(3), None), Seq(4), &flights);
        line.inherit((PeerId(1), None), Seq(11), &flights);
        assert_eq!(by_age(&line), [(4, 3), (7, 1), (8, 2)]);
        line.set(PeerId(1), None, None, &flights);
        line.set(PeerId(4), Some(Seq(12)), None, &flights);
        assert_eq!(by_age(&line), [(4, 3), (8, 2)]);
    }
}
