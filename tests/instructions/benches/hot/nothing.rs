//! A store that does nothing, so that only the core is counted.

use std::collections::BTreeMap;

use peerbus_core::store::{Forgotten, Inserted, Loaded, Store, StoreError, Txn};

/// Takes everything and holds nothing, except that everything asked for exists.
pub(crate) struct Nothing;

impl Store for Nothing {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        Ok(Loaded::default())
    }
    fn begin(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
    fn commit(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
    fn rollback(&mut self) {}
}

/// What it answers.
trait Answer {
    const ANSWER: Self;
}

impl Answer for () {
    const ANSWER: Self = ();
}

impl Answer for bool {
    const ANSWER: Self = true;
}

impl Answer for u64 {
    const ANSWER: Self = 0;
}

impl Answer for usize {
    const ANSWER: Self = 0;
}

impl Answer for Forgotten {
    const ANSWER: Self = Self {
        rows: 0,
        more: false,
        messages: Vec::new(),
    };
}

impl Answer for Inserted {
    const ANSWER: Self = Self::New;
}

impl<T> Answer for Option<T> {
    const ANSWER: Self = None;
}

impl<K, V> Answer for BTreeMap<K, V> {
    const ANSWER: Self = Self::new();
}

impl<T> Answer for Vec<T> {
    const ANSWER: Self = Vec::new();
}

impl<T: Answer, U: Answer> Answer for (T, U) {
    const ANSWER: Self = (T::ANSWER, U::ANSWER);
}

macro_rules! nothing {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        impl Txn for Nothing {
            $(fn $name(&mut self, $(_: $type),*) -> Result<$out, StoreError> {
                Ok(Answer::ANSWER)
            })*
        }
    };
}

peerbus_core::txn_methods!(nothing);
