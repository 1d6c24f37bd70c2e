//! What is known of an agent's session. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use peerbus_adapter::agents::Proof;
use peerbus_mcp::ClientInfo;
use peerbus_wire::escape;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::Answer;
use super::calls::Calls;
use super::lines::{self, events, told};
use super::permission::may_be_ours;
use super::returned::Returned;
use super::turn::{Began, Replay, Signs, Turn, Usage, is_users};
use crate::WHY_CHARS;
use crate::protocol::{Given, Heard, TurnEnd};

/// Whoever asked something does not wait any more for the answer.
pub(crate) const WITHDRAW: &str = "$/cancel_request";
/// In an editor: `busy`, whether a turn of its user's is under way, and the `usage` after one.
pub(crate) const ELSEWHERE: &str = "_peerbus/turn";
/// In an editor: the prompt with this `id` was never given to the agent.
pub(crate) const UNASKED: &str = "_peerbus/unasked";
/// The members that are read of what an agent tells.
pub(super) const TOLD: [&str; 5] = ["requestId", "busy", "usage", "loaded", "id"];
/// Questions that may be open.
pub(super) const QUESTIONS_MAX: usize = 64;
/// Longest text of the model's that is put together before it is told, in bytes.
const WORDS_MAX: usize = 65_536;

/// What the agent was asked.
#[derive(Debug)]
pub(super) enum Asking {
    Initialize,
    New,
    Load,
    Setting,
    /// Of the turn with this id.
    Prompt(String),
    Control(oneshot::Sender<Answer>),
}

/// What the agent says it can.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Can {
    /// Its answer has the shape of version 2.
    pub(super) two: bool,
    /// It goes on with a session and repeats it.
    pub(super) loads: bool,
    /// It goes on with a session.
    pub(super) resumes: bool,
    /// It puts instructions before its model.
    pub(super) takes_instructions: bool,
    /// A prompt may have images.
    pub(super) takes_images: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    last: u64,
    pub(super) asked: BTreeMap<u64, Asking>,
    pub(super) can: Can,
    pub(super) session: Option<String>,
    /// The session to go on with.
    pub(super) resume: Option<String>,
    /// The instructions go before the next text.
    pub(super) instruct: bool,
    /// What is still to be set, as methods with their parameters.
    pub(super) settings: VecDeque<(&'static str, Value)>,
    pub(super) turn: Option<Turn>,
    pub(super) calls: Calls,
    /// Open questions.
    pub(super) questions: BTreeSet<String>,
    /// Questions that were answered and that somebody may still be asked about.
    pub(super) withdrawn: Vec<String>,
    usage: Usage,
    words: Words,
    began: Began,
    replay: Replay,
    /// The rest of a history may still come.
    is_late: bool,
    /// The turn that was under way when the last process ended.
    left: Option<Turn>,
    pub(super) returned: Returned,
}

/// The model's words, which come in pieces.
#[derive(Debug, Default)]
struct Words {
    id: Option<String>,
    text: String,
}

impl State {
    /// A process begins.
    pub(super) fn started(&mut self, resume: Option<&str>) {
        *self = Self {
            resume: resume.map(str::to_owned),
            left: self.left.take(),
            ..Self::default()
        };
    }

    /// The process is gone.
    pub(super) fn ended(&mut self) {
        self.asked = BTreeMap::new();
        self.questions = BTreeSet::new();
        self.left = self.turn.take().or_else(|| self.left.take());
    }

    /// Notes that something is asked, and gives the number for it.
    pub(super) fn ask(&mut self, asking: Asking) -> u64 {
        // Nobody waits for ever.
        self.asked.retain(|_, asking| match asking {
            Asking::Control(waits) => !waits.is_closed(),
            _ => true,
        });
        self.last += 1;
        self.asked.insert(self.last, asking);
        self.last
    }

