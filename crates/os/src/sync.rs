//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. One that a panic poisoned is used on: what it guards is whole between two calls.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
