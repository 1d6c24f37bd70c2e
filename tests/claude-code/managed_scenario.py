"""What is tested: settings of who manages the machine. Where they keep the CLI from starting the server
or from running hooks, `peerbus doctor` says so, and where they let them, it does not.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import claude
import mock_api
import scenario
from support import check

# Where the CLI reads them on Linux.
MANAGED = Path("/etc/claude-code")
# What a hook of the user's own leaves behind.
MARK = Path("/tmp/a-hook-ran")


def own_etc():
    """Puts a copy of /etc in its place, in which something can be written."""
    try:
        shutil.copytree("/etc", "/tmp/etc", symlinks=True)
    except shutil.Error:
        pass  # Secrets of the machine's are not needed.
    subprocess.run(["mount", "--bind", "/tmp/etc", "/etc"], check=True)
    MANAGED.mkdir(exist_ok=True)


def manage(rules):
    (MANAGED / "managed-settings.json").write_text(json.dumps(rules))


def doctor():
    """What does not work."""
    done = subprocess.run(["peerbus", "doctor", "--json"], cwd=scenario.PROJECT, capture_output=True, text=True)
    checks = json.loads(done.stdout)["checks"]
    return [each["says"] for each in checks if each["found"] == "failed"]


def turn(api, says):
    """A session of one turn: whether it was on the bus, and whether the user's hook ran."""
    MARK.unlink(missing_ok=True)
    with scenario.cli(api) as session:
        if says == "connected":
            session.said('MCP server "peerbus": Successfully connected')
        since = len(api.asked)
        session.type("hello")
        api.wait_for("the model is asked", lambda request: "hello" in request.prompt, since)
        connected = session.debug_lines('MCP server "peerbus": Successfully connected')
    return bool(connected), MARK.exists()


def main():
    scenario.PROJECT.mkdir()
    for name in [name for name in os.environ if name.startswith("PEERBUS")]:
        del os.environ[name]
    claude.seed(scenario.HOME, scenario.PROJECT, scenario.SERVER, allowed=False)
    own_etc()
    user = scenario.HOME / ".claude" / "settings.json"
    settings = json.loads(user.read_text()) if user.exists() else {}
    hook = {"hooks": [{"type": "command", "command": f"touch {MARK}"}]}
    settings.setdefault("hooks", {})["UserPromptSubmit"] = [hook]
    user.write_text(json.dumps(settings))
    subprocess.run(["peerbus", "install", "claude-code"], cwd=scenario.PROJECT, check=True)
    entry = json.loads((scenario.HOME / ".claude.json").read_text())["mcpServers"]["peerbus"]
    ours = {"serverCommand": [entry["command"], *entry["args"]]}
    api = mock_api.MockApi(lambda _: mock_api.text("noted"), scenario.LOG / "api.jsonl")
    denied = "has peerbus in `deniedMcpServers`"
    try:
        for rules, says, connects, hooks in [
            ({"allowedMcpServers": [ours]}, "", True, True),
            ({"deniedMcpServers": [{"serverName": "peerbus"}]}, denied, False, True),
            ({"deniedMcpServers": [ours]}, denied, False, True),
            ({"allowedMcpServers": []}, "has `allowedMcpServers` without peerbus", False, True),
            ({"allowManagedHooksOnly": True}, "has `allowManagedHooksOnly`", True, False),
            ({"disableAllHooks": True}, "has `disableAllHooks`", True, False),
        ]:
            manage(rules)
            failed = doctor()
            told = [line for line in failed if says and says in line]
            check(f"doctor says it of {rules}", len(failed) == len(told) == bool(says), failed)
            found = turn(api, "connected" if connects else "")
            check(f"so does the CLI: {found}", found == (connects, hooks), rules)
        subprocess.run(["peerbus", "stop"], check=True)
    except AssertionError as failed:
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
