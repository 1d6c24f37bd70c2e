"""A request from a shell at a real agent: what the asker, `peerbus requests` and `peerbus status` say while
it is owed, and what the agent's model is shown. For the scenarios of all agents, each with a holder of its own:

    name            what it is on the bus
    check           as in support.py
    plays(job, *calls, held=False)
                    what its model does with a text that has `job:JOB`: calls of bus tools (verb and arguments),
                    then words. Held: it answers when the gate `goes` of what is given lets it
    asked(script)   how often the model was asked it
    texts()         all that its model was shown by its user, each text once
    ready()         waits until it can be woken and does nothing
    dies()          `kill -9` of the agent and its adapter, or its driver
    starts()        its next session
"""

import json
import re
import subprocess
import threading
import time
from pathlib import Path

from support import PATIENCE_S, eventually

LOG = Path("/tmp/log")
DONE, HALF = "all of them are green", "two suites to go"
# A reminder comes so long after the turn, and a little later.
REMIND_S, LATER_S = 60, 20
JOB = re.compile(r"\bjob:(\w+)")
MESSAGE = re.compile(r"\[([0-9a-f]{8}|[0-9a-f]{32})\]")
OWED = "You still owe"


class Gate:
    """Lets one request of the model pass for each `go`, or all, or cuts it off."""

    def __init__(self, is_held):
        self.passes = threading.Semaphore(0)
        self.is_open, self.is_cut = not is_held, False

    def go(self):
        self.passes.release()

    def set(self):
        self.is_open = True

    def wait(self, limit_s):
        return self.is_open or self.passes.acquire(timeout=limit_s)


class Player:
    """What models do that are asked in this process."""

    def __init__(self):
        self.scripts, self.lock = {}, threading.Lock()

    def plays(self, job, *calls, held=False):
        self.scripts[job] = Script(list(calls), Gate(held))
        return self.scripts[job]

    def next(self, words):
        """A bus tool's verb and its arguments, or nothing, for all that the user said."""
        jobs = JOB.findall(words)
        script = self.scripts.get(jobs[-1]) if jobs else None
        if script is None:
            return None
        with self.lock:
            call = script.calls.pop(0) if script.calls else None
            script.asked += 1
        deadline = time.monotonic() + 5 * PATIENCE_S
        while not script.goes.wait(0.1):
            if script.goes.is_cut or time.monotonic() > deadline:
                raise ConnectionError("who asked is gone")
        return call and (call[0], filled(call[1], words))


class Script:
    def __init__(self, calls, goes):
        self.calls, self.goes, self.asked = calls, goes, 0


def filled(given, words):
    """The arguments, with the id of the last message that is shown."""
    ids = MESSAGE.findall(words)
    return json.loads(json.dumps(given).replace("{msg}", ids[-1] if ids else "none"))


def reply(body, outcome=None, identity="{msg}"):
    given = {"msg_id": identity, "body": body}
    return "reply", given | ({"outcome": outcome} if outcome else {})


