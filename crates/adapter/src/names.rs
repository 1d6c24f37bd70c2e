//! Generated names.

use peerbus_wire::PeerName;

/// Makes up a name: `<adjective>-<noun>-<3 base36>`, lower case.
#[must_use]
pub fn generate() -> PeerName {
    unimplemented!()
}
