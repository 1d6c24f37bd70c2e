//! Lets libFuzzer drive the target that `PEERBUS_FUZZ_TARGET` names.
#![no_main]
#![expect(clippy::expect_used, reason = "it ends when it is called wrongly")]

use std::sync::OnceLock;

use peerbus_fuzz::Target;

static TARGET: OnceLock<&'static Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(init: {
    let name = std::env::var("PEERBUS_FUZZ_TARGET").unwrap_or_default();
    let found = Target::find(&name).expect("PEERBUS_FUZZ_TARGET names a target");
    TARGET.get_or_init(|| found);
}, |bytes: &[u8]| {
    if let Some(target) = TARGET.get() {
        (target.run)(bytes);
    }
});
