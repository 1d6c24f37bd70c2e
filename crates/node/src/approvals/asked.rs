//! What is asked. Its texts are the model's and its client's words; each is bounded.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// Most that is kept of an input, in bytes of JSON. One that is longer cannot be allowed here.
pub(crate) const INPUT_MAX: usize = 32 * 1024;
/// Most of an input that is kept of a request that is over, in characters.
const BRIEF_CHARS: usize = 100;
/// Longest of its other texts, in characters.
const TEXT_CHARS: usize = 1_024;
/// Most rules that are offered, and the longest of them, in bytes of JSON.
const RULES_MAX: usize = 8;
const RULE_MAX: usize = 2_048;

/// What an agent asks its user: whether it may use a tool. Its texts are the model's and its
/// client's words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The tool's name.
    pub tool: String,
    /// What the client says that the call does.
    #[serde(default)]
    pub description: Option<String>,
    /// What the tool would get: JSON, or the beginning of it.
    pub input: String,
    /// So many bytes of the input are missing.
    #[serde(default)]
    pub cut: usize,
    /// The rules by which it need not ask again, as the client suggests them.
    #[serde(default)]
    pub rules: Vec<SuggestedRule>,
    /// The path for which it asks.
    #[serde(default)]
    pub blocked_path: Option<String>,
    /// Why it asks.
    #[serde(default)]
    pub decision_reason: Option<String>,
    /// The agent inside the session that asks.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// Ids of the messages that its turn was given, where that is known.
    #[serde(default)]
    pub turn: Vec<String>,
}

/// A rule that the client suggests: with it, it allows such calls without asking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuggestedRule {
    /// As people read it: `Bash(npm test:*)`.
    pub rule: String,
    /// Where the client keeps it, such as `localSettings`.
    pub destination: String,
    /// As the client wrote it.
    pub suggestion: Value,
}

/// The tool by which a client asks its user something.
const QUESTION: &str = "AskUserQuestion";

/// All of it is shown: with a member that is not known here it is answered where it is asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Questions {
    questions: Vec<Question>,
}

/// One question, and the answers that it offers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    question: String,
    #[serde(default)]
    header: String,
    #[serde(default)]
    options: Vec<QuestionOption>,
    #[serde(default, rename = "multiSelect")]
    multiple: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionOption {
    label: String,
    #[serde(default)]
    description: String,
}

impl Question {
    /// The answer that is meant: the label of an option for its number, or for that label in whatever case;
    /// or a text of its own.
    fn chosen(&self, answer: &str) -> Result<String, String> {
        let answer = answer.trim();
        if answer.is_empty() {
            return Err("an answer is empty".into());
        }
        if let Some(label) = self.option(answer)? {
            return Ok(label.to_owned());
        }
        let is_number = |c: char| c.is_ascii_digit() || c == ',' || c.is_whitespace();
        let numbers = answer.chars().all(is_number);
        if !numbers && !self.multiple {
            return Ok(answer.to_owned());
        }
        let mut labels = Vec::new();
        for part in answer.split(',').map(str::trim) {
            match self.option(part)? {
                Some(label) => labels.push(label),
                None if numbers => {
                    let options = self.options.len();
                    return Err(format!("there is no option {part}: the last is {options}"));
                }
                None => return Ok(answer.to_owned()),
            }
        }
        match self.multiple {
            true => Ok(labels.join(", ")),
            false => Err(format!("{answer:?}: one option is to be chosen")),
        }
    }

    /// The label of the option that a word means, a number before a label; `None`: of none.
    fn option(&self, word: &str) -> Result<Option<&str>, String> {
        let number = word.parse::<usize>().ok().and_then(|it| it.checked_sub(1));
        if let Some(option) = number.and_then(|at| self.options.get(at)) {
            return Ok(Some(&option.label));
        }
        let label = word.to_lowercase();
        let is = |option: &str| option.trim().to_lowercase() == label;
        let mut meant = self.options.iter().enumerate();
        let mut meant = meant.by_ref().filter(|(_, option)| is(&option.label));
        match (meant.next(), meant.next()) {
            (Some((one, _)), Some((other, _))) => Err(format!(
                "{word:?} may be option {} or option {}: answer where it is asked",
                one + 1,
                other + 1
            )),
            (one, _) => Ok(one.map(|(_, option)| option.label.as_str())),
        }
    }
}

impl Asked {
    /// A request for this tool with this input, of which the beginning is kept.
    #[must_use]
    pub fn new(tool: &str, input: &str) -> Self {
        let asked = Self {
            tool: tool.to_owned(),
            input: input.to_owned(),
            ..Self::default()
        };
        asked.bounded()
    }

    /// With those of the client's suggestions that add rules which allow. Others, such as those that
    /// change the session's mode, are never offered.
    #[must_use]
    pub fn suggested(mut self, suggestions: &[Value]) -> Self {
        let rules = suggestions.iter().filter_map(SuggestedRule::read);
        self.rules = rules.take(RULES_MAX).collect();
        self
    }

    /// With nothing in it that is too long.
    #[must_use]
    pub(super) fn bounded(mut self) -> Self {
        let end = self.input.floor_char_boundary(INPUT_MAX);
        self.cut += self.input.len() - end;
        self.input.truncate(end);
        if short(&mut self.tool) {
            // Its name is part of what is allowed.
            self.cut = self.cut.max(1);
        }
        let texts = [
            &mut self.description,
            &mut self.blocked_path,
            &mut self.decision_reason,
            &mut self.agent_id,
        ];
        for text in texts.into_iter().flatten() {
            short(text);
        }
        self.rules.truncate(RULES_MAX);
        self.rules.retain(SuggestedRule::fits);
        self
    }