    /// Takes the answer to the greeting. Gives who the agent says it is.
    pub(super) fn greeted(&mut self, answer: &Value) -> Option<ClientInfo> {
        let agent = &answer["agentCapabilities"];
        // One agent says 2 and means 1.
        let two = answer["protocolVersion"] == 2 && agent.is_null();
        let session = match two {
            true => &answer["capabilities"]["session"],
            false => &agent["sessionCapabilities"],
        };
        self.can = Can {
            two,
            loads: agent["loadSession"] == true,
            resumes: two || !session["resume"].is_null(),
            takes_instructions: !session["systemPrompt"].is_null(),
            takes_images: match two {
                true => !session["prompt"]["image"].is_null(),
                false => agent["promptCapabilities"]["image"] == true,
            },
        };
        let info = if two {
            &answer["info"]
        } else {
            &answer["agentInfo"]
        };
        let text = |member: &str| info[member].as_str().map(str::to_owned);
        Some(ClientInfo {
            name: text("name")?,
            version: text("version").unwrap_or_default(),
        })
    }

    pub(super) fn takes_images(&self, title: &str) -> Result<(), String> {
        let why = || {
            format!(
                "{title} does not say that it takes images: put the image into a file, and name that"
            )
        };
        self.can.takes_images.then_some(()).ok_or_else(why)
    }

    /// A new session is there.
    pub(super) fn began(&mut self, id: &str) {
        self.session = Some(id.to_owned());
        self.usage = Usage(Some(0));
    }

    /// The history of a session was repeated. Gives what it shows; `None`: there was none, though there
    /// were turns, and so it is not that session.
    pub(super) fn loaded(&mut self, proof: Proof, answer: &Value) -> Option<Option<Heard>> {
        let replay = std::mem::take(&mut self.replay);
        if !replay.any && self.can.loads {
            return None;
        }
        // A copy has another id.
        let id = answer["sessionId"].as_str().map(str::to_owned);
        self.session = id.or_else(|| self.resume.clone());
        self.is_late = true;
        let is_answered = replay.signs.answered(proof);
        let left = self.left.take().filter(|_| is_answered);
        Some(
            left.and_then(|turn| turn.mark)
                .map(|mark| Heard::Known(mark, TurnEnd::Well)),
        )
    }

    /// How a setting is asked for; `None`: it is so already.
    ///
    /// # Errors
    ///
    /// A sentence, where it is not offered.
    pub(super) fn setting(
        &self,
        offered: &Value,
        what: &str,
        value: &str,
    ) -> Result<Option<(&'static str, Value)>, String> {
        let session = &self.session;
        let options = offered["configOptions"].as_array().into_iter().flatten();
        // Version 2 has another name for it, and wants to be told what kind of value it gets.
        let id = |option: &Value| match &option["configId"] {
            Value::Null => option["id"].clone(),
            id => id.clone(),
        };
        let mut options = options.filter(|option| option["category"] == what || id(option) == what);
        let option = options.next();
        let lists = match what {
            "mode" => (
                &offered["modes"]["availableModes"],
                "id",
                &offered["modes"]["currentModeId"],
            ),
            _ => (
                &offered["models"]["availableModels"],
                "modelId",
                &offered["models"]["currentModelId"],
            ),
        };
        let (list, member, current) = lists;
        let has = |list: &Value, member: &str| {
            let list = list.as_array();
            list.is_some_and(|list| list.iter().any(|one| one[member] == value))
        };
        if current == value || option.is_some_and(|option| option["currentValue"] == value) {
            return Ok(None);
        }
        if has(list, member) {
            return Ok(Some(match what {
                "mode" => (
                    "session/set_mode",
                    json!({ "sessionId": session, "modeId": value }),
                ),
                _ => (
                    "session/set_model",
                    json!({ "sessionId": session, "modelId": value }),
                ),
            }));
        }
        if let Some(option) = option.filter(|option| has(&option["options"], "value")) {
            let mut params =
                json!({ "sessionId": session, "configId": id(option), "value": value });
            if !option["configId"].is_null() {
                params["type"] = "id".into();
            }
            return Ok(Some(("session/set_config_option", params)));
        }
        let value = escape(value, WHY_CHARS);
        Err(format!(
            "the {what} `{value}` is not offered, and stays what it is"
        ))
    }

