//! What a message costs in storage: message, delivery, settled delivery, its fate and audit, in
//! batches.
//!
//! `cargo run --profile dist -p peerbus-store --example cost -- [MESSAGES] [BATCH] [BACKLOG] [FATES]`:
//! `BACKLOG` is how many messages behind the settling lags, `FATES` 0 keeps no fates.

#![expect(clippy::print_stdout, reason = "the figures are the purpose")]

use std::error::Error;
use std::fs;
use std::time::{Duration, Instant};

use peerbus_core::Stamp;
use peerbus_core::audit::{AuditKey, AuditLog, ChainHead};
use peerbus_core::store::{
    DeliveryHistory, FATE_BYTES, Fate, Keep, MessageHead, PeerId, PeerKind, PeerRow, Store as _,
    Txn as _,
};
use peerbus_store::{SqliteStore, verify_audit};
use peerbus_wire::{EnvelopeHash, How, MessageId, Seq, Stage};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |default: u64| -> Result<u64, Box<dyn Error>> {
        Ok(arguments.next().map_or(Ok(default), |text| text.parse())?)
    };
    let (messages, batch, backlog) = (argument(200_000)?, argument(64)?, argument(64)?);
    let keep = argument(1)? != 0;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("bus.db");
    let mut store = SqliteStore::open(&path)?;
    let mut load = Load::new(&mut store, keep)?;

    let (cpu, start) = (cpu_ns()?, Instant::now());
    let (mut commits, mut slices) = (Vec::new(), Vec::new());
    while load.next <= messages {
        load.batch(&mut store, batch, backlog)?;
        commits.push(timed(|| store.commit())?);
        slices.push(timed(|| store.maintain())?);
    }
    let (wall, cpu) = (start.elapsed(), cpu_ns()? - cpu);
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let each = |nanos: u64| nanos as f64 / messages as f64 / 1_000.0;
    println!("{messages} messages, {batch} a commit, settled {backlog} later");
    println!(
        "wall {:.2} us a message, {:.2} us of CPU",
        each(wall.as_nanos() as u64),
        each(cpu)
    );
    report("commit", commits);
    slices.retain(|time| *time > Duration::from_micros(20));
    report("maintain, where it did something", slices);
    println!(
        "file {} KiB, WAL {} KiB",
        kib(&path)?,
        kib(&directory.path().join("bus.db-wal"))?
    );

    let slices = load.delete_all(&mut store)?;
    report("maintain, shrinking", slices);
    store.close()?;
    println!("file {} KiB after deleting all", kib(&path)?);
    let start = Instant::now();
    println!(
        "{} (verified in {:?})",
        verify_audit(&path)?,
        start.elapsed()
    );
    Ok(())
}

struct Load {
    key: AuditKey,
    head: ChainHead,
    log: AuditLog,
    next: u64,
    settled: u64,
    keep: bool,
    fates: Vec<Fate>,
    envelope: String,
    hash: EnvelopeHash,
}

impl Load {
    fn new(store: &mut SqliteStore, keep: bool) -> Result<Self, Box<dyn Error>> {
        let key = store.audit_key().clone();
        store.begin()?;
        for id in 1..=8 {
            store.put_peer(&PeerRow {
                id: PeerId(id),
                name: format!("peer-{id}"),
                owner: None,
                generated: false,
                ephemeral: false,
                online: true,
                last_seen: Stamp::default(),
                kind: PeerKind::Peer,
                delivered: None,
                mark: None,
                groups: Default::default(),
                program: None,
            })?;
        }
        store.commit()?;
        let head = ChainHead::new(&key);
        let log = AuditLog::default();
        Ok(Self {
            key,
            head,
            log,
            next: 1,
            settled: 0,
            keep,
            fates: Vec::new(),
            hash: EnvelopeHash::of("x".repeat(300).as_bytes()),
            envelope: "x".repeat(300),
        })
    }

