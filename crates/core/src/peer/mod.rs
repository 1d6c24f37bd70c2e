//! The adapter side of a connection.

mod types;

pub use types::{
    Action, Config, Counters, Credentials, Draft, Ended, Event, Held, Inbound, Key, Overloaded,
    QueryFailure, QueryId, Reason, Reply, Roster, SendOutcome, Status,
};
