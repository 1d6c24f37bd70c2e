"""What is tested: a session of the agent in a terminal, which nobody types into, is woken by a peer's
message; and what its sender is told of it.

Run by scenario.py. The peer is a generic adapter. The model is a stand-in that answers a message by
the bus reply tool where the message asks for that, and says "ok" otherwise.
"""

import contextlib
import json
import os
import re
import signal
import statistics
import threading
import time
from pathlib import Path

from agents import AGENTS
from mcp_client import Server
from model import Model, _tools, plain
from screen import Screen
from support import PATIENCE_S, check, eventually

NAME = "other-agent"
WORKER = "worker"
ANSWER_ME = "please answer"
WORK = "work until I say stop"
HALF = "half a thought"
BURST = 20
ROUNDS = 10
# A message as it is shown, in a text that may stand in JSON.
SHOWN = re.compile(r"📨 worker: \\*\"(.*?)\\*\"(?: \(shown before\))? \[([0-9a-f-]+)\](?:\\n|\n|$)")


class WakingModel(Model):
    """Answers messages that ask for it, when the scenario lets it speak."""

    def __init__(self, log):
        super().__init__("", [], "", log)
        self.speaks = threading.Event()
        self.speaks.set()
        self.down = False
        self.replied = set()
        # When it was asked, and all that it was shown, in order.
        self.asked = []
        self.refused = []

    def answer(self, path, body):
        text = json.dumps(body, ensure_ascii=False)
        if self.down:
            self.refused.append(text)
            raise ConnectionError("the model's service is down")
        tools = dict(_tools(body))
        if tools:
            self.asked.append((time.monotonic(), text))
        if tools and WORK in text:
            self.speaks.wait(PATIENCE_S)
        reply = self._reply(tools, text)
        with self.lock, open(self.log, "a", encoding="utf-8") as log:
            log.write(json.dumps({"path": path, "body": body, "reply": reply}) + "\n")
        return reply

    def _reply(self, tools, text):
        with self.lock:
            for words, identity in SHOWN.findall(text):
                call = next((c for n, c in tools.items() if "bus_reply" in plain(n)), None)
                if ANSWER_ME in words and identity not in self.replied and call:
                    self.replied.add(identity)
                    arguments = {"msg_id": identity, "body": f"answer to {identity}"}
                    return {"call": call, "arguments": arguments}
        return {"text": "ok"}

    @contextlib.contextmanager
    def silent(self):
        """Whoever works gets no answer in here."""
        self.speaks.clear()
        try:
            yield
        finally:
            self.speaks.set()

    def shown(self, identity, since=0):
        """Waits until the model is shown a message, and gives when, and all that it was shown."""

        def look():
            return next((asked for asked in self.asked[since:] if identity[-8:] in asked[1]), None)

        return eventually(f"the model is shown {identity}", look)


def start_worker(log):
    """Starts the generic adapter of the peer, and waits until it is on the bus."""
    command = ["peerbus", "adapter", "--adapter=generic", "--name", WORKER]
    worker = Server(command, dict(os.environ), log / "worker-stderr.txt")
    worker.initialize({"name": "some-bot", "version": "1"}, {})
    worker.notify("notifications/initialized")

    def registered():
        answer = worker.request("tools/call", {"name": "bus.peers", "arguments": {}})
        return answer["result"].get("structuredContent")

    eventually("the worker is on the bus", registered)
    return worker


def peer(worker):
    """What the session says of itself to its peers."""
    details = worker.call("bus.peers", {}).get("details", [])
    return next((one for one in details if one["name"] == NAME), {})


def send(worker, body):
    return worker.call("bus.send", {"to": NAME, "body": body})["id"]


def steps(worker, identity):
    [message] = worker.call("bus.status", {"id": identity})["messages"]
    return message["steps"]


def step(worker, identity, state):
    def look():
        return next((s for s in steps(worker, identity) if s["state"] == state), None)

    return eventually(f"{identity} is {state}", look)


