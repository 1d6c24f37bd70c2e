//! What went over a connection that can be cut, in both directions: which lines go again, which
//! ones are repeats, and which can no more come. Pure.
//!
//! What the client has an id for it repeats after a cut, all of it. Its requests and answers have
//! none: those that it wrote into a cut are lost. It says again which requests for permission wait;
//! of answers the one who asked is told, as of requests that it may have had: done twice, an
//! interrupt would end another turn; and a call of a tool that cannot come any more is found here.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use serde_json::{Value, json};

use crate::SERVER;
use crate::claude::Initialize;
use crate::claude::stream::{Line, failure, pending, request, success};

/// How the client names the tool use that an MCP request is for.
const TOOL_USE: &str = "claudecode/toolUseId";
/// Lines that the client has not shown to have.
const UNPROVEN_MAX: usize = 256;
/// Names of lines that are known. The client keeps 1,000 lines to repeat.
const NAMES_MAX: usize = 4_096;
/// What a request is answered with when its answer is lost.
const LOST: &str =
    "the connection was cut, and the answer with it: whether it was done is not known";

/// The lines of one client.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// How many lines were sent, and how many of them have begun to go.
    sent: u64,
    tried: u64,
    unproven: VecDeque<(u64, String)>,
    names: HashSet<String>,
    order: VecDeque<String>,
    /// Our requests that wait for an answer, and the number of the line; whether one is the first.
    asked: BTreeMap<String, (u64, bool)>,
    /// Requests for permission that wait for ours.
    open: BTreeSet<String>,
    /// The request that ends what the client repeats after a cut, while it is not answered.
    sync: Option<Sync>,
    syncs: u64,
    told: bool,
    handshake: Handshake,
    /// Uses of tools without a result, and what is known of each.
    uses: BTreeMap<String, Use>,
    /// A cut may have taken the client's words with the server behind the stream.
    doubted: bool,
}

/// A cut that the client came back from.
#[derive(Debug)]
struct Sync {
    request_id: String,
    /// The last line that went before.
    tried: u64,
    /// User's messages that went again.
    again: BTreeSet<String>,
}

/// How far the client's words with the server behind the stream are.
#[derive(Debug, Default, PartialEq, Eq, Clone, Copy)]
enum Handshake {
    #[default]
    None,
    Begun,
    Done,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Use {
    /// A tool of the client's, or a call that is being served.
    Lives,
    /// A bus tool that has not been called.
    Uncalled,
}

impl Ledger {
    /// Whether it takes no more lines.
    pub(crate) fn is_full(&self) -> bool {
        self.unproven.len() >= UNPROVEN_MAX
    }

    /// Takes a line that goes to the client, and gives its number.
    pub(crate) fn send(&mut self, line: String) -> u64 {
        self.sent += 1;
        let said = read(&line);
        match (said.kind(), said.request_id()) {
            ("control_request", Some(id)) => {
                let first = said["request"]["subtype"] == "initialize";
                self.asked.insert(id.to_owned(), (self.sent, first));
            }
            ("user", _) => self.told = true,
            ("control_response", _) => {
                let id = said["response"]["request_id"].as_str();
                self.open.remove(id.unwrap_or_default());
            }
            _ => {}
        }
        self.unproven.push_back((self.sent, line));
        self.sent
    }

    /// The client may have this line.
    pub(crate) fn tried(&mut self, number: u64) {
        self.tried = self.tried.max(number);
    }

    /// The client has all lines up to this one.
    pub(crate) fn proven(&mut self, number: u64) {
        self.tried(number);
        while self.unproven.front().is_some_and(|(n, _)| *n <= number) {
            self.unproven.pop_front();
        }
    }