    /// Begins a turn, and gives what to ask. `None`: another one is under way.
    pub(super) fn prompt(
        &mut self,
        uuid: &str,
        Given {
            text, mark, images, ..
        }: Given<'_>,
        instructions: &str,
    ) -> Option<Value> {
        if self.turn.is_some() {
            return None;
        }
        let said = text;
        // A command of the agent's is a command only at the beginning.
        let instructs = !text.starts_with('/') && std::mem::take(&mut self.instruct);
        let text = match instructs {
            true => format!("{instructions}\n\n{text}"),
            false => text.to_owned(),
        };
        let mut prompt = vec![json!({ "type": "text", "text": text })];
        prompt.extend(images.iter().map(|image| lines::image(image)));
        self.began.next_turn();
        self.turn = Some(Turn {
            asked: Some(said.to_owned()),
            uuid: uuid.to_owned(),
            mark: mark.map(str::to_owned),
            text,
            signs: Signs::default(),
            instructs,
            is_mixed: false,
        });
        Some(json!({ "sessionId": self.session, "prompt": prompt }))
    }

    /// Takes the answer to the prompt of this turn.
    pub(super) fn prompted(&mut self, proof: Proof, uuid: &str, answer: &Answer) -> Vec<Heard> {
        if !self.is_in(uuid) {
            return Vec::new();
        }
        let is_begun = answer.as_ref().is_ok_and(|it| it["messageId"].is_string());
        if self.can.two && is_begun {
            return self.presented();
        }
        self.end(Some((proof, answer)))
    }