def peerbus(*arguments):
    """Runs a command to its end, as in a shell, and gives what it prints."""
    done = subprocess.run(
        ["peerbus", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
    )
    note(f"$ peerbus {' '.join(arguments)}\n{done.stdout}{done.stderr}")
    assert done.returncode == 0, f"peerbus {' '.join(arguments)} failed: {done.stderr}"
    return done.stdout


def note(words):
    with open(LOG / "requests.txt", "a", encoding="utf-8") as log:
        log.write(f"--- {time.time():.3f}\n{words}\n")


class Asking:
    """A `peerbus ask` that waits."""

    count = 0

    def __init__(self, holder, job, words):
        Asking.count += 1
        self.holder, self.words = holder, f"{words} job:{job}"
        self.out, self.err = (LOG / f"ask-{Asking.count}.{end}" for end in ("out", "err"))
        command = ["peerbus", "ask", holder.name, self.words, "--within", "10m"]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        self.at = time.monotonic()
        self.id = eventually("`requests` has it", self._id)

    def _id(self):
        return next((row["id"] for row in rows() if row["body"]["text"] == self.words), None)

    def told(self):
        return self.err.read_text(encoding="utf-8")

    def says(self, words):
        try:
            eventually(f"the asker says: {words}", lambda: words in self.told())
        except AssertionError as never:
            raise AssertionError(f"{never}, but {self.told()}") from None
        self.holder.check(f"the asker says: {words}", True)

    def state(self, *wanted):
        """What `requests` says, once it is one of these."""

        def look():
            [row] = [row for row in rows() if row["id"] == self.id]
            found.append(row["request"])
            return row["request"]["state"] in wanted and row["request"]

        found = []
        try:
            row = eventually(f"`requests` says: {' or '.join(wanted)}", look)
        except AssertionError as never:
            raise AssertionError(f"{never}, but {found[-1:]}") from None
        peerbus("requests")
        self.holder.check(f"`requests` says: {row['state']}, owed by {row['holder']}",
                          row["holder"] == self.holder.name, row)

    def steps(self):
        [message] = json.loads(peerbus("status", self.id, "--json"))["messages"]
        return message["trail"]["steps"]

    def trail(self):
        return [step["state"] for step in self.steps()]

    def reaches(self, state):
        step = eventually(f"{self.id} is {state}", lambda: next((s for s in self.steps() if s["state"] == state), None))
        how = ", ".join(step[part] for part in ("path", "evidence", "reason") if part in step)
        self.holder.check(f"`status` says: {state} ({how})", step["to"] == self.holder.name, step)

    def says_all(self, when):
        """Notes what is told of it at a moment."""
        [row] = [row for row in rows() if row["id"] == self.id]
        said = (self.told().splitlines() or [""])[-1]
        print(f"   {when}: `requests`: {row['request']['state']}; `status`: {row['trail']['note']}; the asker: {said}")

    def gets(self, result, seen=1):
        """It ends well with this, which is there once; so many sessions have seen it."""
        self.process.wait(PATIENCE_S)
        told = self.out.read_text(encoding="utf-8")
        note(f"the asker: {self.process.returncode}\n{told}{self.told()}")
        well = (self.process.returncode, told) == (0, f"{result}\n")
        self.holder.check(f"`ask` prints {result!r} once and exits 0", well, (self.process.returncode, told, self.told()))
        trail = self.trail()
        peerbus("status", self.id)
        self.holder.check("`status` says that it is done, and was seen before, by each session once",
                          (trail[-1], trail.count("done"), trail.count("seen")) == ("done", 1, seen), trail)
        self.holder.check("nobody owes it any more", all(row["id"] != self.id for row in rows()), rows())
        self.holder.check("and its holder owes nothing", not owes(self.holder.name), owes(self.holder.name))
        done = [row for row in rows("--done") if row["id"] == self.id]
        said = [row["result"]["body"]["text"] for row in done]
        self.holder.check("`requests --done` has the result", said == [result], done)


def rows(*arguments):
    lines = peerbus("requests", "--json", *arguments).splitlines()
    return [json.loads(line) for line in lines]


def peer(name):
    """What peers are told of a session."""
    peers = json.loads(peerbus("peers", "--json"))["peers"]
    return next((peer for peer in peers if peer["name"] == name), {})


def owes(name):
    return peer(name).get("owes")


def below(pid):
    """The processes below one."""
    done = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
    children = [int(child) for child in done.stdout.split()]
    return [each for child in children for each in (child, *below(child))]


def asked_of(holder, script, times):
    eventually(f"its model is asked {times} times", lambda: holder.asked(script) >= times)


def lines_of(holder, identity):
    """The lines that show a message, each once."""
    lines = [line for text in holder.texts() for line in text.splitlines() if f"[{identity[-8:]}]" in line]
    return list(dict.fromkeys(lines))


def is_done(holder):
    """The idle agent is woken, says that it works at it, and gives the result."""
    holder.ready()
    script = holder.plays("ask", reply(HALF, "working"), reply(DONE), held=True)
    asking = Asking(holder, "ask", "are the tests green?")
    asked_of(holder, script, 1)
    holder.check("a request wakes the idle session", True)
    [line] = lines_of(holder, asking.id)
    holder.check("its model is told that an answer is owed, and how it is given", "reply" in line, line)
    asking.state("pushed", "presented")
    trail = asking.trail()
    holder.check("it is not seen before the model has answered", "seen" not in trail, trail)
    script.goes.go()
    asked_of(holder, script, 2)
    asking.reaches("seen")
    asking.reaches("working")
    asking.state(f'working: "{HALF}"')
    asking.says(f'"{HALF}"')
    holder.check("its holder owes one", owes(holder.name) == 1, owes(holder.name))
    script.goes.set()
    asking.gets(DONE)
    trail = [state for state in asking.trail() if state in ("seen", "working", "done")]
    holder.check(f"`status` says in this order: {', '.join(trail)}", trail == ["seen", "working", "done"], trail)


def is_killed(holder):
    """The holder is killed after it has read it; its next session answers."""
    holder.ready()
    calls = ("ack", {"ids": ["{msg}"]}), reply(HALF, "working")
    script = holder.plays("kill", *calls, held=True)
    asking = Asking(holder, "kill", "is the build green?")
    asked_of(holder, script, 1)
    script.goes.go()
    asked_of(holder, script, 2)
    asking.reaches("seen")
    asking.state("read", "seen")
    asking.says("owes an answer")
    script.goes.go()
    asked_of(holder, script, 3)
    asking.state(f'working: "{HALF}"')
    holder.dies()
    script.goes.is_cut = True
    asking.state(f'working: "{HALF}", away')
    asking.says_all("its holder is killed")
    holder.check("it is owed while its holder is gone", owes(holder.name) == 1, owes(holder.name))
    before = lines_of(holder, asking.id)
    script = holder.plays("kill", reply(DONE), held=True)
    holder.starts()
    asked_of(holder, script, 1)
    marked = [line for line in lines_of(holder, asking.id) if line not in before]
    holder.check("the next session is shown it, marked", marked and all("(shown before" in line for line in marked), marked)
    asking.says_all("the next session has it")
    script.goes.set()
    asking.gets(DONE, seen=2)


def is_reminded(holder):
    """The holder reads it, and idles without an answer."""
    holder.ready()
    script = holder.plays("debt")
    asking = Asking(holder, "debt", "is the page green?")
    asking.reaches("seen")
    holder.ready()
    since = time.monotonic()
    asking.state("read", "seen")
    asking.says("owes an answer")
    script = holder.plays("debt", reply(DONE, identity=asking.id))
    reminders = lambda: [line for text in holder.texts() for line in text.splitlines() if OWED in line]
    eventually("it is reminded", reminders, REMIND_S + LATER_S)
    took = time.monotonic() - since
    [line] = set(reminders())
    holder.check(f"after {took:.0f} s it is reminded: {line}", asking.id in line and took > REMIND_S - 2, took)
    asking.gets(DONE)
    holder.ready()
    holder.check("once", len(reminders()) == 1, reminders())


def parts(remind):
    """All, or those that take no minutes."""
    return [is_killed, *([is_reminded] if remind else []), is_done]
