"""What is tested: three sessions of Claude Code work on one project. What is sent to all of them wakes
all, and a job for one of them goes to the one that is free, and on when that one dies.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from pathlib import Path

import claude
import mock_api
import scenario
from support import PATIENCE_S, check, eventually

BROKER = "127.0.0.1:4747"
GROUP = "#shop"
NAMES = ("alice", "bob", "cyd")
TO_ALL = "the build is broken, stop for a moment"
WORK = "work on it for a while"
JOB = "somebody please review the parser"
LAST_WORDS = "so that is that"
CREDENTIALS = f'token = "{secrets.token_hex(32)}"\nhmac_secret = "{secrets.token_hex(32)}"\n'


def may_join(home):
    """Whoever has this home has the same user."""
    place = home / ".config/peerbus"
    place.mkdir(parents=True, mode=0o700, exist_ok=True)
    (place / "credentials.toml").write_text(CREDENTIALS, encoding="utf-8")
    (place / "credentials.toml").chmod(0o600)


class Member:
    """A session on the project, what its model is shown, and what holds that up."""

    def __init__(self, name):
        self.name = name
        self.home = Path(f"/tmp/{name}")
        self.project = self.home / "shop"
        self.project.mkdir(parents=True)
        self.environment = os.environ | {"HOME": str(self.home)}
        may_join(self.home)
        around = {"PEERBUS_NAME": name, "PEERBUS_URL": f"ws://{BROKER}"}
        adapter = scenario.MCP_JSON["mcpServers"][scenario.SERVER] | {"env": around}
        config = json.dumps({"mcpServers": {scenario.SERVER: adapter}})
        (self.project / ".mcp.json").write_text(config, encoding="utf-8")
        claude.seed(self.home, self.project, scenario.SERVER)
        self.api = mock_api.MockApi(self.says, scenario.LOG / f"api-{name}.jsonl")
        # The model answers neither its work nor the job before that.
        self.works, self.answers = threading.Event(), threading.Event()
        self.session = claude.Claude(self.project, self.api.url, scenario.LOG, home=self.home)

    def says(self, request):
        if WORK in request.prompt:
            self.works.wait(PATIENCE_S)
        if JOB in request.prompt:
            self.answers.wait(PATIENCE_S)
        return mock_api.text(LAST_WORDS)

    def is_on_the_bus(self):
        self.session.said(f'MCP server "{scenario.SERVER}": Successfully connected')
        # A session that nobody has written to yet may ask its user something.
        self.session.type("good morning")
        self.rests()

    def rests(self):
        eventually(f"{self.name} rests", lambda: self.session.activity() == "idle")

    def is_shown(self, words):
        """The line of the message with these words, as the model is shown it."""
        asked = self.api.wait_for(f"what wakes {self.name}", lambda request: words in request.context)
        return next(line for line in asked.context.splitlines() if words in line)

    def dies(self):
        """The CLI is killed, as by a power cut of its own."""
        pane = int(self.session._tmux("display-message", "-p", "#{pane_pid}"))
        children = subprocess.run(["pgrep", "-P", str(pane)], capture_output=True, text=True, check=True)
        for pid in children.stdout.split():
            os.kill(int(pid), signal.SIGKILL)


def peerbus(member, *arguments):
    """Runs a command as in a shell of a member's user, and gives what it prints."""
    around = member.environment | {"PEERBUS_URL": f"ws://{BROKER}"}
    done = subprocess.run(["peerbus", *arguments], env=around, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise AssertionError(f"peerbus {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
    return done.stdout


def peers(member):
    return json.loads(peerbus(member, "peers", "--json"))["peers"]


def send(member, *arguments):
    """Sends as `lead`, and gives the id."""
    return json.loads(peerbus(member, "send", "--json", "--name", "lead", *arguments))["id"]


def status(member, identity):
    return peerbus(member, "status", identity)


def tells(member, identity, word):
    """What is told of a message, once that has this word in it."""

    def asked():
        told = status(member, identity)
        return told if word in told else None

    return eventually(f"status says {word}", asked)


def one_message_wakes_all(members):
    first = members[0]
    eventually("all are members", lambda: sum(GROUP in one.get("groups", []) for one in peers(first)) >= len(members))
    identity = send(first, GROUP, TO_ALL)
    for member in members:
        line = member.is_shown(TO_ALL)
        check(f"{member.name} is woken by what is sent to all", f"(to the group {GROUP})" in line, line)
    for member in members:
        told = tells(first, identity, f"seen       {member.name} ")
        check(f"and {member.name}'s model has seen it", True, told)


def does(member, what):
    """The list of peers says that a session does this."""

    def asked():
        return any(one["name"] == member.name and one.get("activity") == what for one in peers(member))

    eventually(f"{member.name} is {what}", asked)


def a_job_goes_to_who_is_free_and_on_when_that_one_dies(alice, bob, cyd):
    for busy in (alice, bob):
        busy.rests()
        busy.session.type(WORK)
        busy.api.wait_for("the work", lambda request: WORK in request.prompt)
        does(busy, "busy")
    cyd.rests()
    does(cyd, "idle")
    identity = send(alice, "--one", GROUP, JOB)
    line = cyd.is_shown(JOB)
    alone = f"(to you alone of the group {GROUP})"
    check("the job goes to the idle one", alone in line and "shown before" not in line, line)
    for busy in (alice, bob):
        check(f"and {busy.name} has not got it", not any(JOB in asked.context for asked in busy.api.asked))

    # Alice is free again; the one that has the job dies before it has answered.
    alice.works.set()
    alice.rests()
    does(alice, "idle")
    alice.answers.set()
    cyd.dies()
    line = alice.is_shown(JOB)
    check("the next one is told that it may have been shown", "(shown before, to you or to another" in line, line)
    told = tells(alice, identity, "seen       alice ")
    check("its sender is told who had it", "cyd had it (its session ended)" in told, told)
    check("and bob never got it", not any(JOB in asked.context for asked in bob.api.asked))


def main():
    first = Path("/tmp/alice")
    broker = ["peerbus", "serve", "--listen", BROKER]
    members = []
    try:
        may_join(first)
        with open(scenario.LOG / "serve.txt", "w", encoding="utf-8") as log:
            around = os.environ | {"HOME": str(first)}
            subprocess.Popen(broker, env=around, stdin=subprocess.DEVNULL, stderr=log)
        members.extend(Member(name) for name in NAMES)
        for member in members:
            member.is_on_the_bus()
        one_message_wakes_all(members)
        a_job_goes_to_who_is_free_and_on_when_that_one_dies(*members)
        for member in members[:2]:
            member.works.set()
            member.rests()
            member.session.quit()
    except AssertionError as failed:
        for member in members:
            print(f"--- {member.name}'s screen\n{member.session.screen()}")
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
