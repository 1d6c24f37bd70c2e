//! A disk that is soon full.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{Home, python};

/// A small file system in memory, which only processes in its namespaces see.
pub(crate) struct Small {
    /// Ends with its stdin.
    holder: Child,
    mounted_at: PathBuf,
}

impl Small {
    /// Mounts one of `size`, as mount takes it. `None` where this user may not mount anything.
    pub(crate) fn mount(home: &Home, size: &str) -> Option<Self> {
        let mounted_at = home.path().join("small");
        fs::create_dir(&mounted_at).expect("a directory");
        let mount = format!("mount -t tmpfs -o size={size},mode=700 small small");
        let script = format!("{mount} && echo mounted && exec cat");
        let mut holder = home
            .command("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut said = [0; 8];
        let stdout = holder.stdout.as_mut().expect("a pipe");
        if stdout.read_exact(&mut said).is_err() {
            holder.wait().expect("it has ended");
            assert!(!python::in_ci(), "nothing can be mounted here");
            println!("skipped: nothing can be mounted here");
            return None;
        }
        Some(Self { holder, mounted_at })
    }

    /// A broker whose database lies there.
    pub(crate) fn serve(&self, home: &Home) -> Command {
        let pid = self.holder.id().to_string();
        let db = self.mounted_at.join("peerbus.db");
        let mut command = home.command("nsenter");
        command.args([
            "--preserve-credentials",
            "--user",
            "--mount",
            "--target",
            &pid,
        ]);
        command.arg(env!("CARGO_BIN_EXE_peerbus"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--db"])
            .arg(db);
        command
    }

    /// Where this process finds a file that lies there.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        let below = self.mounted_at.strip_prefix("/").expect("absolute");
        root.join(below).join(name)
    }

    /// Writes a file of so many pages, or to the last byte of the disk.
    pub(crate) fn write(&self, name: &str, pages: usize) {
        let mut file = File::create(self.path(name)).expect("a file");
        let full = (0..pages).any(|_| file.write_all(&[0; 4_096]).is_err());
        assert_eq!(full, pages == usize::MAX, "it has more or less room");
    }

    /// Fills the disk but for so many pages.
    pub(crate) fn fill(&self, name: &str, but: u64) {
        let mut file = File::create(self.path(name)).expect("a file");
        while file.write_all(&[0; 4_096]).is_ok() {}
        let length = file.metadata().expect("its length").len();
        file.set_len(length.saturating_sub(but * 4_096))
            .expect("a file");
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("it is there");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}
