//! What a broker sends: writing it at the broker, reading it at the client.

use std::sync::Arc;

use crate::PROTOCOL_VERSION;
use crate::canonical::write_compact;
use crate::client::{window, write_window};
use crate::domain::{Domain, Mark};
use crate::entry::{entry, groups, write_entries, write_groups};
use crate::envelope::Envelope;
use crate::frame::{
    BrokerFrame, Delivery, Forwarded, JoinGrant, NameAnswer, PeersFrame, Presence, Recall,
    Received, Remarks,
};
use crate::ids::{DeliveryKey, MessageId, TokenName};
use crate::json::{self, Raw, Type};
use crate::limits::{
    FRAME_BYTES_MAX, NESTING_MAX, PEER_ENTRY_BYTES_MAX, PRESENCE_BYTES_MAX, REASON_BYTES_MAX,
};
use crate::members::{Member, Members};
use crate::name::PeerName;
use crate::stage::Receipt;
use crate::text::{cut, readable};
use crate::writer::Writer;

/// What the beginning and the end of a frame may take.
const FRAME_SLACK_BYTES: usize = 1_024;

impl BrokerFrame {
    /// Packs statements, in order, into as few frames as surely fit
    /// [`crate::limits::FRAME_BYTES_MAX`].
    pub fn receipts(receipts: Vec<Receipt>) -> impl Iterator<Item = Self> {
        let mut rest = receipts.into_iter().peekable();
        std::iter::from_fn(move || {
            let mut room = FRAME_BYTES_MAX - FRAME_SLACK_BYTES;
            let mut chunk = Vec::new();
            while let Some(receipt) = rest.next_if(|next| next.bytes_max() <= room) {
                room -= receipt.bytes_max();
                chunk.push(receipt);
            }
            (!chunk.is_empty()).then_some(Self::Receipts(chunk))
        })
    }

    /// Roughly what it takes of memory until it is written; exact for what can be large.
    #[must_use]
    pub fn weight(&self) -> usize {
        const RECEIPT: usize = 160;
        const ENTRY: usize = 1_280;
        const FIXED: usize = 96;
        FIXED
            + match self {
                Self::Deliver(deliver) => return deliver.text().len(),
                Self::Receipts(receipts) => receipts.iter().map(|it| RECEIPT + it.bytes()).sum(),
                Self::Forwarded(messages) => messages.len() * RECEIPT,
                Self::Recall(recall) => recall.reason.len(),
                Self::Renamed(_) | Self::Retired(_) | Self::Joined(_) => 0,
                Self::Peers(peers) => {
                    let names: usize = peers.names.iter().map(|name| name.len() + 3).sum();
                    names + peers.peers.as_ref().map_or(0, Vec::len) * ENTRY
                }
            }
    }

    /// The frame's text; a deliver frame shares its buffer. Never longer than a frame may be when
    /// `Receipts` was made by [`BrokerFrame::receipts`] and `Peers` has at most
    /// [`crate::limits::PEERS_ENTRIES_MAX`] entries; names that would not fit are left out.
    #[must_use]
    pub fn encode(&self) -> Arc<str> {
        match self {
            Self::Peers(peers) => write_peers(peers).into(),
            Self::Deliver(deliver) => Arc::clone(deliver.text()),
            Self::Receipts(receipts) => {
                let mut writer = Writer::frame("receipts");
                writer.name("receipts").begin(b'[');
                for receipt in receipts {
                    receipt.write(&mut writer);
                }
                writer.end(b']');
                writer.finish().into()
            }
            Self::Recall(Recall { key, reason }) => {
                let mut writer = Writer::frame("recall");
                let reason = cut(reason, REASON_BYTES_MAX);
                writer.string("id", key.as_str()).string("reason", &reason);
                writer.finish().into()
            }
            Self::Renamed(answer) => write_name_answer("renamed", answer).into(),
            Self::Retired(answer) => write_name_answer("retired", answer).into(),
            Self::Forwarded(messages) => {
                let mut writer = Writer::frame("forwarded");
                writer.name("messages").begin(b'[');
                for Forwarded { key, id } in messages {
                    writer.begin(b'{').string("key", key.as_str());
                    writer.string("id", id.as_str()).end(b'}');
                }
                writer.end(b']');
                writer.finish().into()
            }
            Self::Joined(JoinGrant { key, names }) => {
                let mut writer = Writer::frame("joined");
                writer.string("key", key).name("names").begin(b'[');
                for name in names {
                    writer.element(name);
                }
                writer.end(b']');
                writer.finish().into()
            }
        }
    }
}

