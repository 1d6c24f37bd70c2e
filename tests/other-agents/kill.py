"""What is tested: the adapter, the agent or the broker is killed at a random moment of a wake, again and
again. Every message is seen in the end, and none is shown as new twice.

Run by scenario.py, after the install.
"""

import contextlib
import os
import random
import re
import signal
import time
from pathlib import Path

from agents import AGENTS
from screen import Screen
from support import check, eventually
from wake import NAME, kill, peer, send, start_worker, steps

KILLS = 20
# A push follows its message within so many seconds, its answer a little later.
MOMENT_S = 0.5
# What comes so soon after a push waits for more to come.
QUIET_S = 2.1
# Starts of programs take their time, and a run must end.
BUDGET_S = 480


def adapters(worker=None):
    """The processes of adapters, the peer's own excepted."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if b"--adapter=" in entry.read_bytes() and int(entry.parent.name) != (worker and worker.process.pid):
                yield int(entry.parent.name)


class Session:
    """The agent in a terminal, started anew as often as it is killed."""

    def __init__(self, agent, worker, project, environment):
        self.agent, self.worker = agent, worker
        self.where = (environment, project)
        self.start()

    def start(self):
        self.screen = Screen(self.agent.screen(True), *self.where)
        self.screen.shows(self.agent.ready)
        eventually("the session can be woken", lambda: peer(self.worker).get("wake"))

    def again(self):
        """Ends what is left of it, and starts it."""
        with contextlib.suppress(Exception):
            self.screen.end()
        for word in self.agent.processes:
            kill(word)
        self.kill_adapter()
        eventually("the session is gone", lambda: not peer(self.worker).get("online"))
        self.start()

    def kill_adapter(self):
        for process in adapters(self.worker):
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)


def as_new(asked, identity):
    """How often one request shows a message that does not say that it is a repeat."""
    pattern = r'"round[^"\n]*" ' + re.escape(f"[{identity[-8:]}]")
    return max((len(re.findall(pattern, text)) for _, text in asked), default=0)


def scenario(word, model, project, environment, log, start_broker):
    """The whole of it. `start_broker` starts one and gives its process."""
    agent = AGENTS[word]
    seed = random.randrange(1 << 32)
    print(f"   the seed is {seed}")
    chance = random.Random(seed)
    broker = start_broker()
    worker = start_worker(log)
    agent.allow()
    session = Session(agent, worker, project, environment)
    until = time.monotonic() + BUDGET_S
    sent, starts = [], [0]
    while len(sent) < KILLS and time.monotonic() < until:
        identity = send(worker, f"round {len(sent)}; no answer needed")
        sent.append(identity)
        time.sleep(chance.random() * MOMENT_S)
        what = chance.choice(["adapter", "agent", "broker"])
        if what == "broker":
            broker.kill()
            broker.wait()
            broker = start_broker()
        else:
            if what == "adapter":
                session.kill_adapter()
            session.again()
            starts.append(len(model.asked))

        def seen(identity=identity):
            return any(step["state"] == "seen" for step in steps(worker, identity))

        eventually(f"round {len(sent)}, {what} killed: seen", seen)
        time.sleep(QUIET_S)
    spans = list(zip(starts, [*starts[1:], len(model.asked)]))
    for identity in sent:
        shown = any(identity[-8:] in text for _, text in model.asked)
        fresh = sum(as_new(model.asked[start:end], identity) for start, end in spans)
        if not shown or fresh > 1:
            check(f"{identity} is shown, and as new at most once", False, (shown, fresh))
    check(f"after {len(sent)} kills nothing is lost, and nothing shown as new twice", sent)