    /// The client came, or came back. Gives the lines that go to it, with their numbers; after a
    /// cut, the last has none and is answered once all that the client repeats is said.
    pub(crate) fn came(&mut self) -> Vec<(Option<u64>, String)> {
        let tried = std::mem::replace(&mut self.tried, self.sent);
        self.unproven.retain(|(number, line)| {
            let said = read(line);
            let is_first = said["request"]["subtype"] == "initialize";
            *number > tried || said.kind() != "control_request" || is_first
        });
        let lines = self.unproven.iter();
        let mut lines: Vec<_> = lines.map(|(n, line)| (Some(*n), line.clone())).collect();
        self.syncs += 1;
        if self.sent == 0 || self.syncs == 1 {
            return lines;
        }
        let again = self.unproven.iter().filter_map(|(_, line)| {
            let said = read(line);
            let uuid = said.uuid().filter(|_| said.kind() == "user");
            uuid.map(str::to_owned)
        });
        let mut again: BTreeSet<_> = again.collect();
        if let Some(before) = self.sync.take() {
            again.extend(before.again);
        }
        let request_id = format!("peerbus-again-{}", self.syncs);
        lines.push((None, initialize(&request_id)));
        self.sync = Some(Sync {
            request_id,
            tried,
            again,
        });
        lines
    }

    /// Takes a line of the client's. Gives what is new in it, as lines.
    pub(crate) fn hear(&mut self, line: &str) -> Vec<String> {
        let said = read(line);
        if let Some(name) = name(&said)
            && !self.note(name)
            && self.sync.is_some()
        {
            return Vec::new();
        }
        match said.kind() {
            "control_response" => return self.answered(&said["response"], line),
            "keep_alive" => return Vec::new(),
            "user" if self.is_receipt(&said) => return Vec::new(),
            _ => self.doubted = false,
        }
        match said.kind() {
            "assistant" => self.uses(&said),
            "user" => {
                for block in said.blocks("tool_result") {
                    let id = block["tool_use_id"].as_str();
                    self.uses.remove(id.unwrap_or_default());
                }
            }
            "result" => {
                self.uses.clear();
                self.handshake = Handshake::Done;
            }
            _ => {}
        }
        let known = said.kind() == "control_request" && !self.request(&said);
        (!known).then(|| line.to_owned()).into_iter().collect()
    }

    fn uses(&mut self, said: &Line) {
        let ours = format!("mcp__{SERVER}__");
        for block in said.blocks("tool_use") {
            let name = block["name"].as_str().unwrap_or_default();
            let of = match name.starts_with(&ours) {
                true => Use::Uncalled,
                false => Use::Lives,
            };
            if let Some(id) = block["id"].as_str() {
                self.uses.entry(id.to_owned()).or_insert(of);
            }
        }
    }

    /// Takes a request. Whether it is new.
    fn request(&mut self, said: &Line) -> bool {
        let asked = &said["request"];
        if asked["subtype"] == "mcp_message" {
            let message = &asked["message"];
            match message["method"].as_str() {
                Some("initialize") => self.handshake = Handshake::Begun,
                Some("tools/list") => self.handshake = Handshake::Done,
                _ => {}
            }
            if let Some(id) = message["params"]["_meta"][TOOL_USE].as_str() {
                self.uses.insert(id.to_owned(), Use::Lives);
            }
        }
        let Some(id) = said.request_id() else {
            return true;
        };
        let new = self.note(format!("request {id}"));
        if new && asked["subtype"] == "can_use_tool" {
            self.open.insert(id.to_owned());
        }
        new
    }

    /// Whether this is how the client says that a user's message came a second time: it repeats it
    /// at once, without a time. (So it does with one of several that it merges.)
    fn is_receipt(&mut self, said: &Line) -> bool {
        let (Some(sync), Some(uuid)) = (&mut self.sync, said.uuid()) else {
            return false;
        };
        said.is_replay() && !said["timestamp"].is_string() && sync.again.remove(uuid)
    }

    fn answered(&mut self, answer: &Value, line: &str) -> Vec<String> {
        let Some(id) = answer["request_id"].as_str() else {
            return vec![line.to_owned()];
        };
        if let Some(sync) = self.sync.take_if(|sync| sync.request_id == id) {
            return self.synced(&sync, line);
        }
        // Answers of ours come back, too.
        let Some((_, first)) = self.asked.remove(id) else {
            return Vec::new();
        };
        // The first request went twice; the client did as it was asked the first time.
        if first && self.syncs > 1 && answer["error"].is_string() {
            return vec![success(id, &json!({}))];
        }
        vec![line.to_owned()]
    }

