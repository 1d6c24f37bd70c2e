//! The adapter side of a connection.
