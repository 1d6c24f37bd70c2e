#!/usr/bin/env python3
"""record.py PEERBUS [--check]: draws the picture of the guide, docs/session.svg.

It shows commands of a real run: a throwaway home, a broker, and an agent that answers by a script.
With --check nothing is written: exit code 1 when the commands say something else than the picture
shows, but for ids, times and names.
"""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from pathlib import Path
from xml.sax.saxutils import escape

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "claude-code"))
from mcp_client import Server  # noqa: E402
from support import PATIENCE_S, eventually  # noqa: E402

COLUMNS = 92
QUESTION, ANSWER = "Are the tests green?", "Yes, all 412 pass."
# Between this program and the adapter: an adapter's parent is its agent.
AGENT = ["sh", "-c", 'exec 3<&0; "$@" <&3 3<&- & exec <&- 3<&-; wait', "agent"]
COMMENT, PROMPT = "# ", "$ "
# What differs from run to run.
MASKS = [
    r"[0-9a-f]{32}",
    r"\d{4}-\d\d-\d\dT[\d:.]+Z",
    r"\d\d-\d\d \d\d:\d\d:\d\d",
    r"\bshell-[a-z0-9]{6}\b",
    r"\d+ (s|ms|min) ago|just now",
    r"version \d+\.\d+\.\d+",
    r"\b\d{2,7}\b",
    r" +$",
]


