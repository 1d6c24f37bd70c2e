"""What is tested: two sessions of Claude Code on two machines, one broker, after `invite` and `join`.

The machine that joins has a network namespace of its own: a cable to the other one, and its own loopback.
Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one did not.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import claude
import mock_api
import scenario
from support import check, eventually

ASK = "ask bob of the laptop"
QUESTION = "does the build of the laptop pass?"
REPLY = "it does, since noon"
LAST_WORDS = "so that is that"
TOOL = f"mcp__{scenario.SERVER}__bus_"
# Of the desk, and of the laptop at the other end of the cable.
DESK, LAPTOP = "10.9.8.1", "10.9.8.2"


class Machine:
    """A home, a network, and what a session's model is shown."""

    def __init__(self, name, peer, answer, network=()):
        self.network = network
        self.home = Path(f"/tmp/{name}")
        self.project = self.home / "project"
        self.project.mkdir(parents=True)
        # As on a user's machine, a broker is started when one is needed.
        self.environment = os.environ | {"HOME": str(self.home), "PEERBUS_AUTOSTART": "on"}
        adapter = scenario.MCP_JSON["mcpServers"][scenario.SERVER] | {"env": {"PEERBUS_NAME": peer}}
        config = json.dumps({"mcpServers": {scenario.SERVER: adapter}})
        (self.project / ".mcp.json").write_text(config, encoding="utf-8")
        claude.seed(self.home, self.project, scenario.SERVER)
        self.api = mock_api.MockApi(answer, scenario.LOG / f"api-{name}.jsonl", host=DESK)

    def peerbus(self, *arguments, typed=""):
        """Runs a command as in a shell of this machine, and gives what it prints."""
        done = subprocess.run(
            [*self.network, "peerbus", *arguments],
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            input=typed,
        )
        if done.returncode != 0:
            raise AssertionError(f"peerbus {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def session(self):
        """A session of the real CLI, which is on the bus."""
        session = claude.Claude(self.project, self.api.url, scenario.LOG, home=self.home, within=self.network)
        session.said(f'MCP server "{scenario.SERVER}": Successfully connected')
        # A session that nobody has written to yet may ask its user something.
        session.type("good morning")
        eventually("the turn ends", lambda: LAST_WORDS in session.screen() and session.activity() == "idle")
        return session


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def cable():
    """Joins this network to another one. Gives the command that runs another one there."""
    there = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL)
    network = f"/proc/{there.pid}/ns/net"
    eventually("there is another network", lambda: not os.path.samefile(network, "/proc/self/ns/net"))
    within = ["nsenter", f"--net={network}"]
    ip("link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", str(there.pid))
    for command, address in (([], DESK), (within, LAPTOP)):
        for line in (f"addr add {address}/24 dev cable", "link set cable up", "link set lo up"):
            subprocess.run([*command, "ip", *line.split()], check=True)
    # By it the desk knows under which address others reach it.
    ip("route", "add", "default", "via", LAPTOP)
    return within


def alice(request):
    """What the model at the desk says."""
    if ASK in request.prompt and not request.tool_results:
        return mock_api.tool_use(f"{TOOL}send", {"to": "laptop-bob", "body": QUESTION})
    return mock_api.text(LAST_WORDS)


def bob(request):
    """What the model at the laptop says: it answers what it is asked."""
    asked = re.search(rf'alice: "{re.escape(QUESTION)}".* \[([^\]]+)\]', request.prompt)
    if asked and not request.tool_results:
        return mock_api.tool_use(f"{TOOL}reply", {"msg_id": asked[1], "body": REPLY})
    return mock_api.text(LAST_WORDS)


def the_laptop_joins(desk, laptop):
    code = desk.peerbus("invite", "laptop")
    check("the code has the desk's address", code.startswith(f"pb1:{DESK}:"), code)
    said = laptop.peerbus("join", "--yes", typed=code)
    check("the laptop joins", said.startswith(f"joined the broker at wss://{DESK}:"), said)


def woken(machine, words, sender):
    """Waits until the model of a machine is shown words of this sender. Gives the message's id."""
    asked = machine.api.wait_for(words, lambda request: words in request.context)
    [line] = [line for line in asked.context.splitlines() if words in line]
    check(f"an idle session is woken by {sender}", f"{sender}: " in line, line)
    return line.rsplit("[", 1)[1].split("]", 1)[0]


def seen(machine, identity, *more):
    """Waits until the sender of a message knows how it was seen."""
    status = lambda: machine.peerbus("status", identity, *more)
    told = eventually("seen comes back", lambda: (said := status()) and "seen" in said and said)
    check("and how it was seen", "by socket" in told, told)


def main():
    sessions = []
    try:
        within = cable()
        desk, laptop = Machine("desk", "alice", alice), Machine("laptop", "laptop-bob", bob, within)
        the_laptop_joins(desk, laptop)
        sessions.extend([desk.session(), laptop.session()])
        sessions[0].type(ASK)
        seen(desk, woken(laptop, QUESTION, "alice"))
        seen(desk, woken(desk, REPLY, "laptop-bob"))
        check("there is one broker", not (laptop.home / ".local/state/peerbus/peerbus.db").exists())
        for one in sessions:
            eventually("the turn ends", lambda one=one: one.activity() == "idle")
            one.quit()
        desk.peerbus("stop")
    except AssertionError as failed:
        for one in sessions:
            print(f"--- a screen\n{one.screen()}")
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
