"""How long things take with the module and without, in figures: `run.py --scenario module_scenario --measure`.

A machine that does something else besides gives other figures, so nothing here is checked but that the
sessions work.
"""

import statistics
import time
from datetime import datetime

import node
import scenario
import wake
from support import eventually

MESSAGES = 20
STARTS = 7
# Between two looks at the screen.
LOOK_S = 0.01


def between(worker, identity, first, last):
    """The seconds between two steps of a message, as its sender was told them."""
    at = {step["state"]: datetime.fromisoformat(step["at"]) for step in wake.steps(worker, identity)}
    return (at[last] - at[first]).total_seconds()


def proofs(api, worker):
    """The seconds from each push to `seen`, and what proved it."""
    took, by = [], []
    for number in range(MESSAGES):
        eventually("the session is idle", node.idle)
        identity = wake.send(worker, f"message {number}")
        by.append(wake.step(worker, identity, "seen")["evidence"])
        took.append(between(worker, identity, "pushed", "seen"))
    return took, by


def start(api):
    """The seconds until a session shows its prompt."""
    began = time.monotonic()
    with scenario.cli(api) as session:
        while "❯" not in session.screen():
            time.sleep(LOOK_S)
        took = time.monotonic() - began
        session.said('MCP server "peerbus": Successfully connected')
    return took


def said(what, with_it, without):
    """Prints both medians, and the widest of each."""

    def figures(took):
        return f"{statistics.median(took):.3f} s ({min(took):.3f} to {max(took):.3f})"

    print(f"{what}: {figures(with_it)} with the module, {figures(without)} without")


def measure(api, worker, started, links, switched):
    """`started`: a session, `links`: how many links are open, `switched`: the module on or off."""
    starts, took = ([], []), []
    for on in (True, False):
        switched(on)
        with started(api) as session:
            session.said('MCP server "peerbus": Successfully connected')
            if on:
                eventually("the module is linked", lambda: links() == 1)
            seconds, by = proofs(api, worker)
            took.append(seconds)
            processes = len(session.debug_lines("$.process.run (peerbus): peerbus with"))
            hooks = len([line for line in session.debug_lines("Hooks: ") if "exec peerbus hook" in line])
            print(f"module {'on' if on else 'off'}: proven by {sorted(set(by))}, {by.count('model_call')} by it;"
                  f" {processes} processes of the module, {hooks} of hooks in {MESSAGES + 1} turns")
    for _ in range(STARTS):
        # In turn, so that what else runs here is the same for both.
        for on in (True, False):
            switched(on)
            starts[not on].append(start(api))
    said("from push to `seen`", *took)
    said("until the prompt", *starts)
