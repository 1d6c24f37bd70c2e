#!/usr/bin/env python3
"""A stand-in for Claude Code in a driver's hands: it answers each turn with the words "heard it",
but for words that ask for something else. What it is told goes to the file `told` beside its home,
one JSON text a line, after its own command line. With `--sdk-url` it speaks over a WebSocket as the
real client does, and cuts that itself at random, `--cuts N` times."""

import base64
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import uuid
from pathlib import Path
from urllib.parse import urlsplit

HOME = Path(os.environ["HOME"])
SESSION = "00000000-0000-4000-8000-000000000001"


def note(what):
    with open(HOME / "told", "a", encoding="utf-8") as told:
        told.write(json.dumps(what) + "\n")


class Streams:
    """Standard input and output."""

    def write(self, line):
        print(json.dumps(line), flush=True)

    def read(self):
        return sys.stdin.readline()


class Socket:
    """A WebSocket. What has an id is kept, and repeated after a cut; the rest is lost in one."""

    def __init__(self, url, cuts):
        self.at = urlsplit(url)
        self.random = random.Random(f"{cuts} cuts")
        self.cuts = cuts
        # A call that a cut takes never comes again: the driver gives such a client up.
        self.calls = False
        self.kept = []
        self.lines = []
        self.connect()

    def connect(self, token=os.environ.get("CLAUDE_CODE_SESSION_ACCESS_TOKEN")):
        """Connects, and gives the status that it is answered with."""
        self.socket = socket.create_connection((self.at.hostname, self.at.port))
        self.bytes = self.socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        head = ["GET / HTTP/1.1", f"Host: {self.at.netloc}", "Connection: Upgrade", "Upgrade: websocket"]
        head += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", f"Authorization: Bearer {token}"]
        if self.kept:
            head.append(f"X-Last-Request-Id: {self.kept[-1]['uuid']}")
        self.socket.sendall("\r\n".join([*head, "", ""]).encode())
        status = int(self.bytes.readline().split()[1])
        while self.bytes.readline().strip():
            pass
        if status == 101:
            for line in self.kept:
                self.frame(1, json.dumps(line).encode() + b"\n")
        return status

    def cut(self):
        """Ends the connection so that what is on the way is lost, and connects again."""
        note({"cut": self.cuts})
        self.cuts -= 1
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.bytes.close()
        self.socket.close()
        self.connect()

    def is_cut(self):
        return self.cuts > 0 and self.random.random() < 0.3

    def frame(self, kind, data):
        size = len(data)
        length = struct.pack(">BH", 254, size) if size > 125 else bytes([128 | size])
        length = struct.pack(">BQ", 255, size) if size > 0xFFFF else length
        self.socket.sendall(bytes([128 | kind]) + length + bytes(4) + data)

    def send(self, line):
        """One line, or with another one and a ping before it."""
        odd = "--odd-frames" in sys.argv
        if odd:
            self.frame(9, b"there?")
        self.frame(1, b'{"type":"keep_alive"}\n' * odd + json.dumps(line).encode() + b"\n")

    def write(self, line):
        if "uuid" in line:
            self.kept.append(line)
        self.calls |= line.get("request", {}).get("subtype") == "mcp_message"
        cut = self.is_cut() and not self.calls
        if cut and self.random.random() < 0.5:
            return self.cut()
        self.send(line)
        if cut:
            self.cut()

    def read(self):
        while not self.lines:
            head = self.bytes.read(2)
            if len(head) < 2:
                return ""
            size = {126: ">H", 127: ">Q"}.get(head[1])
            size = struct.unpack(size, self.bytes.read(struct.calcsize(size)))[0] if size else head[1]
            data = self.bytes.read(size)
            if head[0] & 15 == 9:
                self.frame(10, data)
            elif head[0] & 15 == 10:
                note({"pong": data.decode()})
            elif head[0] & 15 == 1:
                lines = data.decode().splitlines()
                has_come = not self.calls or b"mcp_response" in data
                if self.is_cut() and has_come:
                    # On the way, or taken without a sign of it.
                    self.lines += self.random.choice([[], lines])
                    self.cut()
                else:
                    self.lines += lines
        return self.lines.pop(0)


