"""What is tested: what a session of Claude Code asks its user is answered from elsewhere, and the
user's own answer counts when it comes first.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time

import hooks_scenario
import mock_api
import node
import scenario
from mcp_client import Server
from support import LOOK_S, check, eventually

QUESTION_FIRST = "please ask me first"
RUN = "please run: "
OVER = "it is over"
SETTINGS = scenario.PROJECT / ".claude" / "settings.local.json"
ASKS = "Do you want to proceed?"
NO = "not while the tests run"


ran = set()


def answer(request):
    """What the model says: it runs what it is asked to run, once, and asks what it is to ask."""
    if QUESTION_FIRST in request.prompt and not request.tool_results:
        return mock_api.tool_use("AskUserQuestion", {"questions": [QUESTION]})
    asked = re.search(f"{RUN}(.*)", request.prompt)
    if asked and asked[1] not in ran:
        ran.add(asked[1])
        return mock_api.tool_use("Bash", {"command": asked[1], "description": "Runs it"})
    return mock_api.text(OVER)


QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "multiSelect": False,
    "options": [
        {"label": "Red", "description": "warm"},
        {"label": "Blue", "description": "cold"},
    ],
}


def gates(text):
    node.GATES.write_text(text, encoding="utf-8")


def approvals():
    return json.loads(node.peerbus("approve", "--json").stdout)["approvals"]


class Session:
    """A session of the real CLI that is asked to run commands, and watched."""

    def __init__(self, cli, watch, api):
        self.cli = cli
        self.watch = watch
        self.api = api
        self.count = 0
        # Whether the client tells that it waits for its user.
        self.tells = False

    def runs(self, command):
        """Asks for a command that needs a permission. Gives the file that it would make, and how
        many requests the model got before."""
        self.count += 1
        name = f"file-{self.count}"
        eventually("the session is idle", lambda: "esc to interrupt" not in self.cli.screen())
        since = len(self.api.asked)
        self.cli.type(f"{RUN}{command} {name}")
        eventually("the dialog is open", lambda: ASKS in self.cli.screen())
        return scenario.PROJECT / name, since

    def asked(self, path):
        """The request for a command that makes this file."""
        request = self.watch.wait_for(
            "watch shows what is asked",
            lambda e: e["type"] == "approval_request" and path.name in json.dumps(e["input"]),
        )
        check("it says which tool, with what", request["tool"] == "Bash", request)
        return request

    def resolved(self, request, by, decision):
        """The end of a request, as watched."""
        identity = request["request_id"]
        event = self.watch.wait_for(
            "watch shows that it is over",
            lambda e: e["type"] == "approval_resolved" and e["request_id"] == identity,
        )
        found = (event["by"], event["decision"])
        check(f"the request is over: {decision}, by {by}", found == (by, decision), found)

    def result(self, since):
        """What the model is told of the tool's call. The result of one that was interrupted comes
        with the next prompt."""
        told = self.api.wait_for(
            "the tool's result", lambda r: r.tool_results and RUN not in r.prompt, since
        )
        [result] = told.tool_results
        return json.dumps(result)

    def is_closed(self):
        eventually("the dialog is closed", lambda: ASKS not in self.cli.screen())
        eventually("the turn ends", lambda: self.cli.screen().count(OVER) > 0)

    def user_says(self, key):
        """Presses a key at the dialog, which takes none in its first moment."""

        def closed():
            self.cli.press(key)
            return eventually_soon(lambda: ASKS not in self.cli.screen())

        eventually("the dialog is closed", closed)


def closed_gates_show_what_is_asked_and_let_nobody_answer(session):
    path, since = session.runs("touch")
    session.tells = eventually_soon(lambda: node.ours()["status"] == "waiting_approval")
    request = session.asked(path)
    refused = node_call("session/approve", verdict(request, "allow"))
    check("with closed gates nobody answers", refused["error"]["code"] == -32003, refused)
    listed = node.peerbus("approve")
    check("what is asked is shown", f"touch {path.name}" in listed.stdout, listed)
    check("the gate is named", "the gate `approve` is closed for session (project)," in listed.stderr, listed)
    session.user_says("Enter")
    session.result(since)
    check("and the user allows it as ever", path.exists())


def a_question_is_answered(session):
    gates("approve = true\n")
    since = len(session.api.asked)
    eventually("the session is idle", lambda: "esc to interrupt" not in session.cli.screen())
    session.cli.type(QUESTION_FIRST)
    eventually("the question is asked", lambda: QUESTION["question"] in session.cli.screen())
    request = session.watch.wait_for(
        "watch shows the question",
        lambda e: e["type"] == "approval_request" and e["tool"] == "AskUserQuestion",
    )
    done = node.peerbus("approve", request["request_id"])
    check("a question is not allowed", "is a question" in done.stderr, done)
    done = node.peerbus("answer", request["request_id"], "2")
    check("it is answered", done.returncode == 0 and "answered" in done.stdout, done)
    told = session.api.wait_for("the tool's result", lambda r: r.tool_results, since)
    check("the model reads the answer", "Blue" in json.dumps(told.tool_results), told)


def a_request_is_allowed(session):
    gates("approve = true\n")
    path, since = session.runs("touch")
    request = session.asked(path)
    listed = node.peerbus("approve").stdout
    check("the list shows all of it", f"touch {path.name}" in listed, listed)
    digest = "0" * 32
    wrong = node_call("session/approve", {**verdict(request, "allow"), "digest": digest})
    check("what was not seen is not allowed", wrong["error"]["code"] == -32602, wrong)
    done = node.peerbus("approve", request["request_id"])
    check("it is allowed", done.returncode == 0 and "allowed, by a command" in done.stdout, done)
    session.is_closed()
    session.result(since)
    check("the tool ran", path.exists())
    session.resolved(request, "node", "allow")
    late = node.peerbus("deny", request["request_id"])
    check("a late verdict is refused", late.returncode == 1, late)
    late = node_call("session/approve", verdict(request, "deny"))
    check("and told what counted", "allow, by node" in late["error"]["message"], late)


def a_request_is_denied(session):
    path, since = session.runs("touch")
    request = session.asked(path)
    done = node.peerbus("deny", "session", "--message", NO)
    check("it is denied, by the session's name", done.returncode == 0, done)
    check("the model is told why", NO in session.result(since))
    session.is_closed()
    check("the tool did not run", not path.exists())
    session.resolved(request, "node", "deny")


def another_command_runs(session):
    gates("approve = true\ncontrol = true\n")
    path, since = session.runs("touch")
    request = session.asked(path)
    other = path.with_name(f"{path.name}-instead")
    instead = json.dumps({**request["input"], "command": f"touch {other.name}"})
    done = node.peerbus("approve", request["request_id"], "--input", instead)
    check("another command is allowed in its place", done.returncode == 0 and other.name in done.stdout, done)
    session.result(since)
    session.is_closed()
    check("that ran, and what was asked did not", other.exists() and not path.exists())
    session.resolved(request, "node", "allow")
    path, since = session.runs("touch")
    request = session.asked(path)
    done = node.peerbus("deny", request["request_id"], "--interrupt")
    check("it is denied, and the turn is to end", "its turn ends" in done.stdout, done)
    eventually("the dialog is closed", lambda: ASKS not in session.cli.screen())
    eventually("the turn ends", lambda: "esc to interrupt" not in session.cli.screen())
    told = [asked for asked in session.api.asked[since:] if asked.tool_results and RUN not in asked.prompt]
    check("the model was not asked to go on", not told and not path.exists(), told)


def the_terminal_is_first(session):
    path, since = session.runs("touch")
    request = session.asked(path)
    session.user_says("Enter")
    session.result(since)
    check("the user allows it", path.exists())
    session.resolved(request, "terminal", "allow" if session.tells else None)
    late = node_call("session/approve", verdict(request, "deny"))
    check("a verdict after it comes too late", "by terminal" in late["error"]["message"], late)
    path, since = session.runs("touch")
    request = session.asked(path)
    session.user_says("Escape")
    by = ("terminal", "deny") if session.tells else ("client", None)
    session.resolved(request, *by)
    check("what the user denied is not run", not path.exists())


def a_rule_is_added(session):
    path, since = session.runs("truncate -s 0")
    request = session.asked(path)
    check("the client suggests a rule", len(request["suggestions"]) == 1, request["suggestions"])
    [rule] = request["suggestions"]
    done = node.peerbus("approve", request["request_id"], "--always")
    check("the rule is named", rule["rule"] in done.stdout, done)
    session.result(since)
    session.is_closed()
    check("the tool ran", path.exists())
    written = json.loads(SETTINGS.read_text(encoding="utf-8"))["permissions"]["allow"]
    check("the client has the rule", written == [rule["rule"]], written)


def a_peer_answers(session, worker, phone):
    gates('remote = ["phone"]\n')
    path, since = session.runs("touch")
    request = session.asked(path)
    identity = request["request_id"]
    asked = heard(phone)["approval"]
    check("the peer is shown the whole call", f"touch {path.name}" in asked["preview"], asked)
    check("and under which id to answer", asked["id"] == identity, asked)
    nobody = node.peerbus("approve", identity)
    check("no program here may answer", "`approve`" in nobody.stderr, nobody)
    sent = worker.call("bus.send", {"to": "session", "body": f"yes {identity}"})
    refused = told_on(worker, sent, "approval_refused")
    check("a peer that is not named is told so", "`remote`" in refused, refused)
    check("the request stays open", ASKS in session.cli.screen())
    sent = phone.call("bus.send", {"to": "session", "body": f" Yes {identity.upper()} "})
    session.result(since)
    check("the tool ran", path.exists())
    session.resolved(request, "peer:phone", "allow")
    told = told_on(phone, sent, "approval_resolved")
    check("the peer is told what became of it", '"by":"peer:phone"' in told, told)
    session.is_closed()
    shown = [r for r in session.api.asked if f"yes {identity}" in r.context.lower()]
    check("no verdict is shown to the model", not shown)
    # The same token as the session's is nobody else's word.
    gates('remote = ["worker"]\n')
    path, since = session.runs("touch")
    identity = session.asked(path)["request_id"]
    check("a peer of the session's token is asked", heard(worker)["approval"]["id"] == identity)
    sent = worker.call("bus.send", {"to": "session", "body": f"y {identity}"})
    refused = told_on(worker, sent, "approval_refused")
    check("but its word does not count", "token" in refused, refused)
    session.user_says("Escape")


def eventually_soon(ask):
    """Whether it comes true within a second."""
    deadline = time.monotonic() + 1
    while not (holds := ask()) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return holds


def heard(peer):
    """The next message for a peer."""
    [message] = scenario.drained(peer)
    body = message["body"]
    return json.loads(body) if isinstance(body, str) else body


def told_on(peer, sent, member):
    """What a peer is told on what it sent, as JSON without blanks: along with the result of that, or later."""
    along = sent.get("unseen", "").replace("\\u0060", "`").replace("\\", "")
    told = along if member in along else json.dumps(heard(peer)[member])
    return told.replace(" ", "")


def verdict(request, decision):
    return {name: request[name] for name in ("request_id", "digest")} | {"decision": decision}


def node_call(method, params):
    """What the session's node answers to a program."""
    return call(node.ours()["socket"], method, params)


