//! Locks of threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for a lock. What a thread left that panicked is taken as it is: whoever holds one leaves no
/// half of a change where it can panic.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
