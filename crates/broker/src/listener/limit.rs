//! The limit of open files, which bounds the connections before our own limit does.

/// Raises the soft limit of open files to the hard one and returns it; `None` where there is no
/// limit.
pub(crate) fn raise_file_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_refused) => limit.current,
    }
}
