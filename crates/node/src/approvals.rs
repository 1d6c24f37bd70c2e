//! Requests to use a tool that wait for a verdict. Without I/O and without a clock.
//!
//! A request has a short id, which is never used again, and a digest of all that is shown of it:
//! whoever allows it here repeats the digest, so that nothing is allowed that was not shown.

mod asked;
mod verdict;

use std::collections::{HashSet, VecDeque};

use serde_json::{Value, json};

pub use asked::{Asked, SuggestedRule};
pub(crate) use asked::{INPUT_MAX, digest, main_input};
pub use verdict::{By, Decision, NewInput, PermissionUpdate, Verdict};
pub(crate) use verdict::{Choice, VerdictRefusal, Wish};

const OPEN_MAX: usize = 8;
/// The same of a client without a terminal: nobody else is asked.
const OPEN_MAX_DRIVEN: usize = 64;
/// Most of an input that is sent to a peer, in bytes of JSON. One that is longer cannot be allowed
/// from afar.
const AFAR_MAX: usize = 4_000;
const CLOSED_KEPT: usize = 64;
/// Of these so many are told.
const OVER_TOLD: usize = 16;
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
    /// That of a driven client which offers the answers to choose from.
    Options,
}

impl Source {
    /// The client is driven: it has no terminal.
    const fn is_driven(self) -> bool {
        matches!(self, Self::Stream | Self::Options)
    }

    /// Whether an answer may say more than yes or no.
    const fn takes_more(self) -> bool {
        matches!(self, Self::Hook | Self::Stream)
    }
}

#[derive(Debug)]
struct Open {
    id: String,
    digest: String,
    asked: Asked,
    /// Who waits for the verdict.
    sources: Vec<Source>,
    /// The client was seen to wait for its user since this was opened.
    shown: bool,
    /// Until when somebody may answer, as RFC 3339.
    until: Option<String>,
}

impl Open {
    /// As an event has it.
    fn told(&self) -> Value {
        let mut members = self.asked.members();
        members["request_id"] = self.id.as_str().into();
        members["digest"] = self.digest.as_str().into();
        if let Some(until) = &self.until {
            members["until"] = until.as_str().into();
        }
        members
    }

    fn has_dialog(&self) -> bool {
        !self.sources.iter().any(|source| source.is_driven())
    }

    /// What the tool is to get in place of what it would; `None`: that.
    fn input(&self, wish: &Wish) -> Result<Option<NewInput>, String> {
        let id = &self.id;
        if let Some(input) = wish.input.clone() {
            return Ok(Some(NewInput::Changed(input.into())));
        }
        match (self.asked.is_question(), wish.decision) {
            (_, Decision::Deny) => Ok(None),
            (true, Decision::Allow) if !wish.answers.is_empty() => Ok(Some(NewInput::Answered(
                self.asked.answered(&wish.answers)?,
            ))),
            (true, _) => Err(format!(
                "request {id} is a question, which wants an answer: `peerbus session answer {id} …`"
            )),
            (false, _) if !wish.answers.is_empty() => {
                Err(format!("request {id} is no question: allow it, or deny it"))
            }
            (false, _) => Ok(None),
        }
    }

    fn rule(&self, wish: &Wish) -> Result<SuggestedRule, String> {
        let rules = &self.asked.rules;
        let is = |named: &Option<String>, it: &String| named.as_ref().is_none_or(|name| name == it);
        let mut meant: Vec<_> = rules.iter().collect();
        meant.retain(|it| is(&wish.rule, &it.rule) && is(&wish.destination, &it.destination));
        meant.dedup();
        match meant.as_slice() {
            [only] => Ok((*only).clone()),
            _ if rules.is_empty() => {
                let id = &self.id;
                Err(format!("request {id} offers no rule: allow it once"))
            }
            _ => {
                let said = |it: &SuggestedRule| format!("{} in {}", it.rule, it.destination);
                let rules = rules.iter().map(said).collect::<Vec<_>>().join("; ");
                let id = &self.id;
                Err(format!(
                    "request {id} offers these rules, name one of them: {rules}"
                ))
            }
        }
    }
}

#[derive(Debug)]
struct Closed {
    id: String,
    verdict: Verdict,
    /// A hook waited for the verdict.
    hook: bool,
    /// The request in a few words.
    brief: Value,
    /// When it was closed, as RFC 3339.
    at: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) id: String,
    /// It was not there before.
    pub(crate) new: bool,
    /// The request that it takes the place of, which is closed.
    pub(crate) replaces: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Approvals {
    open: Vec<Open>,
    /// The last ones that were closed, oldest first.
    closed: VecDeque<Closed>,
    used: HashSet<u32>,
    /// A dialog found no room here; and whether the client was seen to wait for its user since.
    unlisted: Option<bool>,
}

