#!/usr/bin/env python3
"""Drives both adapters with the MCP Inspector's command line.

    inspector_drive.py PEERBUS [--home DIR] [--inspector mcp-inspector]

PEERBUS is the binary. DIR is the HOME in which `peerbus serve` is running already. The Inspector is
a Node program: `npm install @modelcontextprotocol/inspector@2.12.0`. Prints one line per check.

Exit codes: 0 every check held, 1 one did not, 2 usage, 3 the Inspector is not installed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time

TOOLS = [f"bus.{verb}" for verb in "send reply ask status broadcast peers rename join leave inbox ack".split()]
PATIENCE_S = 60


def check(what, holds, found=""):
    if not holds:
        print(f"FAILED {what}: {found!r}", flush=True)
        sys.exit(1)
    print(f"ok {what}", flush=True)


class Inspector:
    """The Inspector on one adapter; each request is a process of its own."""

    def __init__(self, args, adapter, name):
        self.command = [args.inspector, "--cli", args.peerbus, "adapter"]
        self.command += ["--adapter", adapter, "--name", name]
        self.env = dict(os.environ, HOME=args.home, PEERBUS_AUTOSTART="off")

    def run(self, method, *options):
        """Runs one request to its end."""
        command = [*self.command, "--method", method, *options]
        return subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S
        )

    def request(self, method, *options):
        """Runs one request and gives what it printed, decoded."""
        done = self.run(method, *options)
        check(f"inspector {method} {' '.join(options)}", done.returncode == 0, done.stderr)
        return json.loads(done.stdout)

    def call(self, tool, **arguments):
        """Calls a tool and gives its result."""
        return self.request("tools/call", "--tool-name", tool, *tool_args(arguments))

    def call_fails(self, tool, **arguments):
        """Calls a tool that fails, which the Inspector takes for a failure of its own."""
        done = self.run("tools/call", "--tool-name", tool, *tool_args(arguments))
        failed = done.returncode != 0 and "isError" in done.stdout + done.stderr
        check(f"inspector {tool} {arguments} fails", failed, done)


def tool_args(arguments):
    """The options for a tool's arguments."""
    return [part for name, value in arguments.items() for part in ("--tool-arg", f"{name}={value}")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peerbus")
    parser.add_argument("--home", default=os.environ.get("HOME", ""))
    parser.add_argument("--inspector", default="mcp-inspector")
    args = parser.parse_args()
    if not os.access(args.peerbus, os.X_OK):
        parser.error(f"{args.peerbus} is not an executable file")
    if shutil.which(args.inspector) is None:
        print(f"{args.inspector} is not installed", file=sys.stderr)
        return 3

    session = Inspector(args, "cc", "inspected-session")
    worker = Inspector(args, "generic", "inspected-worker")
    # --strict: exit 6 on a schema that some clients cannot read.
    tools = [tool["name"] for tool in session.request("tools/list", "--strict")["tools"]]
    check("cc tools", sorted(tools) == sorted(TOOLS), tools)
    tools = [tool["name"] for tool in worker.request("tools/list", "--strict")["tools"]]
    check("generic tools", sorted(tools) == sorted([*TOOLS, "bus.drain"]), tools)

    peers = session.call("bus.peers")["structuredContent"]
    check("self", peers["self"] == "inspected-session", peers)
    sent = session.call("bus.send", to="inspected-worker", body="hello")["structuredContent"]
    check("sent", sent["sent"] and sent["status"] == "accepted" and sent["online"] == 0, sent)
    # The adapter drains as soon as it is connected: the message may be a moment behind.
    deadline = time.monotonic() + PATIENCE_S
    messages = []
    while not messages and time.monotonic() < deadline:
        messages = worker.call("bus.drain")["structuredContent"]["messages"]
    check("drained", [message["body"] for message in messages] == ["hello"], messages)

    session.call_fails("bus.send", to="nobody-at-all", body="hello")
    return 0


if __name__ == "__main__":
    sys.exit(main())
