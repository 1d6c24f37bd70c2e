//! Instruction counts of the functions that every message passes through.
//!
//! `cargo xtask instructions` runs this under valgrind and compares the counts with
//! `baseline.json`. Only instructions in user space are counted: a system call is free here, and
//! so is waiting. Every input is fixed, and what runs before and after the measured function is
//! not counted.

#![allow(
    clippy::unwrap_used,
    reason = "a count of something that failed is worth nothing"
)]

mod broker;
mod commit;
mod nothing;
mod wire;

use gungraun::{Callgrind, LibraryBenchmarkConfig, main};

use broker::decisions;
use commit::transactions;
use wire::bytes;

main!(
    // A simulated cache would cost time and say nothing that is compared.
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = [bytes, decisions, transactions]
);
