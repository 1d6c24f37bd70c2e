"""An agent's program in a terminal of tmux."""

import os
import subprocess

from support import eventually


class Screen:
    """One run of a program, and what its user sees and types."""

    count = 0

    def __init__(self, command, environment, project):
        Screen.count += 1
        # A server of its own: one that is ending does not take a new session.
        self.tmux = ["tmux", "-S", f"/tmp/screen-{self.count}.sock", "-f", "/dev/null"]
        session = ["new-session", "-d", "-x", "150", "-y", "50", "-c", str(project)]
        keep = [";", "set-option", "-g", "remain-on-exit", "on"]
        env = os.environ | {"PWD": str(project)} | environment
        subprocess.run([*self.tmux, *session, *command, *keep], env=env, check=True)

    def _tmux(self, *arguments):
        done = subprocess.run([*self.tmux, *arguments], check=True, capture_output=True, text=True)
        return done.stdout

    def text(self):
        """What the user sees."""
        lines = (line.rstrip() for line in self._tmux("capture-pane", "-p").splitlines())
        return "\n".join(line for line in lines if line)

    def shows(self, word):
        """Waits until a word is on the screen."""
        eventually(f"the screen shows: {word}", lambda: word in self.text())

    def half_type(self, words):
        """Types words, and waits until they are on the screen."""
        self._tmux("send-keys", "-l", words)
        self.shows(words)

    def key(self, name):
        """Presses a key, by its name in tmux."""
        self._tmux("send-keys", name)

    def type(self, words):
        """Types a line and sends it. It is on the screen before the key that sends it is pressed:
        keys that come with it would count as pasted."""
        self.half_type(words)
        self.key("Enter")

    def end(self):
        """Ends the program with its terminal, as one that is closed does."""
        self._tmux("kill-server")
