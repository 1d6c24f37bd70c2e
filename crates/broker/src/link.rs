//! What a connection's tasks and the engine's thread share about one connection.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use peerbus_core::broker::ConnId;
use peerbus_os::sync::lock;
use peerbus_wire::limits::{FRAMES_UNANSWERED_MAX, WINDOW_BYTES_MAX};
use peerbus_wire::{Address, ClientFrame, CloseReason};
use tokio::sync::{Notify, Semaphore};

use crate::places::StrangersPlace;

/// Bytes that may wait for one connection.
pub(crate) const OUTBOUND_BYTES_MAX: usize = 4 * WINDOW_BYTES_MAX as usize;

/// One connection's counters and signals.
#[derive(Debug)]
pub(crate) struct Link {
    conn: ConnId,
    /// The client's process, where that is known.
    process: OnceLock<u32>,
    /// A permit for each frame that may be read and not yet answered.
    unanswered: Semaphore,
    /// Handled envelopes whose receipt has not been written.
    unreceipted: AtomicU32,
    /// The client gets receipts.
    ext: AtomicBool,
    registered: AtomicBool,
    stranger: Mutex<StrangersPlace>,
    queued_bytes: AtomicUsize,
    /// When the client was last heard, or [`NOT_LISTENING`].
    heard_ms: AtomicU64,
    /// Since when one write has been under way, or [`NOT_WRITING`].
    writing_ms: AtomicU64,
    pings: AtomicU8,
    core_ping: AtomicBool,
    ping_wanted: Notify,
    closing: OnceLock<Closing>,
    close_wanted: Notify,
}

/// The reader waits for the broker, so the client's silence means nothing.
const NOT_LISTENING: u64 = u64::MAX;
const NOT_WRITING: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ping {
    /// The connection's own watch.
    Idle = 1,
    /// The core, which is told of the pong.
    Core = 2,
}

impl Ping {
    /// The ping's payload, which the pong repeats.
    pub(crate) fn payload(self) -> &'static [u8] {
        match self {
            Self::Idle => b"",
            Self::Core => b"holder",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Closing {
    /// What the client is told.
    pub(crate) reason: CloseReason,
    /// Time for what is queued to be sent first.
    pub(crate) drain: Duration,
}

impl Link {
    pub(crate) fn new(conn: ConnId, now_ms: u64, stranger: StrangersPlace) -> Self {
        Self {
            conn,
            process: OnceLock::new(),
            unanswered: Semaphore::new(FRAMES_UNANSWERED_MAX),
            unreceipted: AtomicU32::new(0),
            ext: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            stranger: Mutex::new(stranger),
            queued_bytes: AtomicUsize::new(0),
            heard_ms: AtomicU64::new(now_ms),
            writing_ms: AtomicU64::new(NOT_WRITING),
            pings: AtomicU8::new(0),
            core_ping: AtomicBool::new(false),
            ping_wanted: Notify::new(),
            closing: OnceLock::new(),
            close_wanted: Notify::new(),
        }
    }

    pub(crate) fn conn(&self) -> ConnId {
        self.conn
    }

    /// The client is this process.
    pub(crate) fn set_process(&self, process: u32) {
        self.process.get_or_init(|| process);
    }

    /// Whether the client is stopped, and has not read what it was sent.
    pub(crate) fn is_stopped(&self) -> bool {
        let process = self.process.get().copied();
        process.is_some_and(peerbus_os::process::is_stopped)
    }

    /// The client has registered: it gives up its place among those that have not.
    pub(crate) fn set_registered(&self) {
        if !self.registered.swap(true, Ordering::AcqRel) {
            *lock(&self.stranger) = None;
        }
    }

    pub(crate) fn set_ext(&self) {
        self.ext.store(true, Ordering::Release);
    }

    /// Whether the client can be told what became of its messages.
    pub(crate) fn is_ext(&self) -> bool {
        self.ext.load(Ordering::Acquire)
    }

    /// Waits until one more frame may be read.
    pub(crate) async fn may_read(&self) {
        if let Ok(permit) = self.unanswered.acquire().await {
            permit.forget();
        }
    }

    /// The engine has handled a frame. Call before the outputs of the frame are released. `true`:
    /// the caller says [`Link::read_more`] once the frame's answer is written. Else the permit
    /// comes back with the receipt for the frame, or now.
    pub(crate) fn handled(&self, answer: Answer) -> bool {
        let ext = self.is_ext();
        match answer {
            Answer::Peers => return true,
            Answer::Status if ext => return true,
            Answer::Receipt if ext => {
                self.unreceipted.fetch_add(1, Ordering::AcqRel);
            }
            Answer::Receipt | Answer::None => self.read_more(1),
            Answer::Status | Answer::Work => self.read_more(answer.frames()),
        }
        false
    }

    pub(crate) fn read_more(&self, frames: usize) {
        self.unanswered.add_permits(frames);
    }

    /// So many receipts that answer a frame have been written to the socket.
    pub(crate) fn answered(&self, answers: usize) {
        let answers = u32::try_from(answers).unwrap_or(u32::MAX);
        let less = |owed: u32| Some(owed.saturating_sub(answers));
        if let Ok(owed) = self
            .unreceipted
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less)
        {
            self.read_more(owed.min(answers) as usize);
        }
    }

    /// Counts bytes as queued; `false`, and nothing is counted, when they are too many. One frame
    /// always fits an empty queue.
    pub(crate) fn queue(&self, bytes: usize) -> bool {
        let more = |queued: usize| {
            (queued == 0 || queued + bytes <= OUTBOUND_BYTES_MAX).then_some(queued + bytes)
        };
        self.queued_bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_ok()
    }

    pub(crate) fn unqueue(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// The client was heard, or the reader listens again.
    pub(crate) fn heard(&self, now_ms: u64) {
        self.heard_ms.store(now_ms, Ordering::Relaxed);
    }

    /// The reader waits for the broker.
    pub(crate) fn not_listening(&self) {
        self.heard_ms.store(NOT_LISTENING, Ordering::Relaxed);
    }

    /// How long the client has been silent while the reader listened.
    pub(crate) fn silent_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.heard_ms.load(Ordering::Relaxed))
    }

