"""What is tested: the module that `peerbus install claude-code` writes runs inside a session of the real CLI,
proves what the model was shown, and ends a turn at once; without it, or with one that fails, all goes on.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import claude
import hooks_scenario
import latency
import mock_api
import node
import scenario
import wake
from plugin_scenario import plugin
from support import check, eventually

PLUGIN = scenario.HOME / ".claude" / "skills" / "peerbus"
MODULE = PLUGIN / "hooks" / "peerbus.js"
THINK = "think for long"
WRITE = "write by your own tool to"
LIST = "list by your own tool"
WORK = "work for long"
# Goes on until the scenario says so.
COMMAND = "sh work.sh"
STARTED, GO_ON = Path("/tmp/started"), Path("/tmp/go-on")
SCRIPT = f"touch {STARTED}; until test -e {GO_ON}; do sleep 0.1; done"
LETTER = "hello from the tool"
# Ten times what it takes as a rule.
SOON_S = 2.5
MESSAGES = 10
# It lets no module post at a socket where nonessential traffic is off.
FIRST = "2.1.287"
# How long a module may spin on a busy machine.
SPINS_S = 300
HOSTILE = 'now `rm`\x1b[31m "held'
SHOWN = r'''"now 'rm'\u001b[31m \'held"'''
REASON = "interrupted this turn"
LINKED = b"peerbus\0hook\0link"
# All that the module does inside the CLI, as the CLI reads it: it grows by nobody's oversight.
READ_AS = """\
hooks: session.start, command.run{command=bus}, ui.render{component=Pane, requestId=bus}, turn.start, \
turn.complete, turn.step, classic.PreToolUse, tool.call{tool=SendMessage}, tool.call{tool=ListAgents}, \
command.run{command=list-agents}
gating hook with .catch: command.run{command=bus}
gating hook with .catch: classic.PreToolUse
gating hook with .catch: tool.call{tool=SendMessage}
gating hook with .catch: tool.call{tool=ListAgents}
gating hook with .catch: command.run{command=list-agents}
calls: $.clock.after (via link, tells), $.command.register, $.http.fetch (via tells), $.process.run (via ask), \
$.process.spawn (via link), $.prompt.submit, $.session.append (via shows), $.session.id (via occasion), \
$.session.messages (via step), $.settings.read (via shows), $.turn.abort (via end), $.ui.invalidate (via bus), \
$.ui.log (via end), $.ui.open (via bus), $.ui.resolve, $.ui.status (via heard, link)"""


class Model(wake.Model):
    """Says nothing of its own: a turn lasts until it is ended, where the user wants that."""

    def __init__(self):
        super().__init__(self.says)
        # What it says to everything, where that is set.
        self.only = None

    def says(self, request):
        if self.only:
            return self.only
        if WRITE in request.prompt and not request.tool_results:
            to = request.prompt.split(WRITE)[1].split()[0]
            letter = {"to": to, "summary": "a letter", "message": LETTER}
            return mock_api.tool_use("SendMessage", letter)
        if WORK in request.prompt and not request.tool_results:
            return mock_api.tool_use("Bash", {"command": COMMAND, "description": "Works"})
        if LIST in request.prompt and not request.tool_results:
            return mock_api.tool_use("ListAgents", {})
        return mock_api.text("noted")


def the_client_reads_it_as_documented(api):
    said = plugin(api, "validate", str(PLUGIN))
    found = re.findall(r"\./peerbus\.js (.*)", said)
    found = "\n".join(found).replace(" (default matcher key: plugin)", "")
    # The first version says less.
    as_pinned = found == READ_AS or claude.version() == FIRST
    check("it hooks and calls this, and nothing else", as_pinned, found)
    copy = Path("/tmp/plugin")
    shutil.copytree(PLUGIN, copy)
    shutil.copytree("/tmp/scripts/module", copy / "tests")
    plugin(api, "test", str(copy))


def with_settings(change):
    settings = scenario.HOME / ".claude" / "settings.json"
    value = json.loads(settings.read_text(encoding="utf-8"))
    change(value)
    settings.write_text(json.dumps(value), encoding="utf-8")


def switched(on):
    """The module, on or off, in sessions that start from now on."""
    with_settings(lambda value: value.update(enabledPlugins={"peerbus@skills-dir": on}))


@contextlib.contextmanager
def started(api):
    """A session of the real CLI. Typing closes what it asks at its start."""
    with scenario.cli(api) as session:
        session.type("hello")
        # The CLI unloads a module that spins when that has used seconds of a processor.
        eventually("the first turn ends", lambda: "noted" in session.screen(), SPINS_S)
        yield session


def links():
    """The links that are open in this process namespace."""
    found = 0
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        # It may have ended since.
        with contextlib.suppress(OSError):
            found += LINKED in entry.read_bytes()
    return found


def seen(api, worker, body):
    """Sends to the session; the message's id, and what shows that its model has seen it."""
    eventually("the session is idle", node.idle)
    identity = wake.send(worker, body)
    api.wait_for(body, lambda r: identity[-8:] in r.context)
    return identity, wake.step(worker, identity, "seen")


