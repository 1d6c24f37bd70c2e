"""What is tested: two sessions of Claude Code that `peerbus run` drives talk to each other. Anna is
of the version under test, over `--sdk-url` where that takes it, and her connection is cut at random.
Ben is of the newest version that is known.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import contextlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import approvals_scenario as approvals
import claude
import cutting
import mock_api
import node
import scenario
import wake
from support import PATIENCE_S, check, eventually

ANNA, BEN = "anna", "ben"
NEWEST = "/tmp/newest/claude"
BEGIN = "talk with ben"
TOUCH = "please touch a file"
LAST = 6
SEND = f"mcp__{scenario.SERVER}__bus_send"
REPLY = f"mcp__{scenario.SERVER}__bus_reply"
# A message as the model is shown it: sender, words, what is marked, id.
LINE = re.compile(r'📨 (\w+): "turn (\d)"((?: \([^)]*\))*) \[([^\]]+)\]')
# Which of the turns Ben's client dies over, while its model thinks.
DEADLY = 3
DIED = threading.Event()
# What the models are asked besides, and what they wait for before they answer.
WAIT = "take your time"
GOES_ON = threading.Event()
# The last version that is known to take `--sdk-url` from everybody.
OVER_A_SOCKET = "2.1.114"
NOTE = "please note this"
HOOKED = "please touch another"
SEE = "please see this"
# What Ben's client is set up with.
SETUP = {
    "hooks": {"PreToolUse": [{"matcher": "Bash", "hookCallbackIds": ["guard"]}]},
    "appendSystemPrompt": "Told beforehand.",
}


def told(request):
    """What is new to the model. A message that comes while a tool is used joins its result."""
    contents = [result["content"] for result in request.tool_results]
    texts = [c if isinstance(c, str) else "\n".join(b.get("text", "") for b in c) for c in contents]
    return "\n".join([request.prompt, *texts])


def answer(request):
    """What the models say: Anna begins, and each answers the other until the last turn."""
    heard = LINE.findall(told(request))
    if request.tool_results and not heard:
        return mock_api.text("the tool has answered")
    if WAIT in request.prompt:
        GOES_ON.wait(PATIENCE_S)
    if HOOKED in request.prompt:
        return mock_api.tool_use("Bash", {"command": "touch /tmp/hooked", "description": "Touches"})
    if TOUCH in request.prompt:
        return mock_api.tool_use("Bash", {"command": "touch /tmp/touched", "description": "Touches"})
    if heard:
        _, number, marked, identity = heard[-1]
        if int(number) == DEADLY and not marked:
            DIED.wait(PATIENCE_S)
        if int(number) < LAST:
            body = f"turn {int(number) + 1}"
            return mock_api.tool_use(REPLY, {"msg_id": identity, "body": body})
    elif BEGIN in request.prompt:
        return mock_api.tool_use(SEND, {"to": BEN, "body": "turn 1"})
    return mock_api.text("nothing more to say")


class Driver:
    """A `peerbus run`, with the process of its client."""

    def __init__(self, api, name, *arguments, cli="/tmp/cli/claude"):
        self.out = scenario.LOG / f"{name}-out.txt"
        self.err = scenario.LOG / f"{name}-err.txt"
        command = ["peerbus", "run", "--name", name, *arguments]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                command,
                cwd=scenario.PROJECT,
                env=claude.environment(api.url) | {"PEERBUS_LOG": "debug", "CLI": cli},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def client(self):
        """The number of the client's process and its command line, once there is one."""

        def look():
            for entry in Path("/proc").glob("[0-9]*"):
                # It may have ended since.
                with contextlib.suppress(OSError, IndexError):
                    line = (entry / "cmdline").read_bytes().split(b"\0")
                    # Its guard stands between them.
                    if line[0] == b"claude" and parent(parent(entry.name)) == self.process.pid:
                        return int(entry.name), [word.decode() for word in line]
            return None

        return eventually("a client runs", look)

    def said(self, words):
        eventually(f"it prints: {words}", lambda: words in self.out.read_text(encoding="utf-8"))


