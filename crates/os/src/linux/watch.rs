//! Notices what happens to the files of a directory.

use std::path::Path;

use inotify::{EventMask, EventStream, Inotify, WatchMask};

/// Room for the events of one read; one event with the longest name needs 272 bytes (inotify(7)).
const EVENTS_BYTES: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct Watch {
    events: Option<EventStream<[u8; EVENTS_BYTES]>>,
}

impl Watch {
    pub(crate) fn open(&mut self, dir: &Path) -> bool {
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

    pub(crate) async fn changed(&mut self, is_watched: impl Fn(&str) -> bool) {
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
}
