//! What was checked and what was found.

use serde_json::{Value, json};

use crate::text::escape;

/// Longest sentence of a check, in characters.
const SENTENCE_CHARS: usize = 600;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckOutcome {
    /// Nothing to do.
    Ok,
    /// It works, and may not work as it should.
    Warning,
    /// It does not work.
    Failed,
}

impl CheckOutcome {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

#[derive(Debug)]
struct Check {
    topic: &'static str,
    found: CheckOutcome,
    says: String,
    remedy: String,
}

/// All checks, in the order in which they were made.
#[derive(Debug, Default)]
pub struct Report {
    checks: Vec<Check>,
}

impl Report {
    pub(crate) fn ok(&mut self, topic: &'static str, says: impl Into<String>) {
        self.push(topic, CheckOutcome::Ok, says.into(), String::new());
    }

    pub(crate) fn warning(
        &mut self,
        topic: &'static str,
        says: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.push(topic, CheckOutcome::Warning, says.into(), remedy.into());
    }

    pub(crate) fn failed(
        &mut self,
        topic: &'static str,
        says: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.push(topic, CheckOutcome::Failed, says.into(), remedy.into());
    }

    fn push(&mut self, topic: &'static str, found: CheckOutcome, says: String, remedy: String) {
        // Paths, names and presence are other people's words.
        let says = escape(&says, SENTENCE_CHARS);
        let remedy = escape(&remedy, SENTENCE_CHARS);
        self.checks.push(Check {
            topic,
            found,
            says,
            remedy,
        });
    }

    /// How many checks ended like this.
    #[must_use]
    pub fn count(&self, found: CheckOutcome) -> usize {
        self.checks
            .iter()
            .filter(|check| check.found == found)
            .count()
    }

    /// One line for each check.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let line = |check: &Check| {
            let (word, topic, says) = (check.found.word(), check.topic, &check.says);
            let remedy = match check.remedy.as_str() {
                "" => String::new(),
                remedy => format!("; remedy: {remedy}"),
            };
            format!("{word:<8}{topic}: {says}{remedy}")
        };
        self.checks.iter().map(line).collect()
    }

    /// The checks for a program.
    #[must_use]
    pub fn json(&self) -> Value {
        let checks: Vec<_> = self
            .checks
            .iter()
            .map(|check| {
                let remedy = Some(&check.remedy).filter(|remedy| !remedy.is_empty());
                json!({
                    "topic": check.topic, "found": check.found.word(), "says": check.says,
                    "remedy": remedy,
                })
            })
            .collect();
        json!({ "ok": self.count(CheckOutcome::Failed) == 0, "checks": checks })
    }
}
