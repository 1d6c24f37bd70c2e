//! What is told of peers: the member `peers`.

use crate::frame::{PeerEntry, Presence};
use crate::group::GroupName;
use crate::ids::TokenName;
use crate::json::Raw;
use crate::members::{Member, Members};
use crate::writer::Writer;

pub(crate) fn write_entries(peers: &[PeerEntry], writer: &mut Writer) {
    writer.name("peers").begin(b'[');
    for peer in peers {
        writer.begin(b'{').string("name", &peer.name);
        writer.raw("online", if peer.online { "true" } else { "false" });
        writer
            .some_number("unacked", peer.unacked)
            .some_number("away_s", peer.away_s)
            .some_number("activity_s", peer.activity_s)
            .some_number("owes", peer.owes);
        if !peer.groups.is_empty() {
            write_groups("groups", &peer.groups, writer);
        }
        if let Some(presence) = &peer.presence {
            writer.raw("presence", presence.as_str());
        }
        if let Some(token) = &peer.token {
            writer.string("token", token.as_str());
        }
        if !peer.old.is_empty() {
            writer.name("names").begin(b'[');
            peer.old.iter().for_each(|name| {
                writer.element(name);
            });
            writer.end(b']');
        }
        writer.end(b'}');
    }
    writer.end(b']');
}

pub(crate) fn write_groups(name: &str, groups: &[GroupName], writer: &mut Writer) {
    writer.name(name).begin(b'[');
    for group in groups {
        writer.element(group.as_str());
    }
    writer.end(b']');
}

/// The groups in a member; `None` when it is not there, or one of them is no group's name.
pub(crate) fn groups(members: &Members<'_>, name: Member) -> Option<Vec<GroupName>> {
    let group = |raw: &Raw<'_>| GroupName::parse(&raw.string()?.text).ok();
    members.get(name)?.elements()?.iter().map(group).collect()
}

fn names(members: &Members<'_>, name: Member) -> Option<Vec<String>> {
    let all = members.get(name)?.elements()?;
    all.iter()
        .map(|raw| Some(raw.string()?.text.into_owned()))
        .collect()
}

/// An entry that cannot be read is left out.
pub(crate) fn entry(raw: &Raw<'_>) -> Option<PeerEntry> {
    let members = Members::of(raw)?;
    let number = |name| members.get(name).and_then(|raw| raw.unsigned());
    Some(PeerEntry {
        name: members.string(Member::Name)?.into_owned(),
        online: members.flag(Member::Online)?,
        unacked: number(Member::Unacked),
        away_s: number(Member::AwayS),
        activity_s: number(Member::ActivityS),
        owes: number(Member::Owes),
        groups: groups(&members, Member::Groups).unwrap_or_default(),
        presence: members
            .get(Member::Presence)
            .and_then(|raw| Presence::of(&raw)),
        stopped: false,
        token: members
            .string(Member::Token)
            .and_then(|name| TokenName::parse(&name)),
        old: names(&members, Member::Names).unwrap_or_default(),
    })
}
