#!/usr/bin/env python3
"""A stand-in for Claude Code in a driver's hands: it answers each turn with the words "heard it",
but for words that ask for something else. What it is told goes to the file `told` beside its home,
one JSON text a line, after its own command line."""

import json
import os
import sys
import uuid
from pathlib import Path

HOME = Path(os.environ["HOME"])
SESSION = "00000000-0000-4000-8000-000000000001"


def note(what):
    with open(HOME / "told", "a", encoding="utf-8") as told:
        told.write(json.dumps(what) + "\n")


def say(kind, **more):
    print(json.dumps({"type": kind, "session_id": SESSION, "uuid": str(uuid.uuid4()), **more}), flush=True)


def next_line():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    told = json.loads(line)
    note(told)
    return told


def answer(words="heard it", **more):
    message = {"id": f"msg_{uuid.uuid4()}", "model": "m", "content": [{"type": "text", "text": words}]}
    say("assistant", message=message, parent_tool_use_id=None, **more)


def result(subtype="success", **more):
    say("result", **{"subtype": subtype, "is_error": subtype != "success", **more})


def replay(turn, words):
    message = {"role": "user", "content": words}
    line = {"type": "user", "message": message, "parent_tool_use_id": None, "isReplay": True}
    print(json.dumps({**line, "session_id": SESSION, "uuid": turn["uuid"]}), flush=True)


def ask(subtype, **more):
    """Asks the driver, and gives its answer."""
    request = str(uuid.uuid4())
    say("control_request", request_id=request, request={"subtype": subtype, **more})
    while (told := next_line())["type"] != "control_response":
        assert told["type"] != "user", told
    assert told["response"]["request_id"] == request, told
    return told["response"]


def once(what):
    """Whether this is the first time, over all clients of this home."""
    try:
        (HOME / what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def merged():
    """Takes two more turns and answers all three in one, as the real client does what came while
    it was busy."""
    turns = [next_user(), next_user()]
    words = [turn["message"]["content"] for turn in turns]
    replay(turns[0], words[0])
    say("system", subtype="init")
    replay(turns[1], "\n".join(words))
    answer()
    result()


def next_user():
    while (told := next_line())["type"] != "user":
        pass
    return told


def turn(told):
    words = told["message"]["content"]
    say("system", subtype="init")
    if "die at once" in words and once("died"):
        sys.exit(7)
    replay(told, words)
    if "die after the answer" in words and once("died"):
        answer()
        os.kill(os.getpid(), 9)
    if "fail after the answer" in words and once("failed"):
        answer()
        return result("error_max_turns", errors=["too many turns"])
    if "no service" in words and once("failed"):
        answer("API Error: 500", error="unknown")
        return result(is_error=True, result="API Error: 500")
    if "use a tool" in words:
        tool = {"tool_name": "Bash", "input": {"command": "ls", "n": 1.50}, "tool_use_id": "t"}
        rule = {"type": "addRules", "behavior": "allow", "destination": "session"}
        rule["rules"] = [{"toolName": "Bash", "ruleContent": "ls:*"}]
        mode = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
        note({"verdict": ask("can_use_tool", permission_suggestions=[mode, rule], **tool)})
    if "use a bus tool" in words:
        name = "mcp__peerbus__bus_peers"
        note({"verdict": ask("can_use_tool", tool_name=name, input={"x": 12})})
        call = {"name": "bus.peers", "arguments": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        note({"called": ask("mcp_message", server_name="peerbus", message=message)})
    if "ask for the unknown" in words:
        note({"verdict": ask("hook_callback", callback_id="x")})
    if "speak oddly" in words:
        print("this is no JSON", flush=True)
        say("a_new_type", anything={"at": ["all"]})
        say("keep_alive")
        answer("first\nsecond \x1b[2J\u202e<end>")
        return result()
    answer()
    result()
    if "and hold" in words:
        merged()


def main():
    if sys.argv[1:] == ["--version"]:
        print("2.1.114 (a stand-in)")
        return
    note({"argv": sys.argv[1:]})
    if "--bad-start" in sys.argv:
        result("error_during_execution", errors=["No conversation found"])
        sys.exit(1)
    while True:
        told = next_line()
        if told["type"] == "control_request":
            hello = {"subtype": "success", "request_id": told["request_id"], "response": {}}
            say("control_response", response=hello)
        elif told["type"] == "user":
            turn(told)


main()
