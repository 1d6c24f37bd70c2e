//! Bounded memory of what happened of late.

use std::collections::{BTreeMap, VecDeque};

/// Records of a [`Book`].
const RECORDS_MAX: usize = 1_024;

/// The last times of something: one more than its budget.
#[derive(Debug, Default)]
pub(in crate::mailbox) struct Times(VecDeque<u64>);

impl Times {
    /// It happened.
    pub(in crate::mailbox) fn add(&mut self, now_ms: u64, budget: usize) {
        self.0.push_back(now_ms);
        while self.0.len() > budget + 1 {
            self.0.pop_front();
        }
    }

    /// It happened more often than `budget` in the last `within_ms`.
    pub(in crate::mailbox) fn over(&self, now_ms: u64, within_ms: u64, budget: usize) -> bool {
        let recent = |&at: &u64| now_ms.saturating_sub(at) < within_ms;
        self.0.len() > budget && self.0.front().is_some_and(recent)
    }
}

/// Records by name; the one that was used longest ago makes room.
#[derive(Debug)]
pub(super) struct Book<K, V> {
    records: BTreeMap<K, (u64, V)>,
    uses: u64,
}

impl<K, V> Default for Book<K, V> {
    fn default() -> Self {
        Self {
            records: BTreeMap::new(),
            uses: 0,
        }
    }
}

impl<K: Ord + Clone, V: Default> Book<K, V> {
    /// The record of `key`, if there is one.
    pub(super) fn find(&mut self, key: &K) -> Option<&mut V> {
        self.uses += 1;
        let (used, record) = self.records.get_mut(key)?;
        *used = self.uses;
        Some(record)
    }

    /// The record of `key`, an empty one if there is none.
    pub(super) fn get(&mut self, key: &K) -> &mut V {
        self.uses += 1;
        if self.records.len() >= RECORDS_MAX && !self.records.contains_key(key) {
            let oldest = self.records.iter().min_by_key(|(_, (used, _))| *used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.records.remove(&oldest);
            }
        }
        let (used, record) = self.records.entry(key.clone()).or_default();
        *used = self.uses;
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_book_keeps_the_records_that_are_in_use() {
        let mut book: Book<usize, u32> = Book::default();
        for key in 0..RECORDS_MAX {
            *book.get(&key) = 7;
        }
        *book.get(&0) += 1;
        book.get(&RECORDS_MAX);
        assert_eq!(book.records.len(), RECORDS_MAX);
        assert_eq!(*book.get(&0), 8, "used a moment ago");
        assert!(!book.records.contains_key(&1), "used longest ago");
    }
}