def option(name):
    """What stands behind an option of the command line."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


STREAM = Streams()
BEGUN = []
TAKEN = set()
# Requests for permission that wait, and turns that came while one did.
PENDING = {}
LATER = []
# It does not end with its input, as some agents do not.
STAYS = []


def say(kind, **more):
    identity = {} if kind.startswith("control_") else {"session_id": SESSION, "uuid": str(uuid.uuid4())}
    STREAM.write({"type": kind, **identity, **more})


def next_line():
    """What is told next, but for what was told before."""
    while line := STREAM.read():
        told = json.loads(line)
        if told["type"] == "user" and told["uuid"] in TAKEN:
            replay(told, told["message"]["content"], None)
        elif told["type"] == "control_request" and told["request"]["subtype"] == "initialize" and BEGUN:
            again = {"subtype": "error", "error": "Already initialized", "request_id": told["request_id"]}
            say("control_response", response={**again, "pending_permission_requests": list(PENDING.values())})
        elif told["type"] != "keep_alive":
            # Newer clients say which they took: their vendor's own. Older ones take all, and say nothing.
            taken = [name for name in told.get("variables", []) if name.startswith("CLAUDE_CODE_")]
            if taken:
                response = {"subtype": "success", "request_id": told["request_id"], "response": {"applied": taken}}
                say("control_response", response=response)
            TAKEN.add(told.get("uuid"))
            note(told)
            return told
    if STAYS:
        last()
    sys.exit(0)


def answer(words="heard it", **more):
    message = {"id": f"msg_{uuid.uuid4()}", "model": "m", "content": [{"type": "text", "text": words}]}
    say("assistant", message=message, parent_tool_use_id=None, **more)


def result(subtype="success", **more):
    cost = {"total_cost_usd": 0.25, "num_turns": 1, "duration_ms": 7, "permission_denials": []}
    say("result", **{"subtype": subtype, "is_error": subtype != "success", **cost, **more})


def replay(turn, words, timestamp="2026-11-23T00:00:00.000Z"):
    message = {"role": "user", "content": words}
    line = {"type": "user", "message": message, "parent_tool_use_id": None, "isReplay": True}
    when = {"timestamp": timestamp} if timestamp else {}
    STREAM.write({**line, **when, "session_id": SESSION, "uuid": turn["uuid"]})


def ask(subtype, **more):
    """Asks the driver, and gives its answer."""
    request = str(uuid.uuid4())
    line = {"type": "control_request", "request_id": request, "request": {"subtype": subtype, **more}}
    if subtype == "can_use_tool":
        PENDING[request] = line
    STREAM.write(line)
    # An answer to another request came twice.
    while (told := next_line())["type"] != "control_response" or told["response"]["request_id"] != request:
        if told["type"] == "user":
            LATER.append(told)
    PENDING.pop(request, None)
    STREAM.calls = False
    return told["response"]


def once(what):
    """Whether this is the first time, over all clients of this home."""
    try:
        (HOME / what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def merged():
    """Takes two more turns and answers all three in one, as the real client does what came while
    it was busy."""
    turns = [next_user(), next_user()]
    words = [turn["message"]["content"] for turn in turns]
    replay(turns[0], words[0])
    say("system", subtype="init")
    replay(turns[1], "\n".join(words))
    answer()
    result()


def last():
    """Goes on until it is killed, but not for ever after a test that failed."""
    signal.alarm(300)
    while True:
        signal.pause()


def leave_orphans():
    """Starts processes that no SIGTERM ends: a child, one in a session of its own, and a daemon."""
    for kind in ["child", "session", "daemon"]:
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if kind != "child":
                os.setsid()
            if kind == "daemon" and os.fork() != 0:
                os._exit(0)
            note({"orphan": os.getpid()})
            last()


def start_a_broker():
    """Runs a command that needs a broker, as another user who has none."""
    other = HOME / "other"
    other.mkdir()
    command = [os.environ["PEERBUS_PROGRAM"], "peers"]
    subprocess.run(command, env={"HOME": str(other)}, stdout=subprocess.DEVNULL, check=True)


def tell_all():
    """What the stream has besides messages."""
    for text in ["he", "ard"]:
        delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}
        say("stream_event", event=delta, parent_tool_use_id=None)
    say("system", subtype="status", status="compacting")
    say("system", subtype="compact_boundary", compact_metadata={"trigger": "auto", "pre_tokens": 9})
    say("system", subtype="task_notification", task_id="t", status="completed", summary="done\x1b")
    say("tool_progress", tool_use_id="t", tool_name="Bash", elapsed_time_seconds=3)
    say("system", subtype="hook_response", hook_name="h", exit_code=0)
    say("auth_status", isAuthenticating=False)
    say("system", subtype="api_retry", attempt=1)
    say("system", subtype="files_persisted", files=[], failed=[])


def next_user():
    if LATER:
        return LATER.pop(0)
    while (told := next_line())["type"] != "user":
        pass
    return told


def adapter(client, environment):
    """What an adapter says that is started here: its first line, or why it ends."""
    pipes = dict.fromkeys(["stdin", "stdout", "stderr"], subprocess.PIPE)
    command = [os.environ["ADAPTER"], "adapter", "--adapter", "cc"]
    with subprocess.Popen(command, env=environment, text=True, **pipes) as child:
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
        child.stdin.write(json.dumps(hello) + "\n")
        child.stdin.flush()
        said = child.stdout.readline()
        child.stdin.close()
        return said or child.stderr.read()


def turn(told):
    words = told["message"]["content"]
    words = words if isinstance(words, str) else words[0]["text"]
    say("system", subtype="init", model="m", tools=["Bash"])
    if "die at once" in words and once("died"):
        sys.exit(7)
    replay(told, words)
    if "die after the answer" in words and once("died"):
        answer()
        os.kill(os.getpid(), 9)
    if "fail after the answer" in words and once("failed"):
        answer()
        return result("error_max_turns", errors=["too many turns"])
    if "no service" in words and once("failed"):
        answer("API Error: 500", error="unknown")
        return result(is_error=True, result="API Error: 500")
    if "use a tool" in words:
        tool = {"tool_name": "Bash", "input": {"command": "ls", "n": 1.50}, "tool_use_id": "t"}
        rule = {"type": "addRules", "behavior": "allow", "destination": "session"}
        rule["rules"] = [{"toolName": "Bash", "ruleContent": "ls:*"}]
        mode = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
        note({"verdict": ask("can_use_tool", permission_suggestions=[mode, rule], **tool)})
    if "ask and take back" in words:
        about = {"description": "Lists", "blocked_path": "/etc", "decision_reason": "a hook", "agent_id": "helper"}
        asked = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t", **about}
        STREAM.write({"type": "control_request", "request_id": "taken-back", "request": asked})
        LATER.append(next_user())
        STREAM.write({"type": "control_cancel_request", "request_id": "taken-back"})
    if "ask your user" in words:
        question = {"question": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}
        asked = {"tool_name": "AskUserQuestion", "input": {"questions": [question]}}
        note({"verdict": ask("can_use_tool", **asked)})
    if "use a bus tool" in words:
        name = "mcp__peerbus__bus_peers"
        note({"verdict": ask("can_use_tool", tool_name=name, input={"x": 12})})
        call = {"name": "bus.peers", "arguments": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        note({"called": ask("mcp_message", server_name="peerbus", message=message)})
    if "leave orphans" in words:
        leave_orphans()
    if "stay" in words:
        STAYS.append(told)
    if "start a broker" in words:
        start_a_broker()
    if "ask for the unknown" in words:
        note({"verdict": ask("oauth_token_refresh")})
    if "call a hook" in words:
        call = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_response": ["x" * 70_000]}
        note({"verdict": ask("hook_callback", callback_id="mine", tool_use_id="t", input=call)})
    if "leave a hook open" in words:
        request = {"subtype": "hook_callback", "callback_id": "mine", "input": {}}
        STREAM.write({"type": "control_request", "request_id": "gone", "request": request})
    if "take it back" in words:
        STREAM.write({"type": "control_cancel_request", "request_id": "gone"})
    if "start adapters" in words:
        few = {name: os.environ[name] for name in ("HOME", "PATH")}
        note({"adapters": [adapter("claude-code", os.environ), adapter("claude-code", few), adapter("codex", few)]})
    if "tell all" in words:
        tell_all()
    if "speak oddly" in words:
        print("this is no JSON", flush=True)
        say("a_new_type", anything={"at": ["all"]})
        say("keep_alive")
        answer("first\nsecond \x1b[2J\u202e<end>")
        return result()
    answer()
    result()
    if "and hold" in words:
        merged()


def main():
    global STREAM
    if sys.argv[1:] == ["--version"]:
        version = HOME / "version"
        print(version.read_text() if version.exists() else "2.1.114", "(a stand-in)")
        return
    note({"argv": sys.argv[1:], "environment": dict(os.environ), "process": os.getpid()})
    if "--bad-start" in sys.argv:
        result("error_during_execution", errors=["No conversation found"])
        sys.exit(1)
    if url := option("--sdk-url"):
        STREAM = Socket(url, int(option("--cuts") or 0))
        if "--without-the-token" in sys.argv:
            note({"refused": STREAM.connect("wrong")})
            STREAM.connect()
    while True:
        told = LATER.pop(0) if LATER else next_line()
        if told["type"] == "control_request":
            BEGUN.append(told)
            hello = {"subtype": "success", "request_id": told["request_id"], "response": {}}
            say("control_response", response=hello)
        elif told["type"] == "user":
            turn(told)


main()