def about(worker, name):
    """What peers are told of a session."""
    details = worker.call("bus.peers", {})["details"]
    return next((peer for peer in details if peer["name"] == name), {})


def is_ready(worker, name, version):
    def look():
        peer = about(worker, name)
        return peer if peer.get("wake") == ["stream"] else None

    peer = eventually(f"{name} can be woken", look)
    wanted = {"client": f"claude-code {version}", "acks": "seen"}
    check(f"peers are told who {name} is", wanted.items() <= peer.items(), peer)


def shown(api):
    """Each line that a model was shown anew: the turn's number, its id, how it is marked."""
    found = []
    for request in api.asked:
        for sender, number, marked, identity in LINE.findall(told(request)):
            line = (int(number), sender, identity, "(shown before)" in marked)
            if line not in found:
                found.append(line)
    return found


def steps(identity):
    """What became of a message, as the operator is told."""
    done = subprocess.run(
        ["peerbus", "status", identity, "--json"], capture_output=True, text=True, timeout=PATIENCE_S
    )
    return json.loads(done.stdout)["messages"][0]["trail"]["steps"] if done.returncode == 0 else []


def is_seen(identity, number):
    def look():
        return next((step for step in steps(identity) if step["state"] == "seen"), None)

    step = eventually(f"turn {number} is seen", look)
    proofs = ("transcript", "tool_call")
    proven = step.get("path") == "stream" and step.get("evidence") in proofs
    check(f"turn {number} is seen, by {step.get('path')}, {step.get('evidence')}", proven, step)


def they_talk(api, ben):
    """Three turns each. Ben's client dies while its model thinks about one, and goes on."""
    deadly = lambda request: f'"turn {DEADLY}"' in request.prompt and not request.tool_results
    asked = api.wait_for("the turn to die over", deadly)
    before, _ = ben.client()
    os.kill(before, signal.SIGKILL)
    DIED.set()
    again = lambda request: deadly(request) and "(shown before)" in request.prompt
    api.wait_for("the turn again", again)
    after, command = ben.client()
    check("the client that died is gone on with", after != before and "--resume" in command, command)
    resumed = api.wait_for("what it knows", again)
    check("and knows what was said", '"turn 1"' in resumed.context, resumed.context)
    api.wait_for("the last turn", lambda r: f'"turn {LAST}"' in told(r))
    lines = shown(api)
    for number in range(1, LAST + 1):
        of = [line for line in lines if line[0] == number]
        once = len({line[2] for line in of}) == 1 and sum(not line[3] for line in of) == 1
        check(f"turn {number} is shown as new once", once, lines)
        repeats = sum(line[3] for line in of)
        # Odd ones are Ben's. Anna's client is given up where a cut takes a call of a tool.
        known = repeats == (number == DEADLY) or (number % 2 == 0 and cutting.CUTS.exists())
        check(f"and again only where a client died ({repeats})", known, lines)
        is_seen(of[0][2], number)
    return asked


def nobody_allows(api, worker):
    since = len(api.asked)
    identity = wake.send(worker, TOUCH, ANNA)
    after = api.wait_for("what the tool says", lambda r: r.tool_results, since)
    said = json.dumps(after.tool_results)
    check("a tool that nobody allows is denied, and why", "nobody could answer this permission request" in said, said)
    check("it did not run", not os.path.exists("/tmp/touched"))
    wake.step(worker, identity, "seen")


def a_peer_allows(api, worker, phone):
    """A permission is asked of a peer, and granted."""
    approvals.gates('remote = ["phone"]\ninterrupt = true\ncontrol = true\n')
    wake.send(worker, TOUCH, ANNA)
    asked = approvals.heard(phone)["approval"]
    check("the peer is shown the whole call", "touch /tmp/touched" in asked["preview"], asked)
    sent = phone.call("bus.send", {"to": ANNA, "body": f"yes {asked['id']}"})
    eventually("the tool runs", lambda: os.path.exists("/tmp/touched"))
    told = approvals.told_on(phone, sent, "approval_resolved")
    check("what a peer allowed runs, and it is told", '"by":"peer:phone"' in told, told)


