//! What a client sends: reading it at the broker, writing it at the client.

use std::borrow::Cow;

use crate::PROTOCOL_VERSION;
use crate::audited::AuditRecord;
use crate::carry::invalid;
use crate::conversation::within_of;
use crate::domain::{Domain, Mark};
use crate::entry::{entry, groups, write_entries, write_groups};
use crate::envelope::{Carried, DecodeError, Parts};
use crate::frame::{Ack, ClientFrame, JoinRequest, Presence, Register, Window};
use crate::ids::{DeliveryKey, Instance, MessageId, Token};
use crate::json::Type;
use crate::limits::{
    FRAME_BYTES_MAX, GROUPS_MAX, JOIN_TOKEN_BYTES_MIN, PEERS_ENTRIES_MAX, REASON_BYTES_MAX,
    STATUS_IDS_MAX, WINDOW_BYTES_DEFAULT, WINDOW_MESSAGES_DEFAULT,
};
use crate::members::{Member, Members};
use crate::stage::{Stage, how, write_how};
use crate::text::cut;
use crate::writer::Writer;

/// The `type` of a frame as v1 reads it: member names match without regard to case, the last one
/// wins, a value that is no string counts as absent. Anything that is no JSON object has none.
#[must_use]
pub fn control_type(bytes: &[u8]) -> Option<String> {
    let (members, top) = Members::scan(bytes).ok()?;
    if top != Type::Object {
        return None;
    }
    members.frame_type().map(Cow::into_owned)
}

impl ClientFrame {
    /// Reads a text message from a client. Never fails: what is no frame is
    /// [`ClientFrame::Malformed`].
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        if bytes.len() > FRAME_BYTES_MAX {
            return Self::Malformed;
        }
        let Ok((members, Type::Object)) = Members::scan(bytes) else {
            return Self::Malformed;
        };
        let Some(kind) = members.frame_type() else {
            return of_envelope(bytes, &members);
        };
        if kind == "register" {
            return register(&members).map_or(Self::Malformed, Self::Register);
        }
        if kind == "join" && !members.has(Member::Kind) {
            return join(&members).map_or(Self::Malformed, Self::Join);
        }
        let v1 = matches!(&*kind, "ack" | "peers" | "deliver");
        let ext = "presence reject release status progress rename retire audit take forwarded roster \
             withdraw";
        let ext = !v1 && ext.split(' ').any(|known| known == kind);
        let looks_like_envelope = [Member::From, Member::To, Member::Kind].map(|n| members.has(n));
        if !(v1 || ext && looks_like_envelope != [true; 3]) {
            return of_envelope(bytes, &members);
        }
        if members.string(Member::ProtocolVersion).as_deref() != Some(PROTOCOL_VERSION) {
            return Self::Unusable;
        }
        control(&kind, &members).unwrap_or(Self::Unusable)
    }

    /// The frame's text. `Malformed`, `Binary`, `Unusable`, `Refused` and a `Take` with an error have none and
    /// give an empty one.
    #[must_use]
    pub fn encode(&self) -> String {
        let write = |kind: &str, members: &dyn Fn(&mut Writer)| {
            let mut writer = Writer::frame(kind);
            members(&mut writer);
            writer.finish()
        };
        match self {
            Self::Register(register) => write_register(register),
            Self::Join(request) => write("join", &|writer| write_join(request, writer)),
            Self::Ack(ack) => write("ack", &|writer| write_ack(ack, writer)),
            Self::Peers => write("peers", &|_| {}),
            Self::PeersOf(domain) => write("peers", &|writer| {
                writer.string("domain", domain.as_str());
            }),
            Self::Regroup { join, leave } => write("peers", &|writer| {
                write_groups("join", join, writer);
                write_groups("leave", leave, writer);
            }),
            Self::Roster(peers) => write("roster", &|writer| write_entries(peers, writer)),
            Self::Envelope(carried) => with_time(carried),
            Self::Presence(presence) => write("presence", &|writer| {
                writer.raw("presence", presence.as_str());
            }),
            Self::Reject {
                key,
                reason,
                age_ms,
            } => write("reject", &|writer| {
                write_reject(writer, key, reason, *age_ms)
            }),
            Self::Release { key, again } => write("release", &|writer| {
                writer.string("id", key.as_str()).flag("again", *again);
            }),
            Self::Withdraw { id } => write("withdraw", &|writer| {
                writer.string("id", id.as_str());
            }),
            Self::Status { ids } => write("status", &|writer| {
                writer.name("ids").begin(b'[');
                for id in ids {
                    writer.element(id.as_str());
                }
                writer.end(b']');
            }),
            Self::Progress { key, stage, age_ms } => write("progress", &|writer| {
                write_progress(writer, key, stage, *age_ms);
            }),
            Self::Rename { name } => write("rename", &|writer| {
                writer.string("name", name);
            }),
            Self::Retire { successor } => write("retire", &|writer| {
                writer.some_string("successor", successor.as_ref());
            }),
            Self::Audit(record) => write("audit", &|writer| record.write(writer)),
            Self::Take {
                mark,
                again,
                envelope: Ok(carried),
            } => write("take", &|writer| {
                writer.string("mark", mark.as_str()).flag("again", *again);
                writer.raw("envelope", with_time(carried));
            }),
            Self::Forwarded { after } => write("forwarded", &|writer| {
                writer.some_string("after", after.as_ref().map(DeliveryKey::as_str));
            }),
            Self::Take { .. }
            | Self::Refused { .. }
            | Self::Unusable
            | Self::Malformed
            | Self::Binary => String::new(),
        }
    }
}

