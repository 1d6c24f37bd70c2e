//! What differs between operating systems.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub(crate) use unix::{create_private, create_private_dir, dial_unix, exposed_mode, sync_dir};

#[cfg(not(unix))]
mod other;
#[cfg(not(unix))]
pub(crate) use other::{create_private, create_private_dir, dial_unix, exposed_mode, sync_dir};
