"""What is tested: the six stories that a proposal for channels into sessions tells, each with sessions of
Claude Code: an editor, an orchestrator, a phone over HTTP, a voice, a CI job, and a frontend with its backend.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import claude
import driver_scenario as driver
import hooks_scenario
import mock_api
import node
import scenario
from support import PATIENCE_S, check, eventually

BACKEND, ORCHESTRATOR, VOICE = "backend", "orchestrator", "voice"
ASK, SEND, REPLY = (f"mcp__{scenario.SERVER}__bus_{verb}" for verb in ("ask", "send", "reply"))
INDEX = scenario.HOME / ".local/state/peerbus/sessions/index.json"
EXPLAIN, EXPLAINED = "explain what is selected", "it doubles what it gets"
SELECTION = 'def f(x):\n\tif x < 1 and x > 0:\n\t\treturn "two"\n\treturn 2 * x'
DELEGATE, JOB, DONE = "have the users endpoint done", "please implement the users endpoint", "the users endpoint is there"
RUN, RAN = re.compile(r"please run: (touch [\w-]+)"), "so it is done"
SPOKEN, SAYS = "what did the tests say", "all of the tests have passed, and none was left out"
NUMBER, COUNTED = re.compile(r"this is number (\d)"), "number {} was heard"
WISH, NEED, IS_THERE, GOES_ON = "ask the backend", "we need POST /api/upload", "POST /api/upload is there", "the form uploads now"
# What a model calls once the search for that tool was answered.
LATER = {}


def call(request, tool, arguments):
    """A call of a bus tool. The client may hide those that it was not asked for."""
    block = mock_api.tool_use(tool, arguments)
    if tool in request.tools:
        return block
    search = mock_api.tool_use("ToolSearch", {"query": f"select:{tool}", "max_results": 1})
    LATER[search["id"]] = block
    return search


def named(words, said):
    """By which id a message with these words goes, if it was shown."""
    found = re.search(rf'"{words}".*\[([^\]]+)\]', said)
    return found and found[1]


def answer(request):
    """What the models say."""
    for result in request.tool_results:
        if block := LATER.pop(result["tool_use_id"], None):
            return block
    said = driver.told(request)
    if identity := named(JOB, said):
        return call(request, REPLY, {"msg_id": identity, "body": DONE})
    if identity := named(NEED, said):
        return call(request, REPLY, {"msg_id": identity, "body": IS_THERE})
    if not request.tool_results:
        if command := RUN.search(said):
            return mock_api.tool_use("Bash", {"command": command[1], "description": "Runs it"})
        if DELEGATE in said:
            return call(request, ASK, {"to": node.NAME, "body": JOB})
        if WISH in said:
            return call(request, SEND, {"to": BACKEND, "body": NEED})
    words = {DONE: f"I was told: {DONE}", IS_THERE: GOES_ON, EXPLAIN: EXPLAINED, SPOKEN: SAYS}
    if number := NUMBER.search(said):
        return mock_api.text(COUNTED.format(number[1]))
    return mock_api.text(next((says for heard, says in words.items() if heard in said), RAN))


class Program:
    """A program of the user's at the socket of a session."""

    def __init__(self, path):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(PATIENCE_S)
        self.stream.connect(path)
        self.lines = self.stream.makefile()

    def call(self, method, params):
        line = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self.stream.sendall(json.dumps(line).encode() + b"\n")
        answer = next(line for line in map(json.loads, self.lines) if line.get("id") == 1)
        return answer["result"]

    def events(self):
        for line in map(json.loads, self.lines):
            if line.get("method") == "session/event":
                yield line["params"]


class Phone:
    """Has nothing but an address and a token."""

    def __init__(self, address, token):
        self.address, self.token, self.cursor = address, token, None

    def open(self, path, body=None):
        headers = {"Authorization": f"Bearer {self.token}"}
        if self.cursor:
            headers["Last-Event-ID"] = self.cursor
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", data, headers)
        return urllib.request.urlopen(request, timeout=PATIENCE_S)

    def asks(self, path, body=None):
        with self.open(path, body) as answer:
            return json.load(answer)

    def hears(self, stream, kind, wanted=lambda _: True):
        """The next event of this kind that is wanted."""
        name = ""
        for line in (line.decode().rstrip("\n") for line in stream):
            field, _, value = line.partition(": ")
            if field == "id":
                self.cursor = value
            elif field == "event":
                name = value
            elif field == "data" and name == kind and wanted(event := json.loads(value)):
                return event
        raise AssertionError(f"the stream ended before {kind}")


def idle(name):
    def look():
        sessions = json.loads(node.peerbus("list", "--json").stdout)["sessions"]
        return next((it for it in sessions if it["name"] == name and it["status"] == "idle"), None)

    return eventually(f"{name} is idle", look)