def is_proven(api, worker, body, by):
    _, found = seen(api, worker, body)
    check(f"{body}: seen, by {by}", found["evidence"] == by, found)


def the_module_proves(api, worker, body):
    """The transcript proves the same, and may be first on a busy machine: never of so many messages."""
    for number in range(MESSAGES):
        identity, found = seen(api, worker, f"{body}, {number}")
        if found["evidence"] == "model_call":
            took = latency.between(worker, identity, "pushed", "seen")
            return check(f"{body}: seen, by model_call, within {SOON_S} s", took < SOON_S, took)
    check(f"{body}: one of {MESSAGES} messages is seen, by model_call", False, found)


def doctor():
    """What `peerbus doctor` says of Claude Code."""
    done = subprocess.run(["peerbus", "doctor", "--json"], cwd=scenario.PROJECT, capture_output=True, text=True)
    return [each for each in json.loads(done.stdout)["checks"] if "module" in each["says"] or "shown" in each["says"]]


def a_turn_is_ended_at_once(session, api, model):
    """While the model thinks; in a tool the hook after it does that (interrupt_scenario)."""
    before = told(session)
    since = len(api.asked)
    with model.silent():
        session.type(THINK)
        api.wait_for("the turn", lambda r: THINK in r.prompt, since)
        eventually("it is under way", lambda: node.ours()["status"] == "thinking")
        done = node.peerbus("interrupt", node.NAME)
        check("a turn is interrupted", done.returncode == 0, done)
        eventually("the user is told who ended it", lambda: told(session) > before)
        eventually("it has ended", node.idle)


def told(session):
    """How often the user was told that a turn was ended."""
    return " ".join(session.screen().split()).count(REASON)


def words(session):
    """What the screen says, without the breaks of its lines."""
    return " ".join(session.screen().split())


def pane(session):
    """What stands at the right, behind the frame."""
    lines = session.screen().splitlines()
    return " ".join(" ".join(line.partition("│")[2] for line in lines).split())


def the_person_sees_what_waits(session, api, model, worker):
    eventually("the session is idle", node.idle)
    since = len(api.asked)
    with model.silent():
        session.type(THINK)
        api.wait_for("the turn", lambda r: THINK in r.prompt, since)
        wake.send(worker, HOSTILE)
        eventually("a line says that something waits", lambda: "⚠ peerbus: 1 unread" in words(session))
        session.type("/bus")
        eventually("the pane has the message, quoted", lambda: f"unread worker: {SHOWN}" in pane(session))
        eventually("and the peers", lambda: "peer worker · " in pane(session))
    eventually("the line is gone when nothing waits", lambda: "⚠ peerbus: 1 unread" not in words(session))
    eventually("the session is idle", node.idle)
    session.press("Escape")
    eventually("the pane is closed", lambda: "peer worker · " not in pane(session))
    model_read = [asked for asked in api.asked if "peer    worker" in json.dumps(asked.body, ensure_ascii=False)]
    check("no model reads what the pane has", not model_read, model_read)


