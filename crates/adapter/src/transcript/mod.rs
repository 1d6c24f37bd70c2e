//! What a session's conversation proves about what was shown to its model, where the client keeps
//! it in a file of lines, each of which follows another.
//!
//! A line that holds a mark shows that the text stands in the conversation. It does not show that the
//! model got it: clients write it with the model's service down as well. Proof is a later answer of
//! the model that descends from it. How a line reads is the client's own, see [`LineReader`]. What is
//! not found says nothing.

mod files;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use crate::mailbox::{ALONG, Evidence, Sum};

pub use files::{Places, Transcripts};

/// What is known of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TranscriptLine {
    /// Its name in the conversation.
    pub id: String,
    /// The line that it follows.
    pub parent: Option<String>,
    /// A turn of the user's begins with it.
    pub prompts: bool,
    /// Text for the model stands in it: a mark in it shows that the model will be given that.
    pub presents: bool,
    /// It is part of the answer to this request; several lines may be.
    pub request: Option<String>,
    /// It is an answer of the model itself, and no error.
    pub answers: bool,
    /// The user stopped the model here.
    pub stopped: bool,
}

/// Reads the lines of one file, in the order in which they stand there.
pub trait LineReader: Send {
    /// What this line is. `None`: nothing of the conversation, or nothing that is understood.
    fn read(&mut self, line: &str) -> Option<TranscriptLine>;

    /// The conversation goes on from this line without those before.
    fn is_anew(&self, _line: &str) -> bool {
        false
    }

    /// The tools' results that the model was shown in this line, where they can be told from the rest.
    fn result(&self, _line: &str) -> Option<Value> {
        None
    }
}

/// Longest line that is looked at, in bytes. A result of a tool can hold a picture; its line is
/// part of the chain.
const LINE_MAX: usize = 8 << 20;
/// Lines that may stand between a mark and the answer to it.
const CHAIN_MAX: usize = 4_096;
/// The texts before a mark in one line that are told, and how much of each, in bytes: more than one push has.
const TEXTS_MAX: usize = 8;
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Lines of which the place in the conversation is kept.
const LINES_MAX: usize = 512;

/// Reads one transcript as it grows. Bytes go in in any portions.
pub struct TranscriptReader {
    reader: Box<dyn LineReader>,
    partial: Vec<u8>,
    /// The rest of a line that is too long, or that began before the first byte.
    skipping: bool,
    chains: Vec<Chain>,
    /// A mark stood in the conversation as it is, also one that is forgotten.
    has_marks: bool,
    lines: Lines,
}

/// It shows something, and these texts stand before its mark.
type Found = (Evidence, Vec<String>);

/// What descends from the line with a mark.
#[derive(Debug)]
struct Chain {
    mark: String,
    /// The line has the result of a tool.
    in_result: bool,
    /// Each of the line's texts that have the mark, up to it.
    texts: Vec<String>,
    root: String,
    lines: BTreeSet<String>,
}

/// The last lines, by their names. They are not always written in order.
#[derive(Debug, Default)]
struct Lines {
    known: BTreeMap<String, TranscriptLine>,
    order: VecDeque<String>,
}

impl TranscriptReader {
    /// For the bytes of a file from its beginning, or of any that begin with a line.
    #[must_use]
    pub fn new(reader: Box<dyn LineReader>) -> Self {
        Self {
            reader,
            partial: Vec::new(),
            skipping: false,
            chains: Vec::new(),
            has_marks: false,
            lines: Lines::default(),
        }
    }

    /// For bytes that begin in the middle of a line.
    #[must_use]
    pub fn in_mid_line(reader: Box<dyn LineReader>) -> Self {
        Self {
            skipping: true,
            ..Self::new(reader)
        }
    }

    /// Takes the next bytes and says what they show of `marks`. Others are forgotten.
    pub fn feed(&mut self, bytes: &[u8], marks: &[String]) -> Vec<Evidence> {
        let found = self.take(bytes, marks).into_iter();
        found.map(|(found, _)| found).collect()
    }

