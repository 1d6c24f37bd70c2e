"""What is tested: the repository is a marketplace, and its plugin is all that a session needs.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import json
import os
import subprocess
import sys

import claude
import hooks_scenario
import mock_api
import scenario
import wake
from support import check, eventually

MARKETPLACE = "/tmp/repository"
PLUGIN = "peerbus@peerbus"
SERVER = "plugin:peerbus:peerbus"
SEND = "mcp__plugin_peerbus_peerbus__bus_send"
RULE = "mcp__plugin_peerbus_peerbus__*"
PROMPT = "ask the worker to count"
SENT = "the worker has been asked"
FLAG = ["--dangerously-load-development-channels", f"plugin:{PLUGIN}"]


def plugin(api, *arguments):
    """Runs `claude plugin …` and gives what it prints."""
    done = subprocess.run(
        [claude.PROGRAM, "plugin", *arguments],
        cwd=scenario.PROJECT,
        env=claude.environment(api.url),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    check(f"claude plugin {' '.join(arguments)}", done.returncode == 0, said)
    return said


def doctor():
    """What `peerbus doctor` says of Claude Code and of agents at all."""
    command = ["peerbus", "doctor"]
    done = subprocess.run(
        command, cwd=scenario.PROJECT, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    words = (" claude-code: ", " agents: ")
    return [line for line in done.stdout.splitlines() if any(word in line for word in words)]


def answer(request):
    """What the model says: it sends when it is asked to, and is content with everything else."""
    if PROMPT in request.prompt and not request.tool_results:
        return mock_api.tool_use(SEND, {"to": "worker", "body": "please count"})
    return mock_api.text(SENT if request.tool_results else "noted")


def it_is_installed(api):
    said = plugin(api, "validate", MARKETPLACE)
    check("the marketplace is valid", "Validation passed" in said, said)
    before = doctor()
    absent = any("no agent's configuration" in line for line in before)
    check("doctor misses peerbus before", absent, before)
    plugin(api, "marketplace", "add", MARKETPLACE)
    plugin(api, "install", PLUGIN)
    after = doctor()
    there = any(line.startswith("ok ") and PLUGIN in line for line in after)
    check("doctor finds the plugin", there, after)
    wrong = [line for line in after if not line.startswith("ok ")]
    check("and misses nothing", not wrong, wrong)


def the_tools_may_be_called():
    """The permission that docs/CLAUDE_CODE.md names for the plugin."""
    scenario.settings({"permissions": {"defaultMode": "default", "allow": [RULE]}})


def a_session_is_on_the_bus(api, worker):
    with scenario.cli(api, *FLAG) as session:
        session.said(f'MCP server "{SERVER}": Successfully connected')
        session.type(PROMPT)
        [message] = scenario.drained(worker)
        found = (message["from"], message["body"])
        check("its model sends, and no user is asked", found == ("session", "please count"), found)
        eventually("the turn ends", lambda: SENT in session.screen())
        hooks_scenario.a_hook_waits(worker)
        identity = wake.send(worker, "are you idle?")
        asked = api.wait_for("what wakes an idle session", lambda r: identity[-8:] in r.context)
        line = f'worker: "are you idle?" [{identity[-8:]}]'
        check("a message wakes it", line in asked.context, asked.context)
        seen = wake.step(worker, identity, "seen")
        how = f"{seen.get('path')}, {seen.get('evidence')}"
        check(f"and is seen ({how})", seen.get("evidence") in ("transcript", "model_call"), seen)
    hooks_scenario.nothing_is_left()


def main():
    scenario.PROJECT.mkdir()
    os.environ["PEERBUS_NAME"] = "session"
    claude.seed(scenario.HOME, scenario.PROJECT, scenario.SERVER, allowed=False)
    # What proves that a message was seen needs no name of the request.
    api = mock_api.MockApi(answer, scenario.LOG / "api.jsonl", names_requests=False)
    try:
        scenario.start_broker()
        worker = scenario.start_worker()
        it_is_installed(api)
        the_tools_may_be_called()
        a_session_is_on_the_bus(api, worker)
        plugin(api, "uninstall", PLUGIN)
    except AssertionError as failed:
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
