//! What the own broker says of messages that were taken: told to their home until it has noted it.

use std::collections::{BTreeMap, VecDeque};

use peerbus_wire::bridge::{ITEMS_MAX, Saying, StreamItem, Told};
use peerbus_wire::{ClientFrame, DeliveryKey, MessageId, Receipt, Stage};

use super::hello::SOON_MS;
use super::mutation::BridgeMutation;
use super::take::TURN_MS;
use super::{Bridge, BridgeEvent};

/// Most statements that wait to be noted. What does not fit, the other side asks for.
pub const TELLS_MAX: usize = 4_096;
/// So many messages' numbers are remembered, for what is said of them by id.
pub const KNOWN_MAX: usize = 16_384;
/// What is not noted is told again after so long, at first, and at most after so long.
const REPEAT_MIN_MS: u64 = 1_000;
const REPEAT_MAX_MS: u64 = 30_000;

/// A statement that the other side has not noted.
#[derive(Debug)]
struct Tell {
    item: StreamItem,
    /// The own broker keeps it until this key is acked.
    notice: Option<DeliveryKey>,
    due_ms: u64,
    wait_ms: u64,
}

/// The id of a message that was taken, or the number of one that was not.
type TellKey = (Option<MessageId>, u64);

/// What is to be told, by message.
#[derive(Debug, Default)]
pub(super) struct Telling {
    tells: BTreeMap<TellKey, Tell>,
    known: BTreeMap<MessageId, u64>,
    /// The ids in `known`, oldest first.
    order: VecDeque<MessageId>,
    pub(super) due_ms: Option<u64>,
}

impl Bridge {
    /// The message of this id has this number at its home.
    pub(super) fn know(&mut self, id: MessageId, number: u64) {
        let telling = &mut self.telling;
        if telling.known.insert(id.clone(), number).is_none() {
            telling.order.push_back(id);
            if telling.order.len() > KNOWN_MAX
                && let Some(oldest) = telling.order.pop_front()
            {
                telling.known.remove(&oldest);
            }
        }
    }

    /// The own broker says what became of messages.
    pub(super) fn receipts(&mut self, now_ms: u64, receipts: Vec<Receipt>) {
        for receipt in receipts {
            let Receipt { id, at_ms, key, .. } = receipt;
            match receipt.stage {
                Stage::Accepted(accepted) if self.answers_take(&id) => {
                    self.accepted(now_ms, accepted);
                }
                Stage::Refused(refusal) if self.answers_take(&id) => {
                    self.not_accepted(now_ms, refusal);
                }
                stage if key.is_none() && self.is_asked(&id) => {
                    self.collect(&id, at_ms, stage);
                }
                Stage::Accepted(_)
                | Stage::Refused(_)
                | Stage::Queued
                | Stage::Forwarded
                | Stage::Settled { .. }
                | Stage::Unknown => {}
                // The answer itself goes home, and ends the request there.
                Stage::Done { .. } | Stage::Failed { .. } if key.is_none() => {}
                Stage::Owed | Stage::Withdrawn => {}
                mut stage => {
                    if let Stage::Done { reply } | Stage::Failed { reply } = &stage {
                        let why = format!("its answer {reply} found no room on its way");
                        stage = Stage::Unanswered { why };
                    }
                    let number = self.telling.known.get(&id).copied().unwrap_or_default();
                    if stage == Stage::Delivered
                        && self.mutations.broken(BridgeMutation::Exaggerate)
                    {
                        stage = Stage::Acked(None);
                    }
                    let item = StreamItem::new(number, Some(id), at_ms.unwrap_or_default(), stage);
                    let of = item.told.id.clone();
                    self.tell((of, 0), now_ms, item, key);
                }
            }
        }
    }

    /// Tells the other side that a message was not taken, until it has noted it.
    pub(super) fn tell_refused(
        &mut self,
        now_ms: u64,
        number: u64,
        id: Option<MessageId>,
        why: String,
    ) {
        let item = StreamItem::new(number, id, 0, Stage::Dead { why });
        self.tell((None, number), now_ms, item, None);
        // What follows waits for it.
        self.telling.due_ms = Some(now_ms);
    }

    fn tell(&mut self, key: TellKey, now_ms: u64, item: StreamItem, notice: Option<DeliveryKey>) {
        if self.mutations.broken(BridgeMutation::AckNotices)
            && let Some(key) = &notice
        {
            self.ack_notice(key.clone());
        }
        let tells = &mut self.telling.tells;
        match tells.get(&key) {
            Some(tell) if tell.item == item && tell.notice == notice => return,
            // What has ended has ended.
            Some(tell) if tell.item.told.end && !item.told.end => return,
            None if tells.len() >= TELLS_MAX => return self.event(BridgeEvent::Crowded),
            _ => {}
        }
        // The end may follow: then nobody needs to hear of the way.
        let wait_ms = if item.told.end { SOON_MS } else { TURN_MS };
        let due_ms = now_ms + wait_ms;
        let tell = Tell {
            item,
            notice,
            due_ms,
            wait_ms: REPEAT_MIN_MS,
        };
        tells.insert(key, tell);
        self.telling.due_ms = Some(self.telling.due_ms.map_or(due_ms, |at| at.min(due_ms)));
    }

    fn ack_notice(&mut self, key: DeliveryKey) {
        self.order(ClientFrame::ack(key, None));
    }

    pub(super) fn tell_due(&mut self, now_ms: u64) {
        if self.telling.due_ms.is_none_or(|at| at > now_ms) || !self.far.is_here() {
            return;
        }
        let never = self.mutations.broken(BridgeMutation::NeverAsk);
        let mut items = Vec::new();
        for tell in self.telling.tells.values_mut() {
            if tell.due_ms <= now_ms + SOON_MS {
                tell.due_ms = if never {
                    u64::MAX
                } else {
                    now_ms + tell.wait_ms
                };
                tell.wait_ms = (2 * tell.wait_ms).min(REPEAT_MAX_MS);
                items.push(tell.item.clone());
            }
        }
        self.telling.due_ms = self.telling.tells.values().map(|tell| tell.due_ms).min();
        // In the order in which it came to be, as far as that is known.
        items.sort_by_key(|item| item.told.at_ms);
        for items in items.chunks(ITEMS_MAX) {
            let items = items.to_vec();
            let answer = false;
            self.say(Saying::Stages { items, answer });
        }
    }

    /// The other side has passed these on.
    pub(super) fn noted(&mut self, told: &[Told]) {
        for told in told {
            let tells = &self.telling.tells;
            let is = |key: &TellKey| tells.get(key).is_some_and(|tell| tell.item.told == *told);
            let keys = [(told.id.clone(), 0), (None, told.number)];
            let Some(key) = keys.into_iter().find(is) else {
                continue;
            };
            let tell = self.telling.tells.remove(&key);
            if let Some(key) = tell.and_then(|tell| tell.notice) {
                self.ack_notice(key);
            }
        }
    }
}
