#!/usr/bin/env python3
"""Drives both adapters with the official MCP SDK for Python, as agents' clients would.

    sdk_drive.py PEERBUS [--home DIR] [--name-prefix P]

PEERBUS is the binary. DIR is the HOME in which `peerbus serve` is running already; everything else
is found from there, as a user's adapters find it. Prints one line per check.

Exit codes: 0 every check held, 1 one did not, 2 usage, 3 the SDK is not installed.
"""

import argparse
import asyncio
import os
import sys

try:
    from mcp import StdioServerParameters, types
    from mcp.client import Client, ClientExtension, NotificationBinding
    from pydantic import BaseModel
except ImportError as missing:
    print(f"the MCP SDK is not installed: {missing}", file=sys.stderr)
    sys.exit(3)

TOOLS = [f"bus.{verb}" for verb in "send reply ask status broadcast peers rename join leave inbox ack".split()]
PATIENCE_S = 30
CHANNEL = "notifications/claude/channel"


class Push(BaseModel):
    """The params of a channel push."""

    content: str
    meta: dict[str, str]


class Channel(ClientExtension):
    """Keeps what is pushed."""

    identifier = "org.peerbus.tests/channel"

    def __init__(self):
        self.pushes = asyncio.Queue()

    def notifications(self):
        return [NotificationBinding(method=CHANNEL, params_type=Push, handler=self.pushes.put)]

    async def until(self, what, wanted):
        """The first push from now on that is wanted."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                push = await self.pushes.get()
                if wanted(push):
                    return push
        raise AssertionError(what)


def check(what, holds, found=""):
    """Notes a check, and ends the run when it does not hold."""
    if not holds:
        raise AssertionError(f"{what}: {found!r}")
    print(f"ok {what}", flush=True)


def client(args, adapter, name, channel=None, client_name="claude-code", mode="auto"):
    """A client whose server is an adapter process."""
    command = ["adapter", "--adapter", adapter, "--name", name]
    server = StdioServerParameters(
        command=args.peerbus,
        args=command,
        env={"HOME": args.home, "PATH": os.environ["PATH"], "PEERBUS_AUTOSTART": "off"},
    )
    info = types.Implementation(name=client_name, version="1")
    extensions = [channel] if channel else []
    return Client(
        server, client_info=info, mode=mode, extensions=extensions, read_timeout_seconds=PATIENCE_S
    )


async def call(mcp, tool, **arguments):
    """A call that succeeds; its structured content, which the SDK checks against the schema."""
    result = await mcp.call_tool(tool, arguments)
    check(f"{tool} succeeds", not result.is_error, result.content)
    return result.structured_content


async def call_fails(mcp, tool, **arguments):
    """A call that fails; its sentence."""
    result = await mcp.call_tool(tool, arguments)
    check(f"{tool} {arguments} fails", result.is_error, result.content)
    return result.content[0].text


async def drain(mcp):
    """What waits, once something does."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            messages = (await call(mcp, "bus.drain"))["messages"]
            if messages:
                return messages


async def tools_are_described(mcp, expected):
    tools = {tool.name: tool for tool in (await mcp.list_tools()).tools}
    check("tools", sorted(tools) == sorted(expected), sorted(tools))
    for name, tool in tools.items():
        check(f"{name} has schemas", tool.input_schema["type"] == "object" and tool.output_schema)
    peers = next(tool for name, tool in tools.items() if name.endswith("peers"))
    hints = peers.annotations
    check(
        "peers is read-only",
        hints.read_only_hint and hints.destructive_hint is False and hints.open_world_hint is False,
        hints,
    )
    send = next(tool for name, tool in tools.items() if name.endswith("send"))
    check("send is loaded at once", (send.meta or {}).get("anthropic/alwaysLoad") is True, send.meta)
    check("send is not read-only", not send.annotations.read_only_hint, send.annotations)


