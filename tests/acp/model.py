"""The model: a program on loopback that answers as OpenAI (responses and chat completions), Gemini and
Anthropic do, and says what the scenario wants.

A prompt names a script with the word `job:NAME`. The last one in the user's words counts.
"""

import json
import re
import select
import socket
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from digest import digest
from support import LOOK_S, PATIENCE_S

JOB = re.compile(r"\bjob:(\w+)")
MESSAGE = re.compile(r"\[([0-9a-f]{8}|[0-9a-f]{32})\]")


@dataclass
class Script:
    """What the model does with a prompt: it calls the tools, one after another, and then speaks."""

    name: str
    calls: list = field(default_factory=list)
    text: str = "ok"
    # While this is set, requests get this HTTP status.
    status: int = 0
    # Requests wait until this is set.
    goes: threading.Event = field(default_factory=threading.Event)
    # How many requests there were, calls that were made, and connections that the agent cut.
    asked: int = 0
    called: int = 0
    cut: int = 0

    def __post_init__(self):
        self.goes.set()


@dataclass
class Request:
    """A request to the model, as far as the scenario wants to know."""

    script: str
    # The user's words in the whole conversation, by message, and how many of them are new.
    user: list
    fresh: int
    results: list
    tools: list


class Model:
    """Serves until the process ends. `log` gets a line for each request."""

    def __init__(self, log, project):
        self.log, self.project = log, str(project)
        self.scripts, self.asked = {}, []
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"model": self})
        ThreadingHTTPServer.daemon_threads = True
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def script(self, name, *calls, **members):
        """Has the model do this for prompts with `job:NAME`."""
        self.scripts[name] = Script(name, list(calls), **members)
        return self.scripts[name]

    def forgive(self):
        """No script fails or waits any more."""
        for script in self.scripts.values():
            script.status = 0
            script.goes.set()

    def shown(self, identity):
        """The user's words that have this message, each text once."""
        texts = [text for request in self.asked for text in request.user]
        return list(dict.fromkeys(text for text in texts if f"[{identity[-8:]}]" in text))

    def note(self, **line):
        with self.lock, open(self.log, "a", encoding="utf-8") as log:
            log.write(json.dumps({"t": round(time.time(), 3), **line}, ensure_ascii=False) + "\n")

    def plan(self, kind, body):
        """What is answered: the script, if there is one, and a call or None."""
        turns, fresh, tools = digest(kind, body)
        told = [words for role, words in turns if role == "user"]
        with_job = [words for words in told if JOB.search(words)]
        name = JOB.findall(with_job[-1])[-1] if with_job else ""
        new = [words for role, words in fresh if role == "user"]
        # Some ask besides: for a title, without tools; what to remember, with other words at the end.
        besides = not tools or (new and not any(JOB.search(words) for words in new))
        script = None if besides else self.scripts.get(name)
        results = [words for role, words in fresh if role == "result"]
        call = None
        with self.lock:
            if script:
                script.asked += 1
                self.asked.append(Request(name, told, len(new), results, sorted(tools)))
        if script and script.called < len(script.calls) and not script.status:
            call = self.call(script.calls[script.called], tools, with_job[-1])
            script.called += 1
        self.note(
            kind=kind,
            script=name,
            new=[words[-2000:] for words in new],
            results=[words[:600] for words in results],
            tools=sorted(tools),
            call=call,
        )
        return script, call

    def call(self, wanted, tools, words):
        """A call of the tool whose name ends in `name`, or of one that the model was not shown."""
        name, given = wanted
        ids = MESSAGE.findall(words)
        given = json.dumps(given).replace("{project}", self.project)
        given = json.loads(given.replace("{msg}", ids[-1] if ids else "none"))
        plain = lambda shown: re.sub(r"[^a-z0-9]+", "_", shown.lower())
        fits = [shown for shown in tools if plain(shown) == name or plain(shown).endswith(f"_{name}")]
        tool = tools[min(fits, key=len)] if fits else {"name": name}
        return {"tool": tool, "given": given}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    KINDS = {
        r"/responses$": "responses",
        r"/chat/completions$": "chat",
        r":(stream)?[gG]enerateContent$": "gemini",
        r"/messages$": "messages",
    }

    def log_message(self, *_):
        pass

    def body(self):
        if (self.headers.get("transfer-encoding") or "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        raw = b""
        while size := int(self.rfile.readline().strip() or b"0", 16):
            raw += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return raw

    def send(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def nothing_there(self):
        self.send(404, {"error": {"message": "no such path", "type": "not_found"}})

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self):
        path = self.path.split("?")[0]
        self.model.note(kind="GET", path=path)
        if not path.endswith("/models"):
            return self.nothing_there()
        one = {"id": "mock-model", "object": "model", "created": 1, "owned_by": "mock"}
        more = {"type": "model", "display_name": "mock", "context_length": 100000}
        return self.send(200, {"object": "list", "data": [one | more], "has_more": False})

    def do_POST(self):
        raw, path = self.body(), self.path.split("?")[0]
        kinds = [kind for pattern, kind in self.KINDS.items() if re.search(pattern, path)]
        if not kinds:
            self.model.note(kind="POST", path=path)
            tokens = len(raw) // 4 + 1
            if path.endswith(":countTokens"):
                return self.send(200, {"totalTokens": tokens})
            if path.endswith("/count_tokens"):
                return self.send(200, {"input_tokens": tokens})
            return self.nothing_there()
        body = json.loads(raw)
        script, call = self.model.plan(kinds[0], body)
        try:
            if script and not self.goes(script):
                raise ConnectionResetError
            if script and script.status:
                said = f"the mock says {script.status}"
                error = {"type": "api_error", "message": said, "code": script.status}
                return self.send(script.status, {"type": "error", "error": error})
            text = script.text if script else "ok"
            answer = getattr(self, f"as_{kinds[0]}")
            return answer(body, text, call)
        except (BrokenPipeError, ConnectionResetError):
            if script:
                script.cut += 1
            self.model.note(kind="cut", script=script and script.name)
            self.close_connection = True
            return None

    def goes(self, script):
        """Waits until the script goes on. False when the agent has gone meanwhile."""
        deadline = time.monotonic() + 10 * PATIENCE_S
        while not script.goes.wait(LOOK_S) and time.monotonic() < deadline:
            readable, _, _ = select.select([self.connection], [], [], 0)
            if readable and self.connection.recv(1, socket.MSG_PEEK) == b"":
                return False
        return True

    def stream(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, data, name=None):
        words = data if isinstance(data, str) else json.dumps(data)
        text = (f"event: {name}\n" if name else "") + f"data: {words}\n\n"
        self.wfile.write(text.encode())
        self.wfile.flush()

    def as_responses(self, body, text, call):
        response, message, number = (p + uuid.uuid4().hex[:16] for p in ("resp_", "msg_", "call_"))
        base = {"id": response, "object": "response", "created_at": 1, "model": body.get("model")}
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        part = {"type": "output_text", "text": text, "annotations": []}
        if call and call["tool"].get("kind") == "custom":
            item = {"type": "custom_tool_call", "input": call["given"].get("input", "")}
        elif call:
            item = {"type": "function_call", "arguments": json.dumps(call["given"])}
            item |= {k: v for k, v in call["tool"].items() if k == "namespace"}
        else:
            item = {"type": "message", "id": message, "role": "assistant", "content": [part]}
        if call:
            item |= {"id": f"i{number}", "call_id": number, "name": call["tool"]["name"]}
        item["status"] = "completed"
        whole = {**base, "status": "completed", "output": [item], "usage": usage}
        if not body.get("stream"):
            return self.send(200, whole)
        self.stream()
        count = iter(range(100))

        def told(kind, **members):
            self.event({"type": kind, "sequence_number": next(count), **members}, kind)

        told("response.created", response={**base, "status": "in_progress", "output": []})
        begun = item if call else {**item, "content": []}
        told("response.output_item.added", output_index=0, item=begun)
        if not call:
            at = {"output_index": 0, "content_index": 0, "item_id": message}
            told("response.content_part.added", part={**part, "text": ""}, **at)
            told("response.output_text.delta", delta=text, **at)
            told("response.output_text.done", text=text, **at)
            told("response.content_part.done", part=part, **at)
        told("response.output_item.done", output_index=0, item=item)
        return told("response.completed", response=whole)

    def as_chat(self, body, text, call):
        base = {"id": f"chat-{uuid.uuid4().hex[:16]}", "created": 1, "model": body.get("model")}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        message = {"role": "assistant", "content": None if call else text}
        if call:
            arguments = json.dumps(call["given"])
            function = {"name": call["tool"]["name"], "arguments": arguments}
            one = {"index": 0, "id": f"call{uuid.uuid4().hex[:5]}", "type": "function"}
            message["tool_calls"] = [one | {"function": function}]
        finish = "tool_calls" if call else "stop"
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            whole = {"object": "chat.completion", "choices": [choice], "usage": usage}
            return self.send(200, base | whole)
        self.stream()
        base["object"] = "chat.completion.chunk"
        first = {"index": 0, "delta": message, "finish_reason": None}
        self.event({**base, "choices": [first]})
        last = {"index": 0, "delta": {}, "finish_reason": finish}
        self.event({**base, "choices": [last], "usage": usage})
        return self.event("[DONE]")

    def as_gemini(self, _, text, call):
        part = {"text": text}
        if call:
            part = {"functionCall": {"name": call["tool"]["name"], "args": call["given"]}}
        content = {"role": "model", "parts": [part]}
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
        whole = {
            "candidates": [{"content": content, "index": 0, "finishReason": "STOP"}],
            "usageMetadata": usage,
            "modelVersion": "mock",
            "responseId": uuid.uuid4().hex[:12],
        }
        if "stream" not in self.path:
            return self.send(200, whole)
        self.stream()
        return self.event(whole)

    def as_messages(self, body, text, call):
        usage = {"input_tokens": 10, "output_tokens": 5}
        usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        base = {"id": f"msg_{uuid.uuid4().hex[:20]}", "type": "message", "role": "assistant"}
        base |= {"model": body.get("model"), "stop_sequence": None}
        block, stop = {"type": "text", "text": text}, "end_turn"
        if call:
            block = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:20]}"}
            block |= {"name": call["tool"]["name"], "input": call["given"]}
            stop = "tool_use"
        if not body.get("stream"):
            whole = {"content": [block], "stop_reason": stop, "usage": usage}
            return self.send(200, base | whole)
        self.stream()

        def told(kind, **members):
            self.event({"type": kind, **members}, kind)

        empty = {"input": {}} if call else {"text": ""}
        delta = {"type": "text_delta", "text": text}
        if call:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call["given"])}
        told("message_start", message={**base, "content": [], "stop_reason": None, "usage": usage})
        told("content_block_start", index=0, content_block=block | empty)
        told("content_block_delta", index=0, delta=delta)
        told("content_block_stop", index=0)
        told("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage=usage)
        return told("message_stop")
