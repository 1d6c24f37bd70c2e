//! An MCP client on the stdio of an adapter process.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde_json::{Value, json};

use super::{Home, Lines, PATIENCE, eventually};

/// What the adapter reads; `None` once it is closed.
type Stdin = Arc<Mutex<Option<ChildStdin>>>;

/// An adapter and the client at its other end. The adapter is killed when dropped.
pub(crate) struct Mcp {
    child: Child,
    stdin: Stdin,
    mute: Arc<AtomicBool>,
    lines: Lines,
    next_id: u64,
    /// Notifications that came while an answer was waited for.
    pub(crate) notifications: Vec<Value>,
}

impl Mcp {
    /// Starts `peerbus adapter` for `home`, named, and does the handshake as `client`.
    pub(crate) fn start(home: &Home, adapter: &str, name: &str, client: &str) -> Self {
        let mut mcp =
            Self::spawn(&mut home.peerbus(&["adapter", "--adapter", adapter, "--name", name]));
        mcp.initialize(client);
        mcp
    }

    /// Starts an adapter without a handshake.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self::with_stderr(command.stderr(Stdio::null()))
    }

    /// As [`Mcp::spawn`], with whatever stderr the command has.
    pub(crate) fn with_stderr(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the adapter starts");
        let stdin = Stdin::new(Mutex::new(child.stdin.take()));
        let answers = stdin.clone();
        let stdout = child.stdout.take().expect("a pipe");
        let mute = Arc::<AtomicBool>::default();
        let silent = mute.clone();
        let lines = Lines::those(stdout, move |line| {
            !pinged(line, &answers, silent.load(Ordering::Relaxed))
        });
        Self {
            child,
            stdin,
            mute,
            lines,
            next_id: 0,
            notifications: Vec::new(),
        }
    }

    /// `initialize` and `notifications/initialized`; gives the result.
    pub(crate) fn initialize(&mut self, client: &str) -> Value {
        let result = self.request(
            "initialize",
            json!({
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": { "name": client, "version": "1" },
            }),
        );
        self.notify("notifications/initialized");
        result
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Writes a message; `false` when the process is gone.
    pub(crate) fn write(&mut self, message: &Value) -> bool {
        write(&self.stdin, message)
    }

    pub(crate) fn notify(&mut self, method: &str) {
        self.write(&json!({ "jsonrpc": "2.0", "method": method }));
    }

    /// Writes a request and gives its id, without waiting.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.write(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Writes a tool call and gives its id, without waiting.
    pub(crate) fn ask_tool(&mut self, tool: &str, arguments: Value) -> u64 {
        self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
    }

    /// The next message from the adapter, or why there is none.
    pub(crate) fn poll(&mut self, patience: Duration) -> Result<Value, RecvTimeoutError> {
        let line = self.lines.poll(patience)?;
        Ok(serde_json::from_str(&line).unwrap_or_else(|_| panic!("stdout is MCP only: {line}")))
    }

    /// The next message from the adapter; `None` at its end, or when none comes in time.
    pub(crate) fn next(&mut self, patience: Duration) -> Option<Value> {
        self.poll(patience).ok()
    }

    /// The first message that waits, once one does.
    #[track_caller]
    pub(crate) fn drained(&mut self) -> Value {
        eventually("a message is drained", || {
            let drained = self.call("bus.drain", json!({ "max": 1 }));
            drained["messages"].get(0).cloned()
        })
    }

    /// A request and its answer's `result` (or the whole answer, if that is an error).
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(mut message) = self.next(left) else {
                panic!("no answer to {method}")
            };
            if message["id"] == json!(id) {
                return match message.get_mut("result") {
                    Some(result) => result.take(),
                    None => message,
                };
            }
            self.notifications.push(message);
        }
    }

    /// A tool call that succeeds; gives its structured content.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut result = self.request(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        );
        assert_ne!(result["isError"], json!(true), "{tool} failed: {result}");
        result["structuredContent"].take()
    }

    /// A tool call that fails; gives its sentence.
    #[track_caller]
    pub(crate) fn call_fails(&mut self, tool: &str, arguments: Value) -> String {
        let result = self.request(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        );
        assert_eq!(
            result["isError"],
            json!(true),
            "{tool} did not fail: {result}"
        );
        result["content"][0]["text"]
            .as_str()
            .expect("a text")
            .to_owned()
    }

    /// The first notification that `pick` takes, kept or to come.
    #[track_caller]
    pub(crate) fn notification<T>(&mut self, what: &str, pick: impl Fn(&Value) -> Option<T>) -> T {
        if let Some(at) = self.notifications.iter().position(|n| pick(n).is_some()) {
            let found = self.notifications.remove(at);
            return pick(&found).expect("picked before");
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(message) = self.next(left) else {
                panic!("no {what}")
            };
            match pick(&message) {
                Some(found) => return found,
                None => self.notifications.push(message),
            }
        }
    }

    /// Answers no ping any more.
    pub(crate) fn mute(&self) {
        self.mute.store(true, Ordering::Relaxed);
    }

    /// Closes stdin and waits for the end.
    pub(crate) fn close(mut self) -> ExitStatus {
        *self.stdin.lock().expect("nobody panics here") = None;
        self.wait()
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        super::eventually("the adapter ends", || {
            self.child.try_wait().expect("our child")
        })
    }
}

fn write(stdin: &Stdin, message: &Value) -> bool {
    let mut stdin = stdin.lock().expect("nobody panics here");
    stdin.as_mut().is_some_and(|stdin| {
        stdin.write_all(format!("{message}\n").as_bytes()).is_ok() && stdin.flush().is_ok()
    })
}

/// Whether a line is a ping, which is answered at once, as clients do.
fn pinged(line: &str, stdin: &Stdin, mute: bool) -> bool {
    let message: Value = serde_json::from_str(line).unwrap_or_default();
    if message["method"] != "ping" {
        return false;
    }
    let pong = json!({ "jsonrpc": "2.0", "id": message["id"], "result": {} });
    if !mute {
        write(stdin, &pong);
    }
    true
}

impl Drop for Mcp {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
