//! Requests to use a tool that wait for a verdict. Without I/O and without a clock.
//!
//! A request has a short id, which is never used again, and a digest of all that is shown of it:
//! whoever allows it here repeats the digest, so that nothing is allowed that was not shown.

mod asked;

use std::collections::{HashSet, VecDeque};
use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value, json};

pub use asked::{Asked, INPUT_MAX, SuggestedRule, digest};

/// Requests that are open at a time.
pub const OPEN_MAX: usize = 8;
/// Most of an input that is sent to a peer, in bytes of JSON. One that is longer cannot be allowed
/// from afar.
pub const AFAR_MAX: usize = 4_000;
/// Closed requests that are remembered.
const CLOSED_KEPT: usize = 64;
/// What an id is made of: no letter that looks like a number.
const LETTERS: &[u8; 25] = b"abcdefghijkmnopqrstuvwxyz";
const ID_CHARS: u32 = 5;

/// Where a request comes from. One call can be asked about in several ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A hook of the client, which waits.
    Hook,
    /// The client's relay over a channel.
    Channel,
    /// The stream of a driven client.
    Stream,
}

/// What is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// This once.
    Allow,
    /// No.
    Deny,
    /// Now, and by a rule from now on.
    AllowAlways,
}

impl Decision {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::AllowAlways => "allow_always",
        }
    }
}

/// Who closed a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// The user, at the client's own dialog.
    Terminal,
    /// A program of the user's, at the node.
    Node,
    /// This peer.
    Peer(String),
    /// Its time.
    Timeout,
    /// The client, which does not want to know any more.
    Client,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terminal => f.write_str("terminal"),
            Self::Node => f.write_str("node"),
            Self::Peer(name) => write!(f, "peer:{name}"),
            Self::Timeout => f.write_str("timeout"),
            Self::Client => f.write_str("client"),
        }
    }
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// `None`: nobody knows, or it is not needed any more.
    pub decision: Option<Decision>,
    /// By whom.
    pub by: By,
    /// What the model is to be told.
    pub message: Option<String>,
    /// The rule that is added, for [`Decision::AllowAlways`].
    pub rule: Option<SuggestedRule>,
}

impl Verdict {
    /// Closed in this way.
    #[must_use]
    pub const fn closed(decision: Option<Decision>, by: By) -> Self {
        Self {
            decision,
            by,
            message: None,
            rule: None,
        }
    }
}

/// What somebody wants a request to become.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Wish {
    /// The request.
    #[serde(rename = "request_id")]
    pub id: String,
    /// What it is to become.
    pub decision: Decision,
    /// Stands for what was seen of it.
    pub digest: Option<String>,
    /// Which rule, for [`Decision::AllowAlways`]; the only one where there is one.
    pub rule: Option<String>,
    /// Where the client is to keep it, where it offers that rule for several places.
    pub destination: Option<String>,
    /// What the model is to be told.
    pub message: Option<String>,
}

/// What somebody wants a message that waits to become.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Choice {
    /// The message's id.
    pub id: String,
    /// Its sender.
    pub from: Option<String>,
    /// Stands for what was seen of it. Not needed where the agent does not get it.
    pub digest: Option<String>,
}

/// Why a wish is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerdictRefusal {
    /// There was never such a request here, or it is long gone.
    Unknown(String),
    /// It is closed.
    Late(String, Box<Verdict>),
    /// What was seen is not what is asked.
    Digest(String),
    /// So many bytes of it were not shown.
    Part(String, usize),
    /// There is no such rule; these are there.
    Rule(String, Vec<String>),
}

impl fmt::Display for VerdictRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(id) => write!(f, "there is no request {id:?} here"),
            Self::Late(id, verdict) => {
                let decision = verdict.decision.map_or("closed", Decision::word);
                write!(f, "request {id} is over: {decision}, by {}", verdict.by)
            }
            Self::Digest(id) => write!(
                f,
                "`digest` is not that of request {id}: pass the one that came with what you saw"
            ),
            Self::Part(id, missing) => write!(
                f,
                "{missing} bytes of request {id} were not shown, so it cannot be allowed from \
                 here: answer it where all of it can be seen, or deny it"
            ),
            Self::Rule(id, rules) if rules.is_empty() => {
                write!(f, "request {id} offers no rule: allow it once")
            }
            Self::Rule(id, rules) => {
                let rules = rules.join("; ");
                write!(
                    f,
                    "request {id} offers these rules, name one of them: {rules}"
                )
            }
        }
    }
}

/// A request that waits.
#[derive(Debug)]
struct Open {
    id: String,
    digest: String,
    asked: Asked,
    /// Who waits for the verdict.
    sources: Vec<Source>,
    /// The client was seen to wait for its user since this was opened.
    shown: bool,
}

