//! What a tool call comes to.

/// What becomes of an answer. Dropped before it is taken, the client does not have it, or at least
/// never showed that it has.
pub(crate) trait Receipt: Send {
    /// Its bytes left. The client may have it from now on.
    fn flushed(&mut self);

    /// The client lives on after that: it has the answer.
    fn taken(&mut self);

    /// The client throws the answer away, taken or not.
    fn cancelled(self: Box<Self>);
}

/// The result of a tool call.
pub(crate) enum Reply {
    /// It did what it says.
    Done {
        /// JSON text of an object.
        structured: String,
        /// Told what becomes of the answer.
        receipt: Option<Box<dyn Receipt>>,
    },
    /// It did not: a sentence that the agent can act on.
    Failed(String),
}

impl Reply {
    /// Has this told what becomes of the answer.
    pub(crate) fn with(self, receipt: Option<Box<dyn Receipt>>) -> Self {
        match self {
            Self::Done { structured, .. } => Self::Done {
                structured,
                receipt,
            },
            failed @ Self::Failed(_) => failed,
        }
    }
}

/// What a client gets for a call.
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    /// What goes along with it: a text, and what is told of that.
    pub(crate) along: Option<(String, Box<dyn Receipt>)>,
}