/// An envelope as it is sent: beside what is signed, until when its result is wanted, if it is a
/// request.
fn with_time(carried: &Carried) -> String {
    match (carried.within_ms, carried.text.strip_suffix('}')) {
        (Some(within_ms), Some(open)) => format!("{open},\"within_ms\":{within_ms}}}"),
        _ => carried.text.to_string(),
    }
}

/// An object within a frame as an envelope.
fn envelope(bytes: &[u8]) -> ClientFrame {
    match Members::scan(bytes) {
        Ok((members, Type::Object)) => of_envelope(bytes, &members),
        _ => ClientFrame::Malformed,
    }
}

/// Everything that is no control frame is an attempt at an envelope.
fn of_envelope(bytes: &[u8], members: &Members<'_>) -> ClientFrame {
    let parts = Parts::of(members, std::str::from_utf8(bytes).is_ok());
    let carried = match members.mistyped {
        Some(member) => Err(invalid(DecodeError::WrongType { member }.to_string())),
        None => parts.carry(),
    };
    match carried {
        Ok(mut carried) => {
            carried.within_ms = within_of(members.time(Member::WithinMs));
            ClientFrame::Envelope(carried)
        }
        Err(refusal) => {
            let [_, id, ..] = &parts.strings;
            ClientFrame::Refused {
                id: MessageId::parse(id).ok(),
                refusal,
            }
        }
    }
}

/// `None` when a member is missing or has the wrong type.
fn control(kind: &str, members: &Members<'_>) -> Option<ClientFrame> {
    let key = || DeliveryKey::parse(&members.string(Member::Id)?);
    Some(match kind {
        "ack" => ClientFrame::Ack(Ack {
            key: key()?,
            how: how(members),
            age_ms: age_ms(members),
        }),
        // A barrier, whatever stands in it.
        "peers" => match (members.string(Member::Domain), regroup(members)) {
            (_, Some(regroup)) => regroup,
            (Some(domain), _) => {
                Domain::parse(&domain).map_or(ClientFrame::Peers, ClientFrame::PeersOf)
            }
            _ => ClientFrame::Peers,
        },
        "roster" => {
            let entries = members.get(Member::Peers)?.elements()?;
            let known = entries.iter().take(PEERS_ENTRIES_MAX);
            ClientFrame::Roster(known.filter_map(entry).collect())
        }
        "presence" => ClientFrame::Presence(Presence::of(&members.get(Member::Presence)?)?),
        "reject" => return reject(key()?, members),
        "release" => ClientFrame::Release {
            key: key()?,
            again: members.flag(Member::Again)?,
        },
        "withdraw" => ClientFrame::Withdraw {
            id: MessageId::parse(&members.string(Member::Id)?).ok()?,
        },
        "status" => {
            let ids = members.get(Member::Ids)?.elements()?;
            if ids.len() > STATUS_IDS_MAX {
                return None;
            }
            let id = |raw: &crate::json::Raw<'_>| MessageId::parse(&raw.string()?.text).ok();
            ClientFrame::Status {
                ids: ids.iter().map(id).collect::<Option<_>>()?,
            }
        }
        "progress" => return progress(key()?, members),
        "rename" => ClientFrame::Rename {
            name: members.string(Member::Name)?.into_owned(),
        },
        "retire" => ClientFrame::Retire {
            successor: members
                .optional_string(Member::Successor)?
                .map(Cow::into_owned),
        },
        "audit" => ClientFrame::Audit(AuditRecord::read(members)?),
        "take" => ClientFrame::Take {
            mark: Mark::parse(&members.string(Member::Mark)?)?,
            again: members.flag(Member::Again)?,
            envelope: match envelope(members.get(Member::Envelope)?.text) {
                ClientFrame::Envelope(carried) => Ok(carried),
                ClientFrame::Refused { id, refusal } => Err((id, refusal)),
                _ => return None,
            },
        },
        "forwarded" => ClientFrame::Forwarded {
            after: members.parsed(Member::After, DeliveryKey::parse)?,
        },
        _ => return None,
    })
}

/// `None` when nothing that can be read is to be joined or left.
fn regroup(members: &Members<'_>) -> Option<ClientFrame> {
    let of = |name| match members.get(name) {
        Some(_) => groups(members, name).filter(|groups| groups.len() <= GROUPS_MAX),
        None => Some(Vec::new()),
    };
    let (join, leave) = (of(Member::Join)?, of(Member::Leave)?);
    let any = members.has(Member::Join) || members.has(Member::Leave);
    any.then_some(ClientFrame::Regroup { join, leave })
}