def is_seen(worker, identity, path, evidence=("transcript",)):
    seen = step(worker, identity, "seen")
    how = seen.get("path") == path and seen.get("evidence") in evidence
    check(f"the sender is told: seen, by {path}, with evidence", how, seen)


def an_idle_session_wakes_and_answers(model, worker, path):
    identity = send(worker, f"{ANSWER_ME}: are you idle?")
    _, shown = model.shown(identity)
    check("the model is told that a peer wrote it", "untrusted" in shown)

    def answered():
        got = worker.call("bus.drain", {})["messages"]
        return next((one for one in got if identity[-8:] in json.dumps(one["body"])), None)

    answer = eventually("the session's answer", answered)
    check("it answers with the bus reply tool", answer["from"] == NAME, answer)
    # Named before any other call: that would ack it as pushed.
    worker.call("bus.ack", {"ids": [answer["id"]]})
    is_seen(worker, identity, path, ("transcript", "tool_call"))
    return answer["id"]


def rounds(model, worker, path):
    """How long it takes from the send to the model's request, in milliseconds."""
    took = []
    for number in range(ROUNDS):
        since = time.monotonic()
        identity = send(worker, f"round {number}, no answer needed")
        at, _ = model.shown(identity)
        took.append((at - since) * 1_000)
        is_seen(worker, identity, path)
        # What comes within two seconds of a push waits for more to come.
        quiet = time.monotonic() + 2.5
        eventually("a pause", lambda until=quiet: time.monotonic() > until)
    median = statistics.median(took)
    print(f"   from send to the model's request: median {median:.0f} ms of {ROUNDS},"
          f" {min(took):.0f} to {max(took):.0f}")


def a_busy_session_hears(screen, model, worker, path):
    since = len(model.asked)
    with model.silent():
        screen.type(WORK)
        eventually("it works", lambda: any(WORK in text for _, text in model.asked[since:]))
        identity = send(worker, "are you busy? No answer needed")
        pushed = step(worker, identity, "pushed")
        check("a busy session is pushed to", pushed["path"] == path, pushed)
        states = [s["state"] for s in steps(worker, identity)]
        check("what the model was not asked with is not seen", "seen" not in states, states)
    model.shown(identity, since)
    is_seen(worker, identity, path)


def a_burst_is_few_turns(model, worker, path):
    identities = [send(worker, f"burst number {n};") for n in range(BURST)]
    for identity in identities:
        is_seen(worker, identity, path)
    last = model.shown(identities[-1])[1]
    once = [len(re.findall(f"burst number {n};", last)) for n in range(BURST)]
    check(f"{BURST} in a burst arrive each once", once == [1] * BURST, once)
    turns = sum("burst number" in text for text in _texts(last))
    check(f"in at most two turns ({turns})", 1 <= turns <= 2, last)


def _texts(request):
    """The texts of the user's words in a request."""
    body = json.loads(request)
    for message in body.get("messages") or []:
        if message.get("role") == "user":
            content = message["content"]
            parts = content if isinstance(content, list) else [{"text": content}]
            yield from (part.get("text") or "" for part in parts)
    for item in body.get("input") or []:
        if item.get("role") == "user":
            yield from (part.get("text") or "" for part in item.get("content") or [])


def half_typed_text_stays(screen, worker, path):
    screen.half_type(HALF)
    identity = send(worker, "do not mind me; no answer needed")
    is_seen(worker, identity, path)
    check("half-typed text stays", HALF in screen.text(), screen.text())
    for _ in HALF:
        screen.key("BSpace")