def an_editor_has_a_selection_explained(api):
    """It finds the session of its directory in a file, and needs no command of peerbus."""
    sessions = json.loads(INDEX.read_text(encoding="utf-8"))["sessions"]
    [ours] = [session for session in sessions if session["cwd"] == str(scenario.PROJECT)]
    editor = Program(ours["socket"])
    editor.call("session/subscribe", {"events": ["message"]})
    since = len(api.asked)
    params = {"prompt": f"{EXPLAIN}\n{SELECTION}", "source": "vscode-extension", "mode": "append"}
    put = editor.call("session/inject", params)
    check("IDE: the prompt is accepted", put["accepted"] and put["queued_at"], put)
    asked = api.wait_for("the selection", lambda r: EXPLAIN in r.prompt, since)
    lines = "".join(f"\n| {line}" for line in SELECTION.splitlines())
    check("IDE: the model is shown the selection with its lines and tabs", lines in asked.prompt, asked.prompt)
    check("IDE: and which program put it in", "(vscode-extension)" in asked.prompt, asked.prompt)
    # What was said before may be told late.
    events = editor.events()
    next(event for event in events if event["role"] == "user" and put["id"] in event["content"])
    said = next(event for event in events if event["role"] == "assistant")
    check("IDE: the editor hears what the model says", said["content"] == EXPLAINED, said)


def an_orchestrator_delegates_and_collects(api):
    """Both models call tools of the bus; nothing else was written for it."""
    idle(node.NAME)
    place = scenario.HOME / ORCHESTRATOR
    place.mkdir()
    done = subprocess.run(
        [claude.PROGRAM, "-p", DELEGATE],
        cwd=place, env=claude.environment(api.url) | {"PEERBUS_NAME": ORCHESTRATOR},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S,
    )
    check("orchestrator: it has the result of the other session", DONE in done.stdout, done)
    asked = api.wait_for("the job", lambda r: JOB in r.prompt)
    check("orchestrator: which was shown who asks", f"📨 {ORCHESTRATOR}: " in asked.prompt, asked.prompt)
    idle(node.NAME)
    done = node.peerbus("inject", node.NAME, f"{EXPLAIN}: 2 * x", "--wait", "answer")
    check("orchestrator: a script has the answer alone", done.stdout.splitlines()[-1:] == [EXPLAINED], done)


@contextlib.contextmanager
def gateway():
    """`peerbus web`, and a phone with a token for sessions."""
    command = ["peerbus", "web", "token", "add", "phone", "--watch", "--inject", "--approve"]
    token = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    log = scenario.LOG / "web.txt"
    with open(log, "w", encoding="utf-8") as errors:
        command = ["peerbus", "web", "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=errors)
    listens = lambda: re.search(r"listening on http://(\S+)", log.read_text(encoding="utf-8"))
    try:
        yield Phone(eventually("the gateway listens", listens)[1], token)
    finally:
        process.terminate()
        process.wait()


def a_phone_watches_and_approves(phone):
    """Over HTTP alone, and over a stream that is cut while the session waits."""
    session = idle(node.NAME)
    [listed] = [it for it in phone.asks("/v1/sessions")["sessions"] if it["name"] == node.NAME]
    check("phone: it lists the session", listed["id"] == session["id"], listed)
    ours = f"/v1/sessions/{node.NAME}"
    with phone.open(f"{ours}/events") as stream:
        phone.hears(stream, "session")
        phone.asks(f"{ours}/inject", {"prompt": "please run: touch from-a-phone"})
        asked = phone.hears(stream, "approval_request")
    check("phone: it sees what is asked", asked["input"]["command"] == "touch from-a-phone", asked)
    file = scenario.PROJECT / "from-a-phone"
    check("phone: nothing ran before", not file.exists())
    verdict = {name: asked[name] for name in ("request_id", "digest")} | {"decision": "allow"}
    told = phone.asks(f"{ours}/approve", verdict)
    check("phone: it allows it", told["by"] == "node" and told["decision"] == "allow", told)
    with phone.open(f"{ours}/events") as stream:
        phone.hears(stream, "approval_resolved", lambda e: e["request_id"] == asked["request_id"])
        phone.hears(stream, "tool_result")
        said = phone.hears(stream, "message", lambda e: e["role"] == "assistant")
    check("phone: it goes on behind the cut and hears the end", said["content"] == RAN, said)
    check("phone: the tool ran", file.exists())


def a_voice_hears_pieces_before_the_whole(api, worker):
    """Words go in, and what the model says comes back piece by piece, for who asks for that."""
    talks = driver.Driver(api, VOICE, "--", "--include-partial-messages")
    driver.is_ready(worker, VOICE, driver.version_of(claude.PROGRAM))
    speaker = Program(idle(VOICE)["socket"])
    speaker.call("session/subscribe", {"events": ["partial", "message", "result"]})
    speaker.call("session/inject", {"prompt": SPOKEN, "source": "microphone"})
    pieces = []
    for event in speaker.events():
        if event["type"] == "partial":
            pieces.append(event["content"])
        elif event["type"] == "message" and event["role"] == "assistant":
            break
    check(f"voice: {len(pieces)} pieces come before the whole", len(pieces) > 1, pieces)
    check("voice: they are what the model says", "".join(pieces) == event["content"] == SAYS, (pieces, event))
    check("voice: the session is stopped", node.peerbus("stop", VOICE).returncode == 0)
    talks.process.wait(PATIENCE_S)


def loop():
    """The lines for CI that the documents show."""
    pages = sorted(Path("/tmp/repository/docs").rglob("*.md"))
    shown = [re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL) for page in pages]
    [lines] = [block for blocks in shown for block in blocks if "session inject ci " in block]
    check("CI: the documents show at most ten lines", len(lines.splitlines()) <= 10, lines)
    return lines


