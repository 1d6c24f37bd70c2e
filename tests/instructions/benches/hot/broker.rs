//! The core's decisions, on a store that does nothing.

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group};
use peerbus_core::audit::AuditKey;
use peerbus_core::broker::{Broker, BrokerConfig, BrokerInput, BrokerOutput, ConnId};
use peerbus_core::store::Store;
use peerbus_core::{Now, TokenHash};
use peerbus_wire::{BrokerFrame, ClientFrame, Token};

use crate::nothing::Nothing;
use crate::wire::message_text;

const ALICE: ConnId = ConnId(1);
const BOB: ConnId = ConnId(2);

/// Messages that go through before anything is counted, so that what grows has grown.
const WARM: u64 = 256;

/// More than malloc keeps in lists by size.
const LARGE_BYTES: usize = 4_096;

const NOW: Now = Now {
    mono_ms: 1_000,
    boot_ms: 1_000,
    wall_ms: 1_700_000_000_000,
};

/// A broker to which alice and bob are connected, and how many messages went through it.
pub(crate) struct Bus<S> {
    pub(crate) broker: Broker,
    pub(crate) store: S,
    next: u64,
}

impl<S: Store> Bus<S> {
    pub(crate) fn new(mut store: S) -> Self {
        let token = TokenHash::of(&Token::parse("t").unwrap());
        let config = BrokerConfig::new(vec![token], AuditKey([7; 32]));
        let broker = Broker::new(config, store.load().unwrap(), NOW);
        let mut bus = Self {
            broker,
            store,
            next: 1,
        };
        let joins = [(ALICE, "alice"), (BOB, "bob")].map(|(conn, name)| {
            let register = format!(
                r#"{{"protocol_version":"v1","type":"register","token":"t","name":"{name}","ext":1,"instance":"i"}}"#
            );
            [
                BrokerInput::Opened(conn),
                BrokerInput::Frame(conn, ClientFrame::parse(register.as_bytes())),
            ]
        });
        bus.batch(joins.into_iter().flatten().collect());
        assert_eq!(bus.broker.registered(), 2);
        while bus.next <= WARM {
            let delivered = bus.deliver(64);
            bus.batch(delivered);
        }
        bus
    }

    /// The next `count` messages, parsed, from alice to bob.
    pub(crate) fn messages(&mut self, count: u64) -> Vec<BrokerInput> {
        let numbers = self.next..self.next + count;
        self.next = numbers.end;
        numbers
            .map(|number| BrokerInput::Frame(ALICE, ClientFrame::parse(&message_text(number))))
            .collect()
    }

    /// Sends `count` messages and gives bob's acks.
    pub(crate) fn deliver(&mut self, count: u64) -> Vec<BrokerInput> {
        let messages = self.messages(count);
        let first = self.next - count;
        let delivered = self
            .batch(messages)
            .into_iter()
            .filter(|output| matches!(output, BrokerOutput::Send(BOB, BrokerFrame::Deliver(_))));
        assert_eq!(delivered.count() as u64, count);
        // The core numbers messages from 1, as this does, and the number is the delivery's key.
        (first..self.next)
            .map(|number| {
                let ack = format!(
                    r#"{{"protocol_version":"v1","type":"ack","id":"{number}","how":"seen","path":"socket","evidence":"transcript"}}"#
                );
                BrokerInput::Frame(BOB, ClientFrame::parse(ack.as_bytes()))
            })
            .collect()
    }

    /// One transaction, as the engine has it.
    pub(crate) fn batch(&mut self, inputs: Vec<BrokerInput>) -> Vec<BrokerOutput> {
        self.store.begin().unwrap();
        let mut outputs = Vec::with_capacity(inputs.len() * 8);
        self.handle(inputs);
        outputs.extend(std::iter::from_fn(|| self.broker.poll_output()));
        self.broker.seal(NOW, &mut self.store).unwrap();
        self.store.commit().unwrap();
        self.broker.committed();
        outputs.extend(std::iter::from_fn(|| self.broker.poll_output()));
        outputs
    }

    fn handle(&mut self, inputs: Vec<BrokerInput>) {
        for input in inputs {
            self.broker.handle(NOW, input, &mut self.store).unwrap();
        }
        self.broker.flush(NOW, &mut self.store).unwrap();
    }
}

/// How many messages a bench takes through. What malloc does by chance, as putting together what was
/// freed, weighs little among so many.
const COUNT: u64 = 64;

/// A bus, and what it is given, in batches.
type Ready = (Bus<Nothing>, Vec<Vec<BrokerInput>>);

fn with_messages(batches: usize) -> Ready {
    let mut bus = Bus::new(Nothing);
    let messages = bus.messages(COUNT);
    ready(bus, messages, batches)
}

fn with_acks(batches: usize) -> Ready {
    let mut bus = Bus::new(Nothing);
    let acks = bus.deliver(COUNT);
    ready(bus, acks, batches)
}

fn ready(bus: Bus<Nothing>, inputs: Vec<BrokerInput>, batches: usize) -> Ready {
    let size = inputs.len() / batches;
    let mut inputs = inputs.into_iter();
    let inputs = (0..batches).map(|_| inputs.by_ref().take(size).collect());
    let inputs = inputs.collect();
    settle_heap();
    (bus, inputs)
}

/// Makes malloc put together what the setup freed. Otherwise it does that once at the first large
/// piece that is asked for, and a count has it or not by chance.
fn settle_heap() {
    drop(black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
}

#[library_benchmark]
#[bench::one_by_one_64(with_messages(64))]
#[bench::batch_of_64(with_messages(1))]
fn route((mut bus, batches): Ready) -> Bus<Nothing> {
    batches.into_iter().for_each(|batch| bus.handle(batch));
    bus
}

#[library_benchmark]
#[bench::one_by_one_64(with_acks(64))]
#[bench::batch_of_64(with_acks(1))]
fn ack((mut bus, batches): Ready) -> Bus<Nothing> {
    batches.into_iter().for_each(|batch| bus.handle(batch));
    bus
}

library_benchmark_group!(name = decisions, benchmarks = [route, ack]);