def a_conversation_goes_on(session, api, worker):
    """With the module in every state of a conversation."""
    the_module_proves(api, worker, "before it is cleared")
    processes = session.debug_lines("$.process.run (peerbus)")
    check("the module starts no process in a turn", not processes or claude.version() == FIRST, processes)
    session.type("/clear")
    # What comes before its hook ends goes along with that, and waits for the user's next turn.
    session.said("Hook SessionStart:clear (SessionStart) success")
    the_module_proves(api, worker, "after it was cleared")


def what_is_no_answer_proves_nothing(session, api, model, worker):
    for what, only in [("a failure", mock_api.failure()), ("a refusal", mock_api.refusal())]:
        eventually("the session is idle", node.idle)
        model.only = only
        identity = wake.send(worker, f"before {what}")
        api.wait_for("the message", lambda r: identity[-8:] in r.context)
        wake.step(worker, identity, "presented")
        eventually("the turn is over", node.idle)
        model.only = None
        since = len(api.asked)
        with model.silent():
            session.type("go on")
            api.wait_for("the next turn", lambda r: identity[-8:] in r.context, since)
            states = [step["state"] for step in wake.steps(worker, identity)]
            check(f"{what} of the service proves nothing", "seen" not in states, states)
        wake.step(worker, identity, "seen")
        check("and an answer after it does", True)


def result(session, api, prompt):
    """What the model reads of the tool that it calls."""
    eventually("the session is idle", node.idle)
    since = len(api.asked)
    session.type(prompt)
    asked = api.wait_for(prompt, lambda r: r.tool_results, since)
    return json.dumps(asked.tool_results)


def the_models_own_tools_reach_the_bus(session, api, worker):
    said = result(session, api, f"{WRITE} worker")
    check("what its own tool sends is accepted", "accepted by the broker" in said, said)
    [message] = scenario.drained(worker)
    found = (message["from"], message["body"])
    check("and is the session's", found == ("session", LETTER), found)
    said = result(session, api, f"{WRITE} #nobody-here")
    check("a group is an address, too", "SendMessage" not in said and "#nobody-here" in said, said)
    said = result(session, api, f"{WRITE} nobody")
    check("a name that nobody has is Claude Code's to refuse", "No agent named 'nobody'" in said, said)
    said = result(session, api, LIST)
    check("its own list has the peers", "On the message bus" in said and "worker" in said, said)


def without_a_rule_it_is_told_what_asks(api, worker):
    with_settings(lambda value: value["permissions"]["allow"].remove("mcp__peerbus__*"))
    with started(api) as session:
        eventually("the module is linked", lambda: links() == 1)
        said = result(session, api, f"{WRITE} worker")
        check("where the send tool asks, its own tool says so", "asks your user" in said, said)
    with_settings(lambda value: value["permissions"]["allow"].append("mcp__peerbus__*"))
    waits = worker.call("bus.drain", {})["messages"]
    check("and nothing was sent", not waits, waits)


def posts(session):
    """So often the module told something."""
    ways = ["$.http.fetch (peerbus): POST", "$.process.run (peerbus): peerbus with"]
    return sum(len(session.debug_lines(way)) for way in ways)


@contextlib.contextmanager
def without_a_socket(api):
    """A session that has the module alone to wake it."""
    os.environ["PEERBUS_WAKE"] = "module"
    with started(api) as session:
        eventually("the module is linked", lambda: links() == 1)
        yield session
    del os.environ["PEERBUS_WAKE"]


