//! What a seed decides before anything happens.

use peerbus_core::TokenHash;
use peerbus_core::audit::AuditKey;
use peerbus_core::broker::BrokerConfig;
use peerbus_core::grant::Rights;
use peerbus_peer::mailbox;
use peerbus_peer::session::SessionMutation;
use peerbus_wire::{Secret, Token};

use crate::disk::OutsideMutation;
use crate::oracle::Rules;
use crate::rng::Rng;

/// The bearer token that everybody has.
pub(crate) const TOKEN: &str = "token-of-the-simulation";
/// A stranger's, which the broker knows, too.
pub(crate) const OTHER_TOKEN: &str = "another-token";
/// What genuine authors sign with.
pub(crate) const SECRET: &[u8] = b"the secret of the simulation 0123456789";

/// The shape of one world. Rates are per mille.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Names whose processes speak `ext`.
    pub(crate) sessions: usize,
    /// Those of them with generated names.
    pub(crate) generated: usize,
    /// Names whose processes speak v1.
    pub(crate) scripts: usize,
    /// There is a peer that breaks the rules.
    pub(crate) mallory: bool,
    /// How long faults happen, in virtual milliseconds.
    pub(crate) busy_ms: u64,
    /// Mean time between two acts of a host.
    pub(crate) act_ms: u64,
    /// Chance that an act sends.
    pub(crate) send: u64,
    /// There are groups.
    pub(crate) groups: bool,
    /// Chance that a message wants a result.
    pub(crate) requests: u64,
    /// Chance that a message is a broadcast.
    pub(crate) broadcast: u64,
    /// Chance that a host is lazy: it takes nothing until all is healed.
    pub(crate) lazy: u64,
    /// Chance that a taken message is acked at once.
    pub(crate) ack_now: u64,
    /// Chance that a taken message is handed back.
    pub(crate) release: u64,
    /// Chance that an act of a session asks for another name, or ends its name.
    pub(crate) rename: u64,
    /// Mean time between two faults.
    pub(crate) fault_ms: u64,
    /// Largest network delay.
    pub(crate) delay_ms: u64,
    /// Largest window asked for, in messages.
    pub(crate) window_max: u64,
    /// Chance that a delivery is altered on the way.
    pub(crate) alter: u64,
    /// Largest batch of the engine.
    pub(crate) batch_max: usize,
    /// Sessions keep their mail in mailboxes.
    pub(crate) mailboxes: bool,
    /// A rule of every mailbox to break.
    pub(crate) mailbox_mutation: Option<mailbox::MailboxMutation>,
    /// A rule of every session to break.
    pub(crate) peer_mutation: Option<SessionMutation>,
    /// A promise of the broker to break from outside.
    pub(crate) outside_mutation: Option<OutsideMutation>,
    /// The broker's configuration.
    pub(crate) config: BrokerConfig,
}

impl Plan {
    /// Draws the plan of a world.
    #[must_use]
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let tokens = [TOKEN, OTHER_TOKEN]
            .iter()
            .filter_map(|token| Token::parse(token));
        let tokens = tokens.map(|token| TokenHash::of(&token)).collect();
        let mut config = BrokerConfig::new(tokens, AuditKey([7; 32]));
        // A stranger's token may have one name and nothing else.
        if let Some(stranger) = config.grants.last_mut() {
            stranger.rights = Rights::default();
            stranger.quotas.names = 1;
        }
        let minute = 60_000;
        if rng.chance(300) {
            config.expiry_ms = rng.range(3, 10) * minute;
        }
        if rng.chance(400) {
            config.expiry_generated_ms = rng.range(2, 6) * minute;
        }
        if rng.chance(200) {
            config.queue_max = rng.range(3, 40);
        }
        if rng.chance(200) {
            config.owed_to_max = rng.range(1_500, 20_000);
        }
        if rng.chance(200) {
            config.owed_by_max = rng.range(4_000, 60_000);
        }
        if rng.chance(300) {
            config.retention_ms = 2 * minute;
        }
        if rng.chance(300) {
            config.history_bytes = rng.range(500, 5_000);
            config.dead_bytes = rng.range(500, 5_000);
        }
        config.sweep_ms = rng.pick(&[500, 5_000, minute]);
        config.settled_ms = rng.pick(&[10 * minute, 20 * minute]);
        config.patience_ms = rng.pick(&[1_000, 20_000, 10 * minute]);
        config.recall_ms = rng.pick(&[300, 5_000]);
        config.grace_ms = rng.pick(&[1_000, 20_000, minute]);
        let scripts = rng.index(3);
        let busy_ms = rng.pick(&[3_000, 20_000, 120_000, 600_000]);
        Self {
            sessions: 1 + rng.index(4) + usize::from(scripts == 0),
            generated: rng.index(3),
            scripts,
            mallory: rng.chance(400),
            busy_ms,
            act_ms: 2 + busy_ms / rng.range(20, 120),
            send: rng.range(200, 900),
            groups: rng.chance(400),
            requests: rng.pick(&[0, 0, 200, 600]),
            broadcast: rng.pick(&[0, 50, 300]),
            lazy: rng.pick(&[0, 0, 200, 500]),
            ack_now: rng.pick(&[0, 500, 900, 1_000]),
            release: rng.pick(&[0, 0, 30, 200]),
            rename: rng.pick(&[0, 0, 5, 40]),
            fault_ms: busy_ms / rng.pick(&[1, 4, 15, 40]),
            delay_ms: rng.pick(&[0, 2, 30, 400]),
            window_max: rng.pick(&[1, 3, 8, 256]),
            alter: rng.pick(&[0, 0, 0, 20]),
            batch_max: rng.pick(&[1, 1, 4, 64, 512]),
            mailboxes: false,
            mailbox_mutation: None,
            peer_mutation: None,
            outside_mutation: None,
            config,
        }
    }

    /// What the oracle must know.
    #[must_use]
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            audit_key: self.config.audit_key.clone(),
            expiry_ms: self.config.expiry_ms,
            sweep_ms: self.config.sweep_ms,
            expiry_generated_ms: self.config.expiry_generated_ms,
            grace_ms: self.config.grace_ms,
            patience_ms: self.config.patience_ms,
            recall_ms: self.config.recall_ms,
            queue_max: self.config.queue_max,
            owed_to_max: self.config.owed_to_max,
            owed_by_max: self.config.owed_by_max,
            // Others are as long as no world is, and as large.
            history: self.config.history_bytes > 5_000,
        }
    }
}

/// The bearer token.
#[must_use]
#[expect(clippy::expect_used, reason = "a short text is a token")]
pub(crate) fn token(text: &str) -> Token {
    Token::parse(text).expect("a short text is a token")
}

/// The secret.
#[must_use]
#[expect(clippy::expect_used, reason = "the bytes are long enough")]
pub(crate) fn secret(bytes: &[u8]) -> Secret {
    Secret::new(bytes).expect("at least 32 bytes")
}