impl Received {
    /// Reads a text message from a broker, v1 or ours. Never fails.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let Ok((members, Type::Object)) = Members::scan(bytes) else {
            return Self::Unknown;
        };
        if members.string(Member::ProtocolVersion).as_deref() != Some(PROTOCOL_VERSION) {
            return Self::Unknown;
        }
        let received = match members.frame_type().as_deref() {
            Some("peers") => peers(&members).map(Self::Peers),
            Some("deliver") => delivery(&members).map(|it| Self::Deliver(Box::new(it))),
            Some("receipts") => receipts(&members).map(Self::Receipts),
            Some("recall") => recalled(&members).map(Self::Recall),
            Some("renamed") => name_answer(&members).map(Self::Renamed),
            Some("retired") => name_answer(&members).map(Self::Retired),
            Some("forwarded") => forwarded(&members).map(Self::Forwarded),
            Some("joined") => joined(&members).map(Self::Joined),
            _ => None,
        };
        received.unwrap_or(Self::Unknown)
    }
}

impl Presence {
    /// Takes the text of a JSON object. `None` when it is no object, not UTF-8, nested deeper than
    /// a body may be, or over the limit without its white space.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::of(&json::value(text.as_bytes()).ok()?)
    }

    pub(crate) fn of(raw: &Raw<'_>) -> Option<Self> {
        if raw.kind != Type::Object || usize::from(raw.depth) > NESTING_MAX {
            return None;
        }
        let mut text = Vec::new();
        write_compact(raw.text, &mut text);
        let text = String::from_utf8(text).ok()?;
        let text = readable(&text);
        (text.len() <= PRESENCE_BYTES_MAX).then(|| Self(text.into()))
    }

    /// The JSON text: no white space outside strings, `<` `>` `&` escaped.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn write_peers(frame: &PeersFrame) -> String {
    let entries = frame.peers.as_ref().map_or(0, Vec::len);
    let room = FRAME_BYTES_MAX - FRAME_SLACK_BYTES;
    let room = room.saturating_sub(entries * PEER_ENTRY_BYTES_MAX);
    let mut writer = Writer::frame("peers");
    writer.name("names").begin(b'[');
    for name in &frame.names {
        // A list without its end beats a frame that no client may read.
        if writer.len() + 6 * name.len() > room {
            break;
        }
        writer.element(name);
    }
    writer.end(b']');
    writer.some_number("ext", frame.ext.map(u64::from));
    if let Some(window) = frame.window {
        write_window(window, &mut writer);
    }
    writer
        .some_string("domain", frame.domain.as_ref().map(Domain::as_str))
        .some_string("epoch", frame.epoch.as_ref().map(Mark::as_str))
        .some_string("mark", frame.mark.as_ref().map(Mark::as_str))
        .some_number("age_ms", frame.age_ms);
    if let Some(groups) = &frame.groups {
        write_groups("groups", groups, &mut writer);
    }
    let reason = frame.reason.as_ref();
    writer.some_string("reason", reason.map(|why| cut(why, REASON_BYTES_MAX)));
    if let Some(peers) = &frame.peers {
        write_entries(peers, &mut writer);
    }
    writer.some_number(
        "omitted",
        Some(frame.omitted.into()).filter(|more| *more > 0),
    );
    writer.finish()
}