impl Open {
    /// As an event has it.
    fn told(&self) -> Map<String, Value> {
        let mut members = self.asked.members();
        members.insert("request_id".into(), self.id.as_str().into());
        members.insert("digest".into(), self.digest.as_str().into());
        members
    }
}

/// A request that is over.
#[derive(Debug)]
struct Closed {
    id: String,
    verdict: Verdict,
    /// A hook waited for the verdict.
    hook: bool,
}

/// A request that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Its id.
    pub id: String,
    /// It was not there before.
    pub new: bool,
    /// The request that it takes the place of, which is closed.
    pub replaces: Option<String>,
}

/// The requests of one session.
#[derive(Debug, Default)]
pub struct Approvals {
    open: Vec<Open>,
    /// The last ones that were closed, oldest first.
    closed: VecDeque<Closed>,
    used: HashSet<u32>,
}

impl Approvals {
    /// Opens a request. A call that is asked about in two ways is one request, unless the second
    /// way shows more of it: then that takes the place of the first. `None`: too many are open.
    /// `random` gives any numbers.
    pub fn open(
        &mut self,
        source: Source,
        asked: Asked,
        mut random: impl FnMut() -> u32,
    ) -> Option<Opened> {
        let asked = asked.bounded();
        let mut replaces = None;
        let same = |open: &&mut Open| !open.sources.contains(&source) && open.asked.is_like(&asked);
        if let Some(open) = self.open.iter_mut().find(same) {
            let id = open.id.clone();
            if open.asked.cut <= asked.cut {
                open.sources.push(source);
                let (new, replaces) = (false, None);
                return Some(Opened { id, new, replaces });
            }
            self.close(&id, Verdict::closed(None, By::Client));
            replaces = Some(id);
        }
        if self.open.len() >= OPEN_MAX {
            return None;
        }
        let ids = 25_u32.pow(ID_CHARS);
        let mut number = random() % ids;
        while !self.used.insert(number) {
            number = (number + 1) % ids;
        }
        let id = spell(number);
        let mut members = asked.members();
        members.insert("request_id".into(), id.as_str().into());
        self.open.push(Open {
            digest: digest(&Value::Object(members)),
            id: id.clone(),
            asked,
            sources: vec![source],
            shown: false,
        });
        let new = true;
        Some(Opened { id, new, replaces })
    }

    /// The requests that wait, as an event has them, oldest first.
    pub fn told(&self) -> impl Iterator<Item = Map<String, Value>> {
        self.open.iter().map(Open::told)
    }