fn write_ack(ack: &Ack, writer: &mut Writer) {
    writer.string("id", ack.key.as_str());
    write_how(ack.how.as_ref(), writer);
    write_age(ack.age_ms, writer);
}

fn write_reject(writer: &mut Writer, key: &DeliveryKey, reason: &str, age_ms: u32) {
    let reason = cut(reason, REASON_BYTES_MAX);
    writer.string("id", key.as_str()).string("reason", &reason);
    write_age(age_ms, writer);
}

fn write_progress(writer: &mut Writer, key: &DeliveryKey, stage: &Stage, age_ms: u32) {
    writer.string("id", key.as_str());
    stage.write(None, writer);
    write_age(age_ms, writer);
}

fn write_age(age_ms: u32, writer: &mut Writer) {
    writer.some_number("age_ms", (age_ms > 0).then_some(age_ms.into()));
}

/// An ack is one, whatever else stands in it.
fn age_ms(members: &Members<'_>) -> u32 {
    members.number(Member::AgeMs, 0).unwrap_or(0)
}

/// `None` when the reason is no text.
fn reject(key: DeliveryKey, members: &Members<'_>) -> Option<ClientFrame> {
    let reason = members.optional_string(Member::Reason)?.unwrap_or_default();
    Some(ClientFrame::Reject {
        key,
        reason: cut(&reason, REASON_BYTES_MAX).into_owned(),
        age_ms: age_ms(members),
    })
}

/// `None` when a member is missing or unknown.
fn progress(key: DeliveryKey, members: &Members<'_>) -> Option<ClientFrame> {
    members.optional_string(Member::Reason)?;
    let stage = Stage::read(members)?;
    (stage.is_at_one() && stage != Stage::Queued).then_some(ClientFrame::Progress {
        key,
        stage,
        age_ms: age_ms(members),
    })
}

/// `None` when a member has the wrong type.
fn register(members: &Members<'_>) -> Option<Register> {
    let text = |name| {
        let text = members.optional_string(name)?;
        Some(text.unwrap_or_default().into_owned())
    };
    let token = members.optional_string(Member::Token)?;
    let presence = match members.get(Member::Presence) {
        Some(raw) if raw.kind != Type::Object => return None,
        raw => raw.and_then(|raw| Presence::of(&raw)),
    };
    Some(Register {
        protocol_version: text(Member::ProtocolVersion)?,
        token: token.and_then(|token| Token::parse(&token)),
        name: text(Member::Name)?,
        renaming: members
            .optional_string(Member::Renaming)?
            .map(Cow::into_owned),
        ext: members.number(Member::Ext, 0)?,
        instance: members.parsed(Member::Instance, Instance::parse)?,
        ephemeral: members.flag(Member::Ephemeral)?,
        generated: members.flag(Member::Generated)?,
        window: window(members)?,
        presence,
        bridge: members.parsed(Member::Bridge, Mark::parse)?,
    })
}

/// `None` when a member is missing or wrong: of another version, or a token that can be guessed.
fn join(members: &Members<'_>) -> Option<JoinRequest> {
    let text = |name| Token::parse(&members.string(name)?);
    let known = members.string(Member::ProtocolVersion)? == PROTOCOL_VERSION;
    let token = text(Member::Token)?;
    (known && token.expose().len() >= JOIN_TOKEN_BYTES_MIN).then_some(JoinRequest {
        code: text(Member::Code)?,
        token,
    })
}

fn write_join(request: &JoinRequest, writer: &mut Writer) {
    let JoinRequest { code, token } = request;
    let (code, token) = (code.expose(), token.expose());
    writer.string("code", code).string("token", token);
}

fn write_register(register: &Register) -> String {
    let mut writer = Writer::open();
    writer
        .string("protocol_version", &register.protocol_version)
        .string("type", "register")
        .some_string("token", register.token.as_ref().map(Token::expose))
        .string("name", &register.name)
        .some_string("renaming", register.renaming.as_ref())
        .some_number("ext", Some(register.ext.into()).filter(|ext| *ext > 0))
        .some_string("instance", register.instance.as_ref().map(Instance::expose))
        .flag("ephemeral", register.ephemeral)
        .flag("generated", register.generated);
    if let Some(window) = register.window {
        write_window(window, &mut writer);
    }
    if let Some(presence) = &register.presence {
        writer.raw("presence", presence.as_str());
    }
    writer.some_string("bridge", register.bridge.as_ref().map(Mark::as_str));
    writer.finish()
}

/// The `window` member: absent is `Some(None)`, a malformed one is `None`.
pub(crate) fn window(members: &Members<'_>) -> Option<Option<Window>> {
    let Some(raw) = members.get(Member::Window) else {
        return Some(None);
    };
    let inner = Members::of(&raw)?;
    Some(Some(Window {
        messages: inner.number(Member::Messages, WINDOW_MESSAGES_DEFAULT)?,
        bytes: inner.number(Member::Bytes, WINDOW_BYTES_DEFAULT)?,
    }))
}

pub(crate) fn write_window(window: Window, writer: &mut Writer) {
    writer.name("window").begin(b'{');
    writer
        .number("messages", window.messages.into())
        .number("bytes", window.bytes.into());
    writer.end(b'}');
}