    /// Leaves the transaction open.
    fn batch(
        &mut self,
        store: &mut SqliteStore,
        size: u64,
        lag: u64,
    ) -> Result<(), Box<dyn Error>> {
        let now = 1_700_000_000_000 + self.next;
        store.begin()?;
        for seq in self.next..self.next + size {
            // As UUIDv7 has it: the time first, then chance.
            let chance = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let id = MessageId::parse(&format!("{:016x}{chance:016x}", now + seq / 64))?;
            let (seq, sender, recipient) = (Seq(seq), PeerId(1), recipient(seq));
            let head = MessageHead {
                seq,
                sender,
                id,
                recipients: 1,
                accepted_ms: now,
                bytes: self.envelope.len() as u64,
            };
            store.insert_message(&head, &self.envelope)?;
            store.insert_delivery((recipient, sender), seq, now)?;
            self.log.accept(&head, &self.hash);
            self.log.deliver(seq, recipient);
        }
        self.next += size;
        while self.settled + lag < self.next {
            self.settle(store)?;
        }
        self.seal(store, now)
    }

    fn settle(&mut self, store: &mut SqliteStore) -> Result<(), Box<dyn Error>> {
        self.settled += 1;
        let (seq, recipient) = (Seq(self.settled), recipient(self.settled));
        store.delete_delivery((recipient, PeerId(1)), seq)?;
        self.log.ack(seq, recipient, None);
        if self.keep {
            let seen = How::Seen {
                path: "drain".into(),
                evidence: "tool_result".into(),
            };
            self.fates.push(Fate {
                seq,
                recipient,
                to: format!("peer-{}", recipient.0).into(),
                stage: Stage::Acked(Some(seen)).into(),
                at_ms: 1_700_000_000_000,
                goes_on: false,
                way: DeliveryHistory::delivered(1_700_000_000_000),
            });
        }
        Ok(())
    }

    fn seal(&mut self, store: &mut SqliteStore, now: u64) -> Result<(), Box<dyn Error>> {
        let bytes = self.fates.len() as u64 * (300 + FATE_BYTES);
        store.insert_fates(&self.fates, bytes, now)?;
        self.fates.clear();
        let block = self.log.seal(
            &self.key,
            &mut self.head,
            Stamp {
                wall_ms: now,
                steady_ms: now,
            },
        );
        Ok(store.append_audit(&block, &self.head)?)
    }

    fn delete_all(&mut self, store: &mut SqliteStore) -> Result<Vec<Duration>, Box<dyn Error>> {
        let mut slices = Vec::new();
        store.begin()?;
        while self.settled + 1 < self.next {
            self.settle(store)?;
        }
        self.seal(store, 1_700_000_000_000)?;
        store.commit()?;
        loop {
            store.begin()?;
            let start = Instant::now();
            let keep = Keep {
                from_ms: u64::MAX,
                bytes: 0,
                ids_from_ms: u64::MAX,
            };
            let gone = store.forget_ended(keep, 500)?;
            store.commit()?;
            if !gone.more {
                println!("deleting slice {:?}", start.elapsed());
                break;
            }
            slices.push(timed(|| store.maintain())?);
        }
        loop {
            let mut more = false;
            slices.push(timed(|| store.maintain().map(|left| more = left))?);
            if !more {
                return Ok(slices);
            }
        }
    }
}

fn recipient(seq: u64) -> PeerId {
    PeerId(2 + u32::try_from(seq % 7).unwrap_or(0))
}

fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<Duration, E> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 1_000];
    let (p50, p99, p999, max) = (at(500), at(990), at(999), at(1_000));
    println!(
        "{what}: {} times, p50 {p50:?}, p99 {p99:?}, p99.9 {p999:?}, max {max:?}",
        times.len()
    );
}

fn kib(path: &std::path::Path) -> Result<u64, std::io::Error> {
    Ok(fs::metadata(path)?.len() / 1_024)
}

/// This thread's time on the processor.
fn cpu_ns() -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().unwrap_or("0").parse()?)
}
