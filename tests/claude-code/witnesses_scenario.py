"""What is tested: over a hundred turns in every state of a conversation the module and the transcript say nothing that
was not, and miss nothing. The model, which is a program of ours, knows what it answered.

    run.py PEERBUS --scenario witnesses_scenario [--version V]

After Esc the transcript alone proves less: it waits for an answer to no message of that turn. It takes minutes, and is no part of `cargo test`. Exit codes: 0 every check held, 1 one did not.
"""

import contextlib
import os
import random
import sys
from collections import Counter
from datetime import UTC, datetime

import claude
import hooks_scenario
import mock_api
import module_scenario
import node
import scenario
import wake
from support import PATIENCE_S, check, eventually

SEED = 20261126
# So often each; in an order that the seed gives.
KINDS = {
    "answers": 36,
    "works": 20,
    "fails": 12,
    "fails once": 6,
    "refuses": 8,
    "is stopped": 12,
    "joins": 10,
    "compacts": 4,
    "clears": 4,
    "resumes": 4,
}


class Model(wake.Model):
    """Answers as the turn wants, and notes what it answered when."""

    def __init__(self):
        super().__init__(None)
        self.kind = "answers"
        self.answered = []

    def answer(self, request):
        # As it is when this is asked.
        kind = self.kind
        if kind == "fails once":
            self.kind = "answers"
        self.speaks.wait(PATIENCE_S)
        if kind == "fails":
            return mock_api.failure()
        if kind == "fails once":
            return mock_api.failure(529, "overloaded_error")
        if kind == "refuses":
            return mock_api.refusal()
        if kind == "is stopped":
            # Nobody hears it.
            return mock_api.text("too late")
        self.answered.append((datetime.now(UTC), request.context))
        if kind == "works" and not request.tool_results:
            return mock_api.tool_use("Bash", {"command": hooks_scenario.COMMAND, "description": "Works"})
        return mock_api.text("noted")


class Run:
    """The session as it is now, and the messages so far."""

    def __init__(self, api, model, worker):
        self.api, self.model, self.worker = api, model, worker
        self.sent = []
        self.unanswered = set()
        self.session = None
        self.proven = {}

    def send(self):
        eventually("the session is idle", node.idle)
        since = len(self.api.asked)
        identity = wake.send(self.worker, f"message {len(self.sent)}")
        self.sent.append(identity)
        self.api.wait_for("the message", lambda r: identity[-8:] in r.context, since)
        return identity

    def types(self, words):
        since = len(self.api.asked)
        # Who stops a turn gets the last line back.
        self.session.press("C-u")
        self.session.type(words)
        self.api.wait_for(words, lambda r: words in r.prompt, since)

    def turn(self, kind):
        """One message, and a turn of that kind."""
        self.model.kind = kind
        if kind == "is stopped":
            with self.model.silent():
                self.send()
                self.session.press("Escape")
                eventually("the turn is over", node.idle)
            self.model.kind = "answers"
            self.types("go on")
        elif kind == "joins":
            self.model.kind = "works"
            with self.model.silent():
                self.send()
                joins = wake.send(self.worker, "in between")
                wake.step(self.worker, joins, "pushed")
                self.sent.append(joins)
        elif kind in ("fails", "refuses"):
            identity = self.send()
            eventually("the turn is over", node.idle)
            states = [step["state"] for step in wake.steps(self.worker, identity)]
            check(f"a model that {kind} has seen nothing", "seen" not in states, states)
            self.model.kind = "answers"
            self.types("go on")
        elif kind in ("compacts", "clears"):
            self.model.kind = "answers"
            self.send()
            eventually("the session is idle", node.idle)
            # The hook of the start is the last of either.
            done = f"Hook SessionStart:{kind.removesuffix('s')} (SessionStart) success"
            before = len(self.session.debug_lines(done))
            self.session.type(f"/{kind.removesuffix('s')}")
            eventually(f"it {kind}", lambda: len(self.session.debug_lines(done)) > before)
        else:
            self.send()
        eventually("the session is idle", node.idle)

    def compare(self):
        """What the model answered is seen, not before that, and nothing else is."""
        for number, identity in enumerate(self.sent):
            answers = [when for when, context in self.model.answered if identity[-8:] in context]
            if not answers:
                # Who stops a turn before its answer takes the message out of the conversation.
                states = [step["state"] for step in wake.steps(self.worker, identity)]
                if "seen" in states:
                    check(f"message {number} was answered", False, states)
                self.unanswered.add(identity)
                continue
            seen = wake.step(self.worker, identity, "seen")
            self.proven[identity] = seen["evidence"]
            at = datetime.fromisoformat(seen["at"])
            if at < answers[0]:
                check(f"message {number} was answered when it was seen", False, (at, answers[0]))


@contextlib.contextmanager
def resumed(api, *arguments):
    with scenario.cli(api, *arguments) as session:
        session.said('MCP server "peerbus": Successfully connected')
        eventually("the module is linked", lambda: module_scenario.links() == 1)
        yield session


def a_hundred_turns(run):
    kinds = [kind for kind, often in KINDS.items() for _ in range(often)]
    random.Random(SEED).shuffle(kinds)
    arguments = []
    while kinds:
        with resumed(run.api, *arguments) as run.session:
            run.types("hello")
            while kinds and (kind := kinds.pop()) != "resumes":
                run.turn(kind)
            run.model.kind = "answers"
            run.types("that is all")
            eventually("the session is idle", node.idle)
            run.compare()
        arguments = ["--continue"]


def main():
    scenario.PROJECT.mkdir()
    # Peers start any number of turns.
    os.environ["PEERBUS_BUDGET"] = "off"
    model = Model()
    api = mock_api.MockApi(model.answer, scenario.LOG / "api.jsonl")
    try:
        scenario.start_broker()
        worker = scenario.start_worker()
        hooks_scenario.configure(hooks_scenario.COMMAND)
        run = Run(api, model, worker)
        a_hundred_turns(run)
        check(f"of {len(run.sent)} messages in {sum(KINDS.values())} turns those that were answered are seen", True)
        print(f"not answered: {len(run.unanswered)}; proven with {claude.version()}: {Counter(run.proven.values())}")
    except AssertionError as failed:
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
