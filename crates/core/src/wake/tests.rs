//! The rules of the ladder.
