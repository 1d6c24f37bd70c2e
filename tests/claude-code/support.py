"""What every part of the scenario stands on."""

import time

# How long anything may take before the scenario gives up on it. Far above what it does take.
PATIENCE_S = 60
# Between two looks at what only tells when it is asked.
LOOK_S = 0.05


def check(what, holds, found=""):
    """Notes a check, and ends the scenario when it does not hold."""
    if not holds:
        raise AssertionError(f"{what}: {found!r}")
    print(f"ok {what}")


def eventually(what, ask, patience_s=PATIENCE_S):
    """Asks until the answer is true, and gives it."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if answer := ask():
            return answer
        time.sleep(LOOK_S)
    raise AssertionError(f"never happened: {what}")
