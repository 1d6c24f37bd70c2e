"""The steps of the scenario, each with the session as the one before left it."""

import json
import os
import re
import signal
import threading
import time

import asking
import bus
from agents import BY_SHELL, BY_WRITER
from support import PATIENCE_S, eventually

# How long a message may take that is shown again: after a turn that failed there is a pause.
AGAIN_S = 4 * PATIENCE_S


def is_ready(world):
    """Waits until the session can be woken and does nothing."""

    def look():
        world.driver.lives()
        return bus.is_idle(world.name) and bus.peer(world.name).get("wake")

    return eventually("it can be woken", look)


def is_asked(world, script, times=1):
    def look():
        world.driver.lives()
        return script.asked >= times

    eventually(f"the model is asked {script.name}", look)


def held(world, name, *calls, **members):
    """A script that waits until its `goes` is set."""
    script = world.model.script(name, *calls, **members)
    script.goes = threading.Event()
    return script


def is_seen(world, what, identity, patience_s=PATIENCE_S):
    """Waits until a message is seen, and gives the proof."""
    step = eventually(f"{what} is seen", lambda: bus.step(identity, "seen"), patience_s)
    proof = step.get("evidence")
    world.check(f"{what} is seen, by {proof}", proof in ("transcript", "tool_call"), step)
    return proof


def is_marked(text, identity):
    """Whether a message is shown as one that may have been shown before."""
    return re.search(rf"\(shown before\)[^\[\n]*\[{identity[-8:]}\]", text) is not None


def shown_again(world, identity):
    return [text for text in world.model.shown(identity) if is_marked(text, identity)]


def is_shown_once(world, what, identity):
    """It was shown as new once, and where it was shown again it was marked."""
    asked = [[text for text in it.user if f"[{identity[-8:]}]" in text] for it in world.model.asked]
    new = [[text for text in texts if not is_marked(text, identity)] for texts in asked]
    once = max(map(len, new)) == 1
    world.check(f"{what} is shown as new once", once, max(new, key=len))
    trail = bus.steps(identity)
    world.check("and seen once", [step["state"] for step in trail].count("seen") == 1, trail)


def start(world):
    """The driver is the peer: it is on the bus before its agent has said a word."""
    hello = held(world, "hello", text="hello there")
    world.starts("begin with job:hello")
    is_asked(world, hello)
    peer = eventually("it is on the bus", lambda: bus.peer(world.name))
    world.check("it is on the bus before its model answers", peer["online"], peer)
    hello.goes.set()
    world.driver.said("hello there")
    world.check("what its model says is printed", True)
    peer = is_ready(world)
    peer = bus.peer(world.name)
    version = world.agent.version
    world.check("peers are told who it is", version in (peer.get("client") or ""), peer)
    world.facts |= {"version": version, "wake": ",".join(peer["wake"])}


def woken(world):
    """A message wakes the idle session, which answers."""
    is_ready(world)
    reply = world.agent.bus("reply", {"msg_id": "{msg}", "body": "forty-two"})
    world.model.script("question", reply, text="I have answered")
    identity = world.send("question", "what is six times seven?")
    if "tools" in world.agent.cannot:
        world.open_gates("approve")
        request = eventually("it asks about a bus tool", lambda: bus.asked(world.name))[0]
        bus.peerbus("session", "approve", request["request_id"])
        world.open_gates()
    answer = bus.received()
    world.check("its answer comes", "forty-two" in str(answer["body"]), answer)
    world.check("as an answer to the message", answer.get("reply_to") == identity, answer)
    proof = is_seen(world, "a message that it answers", identity)
    is_shown_once(world, "it", identity)
    eventually("its turn ends", lambda: bus.is_idle(world.name))
    world.model.script("plain", text="so it is")
    words, wait = "the sky is blue job:plain", f"seen={PATIENCE_S}"
    done = bus.peerbus("send", world.name, words, "--name", bus.TESTER, "--wait", wait, "--json")
    world.check("who waits until it is seen is told", done.returncode == 0, done)
    identity = json.loads(done.stdout)["id"]
    plain_proof = is_seen(world, "a message that needs no answer", identity)
    is_shown_once(world, "it", identity)
    world.facts["seen"] = [proof, plain_proof]


