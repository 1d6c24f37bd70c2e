//! The user's own browser.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use peerbus_os::{dir, file, process};

/// Has the user's browser open a link, if there is a display. The link is a secret, and other users see the
/// arguments of programs: so it goes by the file at `by`, which only this user can read.
///
/// # Errors
///
/// When the file cannot be written, or there is nothing that opens it.
pub fn show(link: &str, by: &Path) -> io::Result<()> {
    let Some(opener) = process::browser() else {
        return Ok(());
    };
    if let Some(above) = by.parent() {
        dir::ensure_private(above)?;
    }
    let page = format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={link}\">\n");
    file::replace_private(by, page.as_bytes())?;
    let mut child = Command::new(opener)
        .arg(by)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    thread::spawn(move || child.wait());
    Ok(())
}