    /// One that waits, as an event has it.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Map<String, Value>> {
        self.find(id).map(Open::told)
    }

    /// Whether any waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn find(&self, id: &str) -> Option<&Open> {
        self.open.iter().find(|open| open.id == id)
    }

    /// As it is sent to a peer: its input whole, or the beginning and how much is missing.
    #[must_use]
    pub fn preview(&self, id: &str) -> Option<Map<String, Value>> {
        let Open { asked, .. } = self.find(id)?;
        let end = asked.input.floor_char_boundary(AFAR_MAX);
        let missing = self.missing_afar(asked);
        let mut preview = Map::new();
        preview.insert("id".into(), id.into());
        preview.insert("tool".into(), asked.tool.as_str().into());
        preview.insert("description".into(), json!(asked.description));
        preview.insert("preview".into(), asked.input[..end].into());
        if missing > 0 {
            preview.insert("missing".into(), missing.into());
        }
        Some(preview)
    }

    fn missing_afar(&self, asked: &Asked) -> usize {
        asked.cut + asked.input.len().saturating_sub(AFAR_MAX)
    }

    /// Whether a request of this id is open, or was until lately.
    #[must_use]
    pub fn knows(&self, id: &str) -> bool {
        self.find(id).is_some() || self.verdict(id).is_some()
    }

    /// What became of a request, if that was lately.
    #[must_use]
    pub fn verdict(&self, id: &str) -> Option<&Verdict> {
        self.closed(id).map(|closed| &closed.verdict)
    }

    /// Whether this source may hand on what became of a request. A channel tells the beginning of
    /// what is asked, so that two calls can look alike: where a hook waits, that answers alone.
    #[must_use]
    pub fn speaks(&self, id: &str, source: Source) -> bool {
        source != Source::Channel || !self.closed(id).is_some_and(|closed| closed.hook)
    }

    fn closed(&self, id: &str) -> Option<&Closed> {
        self.closed.iter().find(|closed| closed.id == id)
    }

    /// Decides on a request. A program here shows by the digest what it saw; a peer was sent no
    /// more than [`Approvals::preview`] has.
    ///
    /// # Errors
    ///
    /// When that cannot be: why. The request stays as it is.
    pub fn decide(&mut self, wish: Wish, by: By) -> Result<Verdict, VerdictRefusal> {
        let Some(open) = self.find(&wish.id) else {
            return Err(match self.verdict(&wish.id) {
                Some(verdict) => VerdictRefusal::Late(wish.id, Box::new(verdict.clone())),
                None => VerdictRefusal::Unknown(wish.id),
            });
        };
        let allows = wish.decision != Decision::Deny;
        let afar = matches!(by, By::Peer(_));
        let seen = wish.digest.as_ref() == Some(&open.digest);
        if !seen && !afar && (allows || wish.digest.is_some()) {
            return Err(VerdictRefusal::Digest(wish.id));
        }
        let missing = match afar {
            true => self.missing_afar(&open.asked),
            false => open.asked.cut,
        };
        if allows && missing > 0 {
            return Err(VerdictRefusal::Part(wish.id, missing));
        }
        let rule = match wish.decision {
            Decision::AllowAlways => Some(open.rule(&wish)?),
            _ => None,
        };
        let verdict = Verdict {
            decision: Some(wish.decision),
            by,
            message: wish.message,
            rule,
        };
        self.close(&wish.id, verdict.clone());
        Ok(verdict)
    }

    /// Closes a request. Whether it was open.
    pub fn close(&mut self, id: &str, verdict: Verdict) -> bool {
        let Some(at) = self.open.iter().position(|open| open.id == id) else {
            return false;
        };
        let Open { id, sources, .. } = self.open.remove(at);
        let hook = sources.contains(&Source::Hook);
        self.closed.push_back(Closed { id, verdict, hook });
        if self.closed.len() > CLOSED_KEPT {
            self.closed.pop_front();
        }
        true
    }

    /// This source does not wait any more. Whether nobody does.
    pub fn left(&mut self, id: &str, source: Source) -> bool {
        let Some(open) = self.open.iter_mut().find(|open| open.id == id) else {
            return false;
        };
        open.sources.retain(|waits| *waits != source);
        open.sources.is_empty()
    }

    /// The client waits for its user.
    pub fn dialog_shown(&mut self) {
        let dialogs = self.open.iter_mut().filter(|open| open.has_dialog());
        dialogs.for_each(|open| open.shown = true);
    }

    /// The client does not wait for its user any more. Gives the ids of those that it waited with.
    pub fn dialog_gone(&mut self) -> Vec<String> {
        let shown = self.open.iter().filter(|open| open.shown);
        shown.map(|open| open.id.clone()).collect()
    }

    /// The ids of those that wait on a dialog in the client's terminal.
    #[must_use]
    pub fn with_dialog(&self) -> Vec<String> {
        let open = self.open.iter().filter(|open| open.has_dialog());
        open.map(|open| open.id.clone()).collect()
    }
}

impl Open {
    /// A client that is driven has no terminal.
    fn has_dialog(&self) -> bool {
        !self.sources.contains(&Source::Stream)
    }

    fn rule(&self, wish: &Wish) -> Result<SuggestedRule, VerdictRefusal> {
        let rules = &self.asked.rules;
        let is = |named: &Option<String>, it: &String| named.as_ref().is_none_or(|name| name == it);
        let mut meant: Vec<_> = rules.iter().collect();
        meant.retain(|it| is(&wish.rule, &it.rule) && is(&wish.destination, &it.destination));
        meant.dedup();
        match meant.as_slice() {
            [only] => Ok((*only).clone()),
            _ => {
                let said = |it: &SuggestedRule| format!("{} in {}", it.rule, it.destination);
                Err(VerdictRefusal::Rule(
                    self.id.clone(),
                    rules.iter().map(said).collect(),
                ))
            }
        }
    }
}

/// A number as an id.
fn spell(mut number: u32) -> String {
    let letter = |_| {
        let letter = LETTERS[number as usize % LETTERS.len()];
        number /= 25;
        char::from(letter)
    };
    (0..ID_CHARS).map(letter).collect()
}

/// A verdict in words: `yes abcde` or `n ABCDE`. Gives the id and whether it allows.
#[must_use]
pub fn in_words(text: &str) -> Option<(String, bool)> {
    let mut words = text.split_whitespace();
    let (word, id, None) = (words.next()?, words.next()?, words.next()) else {
        return None;
    };
    let allows = match word.to_ascii_lowercase().as_str() {
        "y" | "yes" => true,
        "n" | "no" => false,
        _ => return None,
    };
    let id = id.to_ascii_lowercase();
    let is_id = id.len() == ID_CHARS as usize && id.bytes().all(|byte| LETTERS.contains(&byte));
    is_id.then_some((id, allows))
}

#[cfg(test)]
mod tests;
