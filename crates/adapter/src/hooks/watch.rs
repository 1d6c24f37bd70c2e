//! Notices what happens to the files of a directory. Elsewhere than on Linux it notices nothing.

use std::path::Path;

#[cfg(target_os = "linux")]
use inotify::{EventMask, EventStream, Inotify, WatchMask};

/// Room for the events of one read; one event with the longest name needs 272 bytes (inotify(7)).
#[cfg(target_os = "linux")]
const EVENTS_BYTES: usize = 1_024;

/// What is noticed.
#[derive(Debug, Clone, Copy)]
pub enum Watched {
    /// A file is written, or put in its place.
    Written,
    /// A file is written, put in its place, or gone from there.
    Lost,
}

/// Watches one directory.
#[derive(Debug)]
pub struct DirectoryWatch {
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "on Linux only"))]
    watched: Watched,
    #[cfg(target_os = "linux")]
    events: Option<EventStream<[u8; EVENTS_BYTES]>>,
}

impl DirectoryWatch {
    /// Watches nothing yet.
    #[must_use]
    pub fn new(watched: Watched) -> Self {
        Self {
            watched,
            #[cfg(target_os = "linux")]
            events: None,
        }
    }

    /// Watches a directory, if none is watched. Whether one is.
    #[cfg(target_os = "linux")]
    pub fn open(&mut self, dir: &Path) -> bool {
        let open = || {
            let mask = match self.watched {
                Watched::Written => WatchMask::MOVED_TO,
                Watched::Lost => {
                    WatchMask::MOVED_TO
                        | WatchMask::DELETE
                        | WatchMask::MOVED_FROM
                        | WatchMask::DELETE_SELF
                        | WatchMask::MOVE_SELF
                }
            };
            let watch = Inotify::init()?;
            let mask = mask | WatchMask::CLOSE_WRITE | WatchMask::ONLYDIR;
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

    /// Waits until something happens to a file whose name is one of those, or to the directory,
    /// which is watched no more then. Where none is watched, for ever.
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