    /// A write begins or (`None`) has ended.
    pub(crate) fn writing(&self, since_ms: Option<u64>) {
        self.writing_ms
            .store(since_ms.unwrap_or(NOT_WRITING), Ordering::Relaxed);
    }

    /// How long one write has made no end.
    pub(crate) fn stuck_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.writing_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn want_ping(&self, ping: Ping) {
        if ping == Ping::Core {
            self.core_ping.store(true, Ordering::Release);
        }
        self.pings.fetch_or(ping as u8, Ordering::AcqRel);
        self.ping_wanted.notify_one();
    }

    /// Whether the core waits for the pong that came; it is told of one for each time it asked.
    pub(crate) fn core_ponged(&self) -> bool {
        self.core_ping.swap(false, Ordering::AcqRel)
    }

    /// Waits until a ping is wanted and takes the wish.
    pub(crate) async fn wanted_pings(&self) -> impl Iterator<Item = Ping> {
        loop {
            let wanted = self.pings.swap(0, Ordering::AcqRel);
            if wanted != 0 {
                let is_wanted = move |ping: &Ping| wanted & *ping as u8 != 0;
                return [Ping::Idle, Ping::Core].into_iter().filter(is_wanted);
            }
            self.ping_wanted.notified().await;
        }
    }

    pub(crate) fn ping_is_wanted(&self) -> bool {
        self.pings.load(Ordering::Relaxed) != 0
    }

    /// Says why and how the connection ends; the first to say so counts.
    pub(crate) fn close(&self, reason: CloseReason, drain: Duration) {
        if self.closing.set(Closing { reason, drain }).is_ok() {
            self.close_wanted.notify_one();
        }
    }

    /// Why and how the connection ends, once that is settled.
    pub(crate) fn closing(&self) -> Option<&Closing> {
        self.closing.get()
    }

    /// Waits until the connection is to end.
    pub(crate) async fn close_wanted(&self) -> &Closing {
        loop {
            if let Some(closing) = self.closing.get() {
                return closing;
            }
            self.close_wanted.notified().await;
        }
    }
}

/// The answer to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing: the frame is done with when it is handled.
    None,
    /// A receipt, for a client that gets receipts.
    Receipt,
    /// A `peers` frame.
    Peers,
    /// Any number of receipts, for a client that gets receipts.
    Status,
    /// Nothing, or a receipt that is not waited for; its work may grow with peers or with what is open.
    Work,
}

impl Answer {
    pub(crate) fn to(frame: &ClientFrame) -> Self {
        match frame {
            // Work for each member, or for whose turn it is.
            ClientFrame::Envelope(carried) if !matches!(carried.to, Address::Peer(_)) => Self::Work,
            ClientFrame::Envelope(_) | ClientFrame::Refused { id: Some(_), .. } => Self::Receipt,
            ClientFrame::Peers | ClientFrame::PeersOf(_) => Self::Peers,
            ClientFrame::Status { .. } => Self::Status,
            ClientFrame::Presence(_)
            | ClientFrame::Regroup { .. }
            | ClientFrame::Withdraw { .. }
            | ClientFrame::Rename { .. }
            | ClientFrame::Retire { .. } => Self::Work,
            _ => Self::None,
        }
    }

