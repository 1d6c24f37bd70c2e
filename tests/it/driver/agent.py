#!/usr/bin/env python3
"""A stand-in for an agent that speaks ACP: it answers each prompt with the words "heard it", but for
words that ask for something else. What it is told, and what it notes, goes to the file `told` beside
its home, one JSON text a line. Words on its command line are what it cannot, or does, from the start."""

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

HOME = Path(os.environ["HOME"])
TRAITS = sys.argv[1:]


def note(what):
    with open(HOME / "told", "a", encoding="utf-8") as told:
        told.write(json.dumps(what) + "\n")


def write(message):
    write_raw(json.dumps({"jsonrpc": "2.0", **message}))


def write_raw(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Current:
    """The session that was spoken of last."""

    id = "session-1"


def update(kind, **members):
    write({"method": "session/update", "params": {"sessionId": Current.id, "update": {"sessionUpdate": kind, **members}}})


def says(text, **members):
    update("agent_message_chunk", content={"type": "text", "text": text}, **members)


def new():
    """The id of a message of the model's."""
    return str(uuid.uuid4())


def first(what):
    """Whether this is the first time of it, over all processes."""
    mark = HOME / what.replace(" ", "-")
    if mark.exists():
        return False
    mark.touch()
    return True


OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "once", "name": "Once", "kind": "allow_once"},
    {"optionId": "once-and-switch", "name": "Once, and never ask again", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


def asks(number, call):
    write({"id": number, "method": "session/request_permission", "params": {"sessionId": Current.id, "toolCall": call, "options": OPTIONS}})


class Agent:
    def __init__(self):
        self.open = None
        self.servers = {}

    def answer(self, number, result):
        write({"id": number, "result": result})

    def ends(self, **members):
        number, self.open = self.open, None
        self.answer(number, {"stopReason": "end_turn", **members})

    def hear(self, message):
        method, number = message.get("method"), message.get("id")
        params = message.get("params") or {}
        Current.id = params.get("sessionId", Current.id)
        if method == "initialize":
            can = {"loadSession": "no load" not in TRAITS, "promptCapabilities": {"image": "images" in TRAITS}}
            version = 3 if "version 3" in TRAITS else 1
            self.answer(number, {"protocolVersion": version, "agentCapabilities": can, "agentInfo": {"name": "stand-in", "version": "7"}})
        elif method == "session/new":
            modes = {"currentModeId": "yolo", "availableModes": [{"id": "yolo"}, {"id": "default"}]}
            Current.id = f"session-{len(self.servers) + 1}"
            self.servers[Current.id] = params["mcpServers"][-1:]
            self.answer(number, {"sessionId": Current.id, "modes": modes})
        elif method == "session/load":
            self.servers[Current.id] = params["mcpServers"][-1:]
            if "empty load" not in TRAITS:
                update("user_message_chunk", content={"type": "text", "text": (HOME / "history").read_text()})
                if (HOME / "answered").exists():
                    says("heard it", messageId=new())
            self.answer(number, {})
        elif method in ("session/set_mode", "session/close"):
            self.answer(number, {})
        elif method == "session/cancel":
            if self.open is not None:
                number, self.open = self.open, None
                self.answer(number, {"stopReason": "cancelled"})
        elif method == "session/prompt":
            self.prompted(number, params["prompt"][0]["text"])
        elif method == "_agent/say":
            write_raw(params["line"])
        elif method is None and number in (71, 72):
            note({"outcome": message["result"]["outcome"]})
            if number == 71:
                asks(72, {"toolCallId": "b", "title": "run", "kind": "execute", "rawInput": {"command": "ls"}})
            else:
                says("heard it", messageId=new())
                self.ends()

    def prompted(self, number, text):
        if self.open is not None:
            note({"second": text})
            self.answer(self.open, {"stopReason": "cancelled"})
        self.open = number
        (HOME / "history").write_text(text)
        (HOME / "answered").unlink(missing_ok=True)
        if "no credit" in text or "no service" in text and first("no service"):
            write({"id": number, "error": {"code": -32603, "message": "the model's service failed"}})
            self.open = None
        elif "false end" in text and first("false end"):
            says("Error: 500")
            self.ends()
        elif "hold" in text:
            says("I begin", messageId=new())
        elif "go deaf" in text:
            os.close(0)
            says("I hear nothing", messageId=new())
            signal.pause()
        elif "exit with 7" in text:
            os._exit(7)
        elif "used 30" in text:
            says("Error: 500" if "📨" in text else "heard it")
            self.ends(usage={"totalTokens": 30})
        elif "with its cost" in text:
            says("heard it", messageId=new())
            self.ends(usage={"totalTokens": 9})
        elif "stay silent" in text:
            pass
        elif "words alone" in text:
            says("heard it")
            self.ends()
        elif "same sum" in text:
            says("Error: 500")
            self.ends(usage={"totalTokens": 15})
        elif "use tools" in text:
            asks(71, {"toolCallId": "a", "title": "mcp__peerbus__bus_send", "kind": "other"})
        elif "long line" in text:
            update("tool_call_update", toolCallId="t", rawOutput="x" * (50 << 20))
            says("heard it", messageId=new())
            self.ends()
        elif "long answer" in text and first("long answer"):
            write({"id": number, "result": {"pad": "x" * (50 << 20), "stopReason": "end_turn"}})
        elif "die at once" in text and first("die at once"):
            os._exit(1)
        elif "die after the answer" in text and first("die after the answer"):
            says("heard it", messageId=new())
            (HOME / "answered").touch()
            os._exit(1)
        elif "call a tool of the bus" in text or "another agent in a shell" in text:
            if "once told to" in text:
                os.mkfifo(HOME / "go")
                note({"waits": True})
                (HOME / "go").read_bytes()
            self.call(text)
            says("heard it", messageId=new())
            self.ends()
        else:
            says("heard it", messageId=new())
            self.ends()

    def call(self, text):
        """Starts the MCP server that it was named, and asks it who is there."""
        [told] = self.servers[Current.id]
        env = {**os.environ, **{one["name"]: one["value"] for one in told["env"]}}
        argv = [told["command"], *told["args"]]
        if "another agent in a shell" in text:
            # What another agent's configuration names, which knows nothing of this session.
            env = os.environ
            argv = ["sh", "-c", 'sh -c "$0 adapter; :"; :', argv[0]]
        server = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def ask(message):
            server.stdin.write((json.dumps({"jsonrpc": "2.0", **message}) + "\n").encode())
            server.stdin.flush()

        ask({"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "stand-in", "version": "7"}}})
        server.stdout.readline()
        ask({"method": "notifications/initialized"})
        ask({"id": 1, "method": "tools/call", "params": {"name": "bus_peers", "arguments": {}}})
        called = json.loads(server.stdout.readline())
        note({"called": called})
        update("tool_call", toolCallId="bus", title="bus_peers", status="pending")
        update("tool_call_update", toolCallId="bus", status="completed", rawOutput=called["result"])
        server.stdin.close()
        note({"ended": server.wait(10)})


def main():
    if "stubborn" in TRAITS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    agent = Agent()
    note({"argv": sys.argv[1:], "driver": os.environ.get("PEERBUS_DRIVER"), "pid": os.getpid()})
    for line in sys.stdin:
        message = json.loads(line)
        note(message)
        if message.get("method", "").startswith("_"):
            note({"raw": line})
        agent.hear(message)


main()
