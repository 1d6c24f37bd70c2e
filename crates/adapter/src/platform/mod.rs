//! What differs between operating systems.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub(crate) use unix::{
    create_private, create_private_dir, dial_unix, exposed_mode, runtime_dir, sync_dir, user_name,
};

#[cfg(not(unix))]
mod other;
#[cfg(not(unix))]
pub(crate) use other::{
    create_private, create_private_dir, dial_unix, exposed_mode, runtime_dir, sync_dir, user_name,
};
