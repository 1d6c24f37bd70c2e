//! A transaction of the engine, with the real store on a real file.

use gungraun::{library_benchmark, library_benchmark_group};
use peerbus_core::broker::{BrokerInput, BrokerOutput};
use peerbus_store::SqliteStore;
use tempfile::TempDir;

use crate::broker::Bus;

/// What a transaction needs, and what it must not outlive.
struct Ready {
    bus: Bus<SqliteStore>,
    inputs: Vec<BrokerInput>,
    directory: TempDir,
}

fn open(inputs: fn(&mut Bus<SqliteStore>) -> Vec<BrokerInput>) -> Ready {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("bus.db")).unwrap();
    let mut bus = Bus::new(store);
    let inputs = inputs(&mut bus);
    Ready {
        bus,
        inputs,
        directory,
    }
}

#[library_benchmark]
#[bench::messages_64(open(|bus| bus.messages(64)))]
#[bench::acks_64(open(|bus| bus.deliver(64)))]
fn commit_batch(ready: Ready) -> (Bus<SqliteStore>, Vec<BrokerOutput>, TempDir) {
    let Ready {
        mut bus,
        inputs,
        directory,
    } = ready;
    let outputs = bus.batch(inputs);
    (bus, outputs, directory)
}

library_benchmark_group!(name = transactions, benchmarks = [commit_batch]);
