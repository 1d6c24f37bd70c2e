"""What is tested: a new user's first minute. Nothing was ever started or set; `peerbus install` and a
session are all it takes for a message from a shell to wake the session and be seen.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import json
import os
import subprocess
import sys
import time

import claude
import mock_api
import scenario
from support import check, eventually

TEXT = "what are you working on?"
LIMIT_S = 60


def peerbus(*arguments):
    """Runs a command as in a shell, and gives what it prints."""
    done = subprocess.run(
        ["peerbus", *arguments],
        cwd=scenario.PROJECT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    said = done.stdout + done.stderr
    check(f"peerbus {arguments[0]}", done.returncode == 0, said)
    return done.stdout


def session_name():
    """The name under which the session is on the bus, once it is."""
    peers = json.loads(peerbus("peers", "--json"))["peers"]
    names = [peer["name"] for peer in peers if peer.get("online") and "activity" in str(peer)]
    return names[0] if names else None


def main():
    scenario.PROJECT.mkdir()
    set_by_hand = [name for name in os.environ if name.startswith("PEERBUS")]
    for name in set_by_hand:
        # The kit's own: it keeps brokers from being started.
        del os.environ[name]
    claude.seed(scenario.HOME, scenario.PROJECT, scenario.SERVER, allowed=False)
    api = mock_api.MockApi(lambda _: mock_api.text("noted"), scenario.LOG / "api.jsonl")
    begun = time.monotonic()
    try:
        peerbus("install", "claude-code")
        with scenario.cli(api) as session:
            session.said('MCP server "peerbus": Successfully connected')
            name = eventually("the session is on the bus", session_name)
            said = peerbus("send", name, TEXT, "--wait", "seen")
            check("seen comes back", "seen" in said.splitlines()[-1], said)
            api.wait_for("the model has the message", lambda request: TEXT in request.context)
        seconds = time.monotonic() - begun
        check(f"all of it takes less than {LIMIT_S} s ({seconds:.1f})", seconds < LIMIT_S, seconds)
        peerbus("stop")
    except AssertionError as failed:
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
