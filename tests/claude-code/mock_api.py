"""A stand-in for the vendor's Messages API on loopback, with answers made up by the scenario."""

import contextlib
import json
import re
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support import PATIENCE_S


def text(words):
    """An answer in words."""
    return {"type": "text", "text": words}


def failure(status=400, kind="invalid_request_error"):
    """The service fails. Of most kinds it is not asked the same again."""
    return {"type": "error", "status": status, "error": {"type": kind, "message": "no"}}


def refusal():
    """The model does not answer, by its own choice."""
    return {**text("no"), "stop_reason": "refusal"}


def tool_use(name, arguments):
    """An answer that calls a tool."""
    return {
        "type": "tool_use",
        "id": f"toolu_{uuid.uuid4().hex[:20]}",
        "name": name,
        "input": arguments,
    }


class Request:
    """What the model is asked, and everything that it is shown."""

    def __init__(self, body):
        self.body = body
        self.tools = {tool["name"]: tool for tool in body.get("tools") or [] if "name" in tool}
        # The CLI adds messages of its own behind the user's, under the role `system`.
        said = [message["content"] for message in body["messages"] if message["role"] == "user"]
        self.last = _blocks(said[-1]) if said else []

    @property
    def prompt(self):
        """The words of the user's last message."""
        return "\n".join(block["text"] for block in self.last if block["type"] == "text")

    @property
    def tool_results(self):
        """The results of tools in the user's last message."""
        return [block for block in self.last if block["type"] == "tool_result"]

    @property
    def context(self):
        """The system prompt and all words of all messages."""
        blocks = _blocks(self.body.get("system") or [])
        for message in self.body["messages"]:
            blocks = blocks + _blocks(message["content"])
        return "\n".join(block["text"] for block in blocks if block["type"] == "text")


def _blocks(content):
    """Content as a list of blocks; it may be a bare text."""
    return [text(content)] if isinstance(content, str) else content


class MockApi:
    """Serves until the process ends.

    `answer` maps a Request that offers tools to one content block. Others, such as those for a
    title, are answered "ok". Every request is written to the file `log`, one JSON text a line.
    Without `names_requests` it is as behind a gateway that hands on no `request-id`.
    """

    def __init__(self, answer, log, names_requests=True, host="127.0.0.1"):
        self.answer = answer
        self.names_requests = names_requests
        self.asked = []
        self.changed = threading.Condition()
        self.log = log
        api = self

        class Handler(_Handler):
            owner = api

        server = ThreadingHTTPServer((host, 0), Handler)
        self.url = f"http://{host}:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def wait_for(self, what, wanted, since=0):
        """The first request of the model loop that is wanted, of those from number `since` on."""

        def found():
            return next((asked for asked in self.asked[since:] if wanted(asked)), None)

        with self.changed:
            if not self.changed.wait_for(found, PATIENCE_S):
                raise AssertionError(f"the model was never asked: {what}")
            return found()

    def note(self, method, path, body, answer):
        with self.changed:
            line = {"method": method, "path": path, "body": body, "answer": answer}
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(json.dumps(line, ensure_ascii=False) + "\n")

    def ask(self, body):
        """The content block that answers a body."""
        request = Request(body)
        if not request.tools:
            return text("ok")
        with self.changed:
            self.asked.append(request)
            self.changed.notify_all()
        return self.answer(request)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle(self):
        # The scenario may kill who asks.
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self):
        self._refuse(None)

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.split("?")[0]
        if path == "/v1/messages":
            body = json.loads(raw)
            block = self.owner.ask(body)
            self.owner.note("POST", path, body, block)
            if block["type"] == "error":
                self._json(block["status"], {"type": "error", "error": block["error"]})
            else:
                self._answer(body, block)
        elif path == "/v1/messages/count_tokens":
            self._json(200, {"input_tokens": len(raw) // 4 + 1})
        else:
            self._refuse(raw.decode("utf-8", "replace"))

    def _refuse(self, body):
        self.owner.note(self.command, self.path, body, None)
        error = {"type": "not_found_error", "message": self.path}
        self._json(404, {"type": "error", "error": error})

    def _json(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self._name_request()
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _name_request(self):
        if self.owner.names_requests:
            self.send_header("request-id", f"req_{uuid.uuid4().hex[:16]}")

    def _answer(self, body, block):
        block = dict(block)
        stop = block.pop("stop_reason", "tool_use" if block["type"] == "tool_use" else "end_turn")
        message = {
            "id": f"msg_{uuid.uuid4().hex[:20]}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }
        if body.get("stream"):
            self._stream(message, block, stop)
        else:
            self._json(200, {**message, "content": [block], "stop_reason": stop})

    def _stream(self, message, block, stop):
        """The events of a streamed answer of one block."""
        if block["type"] == "tool_use":
            start = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        else:
            # Word by word.
            pieces = re.findall(r"\s*\S+\s*$|\s*\S+", block["text"])
            start, deltas = text(""), [{"type": "text_delta", "text": piece} for piece in pieces]
        end = {"stop_reason": stop, "stop_sequence": None}
        events = [
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": start},
            *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        ]
        data = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self._name_request()
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