def busy(world):
    """What comes in a turn waits for the next, all of it."""
    is_ready(world)
    long = held(world, "long")
    first = world.send("long")
    is_asked(world, long)
    for number in range(3):
        world.model.script(f"more{number}")
    more = [world.send(f"more{number}", f"number {number}") for number in range(3)]
    early = [identity for identity in more if world.model.shown(identity)]
    world.check("nothing is shown in a turn", not early, early)
    told = [identity for identity in (first, *more) if bus.step(identity, "seen")]
    world.check("nothing is seen before the model has answered", not told, told)
    long.goes.set()
    is_seen(world, "the first", first)
    for number, identity in enumerate(more):
        is_seen(world, f"number {number}", identity)
        is_shown_once(world, f"number {number}", identity)
    world.check("the turn was left alone", (long.asked, long.cut) == (1, 0), long)
    together = [text for text in world.model.shown(more[0]) if all(i[-8:] in text for i in more)]
    world.check("the three are one turn", together, world.model.shown(more[0]))


def failing(world):
    """The model's service fails, and is back."""
    for status in (400, 429, 500):
        is_ready(world)
        script = world.model.script(f"fails{status}", text="at last")
        script.status = status
        identity = world.send(script.name)
        is_asked(world, script)
        # Some agents ask again by themselves.
        over = lambda: script.asked > 1 or bus.is_idle(world.name)
        eventually("it is asked again, or the turn ends", over, AGAIN_S)
        step = bus.step(identity, "seen")
        world.check(f"after HTTP {status} it is not seen", not step, step)
        script.status = 0
        is_seen(world, f"after HTTP {status}, once the service is back, it", identity, AGAIN_S)
        is_shown_once(world, "it", identity)


def calls(world, kind, name):
    """Has the model make a file in one of two ways. Gives the message and the file."""
    tool = getattr(world.agent, kind)
    made = world.project / {"shell": BY_SHELL, "writer": BY_WRITER}[kind]
    made.unlink(missing_ok=True)
    world.model.script(name, tool, text="it is tried")
    return world.send(name, "make a file"), made


def unasked(world):
    """What it does although nobody may allow anything."""
    world.open_gates()
    done = []
    for kind in ("shell", "writer"):
        is_ready(world)
        identity, made = calls(world, kind, f"unasked_{kind}")
        is_seen(world, f"a message that calls the {kind}", identity, AGAIN_S)
        done += [kind] if made.exists() else []
    world.check("what it does unasked is what is known", set(done) == set(world.agent.unasked), done)
    world.facts["unasked"] = done


def approvals(world):
    """What it asks is denied and allowed by a command."""
    world.open_gates("approve")
    kind = world.agent.asks
    for verdict, words in (("deny", ("--message", "not now")), ("approve", ())):
        is_ready(world)
        identity, made = calls(world, kind, verdict)
        request = eventually("it asks", lambda: bus.asked(world.name))[0]
        world.check("it says what it would do", made.name in json.dumps(request), request)
        world.check("nothing is done before", not made.exists())
        done = bus.peerbus("session", verdict, request["request_id"], *words)
        world.check(f"the verdict is taken: {verdict}", done.returncode == 0, done)
        is_seen(world, "the message", identity, AGAIN_S)
        world.check(f"the file is {'not ' * (verdict == 'deny')}there", made.exists() == (verdict != "deny"))
        is_shown_once(world, "it", identity)
    world.open_gates()
    world.facts["approvals"] = True


def interrupt(world):
    """A turn is ended from elsewhere; its message is owed."""
    world.open_gates("interrupt")
    is_ready(world)
    script = held(world, "endless")
    identity = world.send("endless")
    is_asked(world, script)
    done = bus.peerbus("session", "interrupt", world.name)
    world.check("the command is taken", done.returncode == 0, done)
    cannot = "interrupt" in world.agent.cannot
    if not cannot:
        eventually("the turn ends", lambda: bus.is_idle(world.name) or script.asked > 1)
        world.check("the turn ends at once", True)
        step = bus.step(identity, "seen")
        world.check("its message is not seen", not step, step)
    script.goes.set()
    if cannot:
        is_seen(world, "its message, since the turn goes on,", identity)
    else:
        comes_along(world, identity)
    world.open_gates()
    world.facts["interrupt"] = not cannot


def comes_along(world, identity):
    """What an interrupted turn owes comes with the result of the next bus tool."""
    answer = world.agent.bus("reply", {"msg_id": identity, "body": "you were interrupted"})
    calls = [world.agent.bus("peers", {}), answer]
    world.model.script("next", *calls, text="so much for that")
    following = world.send("next")
    is_seen(world, "the next message", following)
    told = [words for request in world.model.asked for words in request.results if identity[-8:] in words]
    world.check("its message comes with the result of a bus tool", told, world.model.asked[-1].results)
    is_seen(world, "it", identity)
    is_shown_once(world, "it", identity)