    /// The client has repeated everything.
    fn synced(&mut self, sync: &Sync, line: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let mut waits = BTreeSet::new();
        for request in pending(line) {
            waits.extend(read(request.get()).request_id().map(str::to_owned));
            lines.extend(self.hear(request.get()));
        }
        let gone = self.open.extract_if(.., |id| !waits.contains(id));
        lines.extend(gone.map(|id| cancel(&id)));
        let lost = |_: &String, (number, _): &mut (u64, bool)| *number <= sync.tried;
        for (id, (_, first)) in self.asked.extract_if(.., lost) {
            lines.push(match first {
                true => success(&id, &json!({})),
                false => failure(&id, LOST),
            });
        }
        self.doubted = true;
        lines
    }

    /// Whether the client seems to wait for an answer to what a cut took: it says nothing more,
    /// then. Only time tells.
    pub(crate) fn seems_stuck(&self) -> bool {
        let begins =
            self.handshake == Handshake::Begun || (self.told && self.handshake == Handshake::None);
        let uncalled = |of: &Use| *of == Use::Uncalled;
        let call = !self.uses.is_empty() && self.uses.values().all(uncalled);
        self.doubted && self.open.is_empty() && (begins || call)
    }

    /// Notes a name. Whether it is new.
    fn note(&mut self, name: String) -> bool {
        if !self.names.insert(name.clone()) {
            return false;
        }
        self.order.push_back(name);
        if self.order.len() > NAMES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
        true
    }
}

/// What a line says; nothing if it is none.
fn read(line: &str) -> Line {
    Line::read(line).unwrap_or_default()
}

/// A name that only repeats of the line have. The client gives a user's message the uuid that
/// it came with, and says it twice when it came twice: once with a time.
fn name(said: &Line) -> Option<String> {
    let timestamp = said["timestamp"].as_str().unwrap_or_default();
    Some(format!("{} {} {timestamp}", said.kind(), said.uuid()?))
}

/// Takes back a request of the client's, as it does itself.
fn cancel(request_id: &str) -> String {
    json!({ "type": "control_cancel_request", "request_id": request_id }).to_string()
}

/// Greets a client that may have been greeted.
fn initialize(request_id: &str) -> String {
    request(
        request_id,
        "initialize",
        Initialize::default().params(SERVER, ""),
    )
}

#[cfg(test)]
mod tests {
    mod simulated;

    use super::*;
    use crate::claude::stream::user;

    fn permission(id: &str) -> String {
        let request = json!({ "subtype": "can_use_tool", "tool_name": "Bash" });
        json!({ "type": "control_request", "request_id": id, "request": request }).to_string()
    }

    /// What a client says that was connected to again, to the request with this id.
    fn again(id: &str, pending: &[&str]) -> String {
        let pending: Vec<serde_json::Value> = pending
            .iter()
            .map(|request| serde_json::from_str(request).unwrap())
            .collect();
        let response = json!({
            "subtype": "error", "request_id": id, "error": "Already initialized",
            "pending_permission_requests": pending,
        });
        json!({ "type": "control_response", "response": response }).to_string()
    }

    fn numbers(lines: &[(Option<u64>, String)]) -> Vec<Option<u64>> {
        lines.iter().map(|(number, _)| *number).collect()
    }

    /// A ledger whose client has begun.
    fn begun() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.came();
        ledger.send(initialize("begin"));
        ledger.proven(1);
        let answer = success("begin", &json!({}));
        assert_eq!(ledger.hear(&answer), [answer.as_str()]);
        ledger
    }

