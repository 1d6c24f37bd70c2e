//! How messages, peers and other domains read, for agents, people and programs.
//!
//! A [`Stage`](peerbus_wire::Stage) becomes words here and nowhere else: a step, a line, a sentence. Broker,
//! tools, commands and page print what this crate makes. It has no clock and does no I/O.

mod about;
mod desk;
mod domains;
mod few;
mod message;
mod request;
mod text;
mod tone;
mod trail;

pub use about::{ADAPTER_STOPPED, Around, Audience, PeerState, PeerView, does, presence};
pub use desk::DeskView;
pub use domains::{DomainKey, DomainReach, DomainView};
pub use few::FewPeers;
pub use message::{
    MessageContent, MessagePage, MessageText, MessageView, PROBE, StepView, body_json, spoken,
};
pub use request::RequestView;
pub use text::{ago, is_proven, opens_approve, proof, quoted, rejected, says, shown, span, word};
pub use tone::Tone;
pub use trail::{Step, Trail, Words, depends_on_peers, fate, is_seen, reached, stage_of};
