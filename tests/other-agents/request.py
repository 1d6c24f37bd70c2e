"""What is tested: a shell asks a session of the agent in a terminal for something, see asking.py. With
`--remind`, what becomes of a request that the session reads and does not answer, too.

Run by scenario.py, after the install.
"""

import contextlib
import json
import os
import signal

import asking
from agents import AGENTS
from kill import adapters
from model import Model, _tools, plain
from screen import Screen
from support import check, eventually
from wake import NAME


class Playing(Model):
    """Does what the scripts of a player say."""

    def __init__(self, log):
        super().__init__("", [], "", log)
        self.player = asking.Player()
        self.asked = []

    def answer(self, path, body):
        tools = dict(_tools(body))
        reply = {"text": "ok"}
        if tools:
            words = "\n".join(said(body))
            self.asked.append(words)
            call = self.player.next(words)
            if call:
                tool = next(t for name, t in tools.items() if f"bus_{call[0]}" in plain(name))
                reply = {"call": tool, "arguments": call[1]}
        with self.lock, open(self.log, "a", encoding="utf-8") as log:
            log.write(json.dumps({"path": path, "body": body, "reply": reply}) + "\n")
        return reply


def said(body):
    """The user's words, in the forms of OpenAI."""
    items = [*(body.get("messages") or []), *(body.get("input") or [])]
    for item in items:
        if item.get("role") == "user":
            content = item["content"]
            parts = content if isinstance(content, list) else [{"text": content}]
            yield from (part.get("text") or "" for part in parts)


class Holder:
    """The session, for asking.py."""

    name, check = NAME, staticmethod(check)

    def __init__(self, agent, model, project, environment):
        self.agent, self.model = agent, model
        self.where = (environment, project)
        self.plays = model.player.plays
        self.starts()

    def asked(self, script):
        return script.asked

    def texts(self):
        return dict.fromkeys(self.model.asked)

    def starts(self):
        self.screen = Screen(self.agent.screen(True), *self.where)
        self.screen.shows(self.agent.ready)

    def ready(self):
        eventually("the session can be woken", lambda: asking.peer(self.name).get("wake"))
        # Of Qwen Code it is not known.
        eventually("it does nothing", lambda: asking.peer(self.name).get("activity") in ("idle", None))

    def dies(self):
        pane = self.screen._tmux("display-message", "-p", "#{pane_pid}").strip()
        for pid in (int(pane), *asking.below(int(pane)), *adapters()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually("no adapter is left", lambda: not list(adapters()))


def scenario(word, model, project, environment, remind):
    """The whole of it."""
    agent = AGENTS[word]
    agent.allow()
    holder = Holder(agent, model, project, environment)
    try:
        for part in asking.parts(remind):
            part(holder)
    except AssertionError:
        print(f"--- the screen\n{holder.screen.text()}")
        raise
    holder.screen.end()