fn peers(members: &Members<'_>) -> Option<PeersFrame> {
    let list = |name| members.get(name).map(|raw| raw.elements());
    let name = |raw: &Raw<'_>| Some(raw.string()?.text.into_owned());
    let names = list(Member::Names).unwrap_or(Some(Vec::new()))?;
    let peers = match list(Member::Peers) {
        Some(entries) => Some(entries?.iter().filter_map(entry).collect()),
        None => None,
    };
    Some(PeersFrame {
        names: names.iter().map(name).collect::<Option<_>>()?,
        ext: members
            .get(Member::Ext)
            .and_then(|_| members.number(Member::Ext, 0)),
        window: window(members).flatten(),
        peers,
        omitted: members.number(Member::Omitted, 0).unwrap_or(0),
        domain: members
            .string(Member::Domain)
            .and_then(|text| Domain::parse(&text)),
        age_ms: members.time(Member::AgeMs),
        groups: groups(members, Member::Groups),
        reason: members
            .string(Member::Reason)
            .map(|reason| cut(&reason, REASON_BYTES_MAX).into_owned()),
        epoch: mark(members, Member::Epoch),
        mark: mark(members, Member::Mark),
    })
}

fn joined(members: &Members<'_>) -> Option<JoinGrant> {
    let names = members.get(Member::Names)?.elements()?;
    let name = |raw: &Raw<'_>| Some(raw.string()?.text.into_owned());
    Some(JoinGrant {
        key: members.string(Member::Key)?.into_owned().into(),
        names: names.iter().map(name).collect::<Option<_>>()?,
    })
}

fn mark(members: &Members<'_>, name: Member) -> Option<Mark> {
    Mark::parse(&members.string(name)?)
}

fn delivery(members: &Members<'_>) -> Option<Delivery> {
    Some(Delivery {
        key: DeliveryKey::parse(&members.string(Member::DeliveryKey)?)?,
        envelope: Envelope::decode(members.get(Member::Envelope)?.text).ok()?,
        remarks: Remarks {
            again: members.flag(Member::Again).unwrap_or(false),
            alias: members
                .string(Member::For)
                .and_then(|name| PeerName::parse(&name).ok()),
            token: members
                .string(Member::Token)
                .and_then(|name| TokenName::parse(&name)),
            approves: members.flag(Member::Approves).unwrap_or(false),
            age_ms: members.time(Member::AgeMs).unwrap_or(0),
            within_ms: members.time(Member::WithinMs).unwrap_or(0),
        },
    })
}

fn recalled(members: &Members<'_>) -> Option<Recall> {
    let reason = members.string(Member::Reason).unwrap_or_default();
    Some(Recall {
        key: DeliveryKey::parse(&members.string(Member::Id)?)?,
        reason: cut(&reason, REASON_BYTES_MAX).into_owned(),
    })
}

fn name_answer(members: &Members<'_>) -> Option<NameAnswer> {
    Some(NameAnswer {
        name: members.string(Member::Name)?.into_owned(),
        refused: members
            .string(Member::Reason)
            .map(|reason| cut(&reason, REASON_BYTES_MAX).into_owned()),
    })
}

fn write_name_answer(kind: &str, answer: &NameAnswer) -> String {
    let mut writer = Writer::frame(kind);
    let reason = answer.refused.as_ref();
    writer
        .string("name", &answer.name)
        .some_string("reason", reason.map(|why| cut(why, REASON_BYTES_MAX)));
    writer.finish()
}

fn forwarded(members: &Members<'_>) -> Option<Vec<Forwarded>> {
    let message = |raw: &Raw<'_>| {
        let members = Members::of(raw)?;
        Some(Forwarded {
            key: DeliveryKey::parse(&members.string(Member::Key)?)?,
            id: MessageId::parse(&members.string(Member::Id)?).ok()?,
        })
    };
    let messages = members.get(Member::Messages)?.elements()?;
    messages.iter().map(message).collect()
}

/// Statements that cannot be read, such as those of a later version, are left out.
fn receipts(members: &Members<'_>) -> Option<Vec<Receipt>> {
    let receipts = members.get(Member::Receipts)?.elements()?;
    Some(receipts.iter().filter_map(Receipt::read).collect())
}
