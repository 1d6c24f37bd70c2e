//! Joins brokers of several machines over NATS JetStream.
//!
//! A broker may have a domain; a bridge is a client of it that carries messages to brokers of other
//! domains, and back what became of them. What is sent, confirmed and repeated is decided by
//! `peerbus_peer::bridge`; this crate moves bytes.

pub mod account;
mod home;
mod joint;
mod lane;
pub mod nats;
mod pace;
mod roster;
pub mod run;
pub mod subject;

pub use home::BrokerAddress;

/// Largest payload that NATS must let through, in bytes: a carried envelope and its headers.
pub const PAYLOAD_BYTES_MAX: usize = 2 * 1_048_576;
