#!/usr/bin/env python3
"""Watches a session at its node with the official MCP SDK for Python, and puts a text in.

    node_drive.py SOCKET

SOCKET is a node's. The SDK's own session speaks over the socket's two directions; nothing of it is
told that this is no MCP server. Prints one line per check.

Exit codes: 0 every check held, 1 one did not, 2 usage, 3 the SDK is not installed.
"""

import asyncio
import sys
import traceback
from contextlib import asynccontextmanager
from typing import Any, Literal

try:
    import anyio
    from mcp import ClientSession, types
    from mcp.client import NotificationBinding
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import SessionMessage
    from pydantic import BaseModel, ConfigDict
except ImportError as missing:
    print(f"the MCP SDK is not installed: {missing}", file=sys.stderr)
    sys.exit(3)

PATIENCE_S = 30


class Loose(BaseModel):
    """Keeps every member."""

    model_config = ConfigDict(extra="allow")


class Subscribe(types.Request[dict[str, Any], Literal["session/subscribe"]]):
    method: Literal["session/subscribe"] = "session/subscribe"


class Inject(types.Request[dict[str, Any], Literal["session/inject"]]):
    method: Literal["session/inject"] = "session/inject"


class Tools(types.Request[dict[str, Any], Literal["session/nothing"]]):
    method: Literal["session/nothing"] = "session/nothing"


@asynccontextmanager
async def unix_socket(path):
    """A transport as `stdio_client` makes one, over a socket."""
    stream = await anyio.connect_unix(path)
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)

    async def reader():
        buffer = b""
        async with to_session:
            async for chunk in stream:
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    message = types.jsonrpc_message_adapter.validate_json(line)
                    await to_session.send(SessionMessage(message))

    async def writer():
        async for sent in from_session:
            line = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            await stream.send(line.encode() + b"\n")

    async with stream, anyio.create_task_group() as tasks:
        tasks.start_soon(reader)
        tasks.start_soon(writer)
        yield from_server, to_server
        tasks.cancel_scope.cancel()


def check(what, holds, found=""):
    """Notes a check, and ends the run when it does not hold."""
    if not holds:
        raise AssertionError(f"{what}: {found!r}")
    print(f"ok {what}", flush=True)


async def watch(path):
    events = asyncio.Queue()
    binding = NotificationBinding(method="session/event", params_type=Loose, handler=events.put)
    async with (
        asyncio.timeout(PATIENCE_S),
        unix_socket(path) as streams,
        ClientSession(
            *streams, notification_bindings=[binding], read_timeout_seconds=PATIENCE_S
        ) as session,
    ):
        met = await session.initialize()
        check("server", met.server_info.name == "peerbus", met)
        offered = (met.capabilities.experimental or {}).get("session", {})
        check("capabilities", offered.get("subscribe") is True and "bus" in offered["events"], met)
        await session.send_ping()
        begun = await session.send_request(Subscribe(params={"events": ["bus"]}), Loose)
        check("subscribed", begun.model_extra["events"] == ["bus"], begun)
        put = await session.send_request(Inject(params={"prompt": "from the SDK"}), Loose)
        check("accepted", put.model_extra["accepted"] is True, put)
        event = await events.get()
        said = event.model_extra
        check("event", said["type"] == "bus" and said["stage"] == "delivered", said)
        check("of that text", said["id"] == put.model_extra["id"], said)
        check("numbered", said["seq"] > begun.model_extra["seq"], said)
        try:
            await session.send_request(Tools(params={}), Loose)
            check("an unknown method is refused", False)
        except MCPError as error:
            check("an unknown method is refused", error.error.code == -32601, error)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        anyio.run(watch, sys.argv[1])
    except (AssertionError, ExceptionGroup) as failed:
        traceback.print_exception(failed)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
