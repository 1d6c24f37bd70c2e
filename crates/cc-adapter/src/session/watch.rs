//! Notices that a file changes. Elsewhere than on Linux it notices nothing.

use std::path::PathBuf;

#[cfg(target_os = "linux")]
use tokio::sync::Mutex;

/// Room for the events of one read; one event with the longest name needs 272 bytes (inotify(7)).
#[cfg(target_os = "linux")]
const EVENTS_BYTES: usize = 1_024;

/// Watches one directory, from the first time that somebody waits and the directory is there.
#[derive(Debug, Default)]
pub(super) struct FileWatch {
    #[cfg(target_os = "linux")]
    events: Mutex<Option<inotify::EventStream<[u8; EVENTS_BYTES]>>>,
}

impl FileWatch {
    /// Waits until a file in `dir` whose name is one of those was written or put in its place. For
    /// one caller at a time.
    #[cfg(target_os = "linux")]
    pub(super) async fn changed(&self, dir: Option<PathBuf>, is_watched: impl Fn(&str) -> bool) {
        use futures_util::StreamExt as _;
        use inotify::{EventMask, Inotify, WatchMask};

        let open = |dir: PathBuf| {
            let watch = Inotify::init()?;
            let mask = WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO | WatchMask::ONLYDIR;
            watch.watches().add(dir, mask)?;
            watch.into_event_stream([0; EVENTS_BYTES])
        };
        let mut events = self.events.lock().await;
        if events.is_none() {
            // A directory that is not there yet may be there when somebody waits again.
            *events = dir.and_then(|dir| open(dir).ok());
        }
        let Some(stream) = events.as_mut() else {
            return std::future::pending().await;
        };
        while let Some(Ok(event)) = stream.next().await {
            if event.mask.contains(EventMask::IGNORED) {
                break;
            }
            let name = event.name.as_deref().and_then(|name| name.to_str());
            if event.mask.contains(EventMask::Q_OVERFLOW) || name.is_some_and(&is_watched) {
                return;
            }
        }
        // The directory is gone.
        *events = None;
    }

    /// Waits for ever.
    #[cfg(not(target_os = "linux"))]
    pub(super) async fn changed(&self, _: Option<PathBuf>, _: impl Fn(&str) -> bool) {
        std::future::pending().await
    }
}