class Reader:
    """A home, a broker, an agent named bob, and a terminal."""

    def __init__(self, peerbus, home):
        self.lines = []
        (home / "bin").mkdir()
        (home / "bin" / "peerbus").symlink_to(peerbus)
        (home / "shop").mkdir()
        self.environment = {
            "HOME": str(home),
            "PATH": f"{home}/bin:{os.environ['PATH']}",
            "PEERBUS_AUTOSTART": "off",
            "TERM": "dumb",
        }
        log = open(home / "serve.txt", "w", encoding="utf-8")
        command = ["peerbus", "serve", "--listen", "127.0.0.1:0"]
        os.chdir(home / "shop")
        self.broker = subprocess.Popen(command, env=self.environment, stderr=log)
        command = [*AGENT, "peerbus", "adapter", "--adapter=generic", "--name", "bob"]
        self.bob = Server(command, self.environment, home / "bob.txt")

    def starts(self):
        self.bob.initialize({"name": "an agent", "version": "1"}, {})
        self.bob.notify("notifications/initialized")
        eventually("bob is on the bus", self._known)

    def _known(self):
        """Whether others are told what bob is."""
        command = ["peerbus", "peers", "--json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return '"client"' in done.stdout

    def answers(self, waited):
        """Answers the first message, once it is known how it waits."""
        if not waited.wait(PATIENCE_S):
            return
        [message] = eventually("mail", lambda: self.bob.call("bus.drain", {})["messages"])
        self.bob.call("bus.reply", {"msg_id": message["id"], "body": ANSWER})

    def says(self, words):
        self.lines.append(COMMENT + words)

    def types(self, command, until=None, seen=None):
        """Runs a command on a terminal and gives what it shows. `seen` is set when `until` is shown;
        of the steps that it tells before its last line, as it happens to look, that one is kept."""
        self.lines.append(PROMPT + command)
        process, terminal = pty.fork()
        if process == 0:
            # The size is there before the command looks.
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
            os.execvpe("sh", ["sh", "-c", f"exec {command}"], self.environment)
        shown = b""
        while True:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # the terminal's last process has ended
                break
            if not piece:
                break
            shown += piece
            if until and until in shown.decode(errors="replace"):
                seen.set()
        _, status = os.waitpid(process, 0)
        os.close(terminal)
        lines = shown.decode().replace("\r\n", "\n").splitlines()
        # Said on a machine that is slow at the moment.
        lines = [line for line in lines if not line.endswith(" …")]
        if os.waitstatus_to_exitcode(status) != 0 or "\x1b" in shown.decode():
            raise AssertionError(f"{command}: {lines}")
        if until:
            kept, keep = [], False
            for line in lines[:-1]:
                # What is indented continues the line before.
                keep = until in line or (keep and line.startswith("    "))
                kept += [line] if keep else []
            lines = kept + lines[-1:]
        self.lines += lines
        return lines

    def end(self):
        self.bob.process.stdin.close()
        self.bob.process.wait(PATIENCE_S)
        self.broker.send_signal(signal.SIGTERM)
        self.broker.wait(PATIENCE_S)


def run(peerbus):
    """The lines of a terminal in which somebody talks to an agent."""
    with tempfile.TemporaryDirectory(prefix="pb") as home:
        reader = Reader(peerbus, Path(home))
        try:
            reader.starts()
            reader.says("bob is an agent in another terminal; here a script answers in its place")
            reader.types("peerbus peers")
            waited = threading.Event()
            answering = threading.Thread(target=reader.answers, args=[waited])
            answering.start()
            reader.types(f'peerbus ask bob "{QUESTION}"', "nothing wakes bob", waited)
            answering.join()
            history = reader.types("peerbus history bob --ids")
            identity = re.search("[0-9a-f]{32}", "\n".join(history))[0]
            reader.says("how far did the question get, and who says so?")
            reader.types(f"peerbus status {identity}")
        finally:
            reader.end()
        return reader.lines


# One column and one row of the terminal, and what is around it, in pixels.
WIDE, HIGH, LEFT, ABOVE = 8.4, 20, 20, 48
TYPED_S, SHOWN_S, READ_S = 0.04, 0.3, 1.5


def session(lines):
    """The picture of a terminal. Each part hides until its time: where nothing moves, all is there."""
    parts, now = [], 0.4
    said = escape("\n".join(lines))
    # As a terminal wraps what is too long for it.
    rows = [line[at : at + COLUMNS] for line in lines for at in range(0, len(line) or 1, COLUMNS)]
    for row, line in enumerate(rows):
        y = ABOVE + HIGH * (row + 1)
        if line.startswith(PROMPT):
            now += READ_S if row else 0
            parts.append(text(0, y, "$", "p", now))
            for column, letter in enumerate(line[2:], 2):
                now += TYPED_S
                if letter != " ":
                    parts.append(text(column, y, letter, "c", now))
            now += SHOWN_S
        elif line.startswith(COMMENT):
            now += READ_S if row else 0
            parts.append(text(0, y, line, "n", now))
        else:
            now += 0.05
            parts.append(text(0, y, line, "o", now))
    width, height = 2 * LEFT + WIDE * COLUMNS, ABOVE + HIGH * (len(rows) + 1)
    dots = "".join(f'<circle cx="{24 + 20 * n}" cy="22" r="6" fill="#4a5060"/>' for n in range(3))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img">
<title>peerbus in a terminal: a question to an agent, its answer, and the evidence</title>
<desc>{said}</desc>
<style>
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; animation: hide linear; }}
@keyframes hide {{ from, to {{ opacity: 0; }} }}
@media (prefers-reduced-motion: reduce) {{ text {{ animation: none; }} }}
.p {{ fill: #7bd88f; }} .c {{ fill: #f2f4f8; }} .o {{ fill: #b6bdcc; }} .n {{ fill: #7f8799; font-style: italic; }}
</style>
<rect width="100%" height="100%" rx="10" fill="#1b1e27"/>
{dots}
{chr(10).join(parts)}
</svg>
"""


def text(column, y, words, kind, at):
    x, length = LEFT + WIDE * column, WIDE * len(words)
    fits = f' textLength="{length:.1f}"' if len(words) > 1 else ""
    hidden = f"animation-duration:{at:.2f}s"
    return f'<text class="{kind}" x="{x:.1f}" y="{y}"{fits} style="{hidden}">{escape(words)}</text>'


def masked(said):
    for mask in MASKS:
        said = re.sub(mask, "*", said, flags=re.MULTILINE)
    return re.sub("[* ]+", " ", said)


def shown(picture):
    """What a picture of a terminal says."""
    said = re.search("<desc>(.*?)</desc>", picture, re.DOTALL)[1]
    return said.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def main():
    peerbus, check = Path(sys.argv[1]).resolve(), "--check" in sys.argv[2:]
    lines = run(peerbus)
    path = TOP / "docs/session.svg"
    if not check:
        path.write_text(session(lines), encoding="utf-8")
        return 0
    now, then = masked("\n".join(lines)), masked(shown(path.read_text(encoding="utf-8")))
    if now != then:
        print(f"the picture is old: run {Path(__file__).name}\n{json.dumps([then, now])}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