    /// As [`Self::feed`], each with the texts before the mark where it stands.
    fn take(&mut self, bytes: &[u8], marks: &[String]) -> Vec<Found> {
        self.chains.retain(|chain| marks.contains(&chain.mark));
        let mut found = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            self.skipping |= self.partial.len() + text.len() > LINE_MAX;
            if self.skipping {
                self.partial = Vec::new();
            } else {
                self.partial.extend_from_slice(text);
            }
            if text.len() < piece.len() {
                let line = std::mem::take(&mut self.partial);
                if !std::mem::take(&mut self.skipping) {
                    self.line(&line, marks, &mut found);
                }
            }
        }
        found
    }

    fn line(&mut self, line: &[u8], marks: &[String], found: &mut Vec<Found>) {
        let Ok(text) = std::str::from_utf8(line) else {
            return;
        };
        let Some(line) = self.reader.read(text) else {
            return;
        };
        let is_anew = || self.lines.rewinds(&line) || self.reader.is_anew(text);
        if self.has_marks && is_anew() {
            self.has_marks = false;
            found.push((Evidence::Anew, Vec::new()));
        }
        let (uuid, presents) = (line.id.clone(), line.presents);
        let parent = line.parent.clone();
        self.lines.add(line);
        let lines = &self.lines;
        self.chains.retain_mut(|chain| {
            let follows = parent.as_ref().is_some_and(|it| chain.lines.contains(it));
            !follows || chain.grow(vec![&uuid], lines, found)
        });
        let here: Vec<_> = marks
            .iter()
            .filter(|it| presents && !places(text, it).is_empty())
            .collect();
        let result = here.first().and_then(|_| self.reader.result(text));
        let in_result = result.is_some();
        // Beside it the client may keep what it did not give to the model.
        let shown = result.or_else(|| serde_json::from_str(text).ok());
        let whole = Value::String(text.to_owned());
        let is_whole = |mark: &str| match &shown {
            Some(shown) => stands(shown, mark, in_result),
            // JSON that is nested too deep for a value.
            None if text.starts_with('{') => false,
            None => stands(&whole, mark, in_result),
        };
        let shown = shown.as_ref().unwrap_or(&whole);
        let here = here.into_iter().map(|mark| {
            let mut texts = Vec::new();
            texts_before(shown, mark, &mut texts);
            (mark, texts)
        });
        let (here, cut): (Vec<_>, Vec<_>) = here.partition(|(mark, _)| is_whole(mark));
        let cut = cut
            .into_iter()
            .filter(|(_, texts)| in_result && !texts.is_empty());
        let cut = cut.map(|(mark, _)| Evidence::InResult(Box::new(Evidence::Cut(mark.clone()))));
        found.extend(cut.map(|cut| (cut, Vec::new())));
        let news = |(mark, texts): &(&String, Vec<String>)| {
            let is_it = |chain: &Chain| {
                chain.mark == **mark && chain.in_result == in_result && chain.texts == *texts
            };
            !self.chains.iter().any(is_it)
        };
        let news: Vec<_> = here.into_iter().filter(news).collect();
        for (mark, texts) in news {
            let mut chain = Chain {
                mark: mark.clone(),
                in_result,
                texts,
                root: uuid.clone(),
                lines: BTreeSet::from([uuid.clone()]),
            };
            self.has_marks = true;
            found.push(chain.found(Evidence::Presented));
            if chain.grow(lines.after(&uuid).collect(), lines, found) {
                self.chains.push(chain);
            }
        }
    }
}

impl Chain {
    fn found(&self, what: impl Fn(String) -> Evidence) -> Found {
        let found = match (what(self.mark.clone()), self.in_result) {
            (found, true) => Evidence::InResult(Box::new(found)),
            (found, false) => found,
        };
        (found, self.texts.clone())
    }

    /// Takes in lines and what is known to descend from them. Whether there is more to wait for.
    fn grow<'a>(
        &mut self,
        mut new: Vec<&'a String>,
        all: &'a Lines,
        found: &mut Vec<Found>,
    ) -> bool {
        while let Some(uuid) = new.pop() {
            let Some(line) = all.known.get(uuid).filter(|_| !self.lines.contains(uuid)) else {
                continue;
            };
            // The rest of an answer that began before the mark was written is none to the mark.
            let request = line.request.as_ref().filter(|_| line.answers);
            if request.is_some() && request != all.request_above(&self.root) {
                found.push(self.found(Evidence::Answered));
                return false;
            }
            self.lines.insert(uuid.clone());
            if line.stopped || self.lines.len() >= CHAIN_MAX {
                return false;
            }
            new.extend(all.after(uuid));
        }
        true
    }
}

