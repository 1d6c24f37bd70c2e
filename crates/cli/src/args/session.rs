//! The command line of `peerbus session`.

use std::path::PathBuf;

use clap::Subcommand;

use super::path;
use super::values::{SEEN_WITHIN_S, seconds};

#[derive(Debug, Subcommand)]
pub(crate) enum SessionVerb {
    /// Show the live sessions of this user
    List {
        /// Only the session of this name or id
        name: Option<String>,
        /// Show all columns, however narrow the terminal is
        #[arg(long)]
        wide: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what happens in a session, until it ends; Ctrl-C leaves it alone
    Watch {
        #[command(flatten)]
        session: SessionWhich,
        /// Print what the model says piece by piece, too, where its client tells that
        #[arg(long)]
        partial: bool,
        /// Print each event as JSON
        #[arg(long)]
        json: bool,
    },
    /// Put a text into a session; it is shown as another agent's words
    Inject(SessionInject),
    /// End the turn that is under way in a session
    Interrupt(SessionNamed),
    /// End a session that `peerbus run` drives
    Stop(SessionNamed),
    /// Allow what a session asks its user; without a name show what is asked
    Approve(SessionApprove),
    /// Answer a question that a session asks its user; without a name show what is asked
    Answer(SessionAnswer),
    /// Deny what a session asks its user; without a name show what is asked
    Deny(SessionDeny),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionApprove {
    /// The request by its five letters, or a session in which one is open
    #[arg(value_name = "REQUEST|SESSION")]
    pub(crate) which: Option<String>,
    /// Add a rule that the client suggests, so that it does not ask again; name it where there are
    /// several, with where it is kept if need be: 'RULE in DESTINATION'
    #[arg(long, value_name = "RULE", num_args = 0..=1, default_missing_value = "", requires = "which")]
    pub(crate) always: Option<String>,
    /// Have the tool get this object in place of what was asked, where the gate `control` is open, too; `-`
    /// reads it from stdin
    #[arg(
        long,
        value_name = "JSON",
        requires = "which",
        conflicts_with = "always"
    )]
    pub(crate) input: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionAnswer {
    /// The question by its five letters, or a session in which one is open
    #[arg(value_name = "REQUEST|SESSION")]
    pub(crate) which: Option<String>,
    /// For each question in turn the number of an option (several with commas), or a text
    #[arg(value_name = "ANSWER", requires = "which")]
    pub(crate) answers: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionDeny {
    /// The request by its five letters, or a session in which one is open
    #[arg(value_name = "REQUEST|SESSION")]
    pub(crate) which: Option<String>,
    /// What the model is told
    #[arg(long, value_name = "TEXT", requires = "which")]
    pub(crate) message: Option<String>,
    /// End the turn, too, where the gate `control` is open
    #[arg(long, requires = "which")]
    pub(crate) interrupt: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionWhich {
    /// Its id, or how that begins, or its name; not needed where there is one
    #[arg(conflicts_with = "latest")]
    pub(crate) id: Option<String>,
    /// Take the session that was active last
    #[arg(long)]
    pub(crate) latest: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionNamed {
    #[command(flatten)]
    pub(crate) session: SessionWhich,
    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(override_usage = "peerbus session inject [OPTIONS] [ID] TEXT")]
pub(crate) struct SessionInject {
    /// The session, as for `watch`, and the text; `-` reads it from stdin
    #[arg(value_name = "ID TEXT", num_args = 1..=2, required = true)]
    pub(crate) words: Vec<String>,
    /// Take the session that was active last; only the text is given then
    #[arg(long)]
    pub(crate) latest: bool,
    /// Put an image in with the text, where a driven session takes one: PNG, JPEG, GIF or WebP
    #[arg(long = "image", value_name = "FILE", value_parser = path())]
    pub(crate) images: Vec<PathBuf>,
    /// End the turn that is under way before
    #[arg(long)]
    pub(crate) interrupt: bool,
    /// Wait until its model has seen it, at most so long (60), or print what it says in that turn, or what
    /// the turn came to; exit code 1 if that does not come
    #[arg(long, value_name = "seen|answer|result[=SECONDS]", value_parser = wait)]
    pub(crate) wait: Option<Wait>,
    /// Print the answer, and the events that are waited for, as JSON; with `--wait result` one object
    #[arg(long)]
    pub(crate) json: bool,
}

/// What an inject waits for, and for how many seconds at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) until: Until,
    pub(crate) limit: Option<f64>,
}

/// `seen`, `answer`, `result`, or one of them with `=SECONDS`.
fn wait(text: &str) -> Result<Wait, String> {
    let (what, limit) = match text.split_once('=') {
        Some((what, limit)) => (what, Some(seconds(limit)?)),
        None => (text, None),
    };
    match what {
        "seen" => Ok(Wait {
            until: Until::Seen,
            limit: limit.or(Some(SEEN_WITHIN_S)),
        }),
        "answer" => Ok(Wait {
            until: Until::Answer,
            limit,
        }),
        "result" => Ok(Wait {
            until: Until::Result,
            limit,
        }),
        _ => Err(
            "expected seen, answer, result, seen=SECONDS, answer=SECONDS or result=SECONDS".into(),
        ),
    }
}

/// What an inject waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The model has seen it
    Seen,
    /// Its turn has ended
    Answer,
    /// The same, and what it came to is told at once
    Result,
}

impl SessionInject {
    /// The session and the text; `None`: both were given where one is.
    pub(crate) fn parts(&self) -> Option<(Option<&str>, &str)> {
        match (self.words.as_slice(), self.latest) {
            ([text], _) => Some((None, text)),
            ([id, text], false) => Some((Some(id), text)),
            _ => None,
        }
    }
}