    /// The questions that it asks its user, where it is no request to use a tool.
    fn questions(&self) -> Vec<Question> {
        let is_question = self.tool == QUESTION && self.cut == 0;
        let input = is_question.then(|| serde_json::from_str::<Questions>(&self.input).ok());
        input.flatten().map_or_else(Vec::new, |it| it.questions)
    }

    /// Whether its user is to say more than yes or no.
    pub(super) fn is_question(&self) -> bool {
        self.tool == QUESTION
    }

    /// The input with answers in it, one for each question in turn: the number of an option, numbers with
    /// commas between them where several may be chosen, or a text.
    pub(super) fn answered(&self, answers: &[String]) -> Result<Value, String> {
        let questions = self.questions();
        if questions.is_empty() {
            return Err("its questions are not known here: answer where they are asked".into());
        }
        let texts: BTreeSet<_> = questions.iter().map(|it| &it.question).collect();
        if texts.len() != questions.len() {
            return Err("two of its questions read alike: answer where they are asked".into());
        }
        if questions.len() != answers.len() {
            return Err(format!(
                "it asks {} questions, and {} were answered: give one answer for each, in order",
                questions.len(),
                answers.len()
            ));
        }
        let answered = questions.iter().zip(answers);
        let answered = answered.map(|(question, answer)| {
            let chosen = question.chosen(answer)?;
            Ok((question.question.clone(), Value::from(chosen)))
        });
        let answered = answered.collect::<Result<Map<_, _>, String>>()?;
        let mut input: Value = serde_json::from_str(&self.input).map_err(|e| e.to_string())?;
        input["answers"] = answered.into();
        Ok(input)
    }

    /// All but what belongs to a request alone.
    pub(super) fn members(&self) -> Value {
        let whole = (self.cut == 0).then(|| serde_json::from_str(&self.input).ok());
        let rule =
            |rule: &SuggestedRule| json!({ "rule": rule.rule, "destination": rule.destination });
        let mut members = json!({
            "tool": self.tool,
            "description": self.description,
            "input": whole.flatten().unwrap_or_else(|| json!(self.input)),
            "suggestions": self.rules.iter().map(rule).collect::<Value>(),
        });
        if self.cut > 0 {
            members["cut"] = self.cut.into();
        }
        let questions = self.questions();
        if !questions.is_empty() {
            members["questions"] = json!(questions);
        }
        for (name, text) in [
            ("blocked_path", &self.blocked_path),
            ("decision_reason", &self.decision_reason),
            ("agent_id", &self.agent_id),
        ] {
            if let Some(text) = text {
                members[name] = text.as_str().into();
            }
        }
        members
    }

    /// As much of it as is said of one that is over.
    pub(super) fn brief(&self) -> Value {
        let members = self.members();
        let input = match &members["questions"][0]["question"] {
            Value::String(question) => question.clone(),
            _ => main_input(&members),
        };
        let input: String = input.chars().take(BRIEF_CHARS).collect();
        let question = self.is_question();
        json!({ "tool": self.tool, "input": input, "turn": self.turn, "question": question })
    }

    /// Whether both are the same call, of which either may have only the beginning.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.input.as_str(), other.input.as_str());
        let input = match (self.cut, other.cut) {
            (0, 0) => mine == theirs,
            (0, _) => mine.starts_with(theirs),
            (_, 0) => theirs.starts_with(mine),
            _ => mine.starts_with(theirs) || theirs.starts_with(mine),
        };
        input && self.tool == other.tool
    }
}

/// The input of a tool, or the member of it that says most.
pub(crate) fn main_input(request: &Value) -> String {
    let input = &request["input"];
    let members = ["command", "file_path", "path", "url"];
    let main = members.iter().find_map(|member| input[member].as_str());
    match (main, input) {
        (Some(main), _) => main.to_owned(),
        (None, Value::String(text)) => text.clone(),
        (None, input) => input.to_string(),
    }
}

/// Stands for all that is shown of something that somebody decides about.
pub(crate) fn digest(shown: &Value) -> String {
    let sum = Sha256::digest(shown.to_string());
    let bytes = sum.iter().take(16);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Cuts what is too long. Whether it was.
fn short(text: &mut String) -> bool {
    let end = text.char_indices().nth(TEXT_CHARS).map(|(end, _)| end);
    if let Some(end) = end {
        text.truncate(end);
        text.push('…');
    }
    end.is_some()
}

impl SuggestedRule {
    /// `None`: it is another kind of suggestion, or none that can be shown.
    fn read(suggestion: &Value) -> Option<Self> {
        if suggestion["type"] != "addRules" || suggestion["behavior"] != "allow" {
            return None;
        }
        let rules = suggestion["rules"].as_array()?.iter().map(|rule| {
            let tool = rule["toolName"].as_str()?;
            Some(match &rule["ruleContent"] {
                Value::Null => tool.to_owned(),
                content => format!("{tool}({})", content.as_str()?),
            })
        });
        let rules: Vec<_> = rules.collect::<Option<_>>()?;
        let rule = Self {
            rule: rules.join(", "),
            destination: suggestion["destination"].as_str()?.to_owned(),
            suggestion: suggestion.clone(),
        };
        (!rules.is_empty() && rule.fits()).then_some(rule)
    }

    fn fits(&self) -> bool {
        let said = self.rule.len() + self.destination.len();
        said + self.suggestion.to_string().len() <= RULE_MAX
    }
}