impl Lines {
    fn add(&mut self, line: TranscriptLine) {
        let uuid = line.id.clone();
        if self.known.insert(uuid.clone(), line).is_none() {
            self.order.push_back(uuid);
        }
        if self.order.len() > LINES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// The user went back: a turn began there already, or before all that is known.
    fn rewinds(&self, line: &TranscriptLine) -> bool {
        let parent = line.parent.as_deref().unwrap_or_default();
        let known = self.known.contains_key(parent);
        let began = |id: &String| *id != line.id && self.known[id].prompts;
        line.prompts && (!known || self.after(parent).any(began))
    }

    /// The lines that follow directly.
    fn after<'a>(&'a self, uuid: &'a str) -> impl Iterator<Item = &'a String> {
        let follows =
            move |(_, line): &(&String, &TranscriptLine)| line.parent.as_deref() == Some(uuid);
        self.known.iter().filter(follows).map(|(uuid, _)| uuid)
    }

    /// The request whose answer stands above a line.
    fn request_above(&self, uuid: &str) -> Option<&String> {
        let parent = |uuid: &str| self.known.get(self.known.get(uuid)?.parent.as_ref()?);
        let mut above = parent(uuid);
        for _ in 0..LINES_MAX {
            let line = above?;
            if line.request.is_some() {
                return line.request.as_ref();
            }
            above = self.known.get(line.parent.as_ref()?);
        }
        None
    }
}

/// Where the mark stands, and not as the beginning of another one. Of one that ends all of a text, the [`Sum`]
/// of that stands before it, and is told with its place.
fn places<'a>(text: &'a str, mark: &str) -> Vec<Option<(usize, &'a str)>> {
    let all = text.match_indices(mark).filter_map(|(at, _)| {
        let next = text[at + mark.len()..].chars().next();
        if next.is_some_and(|next| next.is_ascii_alphanumeric()) {
            return None;
        }
        let before = text[..at].strip_suffix(' ');
        let is_sum = |text: &&str| text.is_empty() || text.ends_with(|c: char| c.is_ascii_digit());
        let Some(before) = before.filter(is_sum) else {
            return Some(None);
        };
        let (rest, sum) = before.rsplit_once('[')?;
        Some(Some((rest.len(), sum)))
    });
    all.collect()
}

/// Whether the mark stands in a value with all of its text: clients cut the end, or the middle, out of what is
/// too long. In a result a mark has a sum. A result of ours names its mark at its end; nothing else in it does.
fn stands(value: &Value, mark: &str, in_result: bool) -> bool {
    let text = match value {
        Value::String(text) => text,
        Value::Array(all) => return all.iter().any(|value| stands(value, mark, in_result)),
        Value::Object(members) => {
            let is_ours = value["end"].as_str().is_some_and(|end| end.contains("pb-"));
            let mut within = members.iter();
            let within =
                within.any(|(name, it)| (!is_ours || name == ALONG) && stands(it, mark, in_result));
            return ends(value, mark) || within;
        }
        _ => return false,
    };
    let places = places(text, mark);
    let is_whole = |place: &Option<(usize, &str)>| match *place {
        Some((at, sum)) => Sum::ends(&text[..at], sum, mark),
        None => !in_result,
    };
    if places.is_empty() || places.iter().any(is_whole) {
        return !places.is_empty();
    }
    serde_json::from_str(text).is_ok_and(|within| stands(&within, mark, in_result))
}

/// Adds what stands before the mark in each text of a value that has it.
fn texts_before(value: &Value, mark: &str, all: &mut Vec<String>) {
    match value {
        Value::String(text) if all.len() < TEXTS_MAX => {
            all.extend(text.find(mark).map(|at| {
                let from = text.floor_char_boundary(at.saturating_sub(TEXT_BYTES_MAX));
                text[from..at].to_owned()
            }));
        }
        Value::Array(of) => of.iter().for_each(|value| texts_before(value, mark, all)),
        Value::Object(of) => of.values().for_each(|it| texts_before(it, mark, all)),
        _ => {}
    }
}

/// Whether all of a result of ours is there, as its end says.
fn ends(result: &Value, mark: &str) -> bool {
    let places = places(result["end"].as_str().unwrap_or_default(), mark);
    let mut sums = places.into_iter().flatten();
    sums.any(|(_, sum)| Sum::of_result(result, mark) == sum)
}

#[cfg(test)]
mod tests;
