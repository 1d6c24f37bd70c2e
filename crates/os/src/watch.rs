//! What happens to the files of a directory, as far as the system tells.

use std::path::Path;

use crate::system::Watch;

/// Watches one directory; none at first.
#[derive(Debug, Default)]
pub struct DirectoryWatch(Watch);

impl DirectoryWatch {
    /// Watches a directory, if none is watched. Whether one is: not every system tells.
    pub fn open(&mut self, dir: &Path) -> bool {
        self.0.open(dir)
    }

    /// Waits until a file with one of these names is written, put in its place, or gone from there, or
    /// something happens to the directory, which is watched no more then. Where none is watched, for ever.
    pub async fn changed(&mut self, is_watched: impl Fn(&str) -> bool) {
        self.0.changed(is_watched).await;
    }
}
