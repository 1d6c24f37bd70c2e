"""What is tested: mail reaches a session of Claude Code through our hooks, where the CLI offers its
children no socket for messages, as 2.1.114 does not, and takes no channel notifications here.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import claude
import mock_api
import names
import node
import scenario
import wake
from support import PATIENCE_S, check, eventually

WORK = "do some work"
WORKED = "the work is done"
COMMAND = "echo worked"
PLUGIN = "/tmp/repository/deploy/claude-code-plugin"
# Ways by which hooks get a message to the model, as receipts name them.
PATHS = {"rewake", "hook"}


def peerbus(verb, *options):
    """Puts peerbus into the user's configuration, or takes it out again."""
    command = ["peerbus", verb, "claude-code", "--user", *options]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    check(f"{verb} succeeds", done.returncode == 0, done.stderr)


def configure(*commands):
    """Installs the adapter and the hooks as a user does, for a session with a name that others know,
    which may run these commands."""
    os.environ["PEERBUS_NAME"] = "session"
    claude.seed(scenario.HOME, scenario.PROJECT, scenario.SERVER, allowed=False)
    peerbus("install", "--allow")
    settings = scenario.HOME / ".claude" / "settings.json"
    value = json.loads(settings.read_text(encoding="utf-8"))
    value["permissions"]["allow"] += [f"Bash({command})" for command in commands]
    settings.write_text(json.dumps(value), encoding="utf-8")


def answer(request):
    """What the model says: it works when it is asked to, and is content with everything else."""
    if WORK in request.prompt and not request.tool_results:
        return mock_api.tool_use("Bash", {"command": COMMAND, "description": "Works"})
    return mock_api.text(WORKED if request.tool_results else "noted")


def a_hook_waits(worker):
    """Waits until peers see that the session can be woken by a hook."""

    def look():
        details = worker.call("bus.peers", {})["details"]
        session = next((peer for peer in details if peer["name"] == "session"), {})
        return "rewake" in session.get("wake", [])

    eventually("a hook waits for the session", look)


def is_seen(worker, identity):
    """Waits until the sender is told that a message is seen, and checks what shows it."""
    seen = wake.step(worker, identity, "seen")
    proven = seen.get("path") in PATHS and seen.get("evidence") == "transcript"
    check(f"the sender is told: seen, by {seen.get('path')}, by the transcript", proven, seen)


def an_idle_session_wakes(api, worker):
    a_hook_waits(worker)
    identity = wake.send(worker, "are you idle?")
    asked = api.wait_for("what wakes an idle session", lambda r: identity[-8:] in r.context)
    line = f'worker: "are you idle?" [{identity[-8:]}]'
    check("an idle session wakes, and its model is shown the message", line in asked.context, asked.context)
    is_seen(worker, identity)


def a_busy_session_hears(session, api, worker, model):
    a_hook_waits(worker)
    since = len(api.asked)
    with model.silent():
        session.type(WORK)
        api.wait_for("the prompt", lambda r: WORK in r.prompt, since)
        identity = wake.send(worker, "are you busy?")
        wake.step(worker, identity, "delivered")
    result = api.wait_for("the work's result", lambda r: r.tool_results, since)
    asked = api.wait_for("what a busy session is told", lambda r: identity[-8:] in r.context, since)
    later = api.asked.index(asked) - api.asked.index(result)
    which = "same" if later == 0 else "next"
    check(f"a busy session hears in the same turn or the next (the {which})", later in (0, 1), later)
    is_seen(worker, identity)
    eventually("the turn ends", lambda: WORKED in session.screen())


def a_burst_is_few_turns(api, worker):
    a_hook_waits(worker)
    since = len(api.asked)
    words = [f"burst number {number}" for number in range(1, 6)]
    identities = [wake.send(worker, word) for word in words]
    for identity in identities:
        is_seen(worker, identity)
    turns = len(api.asked) - since
    check(f"five in a burst take at most two turns ({turns})", 1 <= turns <= 2, turns)
    context = api.asked[-1].context
    places = [[found.start() for found in re.finditer(word, context)] for word in words]
    check("five in a burst arrive each once", all(len(at) == 1 for at in places), places)
    check("in order", places == sorted(places), places)


def a_session_without_a_user_is_not_held_up(api):
    """Where nobody sits at the terminal, the CLI waits for every hook."""
    command = [claude.PROGRAM, "-p", "say something"]
    ends = {"timeout": PATIENCE_S, "stdin": subprocess.DEVNULL, "capture_output": True}
    place = {"cwd": scenario.PROJECT, "env": claude.environment(api.url)}
    try:
        said = subprocess.run(command, check=True, text=True, **ends, **place).stdout
    except subprocess.TimeoutExpired:
        raise AssertionError("a session without a user never ends") from None
    check("a session without a user ends by itself", "noted" in said, said)


def hooks():
    """The command lines of our hooks in this process namespace."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        # It may have ended since.
        with contextlib.suppress(OSError):
            line = entry.read_bytes().replace(b"\0", b" ")
            if b"peerbus hook" in line:
                found.append(line)
    return found


def nothing_is_left():
    """After a session: no process of ours, no socket."""
    eventually("no hook is left", lambda: not hooks())
    eventually("no adapter is left", lambda: not wake.adapters())
    # The worker's has no client of its own.
    sockets = [str(path) for path in scenario.HOME.rglob("sessions/[1-9]*.sock")]
    check("no socket is left", not sockets, sockets)


def main():
    scenario.PROJECT.mkdir()
    model = wake.Model(answer)
    api = mock_api.MockApi(model.answer, scenario.LOG / "api.jsonl")
    try:
        scenario.start_broker()
        worker = scenario.start_worker()
        configure(COMMAND)
        with scenario.cli(api) as session:
            with node.watched(scenario.LOG) as watch:
                an_idle_session_wakes(api, worker)
                a_busy_session_hears(session, api, worker, model)
                watch.shows_a_turn(WORK, "Bash", WORKED)
            a_hook_waits(worker)
            node.a_text_is_put_in(api, "noted")
            node.a_closed_gate_refuses(api)
            a_burst_is_few_turns(api, worker)
            a_hook_waits(worker)
            wake.no_file_is_read_for_a_peer(api, worker)
        a_session_without_a_user_is_not_held_up(api)
        nothing_is_left()
        peerbus("uninstall")
        with scenario.cli(api, "--plugin-dir", PLUGIN):
            an_idle_session_wakes(api, worker)
        nothing_is_left()
        peerbus("install")
        names.last(scenario.cli, api, worker, is_seen)
        nothing_is_left()
    except AssertionError as failed:
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
