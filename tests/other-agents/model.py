"""A stand-in on loopback for the models' APIs: OpenAI's Responses and Chat Completions, Gemini's.

It follows a script of tool calls, one after another, and then says its last words.
"""

import json
import re
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def plain(name):
    """A tool's name as all agents spell it, more or less."""
    return re.sub("[^a-z]+", "_", name.lower())


class Model:
    """Serves until the process ends.

    `prompt` marks the requests that belong to the script; `script` is a list of (end of a tool's
    name, arguments). Others are answered "ok". Every request is written to the file `log`.
    """

    def __init__(self, prompt, script, last_words, log):
        self.prompt, self.script, self.last_words = prompt, script, last_words
        self.log = log
        self.lock = threading.Lock()
        self.tools = {}
        self.done = 0
        # What the tools answered, as the model is shown it.
        self.results = []
        model = self

        class Handler(_Handler):
            owner = model

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def answer(self, path, body):
        """A tool's name and arguments, or words, for a request."""
        with self.lock:
            reply = self._answer(body)
            line = {"path": path, "body": body, "reply": reply}
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(json.dumps(line, ensure_ascii=False) + "\n")
            return reply

    def _answer(self, body):
        tools = dict(_tools(body))
        if not tools or self.prompt not in json.dumps(body, ensure_ascii=False):
            return {"text": "ok"}
        self.tools |= tools
        results = list(_results(body))
        if len(results) > len(self.results):
            self.results = results
        if len(results) < self.done:
            return {"text": "ok"}
        if self.done == len(self.script):
            return {"text": self.last_words}
        wanted, arguments = self.script[self.done]
        for name, call in tools.items():
            if re.search(wanted, plain(name)):
                self.done += 1
                return {"call": call, "arguments": arguments}
        return {"text": f"there is no tool {wanted}"}


def _tools(body):
    """The tools that are offered: name to what a call must carry."""
    for tool in body.get("tools") or []:
        for function in tool.get("functionDeclarations") or []:
            yield function["name"], {"name": function["name"]}
        if tool.get("type") == "namespace":
            for inner in tool.get("tools") or []:
                name = f"{tool['name']}__{inner['name']}"
                yield name, {"name": inner["name"], "namespace": tool["name"]}
        elif "function" in tool:
            yield tool["function"]["name"], {"name": tool["function"]["name"]}
        elif tool.get("type") == "function":
            yield tool["name"], {"name": tool["name"]}


def _results(body):
    """The texts of the tools' results in a request."""
    for message in body.get("messages") or []:
        if message.get("role") == "tool":
            yield json.dumps(message.get("content"), ensure_ascii=False)
    items = body.get("input")
    for item in items if isinstance(items, list) else []:
        if str(item.get("type", "")).endswith("_call_output"):
            yield json.dumps(item.get("output"), ensure_ascii=False)
    for message in body.get("contents") or []:
        for part in message.get("parts") or []:
            if "functionResponse" in part:
                yield json.dumps(part["functionResponse"], ensure_ascii=False)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path.split("?")[0].endswith("/models"):
            model = {"id": "mock-model", "object": "model", "created": 1, "owned_by": "mock"}
            self._json(200, {"object": "list", "data": [model], "models": []})
        else:
            self._json(404, {"error": {"message": self.path}})

    def do_POST(self):
        raw = self._body()
        path = self.path.split("?")[0]
        forms = {
            r"/responses$": self._responses,
            r"/chat/completions$": self._chat,
            r":(streamG|g)enerateContent$": self._gemini,
        }
        for pattern, form in forms.items():
            if re.search(pattern, path):
                body = json.loads(raw)
                try:
                    reply = self.owner.answer(path, body)
                except ConnectionError:
                    # As when nobody listens: the connection ends without a word.
                    self.close_connection = True
                    return None
                return form(body, reply, path)
        if path.endswith(":countTokens"):
            return self._json(200, {"totalTokens": len(raw) // 4 + 1})
        return self._json(404, {"error": {"message": path}})

    def _body(self):
        if (self.headers.get("transfer-encoding") or "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        raw = b""
        while size := int(self.rfile.readline().strip() or b"0", 16):
            raw += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return raw

    def _json(self, status, value):
        self._write(status, "application/json", json.dumps(value))

    def _events(self, events):
        text = "".join(
            (f"event: {name}\n" if name else "")
            + f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"
            for name, data in events
        )
        self._write(200, "text/event-stream", text)

    def _write(self, status, kind, text):
        data = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _responses(self, body, reply, _):
        if "call" in reply:
            item = {
                "type": "function_call",
                "id": f"fc_{uuid.uuid4().hex[:16]}",
                "call_id": f"call_{uuid.uuid4().hex[:16]}",
                **reply["call"],
                "arguments": json.dumps(reply["arguments"]),
                "status": "completed",
            }
        else:
            part = {"type": "output_text", "text": reply["text"], "annotations": []}
            item = {
                "type": "message",
                "id": f"msg_{uuid.uuid4().hex[:16]}",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        response = {
            "id": f"resp_{uuid.uuid4().hex[:16]}",
            "object": "response",
            "created_at": 1,
            "model": body.get("model"),
            "status": "completed",
            "output": [item],
            "usage": {
                "input_tokens": 10,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 5,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 15,
            },
        }
        if not body.get("stream"):
            return self._json(200, response)
        started = {**response, "status": "in_progress", "output": [], "usage": None}
        told = [
            ("response.created", {"response": started}),
            ("response.output_item.added", {"output_index": 0, "item": item}),
            ("response.output_item.done", {"output_index": 0, "item": item}),
            ("response.completed", {"response": response}),
        ]
        return self._events(
            (name, {"type": name, "sequence_number": number, **members})
            for number, (name, members) in enumerate(told)
        )

    def _chat(self, body, reply, _):
        message = {"role": "assistant", "content": reply.get("text")}
        if "call" in reply:
            function = {**reply["call"], "arguments": json.dumps(reply["arguments"])}
            call = {"id": f"call_{uuid.uuid4().hex[:16]}", "type": "function", "function": function}
            message["tool_calls"] = [{"index": 0, **call}]
        finish = "tool_calls" if "call" in reply else "stop"
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        answer = {"id": f"chatcmpl-{uuid.uuid4().hex[:16]}", "created": 1, "model": body["model"]}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            whole = {"object": "chat.completion", "choices": [choice], "usage": usage}
            return self._json(200, answer | whole)
        answer["object"] = "chat.completion.chunk"
        first = {"index": 0, "delta": message, "finish_reason": None}
        last = {"index": 0, "delta": {}, "finish_reason": finish}
        return self._events(
            [
                (None, answer | {"choices": [first]}),
                (None, answer | {"choices": [last], "usage": usage}),
                (None, "[DONE]"),
            ]
        )

    def _gemini(self, _, reply, path):
        if "call" in reply:
            part = {"functionCall": {**reply["call"], "args": reply["arguments"]}}
        else:
            part = {"text": reply["text"]}
        content = {"role": "model", "parts": [part]}
        answer = {
            "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {
                "promptTokenCount": 10,
                "candidatesTokenCount": 5,
                "totalTokenCount": 15,
            },
            "modelVersion": "mock",
        }
        if "stream" in path:
            return self._events([(None, answer)])
        return self._json(200, answer)