def idle():
    session = named()
    return session if session["status"] == "idle" else None


def named(name=ANNA):
    sessions = json.loads(node.peerbus("list", "--json").stdout)["sessions"]
    return next(session for session in sessions if session["name"] == name)


def a_turn_is_interrupted(api):
    eventually("it is idle", idle)
    since = len(api.asked)
    words = f"{WAIT}, number one"
    put = subprocess.Popen(
        ["peerbus", "session", "inject", ANNA, words, "--wait", "answer"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    api.wait_for("the turn", lambda r: words in r.prompt, since)
    done = node.peerbus("interrupt", ANNA)
    check("a turn is interrupted", done.returncode == 0, done)
    _, why = put.communicate(timeout=PATIENCE_S)
    failed = put.returncode == 1 and "error_during_execution" in why
    check("who waits for its answer is told how it ended", failed, (put.returncode, why))
    eventually("it is idle again", idle)
    GOES_ON.set()
    done = node.peerbus("interrupt", ANNA)
    check("where no turn is under way there is none to interrupt", done.returncode == 1, done)


def what_a_turn_came_to_is_told():
    """One object at the end, and what the model says piece by piece for who asks for that."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(named(BEN)["socket"])
        params = {"events": ["partial", "result"]}
        line = {"jsonrpc": "2.0", "id": 1, "method": "session/subscribe", "params": params}
        stream.sendall(json.dumps(line).encode() + b"\n")
        done = node.peerbus("inject", BEN, "anything else?", "--wait", "result", "--json")
        check("a turn is waited for", done.returncode == 0, done)
        result = json.loads(done.stdout)
        wanted = {"subtype": "success", "is_error": False, "num_turns": 1, "permission_denials": []}
        check("its result is one object", wanted.items() <= result.items(), result)
        figures = ["total_cost_usd", "duration_ms", "duration_api_ms"]
        check("with what it cost", all(result[figure] > 0 for figure in figures), result)
        said = ""
        for line in stream.makefile():
            event = json.loads(line).get("params", {})
            if event.get("type") == "result":
                break
            said += event.get("content", "")
        check("the pieces are what it said", said == result["result"] != "", (said, result))


def a_hook_is_answered(api):
    """A program says what becomes of a call of a tool, by a hook that Ben's client was set up with."""
    approvals.gates('remote = ["phone"]\napprove = true\ninterrupt = true\ncontrol = true\n')
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(named(BEN)["socket"])
        lines = stream.makefile()

        def ask(method, params):
            line = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            stream.sendall(json.dumps(line).encode() + b"\n")
            return json.loads(lines.readline())

        ask("session/subscribe", {"events": ["hook_callback"]})
        since = len(api.asked)
        done = node.peerbus("inject", BEN, HOOKED)
        check("a text is put in that leads to a hook", done.returncode == 0, done)
        asked = json.loads(lines.readline())["params"]
        wanted = {"type": "hook_callback", "callback_id": "guard", "hook_event": "PreToolUse"}
        check("a program is asked about a hook", wanted.items() <= asked.items(), asked)
        command = asked["input"]["tool_input"]["command"]
        check("and told what the tool would get", command == "touch /tmp/hooked", asked)
        verdict = {"hookEventName": "PreToolUse", "permissionDecision": "deny"}
        response = {"hookSpecificOutput": {**verdict, "permissionDecisionReason": "not today"}}
        answer = ask("session/hook", {"request_id": asked["request_id"], "response": response})
        check("its answer is taken", answer["result"] == {"accepted": True}, answer)
    after = api.wait_for("what the hook says", lambda r: r.tool_results, since)
    said = json.dumps(after.tool_results)
    check("and reaches the model in the tool's place", "not today" in said, said)
    check("the tool did not run", not os.path.exists("/tmp/hooked"))
    told = "Told beforehand." in after.context and "peerbus connects you" in after.context
    check("the model is told what its user wrote, and of the bus", told, after.context)


def png():
    """A red square, as its file."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    rows = zlib.compress((b"\0" + b"\xff\0\0" * 8) * 8)
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def an_image_is_seen(api):
    Path("/tmp/square.png").write_bytes(png())
    for name in [ANNA, BEN]:
        since = len(api.asked)
        done = node.peerbus("inject", name, SEE, "--image", "/tmp/square.png", "--wait", "seen")
        check(f"an image is put into {name}'s session, and seen", done.returncode == 0, done)
        asked = api.wait_for("its turn", lambda r: f"{SEE} [image 1]" in r.prompt, since)
        images = [block["source"]["media_type"] for block in asked.last if block["type"] == "image"]
        check("its model gets it with the text", images == ["image/png"], asked.last)


def a_login_is_handed_on():
    """Variables that the newest client takes; the last thing that is tried, as it logs in by them."""
    variables = {"CLAUDE_CODE_OAUTH_TOKEN": "made-up", "OTHER": "x"}
    params = {"subtype": "update_environment_variables", "variables": variables}
    answer = approvals.call(named(BEN)["socket"], "session/control", params)
    applied = answer["result"]["response"]["applied"]
    check("the client says which variables it took", applied == ["CLAUDE_CODE_OAUTH_TOKEN"], answer)


def what_comes_at_once_is_all_answered(api, worker):
    """Messages that come while a turn is under way are merged, and each is seen."""
    GOES_ON.clear()
    since = len(api.asked)
    sent = [wake.send(worker, f"{WAIT}, number {number}", ANNA) for number in range(3)]
    api.wait_for("the turn", lambda r: WAIT in r.prompt, since)
    sent += [wake.send(worker, f"number {number} of more", ANNA) for number in range(3)]
    GOES_ON.set()
    for identity in sent:
        wake.step(worker, identity, "seen")
    check("what came while a turn was under way is seen, all of it", True)


def it_is_controlled(api, worker):
    """Each word of the client's that the node takes, and what the client answers."""
    eventually("it is idle", idle)
    path = named()["socket"]
    answers = {}
    for subtype, params in [
        ("set_model", {"model": "claude-haiku-4-5"}),
        ("set_permission_mode", {"mode": "acceptEdits"}),
        ("set_max_thinking_tokens", {"max_thinking_tokens": 1024}),
        ("mcp_status", {}),
        ("mcp_reconnect", {"serverName": "peerbus"}),
        ("mcp_toggle", {"serverName": "peerbus", "enabled": True}),
        ("mcp_set_servers", {"servers": {}}),
        ("rewind_files", {"user_message_id": "none"}),
        ("update_environment_variables", {"variables": {"OTHER": "x"}}),
    ]:
        answer = approvals.call(path, "session/control", {"subtype": subtype, **params})
        answers[subtype] = answer.get("result") or answer["error"]["message"]
    print(f"ok control was answered: {json.dumps(answers)[:2000]}")
    settings = ["set_model", "set_permission_mode", "set_max_thinking_tokens"]
    for subtype in [*settings, "mcp_status", "update_environment_variables"]:
        check(f"{subtype} is answered", "response" in answers[subtype], answers[subtype])
    since = len(api.asked)
    wake.send(worker, "with which model?", ANNA)
    asked = api.wait_for("the next turn", lambda r: "with which model?" in r.prompt, since)
    check("the bus tools stay when others are set", SEND in asked.tools, sorted(asked.tools))
    check("the model is the one that was set", "haiku" in asked.body["model"], asked.body["model"])
    params = {"subtype": "set_permission_mode", "mode": "bypassPermissions"}
    refused = approvals.call(path, "session/control", params)
    check("never to bypassPermissions", "bypassPermissions" in refused["error"]["message"], refused)


def is_refused(api):
    """What this version does not take is said before anything is started."""
    driver = Driver(api, "carol", "--transport", "sdk-url")
    check("the driver does not start", driver.process.wait(PATIENCE_S) == 1)
    said = driver.err.read_text(encoding="utf-8")
    check("a version that is known to refuse is named", "--transport stdio" in said, said)


def it_is_cut(api, worker, anna):
    """Until there were all cuts, she is sent something. Nothing is lost or doubled."""
    sent = []
    while cutting.cuts() < cutting.MOST:
        if len(sent) == 100:
            raise AssertionError(f"only {cutting.cuts()} cuts came")
        sent.append(wake.send(worker, f"{NOTE}: {len(sent)}", ANNA))
        wake.step(worker, sent[-1], "seen")
    prompts = [told(request) for request in api.asked if NOTE in told(request)]
    for identity in sent:
        new = [p for p in prompts if identity[-8:] in p and f"(shown before) [{identity[-8:]}]" not in p]
        check(f"{identity} is shown as new once", len(new) == 1, new)
    said = anna.err.read_text(encoding="utf-8")
    again = said.count("it is started again")
    check(f"{cutting.MOST} cuts, of which the client outlived {cutting.MOST - again}", again < 4, said)


def parent(process):
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


def version_of(program):
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[0]


def clients():
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = entry.read_bytes().split(b"\0")
            if line[0] == b"claude" and b"--permission-prompt-tool" in line:
                found.append(entry.parent.name)
    return found


def they_end(anna, ben):
    done = node.peerbus("stop", ANNA)
    check("a session is ended by its node", done.returncode == 0, done)
    check("its driver ends", anna.process.wait(PATIENCE_S) == 0)
    check("with its client", len(clients()) == 1, clients())
    ben.process.kill()
    eventually("a client ends with a driver that was killed", lambda: not clients())
    check("no client is left", True)


def main():
    scenario.PROJECT.mkdir()
    wrapper = Path("/tmp/bin/claude")
    wrapper.write_text(f'#!/bin/bash\nexec {sys.executable} {cutting.__file__} "$@"\n')
    wrapper.chmod(0o755)
    claude.seed(scenario.HOME, scenario.PROJECT, "nothing")
    version, newest = version_of("/tmp/cli/claude"), version_of(NEWEST)
    api = mock_api.MockApi(answer, scenario.LOG / "api.jsonl")
    # How many messages it takes until there were all cuts is chance: they start any number of turns.
    os.environ["PEERBUS_BUDGET"] = "off"
    try:
        scenario.start_broker()
        worker = scenario.start_worker()
        # As it is on a machine where sessions with a screen are on the bus, too.
        done = subprocess.run(["peerbus", "install", "claude-code"], capture_output=True, text=True)
        check("install succeeds", done.returncode == 0, done.stderr)
        setup = Path("/tmp/setup.json")
        setup.write_text(json.dumps(SETUP), encoding="utf-8")
        own = ["--initialize", str(setup), "--", "--include-partial-messages"]
        ben = Driver(api, BEN, *own, cli=NEWEST)
        is_ready(worker, BEN, newest)
        by = ["--transport", "sdk-url"] if version == OVER_A_SOCKET else []
        anna = Driver(api, ANNA, *by, BEGIN)
        is_ready(worker, ANNA, version)
        asked = they_talk(api, ben)
        check("the model is told what the bus is", "peerbus connects you" in asked.context, asked.context)
        anna.said("nothing more to say")
        if by:
            it_is_cut(api, worker, anna)
        nobody_allows(api, worker)
        a_peer_allows(api, worker, approvals.start_phone())
        a_turn_is_interrupted(api)
        what_a_turn_came_to_is_told()
        what_comes_at_once_is_all_answered(api, worker)
        it_is_controlled(api, worker)
        a_hook_is_answered(api)
        an_image_is_seen(api)
        wake.no_file_is_read_for_a_peer(api, worker, ANNA)
        names = [p["name"] for p in worker.call("bus.peers", {})["details"]]
        check("each session is one peer", sorted(names) == [ANNA, BEN, "phone"], names)
        if not by:
            is_refused(api)
        a_login_is_handed_on()
        they_end(anna, ben)
    except AssertionError as failed:
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
