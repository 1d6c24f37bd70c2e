"""The real CLI in a terminal of tmux, in a home where its first-run dialogs are answered."""

import json
import os
import subprocess
import sys
from pathlib import Path

from support import check, eventually

PROGRAM = "/tmp/cli/claude"
KEY = "made-up-key"


def seed(home, project, server, allowed=True):
    """Answers what the CLI would ask at its first start: theme, key, trust in the project, the
    server in `.mcp.json`, and whether the model may call that server's tools (`allowed`). What is not allowed
    there is asked of the user, on the screen; by default the CLI would have another model judge. The module is
    switched off where this program's arguments say so."""
    state = {
        "hasCompletedOnboarding": True,
        # The offer of auto mode, which 2.1.287 makes.
        "hasSeenAutoDefaultNudge": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {
            str(project): {
                "hasTrustDialogAccepted": True,
                "hasCompletedProjectOnboarding": True,
                "enabledMcpjsonServers": [server],
            }
        },
    }
    (home / ".claude.json").write_text(json.dumps(state))
    allow = [f"mcp__{server}__*"] if allowed else []
    settings = {"permissions": {"defaultMode": "default", "allow": allow}}
    if "refused" in sys.argv:
        settings["enabledPlugins"] = {"peerbus@skills-dir": False}
    (home / ".claude").mkdir()
    (home / ".claude" / "settings.json").write_text(json.dumps(settings))


def environment(api_url):
    """What the CLI is started with."""
    return os.environ | {
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": api_url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def version():
    """Of the CLI, such as 2.1.331."""
    said = subprocess.run([PROGRAM, "--version"], capture_output=True, check=True, text=True).stdout
    return said.split()[0]


class Claude:
    """One interactive session, which the command `within` starts elsewhere, if one is given."""

    count = 0

    def __init__(self, project, api_url, log, *arguments, home=None, within=()):
        Claude.count += 1
        self.home = home or Path.home()
        # A server of its own: one that is ending does not take a new session.
        self.tmux = ["tmux", "-S", f"/tmp/tmux-{self.count}.sock", "-f", "/dev/null"]
        self.debug = Path(log) / f"claude-debug-{self.count}.txt"
        self.status = Path(log) / f"claude-status-{self.count}.txt"
        session = ["new-session", "-d", "-x", "150", "-y", "50", "-c", str(project)]
        # The status goes to a file: tmux 3.3 does not always tell the one of a pane that ended.
        program = " ".join([PROGRAM, *arguments])
        command = f"{program} --debug-file {self.debug}; echo $? > {self.status}"
        keep = [";", "set-option", "-g", "remain-on-exit", "on"]
        around = environment(api_url) | {"HOME": str(self.home)}
        subprocess.run([*within, *self.tmux, *session, command, *keep], env=around, check=True)

    def _tmux(self, *arguments):
        done = subprocess.run([*self.tmux, *arguments], check=True, capture_output=True, text=True)
        return done.stdout

    def screen(self):
        """What the user sees."""
        lines = (line.rstrip() for line in self._tmux("capture-pane", "-p").splitlines())
        return "\n".join(line for line in lines if line)

    def debug_lines(self, word):
        """The lines of the CLI's own log with this word."""
        if not self.debug.exists():
            return []
        lines = self.debug.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if word in line]

    def activity(self):
        """What the session does, as the CLI's own file says: idle, busy or waiting."""
        files = (self.home / ".claude" / "sessions").glob("*.json")
        try:
            return " ".join(json.loads(file.read_text())["status"] for file in files)
        except (OSError, ValueError, KeyError):
            # It is written anew at this moment.
            return ""

    def ended(self):
        """The exit status of the CLI as a text; empty while it runs."""
        return self.status.read_text().strip() if self.status.exists() else ""

    def said(self, word):
        """Waits for a word in the CLI's log and gives the line."""

        def ask():
            lines = self.debug_lines(word)
            if not lines and self.ended():
                raise AssertionError(f"the CLI ended before it logged: {word}")
            return lines

        return eventually(f"the CLI logs: {word}", ask)[0]

    def type(self, words):
        """Types a line and sends it. The line is on the screen before the key that sends it is
        pressed: keys that come with it would count as pasted."""
        eventually("the CLI shows its prompt", lambda: "❯" in self.screen())
        self._tmux("send-keys", "-l", words)
        eventually(f"the CLI shows what was typed: {words}", lambda: words in self.screen())
        self._tmux("send-keys", "Enter")

    def press(self, key):
        """Presses a key, by tmux's name for it."""
        self._tmux("send-keys", key)

    def quit(self):
        """Leaves the CLI as a user does, who is asked first where a command runs in the background."""
        self.type("/exit")

        def leaves():
            if "Exit and stop tasks" in self.screen():
                self.press("Enter")
            return self.ended()

        status = eventually("the CLI ends", leaves)
        check("the CLI exits", status == "0", status)
        self._tmux("kill-server")
