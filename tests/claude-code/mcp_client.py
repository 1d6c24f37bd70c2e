"""A client of an MCP server that is a child process."""

import json
import subprocess
import threading

from support import PATIENCE_S


class Server:
    """A server on its standard streams. Everything that it says is kept, in order."""

    def __init__(self, command, environment, stderr):
        self.received = []
        self.garbage = []
        self.changed = threading.Condition()
        self.next_id = 0
        pipe = subprocess.PIPE
        with open(stderr, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdin=pipe, stdout=pipe, stderr=log
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                try:
                    message = json.loads(line)
                except ValueError:
                    self.garbage.append(line)
                    continue
                self.received.append(message)
                self.changed.notify_all()
            if "id" in message and "method" in message:
                self._answer(message)

    def _answer(self, request):
        """Answers the server as Claude Code does."""
        match request["method"]:
            case "ping":
                answer = {"result": {}}
            case "roots/list":
                answer = {"result": {"roots": [{"uri": "file:///tmp/home/project"}]}}
            case _:
                answer = {"error": {"code": -32601, "message": "Method not found"}}
        self.send({"id": request["id"], **answer})

    def send(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def wait_for(self, what, wanted, patience=PATIENCE_S):
        """The first message of all that is wanted."""

        def found():
            return next((message for message in self.received if wanted(message)), None)

        with self.changed:
            if not self.changed.wait_for(found, patience):
                raise AssertionError(f"the server never sent {what}, but {self.received[-5:]}")
            return found()

    def request(self, method, params, identity=None, patience=PATIENCE_S):
        """Asks and gives the whole answer."""
        if identity is None:
            identity, self.next_id = self.next_id, self.next_id + 1
        self.send({"id": identity, "method": method, "params": params})

        def answers(message):
            return message.get("id") == identity and "method" not in message

        return self.wait_for(f"an answer to {method}", answers, patience)

    def notify(self, method):
        self.send({"method": method})

    def notifications(self):
        """What the server sent without being asked, in order."""
        with self.changed:
            return [m for m in self.received if "method" in m and "id" not in m]

    def initialize(self, client, capabilities):
        """The first half of the handshake; `notifications/initialized` is the other."""
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": client,
        }
        return self.request("initialize", params)["result"]

    def call(self, tool, arguments):
        """Calls a tool that succeeds and gives its structured content."""
        answer = self.request("tools/call", {"name": tool, "arguments": arguments})
        result = answer.get("result", {"isError": True})
        if result.get("isError"):
            raise AssertionError(f"{tool} {arguments} failed: {answer}")
        return result["structuredContent"]
