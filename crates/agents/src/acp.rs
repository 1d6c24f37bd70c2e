//! What a driver has to know of an agent that speaks the Agent Client Protocol.

/// How an agent is driven over ACP, as its versions of November 2026 were seen to behave.
#[derive(Debug)]
pub struct Acp {
    /// The program and its arguments.
    pub command: &'static [&'static str],
    /// The mode in which it asks before it does something. `None`: it starts in it, or has none.
    pub mode: Option<&'static str>,
    /// What shows that a turn which ended with `end_turn` is the model's.
    pub proof: Proof,
    /// So many processes stand between the one that was started and the one that starts MCP servers.
    pub wrappers: usize,
    /// What it does without asking, even in that mode; empty: nothing that is known.
    pub unasked: &'static str,
    /// What its model has to be told to find the bus tools; empty: they are before it.
    pub finds_tools: &'static str,
}

impl Acp {
    /// An agent of which nothing is known.
    pub const UNKNOWN: Self = Self {
        command: &[],
        mode: None,
        proof: Proof::Unknown,
        wrappers: 0,
        unasked: "what it asks before is not known",
        finds_tools: "",
    };
}

/// What shows that the model answered, in a turn without a tool call: `end_turn` alone shows
/// nothing, since several agents say it after the model's service failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// A chunk of its words with a `messageId`: what the agent says in the model's place has none, or
    /// the turn ends in an error.
    MessageId,
    /// Usage that has grown: it is the session's sum, which a turn that failed repeats.
    Usage,
    /// Output tokens in `_meta.quota`, and words.
    Quota,
    /// Words: where the service fails, the turn ends in an error or without any.
    Words,
    /// None is known: a `messageId` or grown usage shows it, and words do not.
    Unknown,
}
