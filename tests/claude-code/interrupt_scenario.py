"""What is tested: a turn of Claude Code is ended from elsewhere between two tools, and a text that is
put in for that starts the next one.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import sys

import hooks_scenario
import mock_api
import node
import scenario
from support import check, eventually

WORK = "work without an end"
WAIT = "wait for long"
INSTEAD = "do this instead"
OVER = "it is over"
# What the tool runs in a turn of many calls, and in one of a single long one.
SHORT = "sleep 0.3"
LONG = "sleep 600"
# More calls than any turn here makes before it is ended.
CALLS_MAX = 300
REASON = "interrupted this turn"


class Model:
    """Calls tool after tool, until it is told something else."""

    def __init__(self):
        self.calls = 0

    def answer(self, request):
        self.calls += 1
        if INSTEAD in request.prompt or self.calls > CALLS_MAX:
            return mock_api.text(OVER)
        if WORK in request.prompt or request.tool_results:
            return self.bash(SHORT)
        return self.bash(LONG) if WAIT in request.prompt else mock_api.text(OVER)

    @staticmethod
    def bash(command):
        return mock_api.tool_use("Bash", {"command": command, "description": "Works"})


class Session:
    """A session of the real CLI, and what is seen of it."""

    def __init__(self, cli, watch, api):
        self.cli = cli
        self.watch = watch
        self.api = api

    def works(self, since, calls=1):
        """Waits until a turn has called its tool."""
        for _ in range(calls):
            asked = self.api.wait_for("a tool's result", lambda r: r.tool_results, since)
            since = self.api.asked.index(asked) + 1

    def seq(self):
        events = self.watch.events()
        return events[-1]["seq"] if events else 0

    def is_idle_after(self, seq):
        idle = node.does("idle")
        return self.watch.wait_for("the turn ends", lambda e: idle(e) and e["seq"] > seq)

    def is_ended_by_the_hook(self, before):
        """The user is told so once more than before."""
        told = lambda: " ".join(self.cli.screen().split()).count(REASON) > before
        eventually("the user is told who ended the turn", told)

    def reasons(self):
        return " ".join(self.cli.screen().split()).count(REASON)


def interrupt():
    return node.peerbus("interrupt", node.NAME)


def a_closed_gate_refuses():
    closed = interrupt()
    says = closed.returncode == 1 and "`interrupt`" in closed.stderr
    check("with a closed gate nothing is interrupted", says, closed)
    closed = node.peerbus("inject", node.NAME, INSTEAD, "--interrupt")
    says = closed.returncode == 1 and "`interrupt`" in closed.stderr
    check("nor for a text", says, closed)
    node.GATES.write_text("interrupt = true\n", encoding="utf-8")


def an_idle_session_is_left_alone():
    eventually("the session is idle", node.idle)
    idle = interrupt()
    check("what is idle cannot be interrupted", "idle" in idle.stderr, idle)
    stop = node.peerbus("stop", node.NAME)
    check("the user's own session is not ended", "peerbus run" in stop.stderr, stop)


def a_turn_is_ended(session):
    reasons, since = session.reasons(), len(session.api.asked)
    session.cli.type(WORK)
    session.works(since)
    seq = session.seq()
    done = interrupt()
    check("a turn is interrupted", done.returncode == 0, done)
    session.is_ended_by_the_hook(reasons)
    session.is_idle_after(seq)


def a_text_takes_the_place_of_a_turn(session, begins):
    """The turn before is begun by the user, or by another text."""
    since = len(session.api.asked)
    begins()
    session.works(since, calls=2)
    seq = session.seq()
    done = node.peerbus("inject", node.NAME, INSTEAD, "--interrupt", "--wait", "seen")
    check("a text is put in instead of the turn, and seen", done.returncode == 0, done)
    idle = session.is_idle_after(seq)
    shown = session.watch.wait_for(
        "the text stands in the conversation",
        lambda e: e["type"] == "message" and INSTEAD in e["content"] and e["seq"] > seq,
    )
    check("after the turn has ended", idle["seq"] < shown["seq"], (idle, shown))
    eventually("the session is idle again", node.idle)


def a_wish_is_over_with_its_turn(session):
    since = len(session.api.asked)
    session.cli.type(WAIT)
    session.api.wait_for("the long turn", lambda r: WAIT in r.prompt, since)
    eventually("the long call runs", lambda: LONG in session.cli.screen())
    done = interrupt()
    check("a turn can be interrupted while a tool runs", done.returncode == 0, done)
    session.cli.press("Escape")
    eventually("the user ends the turn", lambda: "esc to interrupt" not in session.cli.screen())
    since = len(session.api.asked)
    session.cli.type(WORK)
    session.works(since, calls=4)
    check("the user's next turn is not meant", True)
    done = interrupt()
    check("until somebody says so", done.returncode == 0, done)
    eventually("it ends", node.idle)


def ways(worker):
    """The ways by which the session can be woken, as peers see them."""
    details = worker.call("bus.peers", {})["details"]
    return {way for peer in details if peer["name"] == node.NAME for way in peer.get("wake", [])}


def main():
    scenario.PROJECT.mkdir()
    api = mock_api.MockApi(Model().answer, scenario.LOG / "api.jsonl")
    try:
        scenario.start_broker()
        worker = scenario.start_worker()
        hooks_scenario.configure(SHORT, LONG)
        with scenario.cli(api) as cli, node.watched(scenario.LOG) as watch:
            session = Session(cli, watch, api)
            a_closed_gate_refuses()
            # Typing closes what the CLI asks at its first start.
            a_turn_is_ended(session)
            eventually("the session can be woken", lambda: ways(worker) & {"rewake", "socket"})
            an_idle_session_is_left_alone()
            a_text_takes_the_place_of_a_turn(session, lambda: cli.type(WORK))
            # Where there is none, the CLI starts the hook that wakes it at the end of a turn that was
            # not interrupted, and a turn that a text began has used up the one before.
            if "socket" in ways(worker):
                by_text = lambda: node.peerbus("inject", node.NAME, WORK, "--interrupt")
                a_text_takes_the_place_of_a_turn(session, by_text)
            a_wish_is_over_with_its_turn(session)
        hooks_scenario.nothing_is_left()
    except AssertionError as failed:
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
