#!/usr/bin/env python3
"""Uses a shared MCP server with the official MCP SDK for Python, from eight clients at once.

    channel_drive.py PEERBUS --home DIR --channel URI --server COMMAND

The server that stands behind URI is also started directly, by COMMAND: what it says of itself must be the
same both ways. Prints one line per check.

Exit codes: 0 every check held, 1 one did not, 2 usage, 3 the SDK is not installed.
"""

import argparse
import asyncio
import contextlib
import os
import shlex
import sys

try:
    from mcp import StdioServerParameters
    from mcp.client import Client
    from mcp.shared.exceptions import MCPError
except ImportError as missing:
    print(f"the MCP SDK is not installed: {missing}", file=sys.stderr)
    sys.exit(3)

PATIENCE_S = 30
CLIENTS = 8
CALLS = 25
LONG = "trigger-long-running-operation"


def check(what, holds, found=""):
    """Notes a check, and ends the run when it does not hold."""
    if not holds:
        raise AssertionError(f"{what}: {found!r}")
    print(f"ok {what}", flush=True)


def client(command, args):
    """A client whose server is this process."""
    env = {"HOME": args.home, "PATH": os.environ["PATH"], "PEERBUS_AUTOSTART": "off"}
    server = StdioServerParameters(command=command[0], args=command[1:], env=env)
    return Client(server, read_timeout_seconds=PATIENCE_S)


def user(args, number):
    """A client that uses the channel."""
    return client([args.peerbus, "mcp", "use", args.channel, "--name", f"dev-{number}"], args)


async def described(mcp):
    """What the server says that it has."""
    tools = (await mcp.list_tools()).tools
    resources = (await mcp.list_resources()).resources
    templates = (await mcp.list_resource_templates()).resource_templates
    text = await mcp.read_resource(resources[0].uri)
    return [tools, resources, templates, text.contents]


async def busy(mcp, number):
    """Many calls at once; each answer is that of its question."""
    texts = [f"{number} {call} \u2028 \U0001f4e1" for call in range(CALLS)]
    asked = [mcp.call_tool("echo", {"message": text}) for text in texts]
    heard = [result.content[0].text for result in await asyncio.gather(*asked)]
    wrong = [pair for pair in zip(texts, heard) if pair[0] not in pair[1]]
    check(f"client {number} gets its own answers", not wrong, wrong)


async def told(mcp, number):
    """Progress comes to the one who called."""
    steps = number + 2
    seen = []

    async def progress(done, total, _message):
        seen.append((done, total))

    await mcp.call_tool(LONG, {"duration": 1, "steps": steps}, progress_callback=progress)
    check(f"client {number} is told of {steps} steps", seen == [(n + 1, steps) for n in range(steps)], seen)


async def gives_up(mcp, number):
    """A call is cancelled while it runs; the next one is answered."""
    begun = asyncio.Event()

    async def progress(*_):
        begun.set()

    call = asyncio.create_task(mcp.call_tool(LONG, {"duration": 50, "steps": 500}, progress_callback=progress))
    async with asyncio.timeout(PATIENCE_S):
        await begun.wait()
    call.cancel()
    await asyncio.wait([call])
    check(f"client {number} gave up", call.cancelled())
    await busy(mcp, number)


async def refused(mcp):
    """What is not shared is an error that says so."""
    try:
        found = await mcp.list_prompts()
    except MCPError as error:
        return check("prompts are not shared", error.error.code == -32601, error)
    check("prompts are not shared", False, found)


async def scenario(args):
    async with client(shlex.split(args.server), args) as server:
        direct = await described(server)
    async with asyncio.timeout(4 * PATIENCE_S), contextlib.AsyncExitStack() as stack:
        users = [await stack.enter_async_context(user(args, number)) for number in range(CLIENTS)]
        for number, described_to in enumerate(await asyncio.gather(*map(described, users))):
            check(f"client {number} is told what the server says", described_to == direct, described_to)
        acts = [told if number % 2 else gives_up for number in range(CLIENTS)]
        await asyncio.gather(*(act(mcp, number) for number, (act, mcp) in enumerate(zip(acts, users))))
        await asyncio.gather(*(busy(mcp, number) for number, mcp in enumerate(users)))
        await users[0].set_logging_level("debug")
        await users[0].send_ping()
        await refused(users[0])


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peerbus")
    for option in ("--home", "--channel", "--server"):
        parser.add_argument(option, required=True)
    args = parser.parse_args()
    try:
        await scenario(args)
    except (AssertionError, TimeoutError) as failed:
        print(f"FAILED {failed!r}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