def killed(world):
    """The agent dies in a turn."""
    is_ready(world)
    if world.agent.by_the_minute:
        # Its session began some seconds after the driver.
        over = lambda: time.time() // 60 > (world.driver.began + 10) // 60
        eventually("the minute in which the session began is over", over, 2 * PATIENCE_S)
    known = a_known_message(world)
    script = held(world, "deadly", text="it is done")
    identity = world.send("deadly")
    is_asked(world, script)
    before = world.driver.below()
    dead = world.driver.agent()
    asked = len(world.model.asked)
    os.kill(dead, signal.SIGKILL)
    gone = lambda: not any(pid in bus.processes() for pid in before if is_agents(world, before[pid]))
    eventually("nothing of the old one is left", gone)
    world.check("nothing of the old one is left", True)
    # Not before: a part of it that lives on would write the answer into the session.
    script.goes.set()
    eventually("it is shown again, marked", lambda: shown_again(world, identity), AGAIN_S)
    world.check("it is shown again, marked", True)
    is_seen(world, "it", identity, AGAIN_S)
    is_shown_once(world, "it", identity)
    after = world.driver.agent()
    world.check("there is a new process", after != dead)
    later = [request for request in world.model.asked[asked:] if request.script == "deadly"]
    goes_on = any(f"[{known[-8:]}]" in text for request in later for text in request.user)
    cannot = "resume" in world.agent.cannot
    what = "begins a new session" if cannot else "goes on with its session"
    world.check(f"it {what}", goes_on != cannot, later and later[-1].user)
    world.facts["resume"] = goes_on


def a_known_message(world):
    """A message that the session has answered."""
    world.model.script("known", text="I know that")
    identity = world.send("known", "the sky is blue")
    is_seen(world, "a message before", identity)
    eventually("its turn ends", lambda: bus.is_idle(world.name))
    return identity


def is_agents(world, line):
    """Whether a command line is that of the agent or of a server that it started."""
    return f"/agents/{world.word}/" in line or " adapter" in line


def has_ended(world, how, code=0):
    """The driver has ended."""
    ended = world.driver.process.wait(PATIENCE_S)
    said = world.driver.complained()[-600:]
    world.check(f"{how} ends the driver, exit code {ended}", ended == code, said)
    world.driver = None


def nothing_is_left(world):
    eventually("nothing is left", lambda: not world.left())
    world.check("no process is left", True)


def is_stopped(world):
    done = bus.peerbus("session", "stop", world.name)
    world.check("`session stop` is taken", done.returncode == 0, done)
    has_ended(world, "it")


def end(world):
    """It ends by a command while idle, by a signal in a turn, and by a kill; nothing is left."""
    is_ready(world)
    is_stopped(world)
    nothing_is_left(world)
    world.starts()
    is_ready(world)
    script = held(world, "last")
    identity = world.send("last")
    is_asked(world, script)
    world.driver.process.send_signal(signal.SIGTERM)
    has_ended(world, "SIGTERM in a turn")
    nothing_is_left(world)
    world.check("its message is not seen", not bus.step(identity, "seen"))
    asked = script.asked
    world.starts()
    is_asked(world, script, asked + 1)
    marked = shown_again(world, identity)
    world.check("the next session is shown it, marked", marked, world.model.shown(identity))
    world.driver.process.kill()
    has_ended(world, "SIGKILL in a turn", -signal.SIGKILL)
    nothing_is_left(world)
    script.goes.set()
    world.facts["ends"] = True


class Holder:
    """The session, for asking.py."""

    def __init__(self, world):
        self.world, self.name, self.check = world, world.name, world.check

    def plays(self, job, *calls, held=False):
        calls = [self.world.agent.bus(verb, given) for verb, given in calls]
        script = self.world.model.script(job, *calls, text="so it is")
        script.goes = asking.Gate(held)
        return script

    def asked(self, script):
        return script.asked

    def texts(self):
        return dict.fromkeys(text for request in self.world.model.asked for text in request.user)

    def ready(self):
        is_ready(self.world)

    def dies(self):
        self.world.driver.kill()

    def starts(self):
        self.world.starts()


def request(world):
    """It owes a shell an answer: says that it works at it, and gives it; also in the session after a kill."""
    if "tools" in world.agent.cannot:
        # Its user would be asked before each answer, as in `woken`.
        return
    for part in asking.parts(remind=False):
        part(Holder(world))


def remind(world):
    """It reads a request, and idles without an answer."""
    asking.is_reminded(Holder(world))


STEPS = {
    step.__name__: step
    for step in (start, woken, busy, failing, unasked, approvals, interrupt, request, killed, end)
}
# Those that wait for minutes are run when they are named.
SLOW = {"remind": remind}
