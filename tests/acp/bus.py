"""The bus as a user has it: `peerbus` from a shell, and `peerbus run` as a process."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

from agents import HOME, PLACE
from support import PATIENCE_S, eventually

RUNTIME = HOME / "runtime"
LOG = Path("/tmp/log")
# Who writes to the sessions.
TESTER = "tester"


def start_broker():
    """Starts `peerbus serve` as a service manager would, and waits until it listens."""
    RUNTIME.mkdir(mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(RUNTIME)
    with open(LOG / "serve.txt", "w", encoding="utf-8") as log:
        command = ["peerbus", "serve", "--listen", "127.0.0.1:0"]
        broker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
    eventually("the broker listens", (RUNTIME / "peerbus/peerbus.sock").exists)
    return broker


def peerbus(*arguments):
    """Runs a command to its end."""
    done = subprocess.run(
        ["peerbus", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=5 * PATIENCE_S,
    )
    with open(LOG / "peerbus.txt", "a", encoding="utf-8") as log:
        log.write(f"$ peerbus {' '.join(arguments)}\n{done.stdout}{done.stderr}\n")
    return done


def told(*arguments):
    """What a command says in JSON; nothing where it fails."""
    done = peerbus(*arguments, "--json")
    return json.loads(done.stdout) if done.returncode == 0 else {}


def send(to, text):
    """Sends, and gives the id."""
    done = peerbus("send", to, text, "--name", TESTER, "--json")
    assert done.returncode == 0, f"cannot send: {done.stderr}"
    return json.loads(done.stdout)["id"]


def received(limit_s=PATIENCE_S):
    """The next message for the tester."""
    arguments = ["--name", TESTER, "--count", "1", "--timeout", str(limit_s), "--json"]
    done = peerbus("recv", *arguments)
    assert done.returncode == 0, f"nothing came: {done.stderr}"
    return json.loads(done.stdout)


def steps(identity):
    """What became of a message."""
    messages = told("status", identity).get("messages")
    return messages[0]["trail"]["steps"] if messages else []


def step(identity, state):
    return next((step for step in steps(identity) if step["state"] == state), None)


def peer(name):
    """What peers are told of a session."""
    peers = told("peers").get("peers", [])
    return next((peer for peer in peers if peer["name"] == name), {})


def is_idle(name):
    return peer(name).get("activity") == "idle"


def asked(name):
    """What the session asks its user."""
    requests = told("session", "approve").get("approvals", [])
    return [request for request in requests if request["session"] == name]


def processes():
    """The processes of this namespace that are not over: number to (parent, command line)."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        # It may have ended since.
        with contextlib.suppress(OSError, IndexError):
            state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if state not in "ZX":
                found[int(entry.name)] = (int(parent), line.strip())
    return found


class Driver:
    """A `peerbus run`, and what is below it."""

    count = 0

    def __init__(self, name, word, environment, project, *arguments):
        Driver.count += 1
        self.name, self.word, self.began = name, word, time.time()
        self.out, self.err = (LOG / f"{name}-{Driver.count}.{end}" for end in ("out", "err"))
        command = ["peerbus", "run", "--agent", word, "--name", name, *arguments]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                command,
                cwd=project,
                env=os.environ | environment | {"PEERBUS_LOG": "debug", "PWD": str(project)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def said(self, words):
        eventually(f"it prints {words!r}", lambda: words in self.out.read_text(errors="replace"))

    def complained(self):
        return self.err.read_text(errors="replace")

    def lives(self):
        code = self.process.poll()
        assert code is None, f"the driver has ended, {code}: {self.complained()[-600:]}"

    def below(self):
        """What runs below it."""
        every, found, heads = processes(), {}, {self.process.pid}
        while heads:
            heads = {pid for pid, (parent, _) in every.items() if parent in heads}
            found |= {pid: every[pid][1] for pid in heads}
        return found

    def agent(self):
        """The process of the agent that was started: the highest one of its package. Some change
        what their command line says."""
        place = f"{PLACE / self.word}/"

        def look():
            below = self.below()
            others = [pid for pid, line in below.items() if "peerbus" not in line]
            return next((pid for pid, line in below.items() if place in line), others and others[0])

        return eventually("the agent runs", look)

    def kill(self):
        """Kills it, and what is below it now."""
        for pid in (self.process.pid, *self.below()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