def with_the_model_down(agent, screen, model, worker, path):
    model.down = True
    identity = send(worker, "is anybody there? No answer needed")
    eventually("the agent asks in vain", lambda: any(identity[-8:] in t for t in model.refused))
    if agent.gives_up:
        screen.shows(agent.gives_up)
    states = [s["state"] for s in steps(worker, identity)]
    check("with the model's service down a message is not seen", "seen" not in states, states)
    since = len(model.asked)
    model.down = False
    screen.type("hello again")
    model.shown("hello again", since)
    shown = any(identity[-8:] in text for _, text in model.asked[since:])
    check("the next prompt takes the message along", shown)
    if agent.proof_is_of_the_turn:
        states = [s["state"] for s in steps(worker, identity)]
        check("an answer of another turn is no proof", "seen" not in states, states)
    else:
        is_seen(worker, identity, path)


def an_open_dialog_is_left_alone(agent, screen, model, worker, path):
    """The model calls a tool that its user has to allow."""
    first = send(worker, f"{ANSWER_ME}: may you?")
    screen.shows(agent.asks)
    second = send(worker, "take your time; no answer needed")
    step(worker, second, "pushed")
    check("the dialog is still open", agent.asks in screen.text(), screen.text())
    got = worker.call("bus.drain", {})["messages"]
    check("nothing was allowed", not got, got)
    screen.key("Enter")
    is_seen(worker, first, path, ("transcript", "tool_call"))
    is_seen(worker, second, path)


def kill(word):
    """Ends every process of this namespace whose command line has this word."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word in entry.read_bytes() and int(entry.parent.name) != os.getpid():
                os.kill(int(entry.parent.name), signal.SIGKILL)


@contextlib.contextmanager
def running(agent, model, project, environment, allowed, arguments=()):
    """A session in a terminal."""
    screen = Screen([*agent.screen(allowed), *arguments], environment, project)
    try:
        screen.shows(agent.ready)
        yield screen
    except AssertionError:
        print(f"--- the screen\n{screen.text()}")
        raise
    screen.end()
    for word in agent.processes:
        kill(word)


def scenario(word, model, project, environment, log, peerbus):
    """The whole of it, after the install."""
    agent = AGENTS[word]
    path = agent.path
    worker = start_worker(log)
    agent.allow()
    with running(agent, model, project, environment, True) as screen:
        wakes = eventually("the session can be woken", lambda: peer(worker).get("wake"))
        check("peers see how it wakes", wakes == [path], wakes)
        listed = json.loads(peerbus("peers", "--json"))["peers"]
        told = [one.get("wake") for one in listed if one["name"] == NAME]
        check("`peers --json` has it", told == [[path]], listed)
        answer = an_idle_session_wakes_and_answers(model, worker, path)
        status = json.loads(peerbus("status", answer, "--json"))
        check("its answer is seen at the other end", "seen" in json.dumps(status), status)
        rounds(model, worker, path)
        a_busy_session_hears(screen, model, worker, path)
        a_burst_is_few_turns(model, worker, path)
        half_typed_text_stays(screen, worker, path)
        with_the_model_down(agent, screen, model, worker, path)
    eventually("the session is gone", lambda: not peer(worker).get("online"))
    waiting = send(worker, "for when you are back; no answer needed")
    agent.ask()
    with running(agent, model, project, environment, False, agent.resumes) as screen:
        model.shown(waiting)
        is_seen(worker, waiting, path)
        an_open_dialog_is_left_alone(agent, screen, model, worker, path)
    if agent.inbound:
        the_user_decides(agent, model, project, environment, worker)


def the_user_decides(agent, model, project, environment, worker):
    """What the user wants of messages from other programs counts."""
    for wish, state in (("hold", "held"), ("refuse", "dead")):
        eventually("the session is gone", lambda: not peer(worker).get("online"))
        agent.inbound(wish)
        with running(agent, model, project, environment, True):
            eventually("the session can be woken", lambda: peer(worker).get("wake"))
            identity = send(worker, f"{wish} me; no answer needed")
            told = step(worker, identity, state)
            check(f"the sender is told: {state}", "user" in json.dumps(told), told)
            unseen = not any(identity[-8:] in text for _, text in model.asked)
            check("the model is not shown it", unseen)
