//! A library that is loaded before a process of ours, and makes its disk and its clock bad ones.
//!
//! It is C, and built when it is needed, because the tests have no unsafe code.

use std::path::Path;
use std::process::Command;

/// What stands between the process and the C library.
const SOURCE: &str = include_str!("preload.c");

/// Builds the library in `directory` and has the process of `command` load it.
pub fn preload(directory: &Path, command: &mut Command) {
    let library = directory.join("preload.so");
    if !library.exists() {
        let source = directory.join("preload.c");
        std::fs::write(&source, SOURCE).unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(&source)
            .status()
            .expect("a C compiler, which building peerbus needs as well");
        assert!(built.success(), "cc: {built}");
    }
    command.env("LD_PRELOAD", library);
}