def call(path, method, params):
    """What the node at this socket answers."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(path)
        line = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        stream.sendall(json.dumps(line).encode() + b"\n")
        return json.loads(stream.makefile().readline())


def start_phone():
    """A peer with a token of its own, which may approve."""
    command = ["peerbus", "token", "add", "phone", "--names", "phone", "--rights", "send,approve"]
    token = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
    command = ["peerbus", "adapter", "--adapter=generic", "--name", "phone"]
    environment = dict(os.environ) | {"PEERBUS_TOKEN": token}
    phone = Server(scenario.AGENT + command, environment, scenario.LOG / "phone-stderr.txt")
    phone.initialize({"name": "some-phone", "version": "1"}, {})
    phone.notify("notifications/initialized")
    eventually("the phone is on the bus", lambda: phone.call("bus.peers", {})["self"] == "phone")
    return phone


def main():
    scenario.PROJECT.mkdir()
    api = mock_api.MockApi(answer, scenario.LOG / "api.jsonl")
    try:
        scenario.start_broker()
        worker = scenario.start_worker()
        phone = start_phone()
        hooks_scenario.configure()
        with scenario.cli(api) as cli, node.watched(scenario.LOG) as watch:
            session = Session(cli, watch, api)
            closed_gates_show_what_is_asked_and_let_nobody_answer(session)
            a_question_is_answered(session)
            a_request_is_allowed(session)
            a_request_is_denied(session)
            another_command_runs(session)
            the_terminal_is_first(session)
            a_rule_is_added(session)
            a_peer_answers(session, worker, phone)
        hooks_scenario.nothing_is_left()
    except AssertionError as failed:
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