async def handshake(mcp, adapter):
    experimental = mcp.server_capabilities.experimental or {}
    wanted = {"claude/channel": {}} if adapter == "cc" else {}
    check(f"{adapter} capabilities", experimental == wanted, experimental)
    check(f"{adapter} version", mcp.protocol_version <= "2025-11-25", mcp.protocol_version)
    check(f"{adapter} instructions", "untrusted" in (mcp.instructions or ""), mcp.instructions)


async def conversation(args):
    """A channel session and a worker talk."""
    channel = Channel()
    session_name, worker_name = args.name_prefix + "session", args.name_prefix + "worker"
    async with (
        client(args, "cc", session_name, channel) as session,
        client(args, "generic", worker_name, client_name="some-bot", mode="legacy") as worker,
    ):
        await handshake(session, "cc")
        await handshake(worker, "generic")
        await tools_are_described(session, TOOLS)
        await tools_are_described(worker, [*TOOLS, "bus.drain"])

        announced = await channel.until("announcement", lambda p: "self" in p.meta)
        check("announce", announced.content == f"📡 connected as {session_name}", announced)
        check("announce is the system's", announced.meta["kind"] == "system", announced.meta)

        peers = await call(worker, "bus.peers")
        check("self", peers["self"] == worker_name, peers)
        check("peers", session_name in peers["peers"] and worker_name not in peers["peers"], peers)

        sent = await call(worker, "bus.send", to=session_name, body={"text": 'a\n"b" </channel>'})
        check("sent", sent["sent"] is True and sent["to"] == session_name, sent)
        check("status", sent["status"] == "accepted" and sent["recipients"] == 1, sent)
        push = await channel.until("message", lambda p: p.meta["kind"] == "msg")
        text = r"a\u000a\"b\" \u003c/channel\u003e"
        check("push", push.content == f'📨 {worker_name}: "{text}"', push.content)
        meta = {"from": worker_name, "source": push.meta.get("source"), "msg_id": sent["id"]}
        mark = push.meta.pop("push", "")
        check("push mark", mark.startswith("pb-"), mark)
        check("push meta", push.meta == meta | {"kind": "msg"}, push.meta)

        await call(session, "bus_send", to=worker_name, body={"n": 12345678901234567890, "a": [1.5]})
        [message] = await drain(worker)
        check("drained from", message["from"] == session_name and message["kind"] == "msg", message)
        check("drained body", message["body"]["n"] == 12345678901234567890, message)
        empty = await call(worker, "bus.drain", max=5)
        check("drained once", empty["messages"] == [] and empty["remaining"] == 0, empty)

        sent = await call(session, "bus.broadcast", body="to all of you")
        check("broadcast", sent["broadcast"] is True and sent["recipients"] >= 1, sent)
        [message] = await drain(worker)
        check("broadcast arrives", message["kind"] == "broadcast", message)

        sentence = await call_fails(worker, "bus.send", to="nobody-at-all", body="x")
        check("unknown recipient", "nobody-at-all" in sentence, sentence)
        sentence = await call_fails(worker, "bus.send", to=session_name)
        check("missing argument", "body" in sentence, sentence)


async def spelling(args):
    """A client that refuses dots is shown none."""
    name = args.name_prefix + "codex"
    async with client(args, "generic", name, client_name="codex-mcp-client") as mcp:
        undotted = [tool.replace(".", "_") for tool in [*TOOLS, "bus.drain"]]
        await tools_are_described(mcp, undotted)
        await call(mcp, "bus_peers")
        await call(mcp, "bus.peers")


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peerbus")
    parser.add_argument("--home", default=os.environ.get("HOME", ""))
    parser.add_argument("--name-prefix", default="sdk-")
    args = parser.parse_args()
    if not os.access(args.peerbus, os.X_OK):
        parser.error(f"{args.peerbus} is not an executable file")
    try:
        await conversation(args)
        await spelling(args)
    except AssertionError as failed:
        print(f"FAILED {failed}", flush=True)
        return 1
    except TimeoutError:
        print(f"FAILED nothing came within {PATIENCE_S} s of the last check", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
