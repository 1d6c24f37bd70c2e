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
    /// The senders by the first message of each, so that no turn looks at all of them.
    order: BTreeMap<Seq, PeerId>,
    /// The same by what is known of that message, and by the token that it counts for.
    asking: BTreeMap<(Wish, Payer), BTreeMap<Seq, PeerId>>,
    /// What waits on disk is known.
    pub(super) loaded: bool,
}

/// The first message of a sender that waits.
#[derive(Debug, Clone, Copy)]
struct Head {
    seq: Seq,
    /// Of its frame, once it did not fit; until then the least.
    bytes: usize,
    wish: Wish,
    /// The token that it counts for in what is kept.
    payer: Payer,
    /// It may be older than what was delivered of its sender.
    inherited: bool,
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
            order: BTreeMap::new(),
            asking: BTreeMap::new(),
            loaded,
        }
    }

    /// Takes what waits on disk.
    pub(super) fn load(&mut self, heads: Vec<(PeerId, Payer, Seq)>) {
        *self = Self::new(true);
        for (sender, payer, seq) in heads {
            self.put(sender, Head::new(seq, payer));
        }
    }

    /// A message that was accepted this moment waits, the first of its sender.
    pub(super) fn add(&mut self, (sender, payer): (PeerId, Payer), unfit: Unfit) {
        self.put(sender, Head::read(unfit, payer));
    }

    /// An older message has come from a name that ended.
    pub(super) fn inherit(&mut self, (sender, payer): (PeerId, Payer), seq: Seq) {
        let known = self.heads.get(&sender).copied();
        let head = known.filter(|head| head.seq <= seq);
        let mut head = head.unwrap_or(Head::new(seq, payer));
        head.inherited = true;
        self.put(sender, head);
    }

    /// The first message of `sender` that waits from now on, and what is known of it if it did not fit.
    pub(super) fn set(&mut self, sender: PeerId, next: Option<Seq>, unfit: Option<Unfit>) {
        let Some(old) = self.heads.remove(&sender) else {
            return;
        };
        self.unlist(&old);
        let read = unfit.map(|unfit| Head::read(unfit, old.payer));
        let head = read.or_else(|| next.map(|next| Head::new(next, old.payer)));
        if let Some(head) = head {
            let inherited = old.inherited;
            self.put(sender, Head { inherited, ..head });
        }
    }

    fn put(&mut self, sender: PeerId, head: Head) {
        if let Some(old) = self.heads.insert(sender, head) {
            self.unlist(&old);
        }
        self.order.insert(head.seq, sender);
        let asking = self.asking.entry((head.wish, head.payer)).or_default();
        asking.insert(head.seq, sender);
    }

    fn unlist(&mut self, head: &Head) {
        self.order.remove(&head.seq);
        if let Entry::Occupied(mut asking) = self.asking.entry((head.wish, head.payer)) {
            asking.get_mut().remove(&head.seq);
            if asking.get().is_empty() {
                asking.remove();
            }
        }
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

    /// The senders whose share has room for their first message, the oldest message first. Whoever
    /// has nothing in flight is among them, so few others are passed over.
    fn ready(&self, flights: &Flights) -> impl Iterator<Item = (PeerId, &Head)> {
        let heads = self.order.values();
        let heads = heads.filter_map(|sender| Some((*sender, self.heads.get(sender)?)));
        heads.filter(|(sender, head)| flights.fits_share(*sender, head.bytes))
    }

    /// What is to be read next and has room. As long as half of the window is free, the oldest
    /// message is next; then the sender with the least in flight is.
    pub(super) fn turn(&self, flights: &Flights) -> Option<Turn> {
        let crowded = flights.is_crowded();
        let (sender, head, other) = choose(self.ready(flights), |sender| match crowded {
            true => flights.held_of(sender),
            false => 0,
        })?;
        let (messages, bytes) = flights.room(sender, head.bytes)?;
        Some(Turn {
            sender,
            kept: None,
            from: head.seq,
            until: other
                .filter(|_| !crowded)
                .map_or(Seq(u64::MAX), |other| other.seq),
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
                let may = heads
                    .iter()
                    .filter(|(_, sender)| flights.may_keep(**sender, urgent));
                let mut heads =
                    may.filter_map(|(_, sender)| Some((*sender, self.heads.get(sender)?)));
                heads
                    .by_ref()
                    .take(LOOKS_MAX)
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
    pub(super) fn is_next(&self, sender: PeerId, flights: &Flights) -> bool {
        let passes = || !self.has(sender) && self.ready(flights).next().is_none();
        self.loaded && (self.is_empty() || passes())
    }
}

/// Of senders in the order of their first messages the one that holds least, the first of several;
/// and another one, which is the next when none holds anything. Looks no further than it must:
/// nobody holds less than nothing.
fn choose<H: Copy>(
    mut ready: impl Iterator<Item = (PeerId, H)>,
    held: impl Fn(PeerId) -> usize,
) -> Option<(PeerId, H, Option<H>)> {
    let mut best: Option<(usize, PeerId, H)> = None;
    let mut other = None;
    while best.is_none_or(|(least, ..)| least > 0)
        && let Some((sender, head)) = ready.next()
    {
        let holds = held(sender);
        match best {
            Some((least, ..)) if least <= holds => {
                other.get_or_insert(head);
            }
            Some((.., passed)) => {
                other.get_or_insert(passed);
                best = Some((holds, sender, head));
            }
            None => best = Some((holds, sender, head)),
        }
    }
    let (_, sender, head) = best?;
    let other = other.or_else(|| ready.next().map(|(_, head)| head));
    Some((sender, head, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_turn_it_is_does_not_take_a_look_at_everybody_who_waits() {
        // Three have something in flight; a hundred thousand others have one message each.
        let held = |sender: PeerId| usize::from(sender.0 < 3) * (1 + sender.0 as usize);
        let mut looks = 0;
        let waiting = (0..100_000_u32).map(|n| (PeerId(n), n));
        let chosen = choose(waiting.inspect(|_| looks += 1), held);
        assert_eq!(chosen, Some((PeerId(3), 3, Some(1))));
        assert_eq!(looks, 4);
    }

    #[test]
    fn what_has_room_in_what_is_kept_is_found_without_a_look_at_everybody_who_waits() {
        use peerbus_wire::{MessageId, Window};

        use crate::Now;
        use crate::broker::flights::Flight;
        use crate::broker::shares::Shares;

        let window = Window {
            messages: 32,
            bytes: 32_000,
        };
        let mut flights = Flights::new(window, Some(Shares::of(window)));
        let now = Now::default();
        let mut line = Line::new(true);
        let unfit = |seq, urgent| Unfit {
            seq: Seq(seq),
            bytes: 100,
            urgent,
        };
        for n in 0..100_000 {
            line.add((PeerId(n), None), unfit(u64::from(n), false));
        }
        // One calm message of a token has room there.
        let turn = line.kept_turn(&flights).unwrap();
        assert_eq!((turn.sender, turn.from), (PeerId(0), Seq(0)));
        let id = MessageId::parse("m").unwrap();
        let flight = Flight::new((PeerId(0), 1), (id, None), (100, 0), true, now);
        flights.insert(Seq(0), flight, None, now);
        // This does not end in the time that a test has if each turn looks at all of them.
        for _ in 0..1_000_000 {
            assert_eq!(line.kept_turn(&flights), None);
        }
        line.add((PeerId(100_000), None), unfit(100_000, true));
        let turn = line.kept_turn(&flights).unwrap();
        assert_eq!(turn.sender, PeerId(100_000), "what is urgent has room");
    }

    #[test]
    fn the_one_that_holds_least_is_chosen_and_of_several_the_first() {
        let chosen = |held: &[usize]| {
            let waiting = (0..held.len()).map(|n| (PeerId(u32::try_from(n).unwrap()), n));
            choose(waiting, |sender| held[sender.0 as usize])
                .map(|(_, chosen, other)| (chosen, other))
        };
        for (held, expected) in [
            (&[][..], None),
            (&[0], Some((0, None))),
            (&[5], Some((0, None))),
            (&[0, 0, 0], Some((0, Some(1)))),
            (&[3, 2, 2, 4], Some((1, Some(0)))),
            (&[2, 3], Some((0, Some(1)))),
            (&[2, 1, 0, 0], Some((2, Some(0)))),
        ] {
            assert_eq!(chosen(held), expected, "{held:?}");
        }
    }

    #[test]
    fn what_waits_is_found_by_sender_and_by_age_alike() {
        let mut line = Line::new(true);
        let by_age = |line: &Line| -> Vec<_> {
            let by_sender = line.heads.iter().map(|(sender, head)| (head.seq, *sender));
            let mut by_sender: Vec<_> = by_sender.collect();
            by_sender.sort_unstable();
            let order: Vec<_> = line.order.iter().map(|(seq, of)| (*seq, *of)).collect();
            assert_eq!(order, by_sender);
            let asking = line.asking.values().flatten();
            let mut asking: Vec<_> = asking.map(|(seq, of)| (*seq, *of)).collect();
            asking.sort_unstable();
            assert_eq!(order, asking);
            assert!(line.asking.values().all(|heads| !heads.is_empty()));
            order.into_iter().map(|(seq, of)| (seq.0, of.0)).collect()
        };
        line.load(vec![(PeerId(1), None, Seq(7)), (PeerId(2), None, Seq(5))]);
        let unfit = |seq| Unfit {
            seq: Seq(seq),
            bytes: 1,
            urgent: false,
        };
        line.add((PeerId(3), None), unfit(9));
        assert_eq!(by_age(&line), [(5, 2), (7, 1), (9, 3)]);
        line.set(PeerId(2), Some(Seq(8)), None);
        line.inherit((PeerId(3), None), Seq(4));
        line.inherit((PeerId(1), None), Seq(11));
        assert_eq!(by_age(&line), [(4, 3), (7, 1), (8, 2)]);
        line.set(PeerId(1), None, None);
        line.set(PeerId(4), Some(Seq(12)), None);
        assert_eq!(by_age(&line), [(4, 3), (8, 2)]);
    }
}
