//! Mail and requests that wait in the session, for the person who sits before it. All of it goes to the agent's
//! client, and could go to any process below that: of mail that the user holds back its amount alone is told.

use peerbus_adapter::mailbox::{Mail, Mailbox, quote::said};
use peerbus_view::DeskView;

use crate::tools::peer_lines;

fn desk(mailbox: &Mailbox) -> DeskView {
    let kept = (mailbox.withheld().len(), mailbox.paused().len());
    mailbox.machine(|it, now_ms| {
        let from = |mail: &Mail| mail.inbound.from.clone();
        let owed = it.owed().map(|owed| {
            let left_ms = owed.until_ms.saturating_sub(now_ms);
            (
                from(&owed.mail),
                owed.mail.inbound.id.clone(),
                left_ms / 1_000,
            )
        });
        let owed: Vec<_> = owed.collect();
        let asks = it.unread().filter(|mail| mail.is_request());
        let mut askers: Vec<_> = asks.map(|mail| from(mail)).collect();
        askers.extend(owed.iter().map(|(from, ..)| from.clone()));
        askers.sort_unstable();
        askers.dedup();
        let unread = it.unread();
        DeskView {
            unread: unread
                .map(|mail| (from(mail), said(&mail.inbound.body).into_owned()))
                .collect(),
            owed,
            askers,
            kept,
        }
    })
}

/// All that waits, in one line; `None`: nothing does.
#[must_use]
pub fn desk_line(mailbox: &Mailbox) -> Option<String> {
    desk(mailbox).line()
}

/// Each of it in a row, with how far messages of the session's own got, and with its peers.
pub async fn desk_rows(mailbox: &Mailbox) -> Vec<String> {
    let peers = peer_lines(mailbox.bus()).await;
    let receipts: Vec<_> = mailbox.machine(|it, _| it.receipts().cloned().collect());
    desk(mailbox).rows(&receipts, &peers)
}