    /// As how many frames the one that it answers counts. What costs more than a message is alone under way
    /// on its connection, so that many of these hold up nobody.
    pub(crate) fn frames(self) -> usize {
        match self {
            Self::Status | Self::Peers | Self::Work => FRAMES_UNANSWERED_MAX,
            Self::None | Self::Receipt => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use futures_util::future::poll_immediate;
    use peerbus_wire::MessageId;
    use tokio::task::coop::unconstrained;

    use super::*;

    /// Whether the future is ready at once.
    async fn at_once<T>(future: impl Future<Output = T>) -> bool {
        poll_immediate(std::pin::pin!(unconstrained(future)))
            .await
            .is_some()
    }

    fn link() -> Link {
        Link::new(ConnId(1), 0, StrangersPlace::default())
    }

    #[tokio::test]
    async fn an_ext_sender_reads_no_receipts_and_is_not_read() {
        let link = link();
        link.set_ext();
        for _ in 0..FRAMES_UNANSWERED_MAX {
            assert!(at_once(link.may_read()).await);
            link.handled(Answer::Receipt);
        }
        assert!(!at_once(link.may_read()).await, "every permit is out");
        link.answered(1);
        assert!(at_once(link.may_read()).await);
        assert!(!at_once(link.may_read()).await, "one answer, one permit");
    }

    #[tokio::test]
    async fn a_question_for_messages_is_the_only_frame_until_it_is_answered() {
        let withdraw = ClientFrame::Withdraw {
            id: MessageId::parse("m1").unwrap(),
        };
        let to_group = format!(
            r##"{{"protocol_version":"v1","id":"m1","from":"ada","to":"#shop","ts":"2026-01-01T00:00:00Z",
                "source":"test","kind":"msg","body":"x","hmac":"{}"}}"##,
            "0".repeat(64)
        );
        let to_group = ClientFrame::parse(to_group.as_bytes());
        for alone in [ClientFrame::Peers, withdraw, to_group] {
            assert_eq!(Answer::to(&alone).frames(), FRAMES_UNANSWERED_MAX);
        }
        let answer = Answer::to(&ClientFrame::Status { ids: Vec::new() });
        assert_eq!(answer.frames(), FRAMES_UNANSWERED_MAX);
        for is_ext in [true, false] {
            let link = link();
            if is_ext {
                link.set_ext();
            }
            for _ in 0..answer.frames() {
                assert!(at_once(link.may_read()).await);
            }
            assert!(!at_once(link.may_read()).await, "every permit is out");
            let is_answered_later = link.handled(answer);
            assert_eq!(is_answered_later, is_ext);
            if is_answered_later {
                assert!(!at_once(link.may_read()).await, "before the answer");
                link.read_more(answer.frames());
            }
            for _ in 0..FRAMES_UNANSWERED_MAX {
                assert!(at_once(link.may_read()).await);
            }
            assert!(!at_once(link.may_read()).await, "no more than it took");
        }
    }

    #[tokio::test]
    async fn acks_and_v1_messages_never_wait_for_anything_written() {
        let v1 = link();
        for frame in 0..2 * FRAMES_UNANSWERED_MAX {
            assert!(at_once(v1.may_read()).await);
            let answer = [Answer::Receipt, Answer::Status, Answer::None][frame % 3];
            assert!(!v1.handled(answer));
        }
        let ext = link();
        ext.set_ext();
        for _ in 0..2 * FRAMES_UNANSWERED_MAX {
            assert!(at_once(ext.may_read()).await);
            ext.handled(Answer::None);
        }
    }

    #[tokio::test]
    async fn more_answers_than_frames_make_no_permits() {
        let link = link();
        link.set_ext();
        link.may_read().await;
        link.handled(Answer::Receipt);
        link.answered(1_000);
        for _ in 0..FRAMES_UNANSWERED_MAX {
            assert!(at_once(link.may_read()).await);
        }
        assert!(!at_once(link.may_read()).await);
    }

    #[tokio::test]
    async fn pings_are_asked_for_once_each() {
        let link = link();
        link.want_ping(Ping::Core);
        link.want_ping(Ping::Core);
        link.want_ping(Ping::Idle);
        let wanted: Vec<_> = link.wanted_pings().await.collect();
        assert_eq!(wanted, [Ping::Idle, Ping::Core]);
        assert!(!link.ping_is_wanted());
        assert!(!at_once(link.wanted_pings()).await);
    }

    #[test]
    fn the_core_is_told_of_a_pong_only_when_it_asked() {
        let link = link();
        assert!(!link.core_ponged(), "nobody asked");
        link.want_ping(Ping::Idle);
        assert!(!link.core_ponged(), "the watch is not the core");
        link.want_ping(Ping::Core);
        assert!(link.core_ponged());
        assert!(!link.core_ponged(), "once");
    }

    #[test]
    fn silence_counts_only_while_the_reader_listens() {
        let link = link();
        assert_eq!(link.silent_ms(70), 70);
        link.not_listening();
        assert_eq!(link.silent_ms(1_000), 0);
        link.heard(900);
        assert_eq!(link.silent_ms(1_000), 100);
    }
}
