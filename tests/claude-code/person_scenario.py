"""What is tested: from "it waits for you" to "it goes on" takes one command of another terminal, or two clicks on
the page, on a wide window and on a phone's: for a permission of a session in a terminal, and for a permission and
a question of one that `peerbus run` drives.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import json
import os
import re
import shlex
import subprocess
import sys

import driver_scenario as driver
import hooks_scenario
import mock_api
import node
import scenario
from support import PATIENCE_S, check, eventually

sys.path.append("/tmp/repository/tests/web")

from chromium import Browser

DRIVEN, IN_A_TERMINAL = "anna", node.NAME
RUN, ASK = re.compile(r"please run: (touch [\w-]+)"), re.compile(r"please ask me, number (\d+)")
WINDOWS = {"a wide window": (1280, 900), "a phone": (390, 844)}
LIVE = "document.getElementById('state').dataset.state === 'live'"
# A button that has just moved under a finger takes none: see waiting.js.
SETTLED = "performance.now() - window.changed > 800"
CHOSEN = "Blue"


def answer(request):
    """What the models say: they run and ask what they are told to."""
    said = driver.told(request)
    if request.tool_results:
        return mock_api.text("so it is")
    if command := RUN.search(said):
        return mock_api.tool_use("Bash", {"command": command[1], "description": "Runs it"})
    if number := ASK.search(said):
        options = [{"label": label, "description": "a colour"} for label in ("Red", CHOSEN)]
        question = {"question": f"Which colour, number {number[1]}?", "header": "Colour", "multiSelect": False, "options": options}
        return mock_api.tool_use("AskUserQuestion", {"questions": [question]})
    return mock_api.text("so it is")


class Terminal:
    """Another terminal: the command that `peerbus status` names is run."""

    def __init__(self):
        self.where = "another terminal"

    def answers(self, name, asked):
        command = shlex.split(re.search(r"`(peerbus session [^`]*)`", waits(name, asked))[1])
        # Of a question the number is the person's to say.
        command = ["2" if word == "NUMBER" else word for word in command]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S)
        check(f"one command: {' '.join(command[1:3])}", done.returncode == 0, done)


class Window:
    """The page in a window of this size."""

    def __init__(self, browser, link, where):
        self.where, self.page = where, browser.page(*WINDOWS[where])
        self.page.open(link)
        self.page.until(LIVE)
        self.page.do("""window.clicks = 0;
            addEventListener("pointerdown", () => (window.clicks += 1), true);
            window.changed = performance.now();
            new MutationObserver(() => (window.changed = performance.now()))
                .observe(document.getElementById("waiting-list"), { childList: true }); 0""")

    def answers(self, name, asked):
        waits(name, asked)
        card = f"[...document.querySelectorAll('#waiting-list .card')].find((one) => one.innerText.includes({json.dumps(asked)}))"
        self.page.until(f"{card} && {SETTLED}")
        question = self.page.do(f"Boolean({card}.querySelector('.option'))")
        wanted = [("label", CHOSEN), ("button", "Answer")] if question else [("button", "Allow once")]
        before = self.page.do("window.clicks")
        for tag, text in wanted:
            find = f"[...{card}.querySelectorAll('{tag}')].find((one) => one.innerText.startsWith({json.dumps(text)}))"
            self.page.click(find)
        self.page.until(f"!({card})")
        clicks = self.page.do("window.clicks") - before
        check(f"it takes {clicks} of at most two clicks", 0 < clicks <= 2)
        wide = self.page.do("document.documentElement.scrollWidth")
        check("all of it is in the window", wide <= WINDOWS[self.where][0], wide)
        check("the page has no complaint", not self.page.complaints(), self.page.complaints())


def waits(name, asked):
    """The line in which `peerbus status` says that a session waits, and for what."""

    def look():
        lines = subprocess.run(["peerbus", "status"], capture_output=True, text=True, timeout=PATIENCE_S).stdout
        return next((line for line in lines.splitlines() if line.startswith(f"{name} waits for you") and asked in line), None)

    return eventually(f"`status` says that {name} waits for you: {asked}", look)


class Person:
    """Who has work done, and is asked about it."""

    count = 0

    def __init__(self, api, cli):
        self.api, self.cli = api, cli

    def rests(self, name):
        def look():
            sessions = json.loads(node.peerbus("list", "--json").stdout)["sessions"]
            return any(it["name"] == name and it["status"] == "idle" for it in sessions)

        eventually(f"{name} is idle", look)

    def tells(self, name, words):
        """Has one of them do something. Gives how many requests the models got before."""
        self.rests(name)
        since = len(self.api.asked)
        if name == IN_A_TERMINAL:
            self.cli.type(words)
        else:
            done = node.peerbus("inject", name, words)
            check(f"{name} is told: {words}", done.returncode == 0, done)
        return since

    def permits(self, name, place):
        Person.count += 1
        file = f"file-{self.count}"
        self.tells(name, f"please run: touch {file}")
        place.answers(name, f"touch {file}")
        eventually("the tool runs", (scenario.PROJECT / file).exists)
        self.rests(name)
        check(f"a permission of {name} is given from {place.where}, and it goes on", True)

    def replies(self, name, place):
        Person.count += 1
        since = self.tells(name, f"please ask me, number {self.count}")
        place.answers(name, f"Which colour, number {self.count}?")
        told = self.api.wait_for("the answer", lambda r: r.tool_results, since)
        said = json.dumps(told.tool_results)
        check("the model reads what was chosen", CHOSEN in said and "Red" not in said, said)
        self.rests(name)
        check(f"a question of {name} is answered from {place.where}, and it goes on", True)


def start_gateway():
    """`peerbus web`, as its user starts it; gives the link to the page."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    with open(scenario.LOG / "web.txt", "w", encoding="utf-8") as log:
        gateway = subprocess.Popen(["peerbus", "web", "--open", "--listen", "127.0.0.1:0"], stderr=log, **pipes)
    return gateway, gateway.stdout.readline().strip()


def main():
    scenario.PROJECT.mkdir()
    os.symlink("/tmp/cli/claude", "/tmp/bin/claude")
    api = mock_api.MockApi(answer, scenario.LOG / "api.jsonl")
    try:
        scenario.start_broker()
        worker = scenario.start_worker()
        hooks_scenario.configure()
        node.GATES.write_text("approve = true\n", encoding="utf-8")
        anna = driver.Driver(api, DRIVEN)
        driver.is_ready(worker, DRIVEN, driver.version_of("/tmp/cli/claude"))
        gateway, link = start_gateway()
        with scenario.cli(api) as cli, Browser(scenario.HOME / "profile") as browser:
            person = Person(api, cli)
            eventually("the session is on the bus", node.ours)
            # A session that nobody has written to yet may ask its user something.
            cli.type("good morning")
            wide = Window(browser, link, "a wide window")
            # The link opens once, in this browser.
            narrow = Window(browser, link.split("/open")[0], "a phone")
            for place in (Terminal(), wide, narrow):
                person.permits(IN_A_TERMINAL, place)
                person.permits(DRIVEN, place)
                person.replies(DRIVEN, place)
        gateway.terminate()
        check("the gateway ends", gateway.wait(PATIENCE_S) == 0)
        check("a session is ended by its node", node.peerbus("stop", DRIVEN).returncode == 0)
        check("its driver ends", anna.process.wait(PATIENCE_S) == 0)
    except AssertionError as failed:
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
