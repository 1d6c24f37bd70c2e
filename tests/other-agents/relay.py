"""What is tested: Claude Code and other agents, each in a terminal and woken by its own way, write to
each other. Claude Code asks each of the others something and is answered by the bus reply tool; then
ten messages go round. Every message is seen with evidence, at both ends.

Run by scenario.py, after the installs. The models are stand-ins, the programs are not.
"""

import contextlib
import json
import re
import threading
from datetime import datetime

import mock_api
from model import Model, _tools, plain
from screen import Screen
from support import check, eventually

FIRST = "claude-code"
ROUNDS = 10
ASK = "ask everybody"
START = "start the relay"
# A message as it is shown, in a text that may stand in JSON.
SHOWN = re.compile(
    r"📨 ([a-z-]+): \\*\"(.*?)\\*\"(?: \([a-z -]+[0-9a-f-]*\))* \[([0-9a-f-]+)\](?:\\n|\n|$)"
)
EVIDENCE = ("transcript", "tool_call")


class Mind:
    """What an agent's model says, whatever the form in which it is asked."""

    def __init__(self, name, others, following):
        self.name, self.others, self.following = name, others, following
        self.lock = threading.Lock()
        self.did = set()
        # What it was shown: sender and id, and the words.
        self.heard = {}

    def answer(self, tools, text):
        """The name of a tool and its arguments, for all that the model is shown; nothing if it is
        content."""
        calls = {plain(name).rsplit("_", 1)[-1]: name for name in tools if "bus_" in plain(name)}
        with self.lock:
            for what, verb, arguments in self._wanted(text):
                if what not in self.did and verb in calls:
                    self.did.add(what)
                    return calls[verb], arguments
        return None

    def _wanted(self, text):
        """What it should have done by now."""
        if ASK in text:
            for other in self.others:
                yield f"ask {other}", "send", {"to": other, "body": f"who are you, {other}?"}
        if START in text:
            yield "relay 1", "send", {"to": self.following, "body": "relay 1"}
        for sender, words, identity in SHOWN.findall(text):
            self.heard[sender, identity] = words
            if words.startswith("who are you"):
                yield identity, "reply", {"msg_id": identity, "body": f"I am {self.name}"}
            number = int(words.removeprefix("relay ")) if words.startswith("relay ") else ROUNDS
            if number < ROUNDS:
                said = f"relay {number + 1}"
                yield said, "send", {"to": self.following, "body": said}


class Peer(Model):
    """The model of an agent that speaks OpenAI's forms."""

    def __init__(self, mind, log):
        super().__init__("", [], "", log)
        self.mind = mind

    def answer(self, path, body):
        tools = dict(_tools(body))
        text = json.dumps(body, ensure_ascii=False)
        called = self.mind.answer(tools, text)
        reply = {"call": tools[called[0]], "arguments": called[1]} if called else {"text": "ok"}
        with self.lock, open(self.log, "a", encoding="utf-8") as log:
            log.write(json.dumps({"path": path, "body": body, "reply": reply}) + "\n")
        return reply


def serve(mind, log):
    """Starts the model of an agent, and gives its address."""
    if mind.name != FIRST:
        return Peer(mind, log)

    def answer(request):
        called = mind.answer(request.tools, json.dumps(request.body, ensure_ascii=False))
        return mock_api.tool_use(*called) if called else mock_api.text("ok")

    return mock_api.MockApi(answer, log)


def scenario(agents, project, seed, log, peerbus):
    """The whole of it, in the order of the agents. `seed` makes one ask a model, and gives its
    environment."""
    words = list(agents)
    following = dict(zip(words, [*words[1:], words[0]]))
    minds = {word: Mind(word, words[1:], following[word]) for word in words}
    with contextlib.ExitStack() as stack:
        screens = {}
        for word, agent in agents.items():
            environment, _ = seed(agent, serve(minds[word], log / f"api-{word}.jsonl"))
            peerbus("install", word, "--user", "--name", word, *agent.unasked)
            agent.allow()
            screens[word] = Screen(agent.screen(True), environment, project)
            stack.callback(screens[word].end)
        try:
            for word, agent in agents.items():
                screens[word].shows(agent.ready)
            eventually("all can be woken", lambda: awake(peerbus) >= set(words))
            play(words, following, minds, screens, peerbus)
        except AssertionError:
            for word, screen in screens.items():
                print(f"--- the screen of {word}\n{screen.text()}")
            raise


def awake(peerbus):
    """Who can be woken."""
    listed = json.loads(peerbus("peers", "--json"))["peers"]
    return {one["name"] for one in listed if one.get("wake")}


def play(words, following, minds, screens, peerbus):
    """Claude Code asks and is answered; then the relay. Prints a row for each message."""
    print("| from → to | text | way | pushed after | seen after, proven by |\n|---|---|---|---|---|")
    screens[FIRST].type(ASK)
    for word in words[1:]:
        is_seen(FIRST, word, f"who are you, {word}?", minds, peerbus)
        is_seen(word, FIRST, f"I am {word}", minds, peerbus)
    screens[FIRST].type(START)
    sender = FIRST
    for number in range(1, ROUNDS + 1):
        is_seen(sender, following[sender], f"relay {number}", minds, peerbus)
        sender = following[sender]
    check(f"{ROUNDS} messages went round", True)


def is_seen(sender, recipient, words, minds, peerbus):
    """Waits until a message is seen, and prints what became of it."""

    def found():
        heard = minds[recipient].heard.copy()
        return next((of for of, said in heard.items() if of[0] == sender and said == words), None)

    _, identity = eventually(f"{recipient} is shown: {words}", found)

    def steps():
        [message] = json.loads(peerbus("status", identity, "--name", sender, "--json"))["messages"]
        found = {step["state"]: step for step in message["trail"]["steps"]}
        return found if "seen" in found else None

    found = eventually(f"{words} of {sender} is seen", steps)
    told = found["seen"]
    if told.get("evidence") not in EVIDENCE:
        check(f"{words} of {sender}: seen, with evidence", False, told)
    pushed, seen = (after(found["accepted"], found[state]) for state in ("pushed", "seen"))
    how = f"{told['path']} | {pushed} ms | {seen} ms, {told['evidence']}"
    print(f"| {sender} → {recipient} | {words} | {how} |")


def after(first, second):
    """The milliseconds between two steps, by the broker's clock."""
    first, second = (datetime.fromisoformat(step["at"]) for step in (first, second))
    return round((second - first).total_seconds() * 1_000)