impl Approvals {
    /// Opens a request. A call that is asked about in two ways is one request, unless the second
    /// way shows more of it: then that takes the place of the first. `None`: too many are open.
    /// `random` gives any numbers.
    pub(crate) fn open(
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
        let most = match source.is_driven() {
            true => OPEN_MAX_DRIVEN,
            false => OPEN_MAX,
        };
        if self.open.len() >= most {
            if source != Source::Stream {
                self.unlisted = Some(false);
            }
            return None;
        }
        let ids = 25_u32.pow(ID_CHARS);
        let mut number = random() % ids;
        while !self.used.insert(number) {
            number = (number + 1) % ids;
        }
        let id = spell(number);
        let mut members = asked.members();
        members["request_id"] = id.as_str().into();
        self.open.push(Open {
            digest: digest(&members),
            id: id.clone(),
            asked,
            sources: vec![source],
            shown: false,
            until: None,
        });
        let new = true;
        Some(Opened { id, new, replaces })
    }

    /// Until when somebody may answer a request.
    pub(crate) fn set_until(&mut self, id: &str, until: String) {
        if let Some(open) = self.open.iter_mut().find(|open| open.id == id) {
            open.until = Some(until);
        }
    }

    /// When a request was closed.
    pub(crate) fn set_closed_at(&mut self, id: &str, at: String) {
        if let Some(closed) = self.closed.iter_mut().find(|closed| closed.id == id) {
            closed.at = at;
        }
    }

    /// The last requests that were closed, oldest first, and how.
    pub(crate) fn over(&self) -> impl Iterator<Item = Value> {
        let first = self.closed.len().saturating_sub(OVER_TOLD);
        self.closed.range(first..).map(|closed| {
            let mut told = closed.brief.clone();
            told["request_id"] = closed.id.as_str().into();
            told["decision"] = json!(closed.verdict.decision.map(Decision::word));
            told["by"] = closed.verdict.by.to_string().into();
            told["at"] = closed.at.as_str().into();
            told
        })
    }

    /// The requests that wait, as an event has them, oldest first.
    pub(crate) fn told(&self) -> impl Iterator<Item = Value> {
        self.open.iter().map(Open::told)
    }

    /// Whether more may be asked than that: a client can ask so much that the next request has no room.
    pub(crate) fn has_unlisted(&self) -> bool {
        self.unlisted.is_some()
    }

    /// One that waits, as an event has it.
    pub(crate) fn get(&self, id: &str) -> Option<Value> {
        self.find(id).map(Open::told)
    }

    fn find(&self, id: &str) -> Option<&Open> {
        self.open.iter().find(|open| open.id == id)
    }

    /// As it is sent to a peer: its input whole, or the beginning and how much is missing.
    pub(crate) fn preview(&self, id: &str) -> Option<Value> {
        let Open { asked, .. } = self.find(id)?;
        let end = asked.input.floor_char_boundary(AFAR_MAX);
        let missing = self.missing_afar(asked);
        let mut preview = json!({
            "id": id,
            "tool": asked.tool,
            "description": asked.description,
            "preview": asked.input[..end],
        });
        if missing > 0 {
            preview["missing"] = missing.into();
        }
        Some(preview)
    }

    fn missing_afar(&self, asked: &Asked) -> usize {
        asked.cut + asked.input.len().saturating_sub(AFAR_MAX)
    }