def without_a_socket_the_module_wakes(api, worker):
    with without_a_socket(api) as session:
        _, found = seen(api, worker, "wake up")
        by = (found["path"], found["evidence"])
        check("the module wakes an idle session", by == ("module", "transcript"), found)
        eventually("the session is idle", node.idle)
        session.type(WORK)
        eventually("the tool runs", STARTED.exists)
        identity = wake.send(worker, "a note")
        wake.step(worker, identity, "presented")
        GO_ON.touch()
        asked = api.wait_for("the note", lambda r: identity[-8:] in json.dumps(r.body))
        results = [request for request in api.asked if request.tool_results]
        check("a note is in the request after the tool", asked is results[-1], asked.body["messages"])
        if claude.version() != FIRST:
            wake.step(worker, identity, "seen")
    with_settings(lambda value: value.update(crossSessionInbound="hold"))
    with without_a_socket(api) as session:
        eventually("the session is idle", node.idle)
        told = posts(session)
        identity = wake.send(worker, "not in this way")
        eventually("the module says that it does not show it", lambda: posts(session) > told)
        session.type("by myself")
        asked = api.wait_for("the message", lambda r: identity[-8:] in json.dumps(r.body))
        check("where the user holds mail, the module shows none", "by myself" in asked.prompt, asked.prompt)
    with_settings(lambda value: value.pop("crossSessionInbound"))


def broken(how, change):
    """The module with a change in its text, and what it should still be like."""
    text = MODULE.read_text(encoding="utf-8")
    changed = change(text)
    check(f"a module that {how}", changed != text)
    MODULE.write_text(changed, encoding="utf-8")
    return text


def without_it_the_transcript_proves(api, worker):
    spins = "on('turn.start', ($, e, next) => {\n    for (;;);"
    for how, change in [
        ("throws as it is loaded", lambda text: "throw new Error('no')\n" + text),
        ("throws at a request", lambda text: text.replace("const all = ", "throw new Error('no')\n    const all = ")),
        ("speaks another version", lambda text: text.replace("VERSION = '1'", "VERSION = '99'")),
        ("spins", lambda text: text.replace("on('turn.start', ($, e, next) => {", spins)),
    ]:
        whole = broken(how, change)
        with started(api):
            is_proven(api, worker, how, "transcript")
        MODULE.write_text(whole, encoding="utf-8")
    switched(False)
    found = doctor()
    refused = any(each["found"] == "warning" and "peerbus@skills-dir" in each["says"] for each in found)
    check("doctor names what refuses it", refused, found)
    with started(api):
        is_proven(api, worker, "refused", "transcript")
        check("and there is no link", links() == 0)


def main():
    scenario.PROJECT.mkdir()
    model = Model()
    api = mock_api.MockApi(model.answer, scenario.LOG / "api.jsonl")
    try:
        scenario.start_broker()
        worker = scenario.start_worker()
        hooks_scenario.configure(COMMAND)
        (scenario.PROJECT / "work.sh").write_text(SCRIPT, encoding="utf-8")
        node.GATES.write_text("interrupt = true\n", encoding="utf-8")
        if "measure" in sys.argv:
            latency.measure(api, worker, started, links, switched)
            return 0
        the_client_reads_it_as_documented(api)
        with started(api) as session:
            session.said('MCP server "peerbus": Successfully connected')
            eventually("the module is linked", lambda: links() == 1)
            a_conversation_goes_on(session, api, worker)
            the_person_sees_what_waits(session, api, model, worker)
            found = doctor()
            linked = any(each["found"] == "ok" and "module linked" in each["says"] for each in found)
            check("doctor sees the link", linked, found)
            the_models_own_tools_reach_the_bus(session, api, worker)
            a_turn_is_ended_at_once(session, api, model)
            the_module_proves(api, worker, "after it was interrupted")
            what_is_no_answer_proves_nothing(session, api, model, worker)
        hooks_scenario.nothing_is_left()
        check("no link is left", links() == 0)
        without_a_socket_the_module_wakes(api, worker)
        without_a_rule_it_is_told_what_asks(api, worker)
        without_it_the_transcript_proves(api, worker)
    except AssertionError as failed:
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
