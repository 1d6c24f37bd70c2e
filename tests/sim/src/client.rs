//! What the clients of a world have in common.

use crate::failure::Verdict;
use crate::host::Host;
use crate::machine::Moment;
use crate::oracle::{Oracle, ProcId};
use crate::plan::Plan;
use crate::rng::Rng;
use crate::script::Script;

/// What a client wants its transport to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// Open a connection.
    Dial,
    /// Drop the connection.
    HangUp,
    /// Send a close frame and leave.
    Goodbye,
    /// Send a text message.
    Text(String),
    /// Send a binary message.
    Binary,
    /// Send a ping.
    Ping,
    /// Go by another name.
    Rename,
}

/// What a client may use while it decides.
#[derive(Debug)]
pub(crate) struct Ctx<'a> {
    /// When.
    pub(crate) at: Moment,
    /// Chance.
    pub(crate) rng: &'a mut Rng,
    /// Who watches.
    pub(crate) oracle: &'a mut Oracle,
    /// The shape of the world.
    pub(crate) plan: &'a Plan,
    /// Everybody's name.
    pub(crate) names: &'a [String],
    /// The process.
    pub(crate) proc: ProcId,
    /// No more mischief, and everything is drained.
    pub(crate) healing: bool,
    /// What the transport is to do.
    pub(crate) acts: Vec<Act>,
}

/// A client.
#[derive(Debug)]
pub(crate) enum Client {
    /// A session of the core with a host.
    Session(Box<Host>),
    /// A client written from the protocol.
    Script(Box<Script>),
}

/// Forwards a call to whichever client it is.
macro_rules! forward {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*);)*) => {
        impl Client {
            $($(#[$doc])*
            ///
            /// # Errors
            ///
            /// When a promise is broken.
            pub(crate) fn $name(&mut self, ctx: &mut Ctx<'_>, $($arg: $type),*) -> Verdict {
                match self {
                    Self::Session(host) => host.$name(ctx, $($arg),*),
                    Self::Script(script) => script.$name(ctx, $($arg),*),
                }
            })*
        }
    };
}

forward! {
    /// The process has begun.
    started();
    /// The connection that was asked for is open.
    connected();
    /// There is no broker.
    unreachable();
    /// A text message came.
    text(text: &str);
    /// A ping or a pong came.
    alive();
    /// The connection ended: by a close frame, or without.
    ended(close: Option<(u16, String)>);
    /// A deadline has come.
    timeout();
    /// The host does something.
    act();
    /// The process ends in an orderly way.
    leave();
}

impl Client {
    /// When it wants to be woken, in virtual time.
    #[must_use]
    pub(crate) fn wake_ms(&self) -> Option<u64> {
        match self {
            Self::Session(host) => host.wake_ms(),
            Self::Script(script) => script.wake_ms(),
        }
    }

    /// Whether it takes another frame now.
    #[must_use]
    pub(crate) fn wants_read(&self) -> bool {
        match self {
            Self::Session(host) => host.session.wants_read(),
            Self::Script(_) => true,
        }
    }

    /// The name it goes by.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Session(host) => host.session.name().as_str(),
            Self::Script(script) => &script.name,
        }
    }
}
