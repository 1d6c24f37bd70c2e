//! JSON as bytes: a strict scanner that finds members and values without decoding them.
