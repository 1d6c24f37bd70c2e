//! What was forwarded and is not heard of: its home asks, and the other side answers.

use std::collections::{BTreeMap, BTreeSet};

use peerbus_wire::bridge::{ASK_MAX, ITEMS_MAX, Inquiry, Saying, StreamItem};
use peerbus_wire::{ClientFrame, Forwarded, MessageId, Seq, Stage};

use super::mutation::BridgeMutation;
use super::{Barrier, Bridge};

/// The first question after a start.
const FIRST_MS: u64 = 2_000;
/// Between two questions while there is more to ask.
const NEXT_MS: u64 = 1_000;
/// Between the last question and the first one of the next round.
const ROUND_MS: u64 = 60_000;

/// Why a message is dead that was taken for nobody, when its notice is gone.
const FOR_NOBODY: &str = "the other broker took it for nobody; why is not known there any more";

#[derive(Debug, Default)]
pub(super) struct Asking {
    pub(super) due_ms: u64,
    /// The last number that was asked about in this round.
    after: Option<u64>,
    /// What the last question was about.
    pub(super) page: BTreeSet<u64>,
    /// How many rounds there were on this connection.
    pub(super) round: u64,
    /// One round was not enough: the next one begins soon.
    pub(super) again: bool,
}

impl Asking {
    /// A connection to the own broker begins.
    pub(super) fn begin(&mut self, now_ms: u64) {
        *self = Self {
            due_ms: now_ms + FIRST_MS,
            ..Self::default()
        };
    }

    /// There is something to be found out.
    pub(super) fn hurry(&mut self, now_ms: u64) {
        self.due_ms = self.due_ms.min(now_ms + NEXT_MS);
    }
}

/// What is asked of the own broker for the other side: number, and the newest that is known.
pub(super) type Answering = BTreeMap<MessageId, (u64, Option<(u64, Stage)>)>;

impl Bridge {
    /// Asks the own broker what it does not know the end of, if that is due.
    pub(super) fn ask_due(&mut self, now_ms: u64) {
        if self.asking.due_ms > now_ms || !self.far.is_here() {
            return;
        }
        self.asking.due_ms = now_ms + ROUND_MS;
        if !self.mutations.broken(BridgeMutation::NeverAsk) {
            let after = self.asking.after.map(|number| Seq(number).key());
            self.order(ClientFrame::Forwarded { after });
        }
    }

    /// Asks the other side about what the own broker named.
    pub(super) fn ask(&mut self, now_ms: u64, forwarded: Vec<Forwarded>) {
        let about = |Forwarded { key, id }| {
            Some(Inquiry {
                number: key.seq()?.0,
                id,
            })
        };
        let messages: Vec<_> = forwarded
            .into_iter()
            .filter_map(about)
            .take(ASK_MAX)
            .collect();
        self.asking.after = messages.last().map(|message| message.number);
        if messages.is_empty() {
            self.asking.round += 1;
            self.all_placed(self.asking.round - 1);
            if std::mem::take(&mut self.asking.again) {
                self.asking.hurry(now_ms);
            }
            return;
        }
        self.asking.due_ms = now_ms + NEXT_MS;
        self.asking.page = messages.iter().map(|message| message.number).collect();
        self.placed(now_ms, &messages);
        self.say(Saying::Ask(messages));
    }

    /// The other side asks what became of its messages.
    pub(super) fn asked(&mut self, messages: Vec<Inquiry>) {
        if !self.answering.is_empty() {
            // One question at a time; it is asked again.
            return;
        }
        for Inquiry { number, id } in messages {
            if !self.taking.holds(&id) {
                self.know(id.clone(), number);
                self.answering.insert(id, (number, None));
            }
        }
        if !self.answering.is_empty() {
            let ids = self.answering.keys().cloned().collect();
            self.order(ClientFrame::Status { ids });
            self.ask_barrier(Barrier::Statuses);
        }
    }

    /// Whether the own broker was asked about this message and has not answered yet.
    pub(super) fn is_asked(&self, id: &MessageId) -> bool {
        self.answering.contains_key(id)
    }

    /// The own broker says something of a message that it was asked about, in order of time.
    pub(super) fn collect(&mut self, id: &MessageId, at_ms: Option<u64>, stage: Stage) {
        let stage = match stage {
            Stage::Accepted(accepted) if accepted.recipients == 0 => Stage::Dead {
                why: FOR_NOBODY.into(),
            },
            stage => stage,
        };
        let answered = matches!(
            stage,
            Stage::Done { .. } | Stage::Failed { .. } | Stage::Withdrawn
        );
        let tellable = stage.is_final() && !answered
            || stage.is_progress()
            || matches!(
                stage,
                Stage::Delivered | Stage::Settled { .. } | Stage::Unknown
            );
        if let Some((_, newest)) = self.answering.get_mut(id)
            && tellable
            && newest
                .as_ref()
                .is_none_or(|(_, known)| !known.is_final() || stage.is_end())
        {
            *newest = Some((at_ms.unwrap_or_default(), stage));
        }
    }

    /// The own broker has said all that was asked.
    pub(super) fn answer(&mut self) {
        let asked = std::mem::take(&mut self.answering).into_iter();
        let items: Vec<_> = asked
            .filter_map(|(id, (number, newest))| {
                let (at_ms, stage) = newest?;
                Some(StreamItem::new(number, Some(id), at_ms, stage))
            })
            .collect();
        for items in items.chunks(ITEMS_MAX) {
            let items = items.to_vec();
            let answer = true;
            self.say(Saying::Stages { items, answer });
        }
    }
}