    /// Whether a request of this id is open, or was until lately.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.find(id).is_some() || self.verdict(id).is_some()
    }

    /// What became of a request, if that was lately.
    pub(crate) fn verdict(&self, id: &str) -> Option<&Verdict> {
        self.closed(id).map(|closed| &closed.verdict)
    }

    /// Whether this source may hand on what became of a request. A channel tells the beginning of
    /// what is asked, so that two calls can look alike: where a hook waits, that answers alone.
    pub(crate) fn speaks(&self, id: &str, source: Source) -> bool {
        source != Source::Channel || !self.closed(id).is_some_and(|closed| closed.hook)
    }

    fn closed(&self, id: &str) -> Option<&Closed> {
        self.closed.iter().find(|closed| closed.id == id)
    }

    /// Decides on a request. A program here shows by the digest what it saw; a peer was sent no
    /// more than [`Approvals::preview`] has.
    pub(crate) fn decide(&mut self, wish: Wish, by: By) -> Result<Verdict, VerdictRefusal> {
        let id = &wish.id;
        let wrong = |why: String| Err(VerdictRefusal::Wrong(why));
        let Some(open) = self.find(id) else {
            let Some(verdict) = self.verdict(id) else {
                return wrong(format!("there is no request {id:?} here"));
            };
            let decision = verdict.decision.map_or("closed", Decision::word);
            let why = format!("request {id} is over: {decision}, by {}", verdict.by);
            return Err(VerdictRefusal::Late(why, Box::new(verdict.clone())));
        };
        let allows = wish.decision != Decision::Deny;
        let afar = matches!(by, By::Peer(_));
        let seen = wish.digest.as_ref() == Some(&open.digest);
        if !seen && !afar && (allows || wish.digest.is_some()) {
            return wrong(format!(
                "`digest` is not that of request {id}: pass the one that came with what you saw"
            ));
        }
        let missing = match afar {
            true => self.missing_afar(&open.asked),
            false => open.asked.cut,
        };
        if allows && missing > 0 {
            return wrong(format!(
                "{missing} bytes of request {id} were not shown, so it cannot be allowed from here: \
                 answer it where all of it can be seen, or deny it"
            ));
        }
        let rule = match wish.decision {
            Decision::AllowAlways if !open.asked.is_question() => {
                Some(open.rule(&wish).map_err(VerdictRefusal::Wrong)?)
            }
            _ => None,
        };
        let input = open.input(&wish).map_err(VerdictRefusal::Wrong)?;
        let more = input.is_some() || wish.changes();
        if more && !open.sources.iter().any(|source| source.takes_more()) {
            return wrong(format!(
                "the client of request {id} takes no more than yes or no: answer where it asks, or allow \
                 or deny it as it is"
            ));
        }
        let verdict = Verdict {
            decision: Some(wish.decision),
            source: match by {
                By::Node => wish.source.unwrap_or_default(),
                _ => String::new(),
            },
            by,
            message: wish.message,
            rule,
            input,
            permissions: wish.permissions,
            interrupt: wish.interrupt,
        };
        self.close(&wish.id, verdict.clone());
        Ok(verdict)
    }

    /// Closes a request. Whether it was open.
    pub(crate) fn close(&mut self, id: &str, verdict: Verdict) -> bool {
        let Some(at) = self.open.iter().position(|open| open.id == id) else {
            return false;
        };
        let open = self.open.remove(at);
        self.closed.push_back(Closed {
            hook: open.sources.contains(&Source::Hook),
            brief: open.asked.brief(),
            at: String::new(),
            id: open.id,
            verdict,
        });
        if self.closed.len() > CLOSED_KEPT {
            self.closed.pop_front();
        }
        true
    }

    /// This source does not wait any more. Whether nobody does.
    pub(crate) fn left(&mut self, id: &str, source: Source) -> bool {
        let Some(open) = self.open.iter_mut().find(|open| open.id == id) else {
            return false;
        };
        open.sources.retain(|waits| *waits != source);
        open.sources.is_empty()
    }

    /// The client waits for its user.
    pub(crate) fn dialog_shown(&mut self) {
        let dialogs = self.open.iter_mut().filter(|open| open.has_dialog());
        dialogs.for_each(|open| open.shown = true);
        self.unlisted = self.unlisted.map(|_| true);
    }

    /// The client does not wait for its user any more. Gives the ids of those that it waited with.
    pub(crate) fn dialog_gone(&mut self) -> Vec<String> {
        self.unlisted = self.unlisted.filter(|shown| !shown);
        let shown = self.open.iter().filter(|open| open.shown);
        shown.map(|open| open.id.clone()).collect()
    }

    /// The dialogs in the client's terminal are over. Gives the ids of those that waited with them.
    pub(crate) fn dialogs_over(&mut self) -> Vec<String> {
        self.unlisted = None;
        let open = self.open.iter().filter(|open| open.has_dialog());
        open.map(|open| open.id.clone()).collect()
    }
}

fn spell(mut number: u32) -> String {
    let letter = |_| {
        let letter = LETTERS[number as usize % LETTERS.len()];
        number /= 25;
        char::from(letter)
    };
    (0..ID_CHARS).map(letter).collect()
}

/// What somebody says of a request in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// `yes abcde`, `n ABCDE`: whether it allows.
    Verdict(bool),
    /// `2 abcde`: the number of an option, or several.
    Answer(String),
}

/// A verdict in words, or an answer: `yes abcde`, `n ABCDE`, `2 abcde`. Gives the id and which.
#[must_use]
pub fn in_words(text: &str) -> Option<(String, Said)> {
    let mut words = text.split_whitespace();
    let (word, id, None) = (words.next()?, words.next()?, words.next()) else {
        return None;
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let said = match word.to_ascii_lowercase().as_str() {
        "y" | "yes" => Said::Verdict(true),
        "n" | "no" => Said::Verdict(false),
        numbers if numbers.split(',').all(is_number) => Said::Answer(numbers.to_owned()),
        _ => return None,
    };
    let id = id.to_ascii_lowercase();
    let is_id = id.len() == ID_CHARS as usize && id.bytes().all(|byte| LETTERS.contains(&byte));
    is_id.then_some((id, said))
}

#[cfg(test)]
mod tests;