    /// Whether this turn is under way.
    fn is_in(&self, uuid: &str) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.uuid == uuid)
    }

    /// The text of the turn stands in the conversation.
    fn presented(&mut self) -> Vec<Heard> {
        let Some(turn) = &mut self.turn else {
            return Vec::new();
        };
        turn.signs.presented = true;
        let mut heard = turn.told();
        heard.push(Heard::Shown(turn.uuid.clone()));
        heard
    }

    /// The turn is over, with this answer. `None`: the agent was never asked.
    fn end(&mut self, ended: Option<(Proof, &Answer)>) -> Vec<Heard> {
        let mut heard = self.say();
        // The end of a turn withdraws its open questions.
        let open = std::mem::take(&mut self.questions).into_iter();
        heard.extend(open.chain(self.withdrawn.drain(..)).map(Heard::Withdrawn));
        self.calls.end();
        let Some(mut turn) = self.turn.take() else {
            return heard;
        };
        let two = self.can.two;
        if let Some((proof, answer)) = ended {
            heard.extend(self.returned.end((proof, two), self.usage, answer));
        }
        let end = match ended {
            Some((proof, answer)) => turn.signs.end((proof, two), &mut self.usage, answer),
            None => TurnEnd::Unshown,
        };
        if ended.is_some_and(|(_, answer)| {
            answer
                .as_ref()
                .is_ok_and(|it| it["stopReason"] == "end_turn")
        }) {
            self.began.ended();
        }
        self.is_late &= ended.is_none();
        // The instructions were not shown either.
        let is_shown = end == TurnEnd::Well || turn.signs.presented && ended.is_some();
        self.instruct |= turn.instructs && !is_shown;
        if end == TurnEnd::Well {
            heard.extend(turn.told());
            heard.push(Heard::Shown(turn.uuid.clone()));
            heard.push(Heard::Words {
                answer: Some(turn.uuid.clone()),
                texts: Vec::new(),
            });
        }
        if let Some((_, answer)) = ended {
            heard.extend(lines::result(&end, answer));
        }
        let ids = vec![turn.uuid];
        heard.push(Heard::TurnEnd { ids, end });
        heard
    }

    /// Takes what needs no answer, and is no update.
    /// `editor`: what proves an answer, in an editor.
    pub(super) fn told(
        &mut self,
        editor: Option<Proof>,
        method: &str,
        params: &Value,
    ) -> Vec<Heard> {
        match method {
            WITHDRAW => {
                let id = params["requestId"].to_string();
                let open = self.questions.remove(&id);
                open.then_some(Heard::Withdrawn(id)).into_iter().collect()
            }
            ELSEWHERE if editor.is_some() && params["loaded"] == true => {
                self.is_late = true;
                Vec::new()
            }
            UNASKED if editor.is_some() => {
                let number = params["id"].as_u64();
                match number.and_then(|number| self.asked.remove(&number)) {
                    Some(Asking::Prompt(uuid)) if self.is_in(&uuid) => self.end(None),
                    _ => Vec::new(),
                }
            }
            ELSEWHERE => {
                let Some(proof) = editor else {
                    return Vec::new();
                };
                let mut heard = vec![Heard::Elsewhere(params["busy"] == true)];
                if params["busy"] == false {
                    let by = (proof, self.can.two);
                    heard.extend(self.returned.end(by, self.usage, &Ok(params.clone())));
                }
                // The next figure is compared with this one.
                self.usage.grew(&params["usage"]);
                heard
            }
            _ => Vec::new(),
        }
    }

    /// Takes an update.
    pub(super) fn update(&mut self, proof: Proof, params: &Value) -> Vec<Heard> {
        let update = &params["update"];
        let loads = self
            .asked
            .values()
            .any(|asking| matches!(asking, Asking::Load));
        if !loads && params["sessionId"].as_str() != self.session.as_deref() {
            return Vec::new();
        }
        let kind = update["sessionUpdate"].as_str().unwrap_or_default();
        if loads {
            let left = self.left.as_ref().map(|turn| turn.text.as_str());
            self.replay.take((proof, self.can.two), kind, update, left);
            return Vec::new();
        }
        let mut heard = Vec::new();
        let fresh = self.began.is_fresh(update, self.can.two);
        if matches!(kind, "tool_call" | "tool_call_update") {
            self.calls.note(update);
        }
        let may_be_ours = may_be_ours(&self.calls.of(update));
        self.returned.update(proof, update, fresh, may_be_ours);
        let is_echo = self.is_late && is_users(update);
        if let Some(turn) = self.turn.as_mut().filter(|_| is_echo) {
            self.is_late = !turn.echoes(update);
        }
        heard.extend(self.signs(proof, update, fresh));
        if kind != "agent_message_chunk" && kind != "usage_update" {
            heard.extend(self.say());
        }
        match kind {
            "agent_message_chunk" => heard.extend(self.words(update)),
            "tool_call" | "tool_call_update" => heard.extend(events(update)),
            // One that comes before the text is in the conversation is of the turn before.
            "state_update" if self.can.two && update["state"] == "idle" => {
                let here = |turn: &Turn| turn.signs.presented;
                if self.turn.as_ref().is_some_and(here) {
                    heard.extend(self.end(Some((proof, &Ok(update.clone())))));
                }
            }
            _ => {}
        }
        heard
    }

    /// Takes a question about a tool, which the model called: not every agent tells of a call before.
    pub(super) fn asks(&mut self, proof: Proof, question: &Value) -> Vec<Heard> {
        let id = &question["toolCall"]["toolCallId"];
        if !id.is_string() || question["sessionId"].as_str() != self.session.as_deref() {
            return Vec::new();
        }
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": id });
        let fresh = self.began.is_fresh(&call, self.can.two);
        self.signs(proof, &call, fresh)
    }

    /// What an update shows of the turn's text.
    fn signs(&mut self, proof: Proof, update: &Value, fresh: bool) -> Vec<Heard> {
        let first = |turn: &mut Turn| !turn.is_mixed && turn.signs.update(proof, update, fresh);
        match self.turn.as_mut().is_some_and(first) {
            true => self.presented(),
            false => Vec::new(),
        }
    }

    /// Takes a piece of the model's words.
    fn words(&mut self, update: &Value) -> Vec<Heard> {
        let id = update["messageId"].as_str().map(str::to_owned);
        let text = update["content"]["text"].as_str().unwrap_or_default();
        let other = self.words.id != id || self.words.text.len() + text.len() > WORDS_MAX;
        let mut heard = if other { self.say() } else { Vec::new() };
        self.words.id = id;
        self.words.text.push_str(text);
        if !text.is_empty() {
            heard.extend(lines::piece(text));
        }
        heard
    }

    /// What was put together, for whoever watches and reads.
    fn say(&mut self) -> Vec<Heard> {
        let Words { text, .. } = std::mem::take(&mut self.words);
        if text.trim().is_empty() {
            return Vec::new();
        }
        let content = json!([{ "type": "text", "text": text }]);
        let mut heard = told("assistant", &content);
        heard.push(Heard::Words {
            answer: None,
            texts: vec![text],
        });
        heard
    }
}
