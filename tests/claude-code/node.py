"""A session's node: what happens in a session of the real CLI is told, and a text that is put in
reaches its model."""

import contextlib
import json
import os
import subprocess
from pathlib import Path

from support import PATIENCE_S, check, eventually

NAME = "session"
GATES = Path.home() / ".config" / "peerbus" / "sessions.toml"


class Watch:
    """`peerbus session watch`, and what it printed."""

    def __init__(self, log):
        self.log = log

    def events(self):
        lines = self.log.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def wait_for(self, what, wanted):
        """The first event that is wanted."""
        return eventually(what, lambda: next((e for e in self.events() if wanted(e)), None))

    def shows_a_turn(self, prompt, tool, words):
        """The prompt, a call of the tool, its result and the last words, in that order."""
        asked = self.wait_for(
            "watch shows the prompt",
            lambda e: e["type"] == "message" and e["role"] == "user" and prompt in e["content"],
        )
        call = self.wait_for(
            "watch shows the call", lambda e: e["type"] == "tool_call" and e["tool"] == tool
        )
        result = self.wait_for(
            "watch shows the result",
            lambda e: e["type"] == "tool_result" and e["tool_use_id"] == call["tool_use_id"],
        )
        said = self.wait_for(
            "watch shows what the model says",
            lambda e: e["type"] == "message" and e["role"] == "assistant" and words in e["content"],
        )
        order = [event["seq"] for event in (asked, call, result, said)]
        check("watch shows a turn's prompt, call, result and words in order", order == sorted(order), order)
        # The transcript is a little behind the status.
        working = self.wait_for("watch shows that the session works", does("thinking"))
        self.wait_for(
            "watch shows the turn's end", lambda e: does("idle")(e) and e["seq"] > working["seq"]
        )
        check("watch shows that the session works, and is idle then", True)
        ids = {event["session_id"] for event in self.events()}
        check("all of it is of one session", len(ids) == 1, ids)


@contextlib.contextmanager
def watched(log):
    """The session, watched."""
    path = log / "watch.jsonl"
    eventually("the session is in the list", ours)
    command = ["peerbus", "session", "watch", NAME, "--json"]
    with open(path, "w", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out, stdin=subprocess.DEVNULL)
    try:
        eventually("the node has somebody to tell", lambda: connected(process.pid))
        yield Watch(path)
    finally:
        process.terminate()
        process.wait()


def connected(pid):
    """Whether the process has a socket, and waits for it."""
    with contextlib.suppress(OSError):
        links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        stack = Path(f"/proc/{pid}/wchan").read_text(encoding="utf-8")
        return any(link.startswith("socket:") for link in links) and "unix_stream" in stack
    return False


def does(status):
    return lambda event: event["type"] == "status" and event["status"] == status


def ours():
    """The session as the list has it; the worker has one, too."""
    sessions = json.loads(peerbus("list", "--json").stdout)["sessions"]
    return next((session for session in sessions if session["name"] == NAME), None)


def idle():
    session = ours()
    return session if session and session["status"] == "idle" else None


def peerbus(*arguments):
    command = ["peerbus", "session", *arguments]
    ends = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": PATIENCE_S}
    return subprocess.run(command, text=True, check=False, **ends)


def a_text_is_put_in(api, words):
    """An idle session wakes for it. `words`: what the model answers."""
    since = len(api.asked)
    session = eventually("the session is idle", idle)
    whose = session["client"] == "claude-code" and session["cwd"] == "/tmp/home/project"
    check("the list says whose session it is", whose, session)
    done = peerbus("inject", NAME, "are you there?", "--wait", "seen")
    check("what is put in is seen", done.returncode == 0 and done.stdout.endswith(": seen\n"), done)
    [identity] = [done.stdout.removesuffix(": seen\n")]
    asked = api.wait_for("what was put in", lambda r: identity in r.context, since)
    [line] = [line for line in asked.context.splitlines() if f"[{identity}]" in line]
    check("the model is shown who put it in", "📥 put in by a program of your user's" in line, line)
    check("and the text in quotes", ': "are you there?" [' in line, line)
    eventually("the session is idle again", idle)
    since = len(api.asked)
    done = peerbus("inject", NAME, "def f(x):\n\treturn x < 1", "--wait", "seen")
    asked = api.wait_for("its lines", lambda r: "behind a bar" in r.context, since)
    check("its lines stand as they are", "\n| def f(x):\n| \treturn x < 1\n" in asked.context, asked.context)
    eventually("the session is idle again", idle)
    done = peerbus("inject", session["id"], "and now?", "--wait", "answer")
    check("its answer is printed", done.returncode == 0 and words in done.stdout, done)


def a_closed_gate_refuses(api):
    GATES.write_text("inject = false\n", encoding="utf-8")
    done = peerbus("inject", NAME, "let me in")
    refused = done.returncode == 1 and "`inject`" in done.stderr and str(GATES) in done.stderr
    check("a closed gate refuses, and names itself and its file", refused, done)
    GATES.unlink()
    unseen = not any("let me in" in asked.context for asked in api.asked)
    check("the model is not shown what was refused", unseen)


def it_is_not_listed():
    eventually("the session is in the list no more", lambda: not ours())
