"""What is tested: a shell asks a session of Claude Code for something, which says that it works at it, and
answers; it answers, too, in the session after a kill, and with `--remind` after a reminder.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import contextlib
import os
import signal
import sys

import asking
import claude
import mock_api
import scenario
import wake
from support import check, eventually


class Holder(asking.Player):
    """The session, for asking.py."""

    name, check = "session", staticmethod(check)

    def __init__(self):
        super().__init__()
        self.api = mock_api.MockApi(self.says, scenario.LOG / "api.jsonl")
        self.starts()
        # A session that nobody has written to yet may ask its user something.
        self.session.type("good morning")

    def says(self, request):
        # What its user says besides is no part of a script.
        besides = not request.tool_results and not asking.JOB.search(request.prompt)
        call = None if besides else self.next(request.context)
        if call is None:
            return mock_api.text("so it is")
        verb, given = call
        return mock_api.tool_use(f"mcp__{scenario.SERVER}__bus_{verb}", given)

    def asked(self, script):
        return script.asked

    def texts(self):
        return dict.fromkeys(asked.context for asked in self.api.asked)

    def starts(self):
        self.session = claude.Claude(scenario.PROJECT, self.api.url, scenario.LOG)
        self.session.said(f'MCP server "{scenario.SERVER}": Successfully connected')

    def ready(self):
        eventually("the session is on the bus", lambda: asking.peer(self.name).get("wake"))
        # A session that was killed has left a file that says what it did.
        eventually("the session is idle", lambda: asking.peer(self.name).get("activity") == "idle")

    def dies(self):
        pane = self.session._tmux("display-message", "-p", "#{pane_pid}").strip()
        below = asking.below(int(pane))
        for pid in (*below, *wake.adapters()):
            # One may end with another.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually("no adapter is left", lambda: not wake.adapters())


def main():
    scenario.PROJECT.mkdir()
    scenario.write_mcp_json(scenario.MCP_JSON)
    claude.seed(scenario.HOME, scenario.PROJECT, scenario.SERVER)
    scenario.start_broker()
    holder = Holder()
    try:
        for part in asking.parts("remind" in sys.argv):
            part(holder)
        holder.session.quit()
    except AssertionError as failed:
        print(f"--- the screen\n{holder.session.screen()}")
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