def a_job_in_ci_has_one_json(api):
    """The documents' own lines, as a script of a build server."""
    place = scenario.HOME / "build"
    place.mkdir()
    prompts = [f"this is number {number}" for number in range(1, 4)]
    (place / "prompts.txt").write_text("\n".join(prompts) + "\n", encoding="utf-8")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", loop()],
        cwd=place, env=claude.environment(api.url) | {"CI": "true"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=3 * PATIENCE_S,
    )
    check("CI: the job ends well", done.returncode == 0, done)
    [begin] = [at for at, line in enumerate(done.stdout.splitlines()) if line == "["]
    lines = done.stdout.splitlines()[begin:]
    results = json.loads("\n".join(lines[: lines.index("]") + 1]))
    words = [result["result"] for result in results]
    check("CI: one JSON has each answer", words == [COUNTED.format(number) for number in range(1, 4)], words)
    well = all(result["subtype"] == "success" and result["total_cost_usd"] > 0 for result in results)
    check("CI: and how each turn ended, and what it cost", well, results)
    asked = api.wait_for("the last prompt", lambda r: prompts[2] in r.prompt)
    check("CI: the last turn knows the first", prompts[0] in asked.context, asked.context)


def a_frontend_asks_its_backend(api, front):
    """Neither watches the other: a message wakes the one, and the answer the other."""
    idle(node.NAME)
    idle(BACKEND)
    front.type(WISH)
    api.wait_for("the need", lambda r: f'📨 {node.NAME}: "{NEED}"' in r.prompt)
    check("frontend: the backend is woken", True)
    api.wait_for("the answer", lambda r: f'📨 {BACKEND}: "{IS_THERE}"' in driver.told(r))
    eventually("it goes on", lambda: GOES_ON in front.screen())
    check("frontend: its answer wakes the frontend, which goes on", True)


def trusted(place):
    """One more directory in which Claude Code was trusted."""
    place.mkdir()
    file = scenario.HOME / ".claude.json"
    state = json.loads(file.read_text(encoding="utf-8"))
    state["projects"][str(place)] = state["projects"][str(scenario.PROJECT)]
    file.write_text(json.dumps(state), encoding="utf-8")
    return place


def main():
    scenario.PROJECT.mkdir()
    os.symlink(claude.PROGRAM, "/tmp/bin/claude")
    api = mock_api.MockApi(answer, scenario.LOG / "api.jsonl")
    try:
        scenario.start_broker()
        worker = scenario.start_worker()
        hooks_scenario.configure()
        node.GATES.write_text("approve = true\n", encoding="utf-8")
        place = trusted(scenario.HOME / BACKEND)
        with scenario.cli(api) as front:
            eventually("the session is on the bus", node.ours)
            # A session that nobody has written to yet may ask its user something.
            front.type("good morning")
            idle(node.NAME)
            an_editor_has_a_selection_explained(api)
            an_orchestrator_delegates_and_collects(api)
            with gateway() as phone:
                a_phone_watches_and_approves(phone)
            a_voice_hears_pieces_before_the_whole(api, worker)
            a_job_in_ci_has_one_json(api)
            os.environ["PEERBUS_NAME"] = BACKEND
            back = claude.Claude(place, api.url, scenario.LOG)
            back.type("good morning")
            a_frontend_asks_its_backend(api, front)
            back.quit()
        hooks_scenario.nothing_is_left()
    except AssertionError as failed:
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
