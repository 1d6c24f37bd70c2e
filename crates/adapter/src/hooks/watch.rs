//! Notices what happens to the files of a directory. Elsewhere than on Linux it notices nothing.

use std::path::Path;

#[cfg(target_os = "linux")]
use inotify::{EventMask, EventStream, Inotify, WatchMask};

/// Room for the events of one read; one event with the longest name needs 272 bytes (inotify(7)).
#[cfg(target_os = "linux")]
const EVENTS_BYTES: usize = 1_024;

/// Watches one directory; none at first.
#[derive(Debug, Default)]
pub struct DirectoryWatch {
    #[cfg(target_os = "linux")]
    events: Option<EventStream<[u8; EVENTS_BYTES]>>,
}

impl DirectoryWatch {
    /// Watches a directory, if none is watched. Whether one is.
    #[cfg(target_os = "linux")]
    pub fn open(&mut self, dir: &Path) -> bool {
        let open = || {
            let written = WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO;
            let gone = WatchMask::DELETE | WatchMask::MOVED_FROM;
            let itself = WatchMask::DELETE_SELF | WatchMask::MOVE_SELF | WatchMask::ONLYDIR;
            let watch = Inotify::init()?;
            let mask = written | gone | itself;
            watch.watches().add(dir, mask)?;
            watch.into_event_stream([0; EVENTS_BYTES])
        };
        if self.events.is_none() {
            self.events = open().ok();
        }
        self.events.is_some()
    }

    /// Watches nothing: no system but Linux is asked.
    #[cfg(not(target_os = "linux"))]
    pub fn open(&mut self, _: &Path) -> bool {
        false
    }

    /// Waits until a file with one of these names is written, put in its place, or gone from there, or
    /// something happens to the directory, which is watched no more then. Where none is watched, for ever.
    #[cfg(target_os = "linux")]
    pub async fn changed(&mut self, is_watched: impl Fn(&str) -> bool) {
        use futures_util::StreamExt as _;
        let Some(events) = &mut self.events else {
            return std::future::pending().await;
        };
        let of_itself = EventMask::IGNORED | EventMask::DELETE_SELF | EventMask::MOVE_SELF;
        while let Some(Ok(event)) = events.next().await {
            if event.mask.intersects(of_itself) {
                break;
            }
            let name = event.name.as_deref().and_then(|name| name.to_str());
            if event.mask.contains(EventMask::Q_OVERFLOW) || name.is_some_and(&is_watched) {
                return;
            }
        }
        self.events = None;
    }

    /// Waits for ever.
    #[cfg(not(target_os = "linux"))]
    pub async fn changed(&mut self, _: impl Fn(&str) -> bool) {
        std::future::pending().await
    }
}