    #[test]
    fn what_is_not_proven_goes_again_in_order_and_what_was_heard_is_not_heard_again() {
        let mut ledger = begun();
        ledger.send(user("one", "1".into()));
        ledger.send(user("two", "2".into()));
        ledger.send(user("three", "3".into()));
        ledger.proven(2);
        let repeated = |time: &str| {
            json!({ "type": "user", "uuid": "two", "isReplay": true, "timestamp": time })
                .to_string()
        };
        let said = r#"{"type":"assistant","uuid":"a","message":{"content":[]}}"#;
        assert_eq!(ledger.hear(said), [said]);
        let lines = ledger.came();
        assert_eq!(numbers(&lines), [Some(3), Some(4), None]);
        assert!(ledger.hear(said).is_empty());
        // It had it: says so at once, and repeats it once more when its turn begins.
        let receipt = r#"{"type":"user","uuid":"two","isReplay":true}"#;
        assert!(ledger.hear(receipt).is_empty());
        assert!(ledger.hear(&again("peerbus-again-2", &[])).is_empty());
        assert_eq!(ledger.hear(&repeated("t")), [repeated("t")]);
        ledger.proven(4);
        ledger.came();
        assert!(ledger.hear(receipt).is_empty());
        assert!(ledger.hear(&repeated("t")).is_empty());
    }

    #[test]
    fn requests_are_heard_once_open_again_when_lost_and_close_when_nobody_waits() {
        let mut ledger = begun();
        let (asked, other) = (permission("one"), permission("two"));
        assert_eq!(ledger.hear(&asked), [asked.as_str()]);
        ledger.came();
        let heard = ledger.hear(&again("peerbus-again-2", &[&asked, &other]));
        let [new] = &heard[..] else {
            panic!("{heard:?}")
        };
        assert!(new.contains(r#""request_id":"two""#), "{new}");
        ledger.came();
        let heard = ledger.hear(&again("peerbus-again-3", &[&other]));
        assert_eq!(heard, [cancel("one")]);
        // An answer that was on its way is no reason to open it again.
        ledger.send(success("two", &json!({})));
        ledger.came();
        assert!(ledger.hear(&again("peerbus-again-4", &[])).is_empty());
    }

    #[test]
    fn who_asked_is_told_when_a_cut_took_the_answer_and_the_first_request_has_begun_the_client() {
        let mut ledger = Ledger::default();
        ledger.came();
        ledger.send(initialize("begin"));
        ledger.proven(1);
        ledger.came();
        let heard = ledger.hear(&again("peerbus-again-2", &[]));
        assert_eq!(heard, [success("begin", &json!({}))]);
        let request = json!({ "type": "control_request", "request_id": "model",
            "request": { "subtype": "set_model" } });
        let sent = ledger.send(request.to_string());
        ledger.proven(sent);
        ledger.came();
        let heard = ledger.hear(&again("peerbus-again-3", &[]));
        assert_eq!(heard, [failure("model", LOST)]);
        // Late, it is an answer to nothing.
        assert!(ledger.hear(&success("model", &json!({}))).is_empty());
    }

    #[test]
    fn a_client_that_waits_for_a_call_that_a_cut_took_seems_stuck() {
        let listed = r#"{"type":"control_request","request_id":"l","request":{"subtype":"mcp_message","message":{"method":"tools/list"}}}"#;
        let uses = r#"{"type":"assistant","uuid":"a","message":{"content":[{"type":"tool_use","id":"t","name":"mcp__peerbus__bus_send"}]}}"#;
        let call = r#"{"type":"control_request","request_id":"c","request":{"subtype":"mcp_message","message":{"method":"tools/call","params":{"_meta":{"claudecode/toolUseId":"t"}}}}}"#;
        let mut ledger = begun();
        ledger.send(user("one", "1".into()));
        assert!(!ledger.seems_stuck());
        ledger.came();
        ledger.hear(&again("peerbus-again-2", &[]));
        assert!(
            ledger.seems_stuck(),
            "its words with the server never began"
        );
        ledger.hear(listed);
        ledger.hear(uses);
        assert!(!ledger.seems_stuck());
        ledger.came();
        ledger.hear(&again("peerbus-again-3", &[]));
        assert!(ledger.seems_stuck(), "the call never came");
        ledger.hear(call);
        ledger.came();
        ledger.hear(&again("peerbus-again-4", &[]));
        assert!(!ledger.seems_stuck(), "it waits for our answer");
    }
}
