//! The broker's rules, one by one, driven by hand.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod addresses;
mod askers;
mod audits;
mod broadcast;
mod brought;
mod domains;
mod ephemeral;
mod expiry;
mod groups;
mod handshake;
mod history;
mod holders;
mod joining;
mod keys;
mod leases;
mod messages;
mod names;
mod places;
mod quotas;
mod receipts;
mod rename;
mod requests;
mod retention;
mod retire;
mod rig;
mod settle;
mod share;
mod takeover;
mod tokens;
mod window;
