//! What is told of peers: the member `peers`.

use crate::frame::{PeerEntry, Presence};
use crate::json::Raw;
use crate::members::{Member, Members};
use crate::writer::Writer;

/// The member `peers`.
pub(crate) fn write_entries(peers: &[PeerEntry], writer: &mut Writer) {
    writer.name("peers").begin(b'[');
    for peer in peers {
        writer.begin(b'{').string("name", &peer.name);
        writer.raw("online", if peer.online { "true" } else { "false" });
        if let Some(unacked) = peer.unacked {
            writer.number("unacked", unacked);
        }
        if let Some(away_s) = peer.away_s {
            writer.number("away_s", away_s);
        }
        if let Some(activity_s) = peer.activity_s {
            writer.number("activity_s", activity_s);
        }
        if let Some(presence) = &peer.presence {
            writer.raw("presence", presence.as_str());
        }
        writer.end(b'}');
    }
    writer.end(b']');
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
        presence: members
            .get(Member::Presence)
            .and_then(|raw| Presence::of(&raw)),
    })
}
