"""A bus of its own in a fresh home: a broker, agents, a gateway, and who writes to whom."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
import tty
from pathlib import Path

PATIENCE = 30
# Stands for an agent's client: whoever starts an adapter, and what stands below, decides nothing.
CLIENT = """import subprocess, sys
adapter = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
for line in sys.stdin.buffer:
    adapter.stdin.write(line)
    adapter.stdin.flush()
adapter.stdin.close()
adapter.wait()"""
TESTS = Path(__file__).resolve().parent.parent


class Lines:
    """What a process prints, line by line; all of it is kept."""

    def __init__(self, pipe):
        self.all, self.new = [], queue.Queue()
        threading.Thread(target=self.read, args=(pipe,), daemon=True).start()

    def read(self, pipe):
        for line in pipe:
            self.all.append(line.rstrip("\n"))
            self.new.put(self.all[-1])
        self.new.put(None)

    def find(self, pick, what):
        until = time.monotonic() + PATIENCE
        while True:
            try:
                line = self.new.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"never came: {what}; printed was {self.all}")
            if (found := pick(line)) is not None:
                return found


def behind(begin):
    return lambda line: line[len(begin) :] if line.startswith(begin) else None


class Bus:
    """The home, and the processes in it."""

    def __init__(self, peerbus, home):
        self.peerbus, self.home, self.children = str(Path(peerbus).resolve()), Path(home), []
        self.env = {"HOME": str(home), "PATH": os.environ["PATH"], "PEERBUS_AUTOSTART": "off"}
        self.config = self.home / ".config/peerbus"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in reversed(self.children):
            child.kill()
            child.wait()

    def start(self, *args, env=None, **pipes):
        child = subprocess.Popen(
            [*map(str, args)], env=self.env | (env or {}), cwd=self.home, text=True, **pipes
        )
        self.children.append(child)
        return child

    def run(self, *args):
        done = subprocess.run(
            [self.peerbus, *args], env=self.env, cwd=self.home, text=True, capture_output=True, timeout=60
        )
        if done.returncode:
            raise AssertionError(f"peerbus {args[0]}: {done.returncode}: {done.stderr}")
        return done.stdout

    def serve(self):
        broker = self.start(self.peerbus, "serve", "--listen=127.0.0.1:0", stderr=subprocess.PIPE)
        said = Lines(broker.stderr)
        said.find(behind("state in "), "the broker serves")
        return broker

    def web(self, *args):
        """A gateway: its address, its one-time link, its process, and what it prints."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        gateway = self.start(self.peerbus, "web", "--listen=127.0.0.1:0", "--open", *args, **pipes)
        told = Lines(gateway.stderr)
        link = Lines(gateway.stdout).find(behind("http"), "the link")
        return "http" + link, gateway, told

    def rules(self, *rules):
        file = self.config / "credentials.toml"
        file.write_text(f"{file.read_text()}\nsenders = {json.dumps(rules)}\n")

    def send(self, sender, to, body, *more):
        said = self.run("send", to, body, "--name", sender, "--json", *more)
        return json.loads(said)["id"]

    def sessions(self):
        return json.loads(self.run("session", "list", "--json"))["sessions"]

    def wait_for(self, name):
        until = time.monotonic() + PATIENCE
        while all(session["name"] != name for session in self.sessions()):
            assert time.monotonic() < until, f"{name} never came: {self.sessions()}"


class Agent:
    """An agent of any kind, on the adapter for those."""

    def __init__(self, bus, name, client="some-bot", env=None):
        self.child = bus.start(
            sys.executable, "-c", CLIENT, bus.peerbus, "adapter", "--adapter=generic", f"--name={name}", env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.last = 0
        about = {"protocolVersion": "2025-11-25", "capabilities": {}}
        self.ask("initialize", {**about, "clientInfo": {"name": client, "version": "1"}})
        self.say({"method": "notifications/initialized"})
        bus.wait_for(name)

    def say(self, message):
        self.child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.child.stdin.flush()

    def ask(self, method, params):
        self.last += 1
        self.say({"id": self.last, "method": method, "params": params})
        for line in self.child.stdout:
            message = json.loads(line)
            if message.get("id") == self.last and "method" not in message:
                return message["result"]
            if message.get("method") == "ping":
                self.say({"id": message["id"], "result": {}})
        raise AssertionError(f"the adapter has ended instead of answering {method}")

    def call(self, tool, **arguments):
        result = self.ask("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise AssertionError(f"{tool} failed: {result}")
        return result["structuredContent"]

    def read(self):
        """Reads its mail and says so, until there is some."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            mail = self.call("bus.drain")["messages"]
            if mail:
                self.call("bus.ack", ids=[one["id"] for one in mail])
                return mail
        raise AssertionError("no mail came")


class Coder:
    """Stands in for a session of Claude Code, with the real adapter and hooks (see it/session.py)."""

    def __init__(self, bus, name):
        self.bus, self.hooks = bus, 0
        # It reads at a terminal, which has a name.
        ours, its = os.openpty()
        # Lines are as long as they are.
        tty.setraw(its)
        self.terminal = os.ttyname(its).removeprefix("/dev/")
        self.input = open(ours, "w")  # noqa: SIM115
        self.child = bus.start(
            sys.executable, TESTS / "it/session.py", bus.peerbus, env={"PEERBUS_NAME": name},
            stdin=its, stdout=subprocess.PIPE,
        )  # fmt: skip
        os.close(its)
        self.said = Lines(self.child.stdout)
        self.adapter = int(self.said.find(lambda line: line, "the adapter's number"))
        bus.wait_for(name)

    def is_now(self, status):
        """What its client says of itself in its file."""
        file = self.bus.home / f".claude/sessions/{self.child.pid}.json"
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(json.loads(file.read_text()) | {"status": status}))
        fresh.rename(file)

    def begin(self, event, **more):
        """Runs a hook that may wait; what it says at its end is found by `end`."""
        self.hooks += 1
        told = json.dumps({"hook_event_name": event, **more})
        self.input.write(f"hook {self.hooks} {told}\n")
        self.input.flush()
        return self.hooks

    def end(self, hook):
        return self.said.find(behind(f"hook {hook} "), f"the end of hook {hook}")
