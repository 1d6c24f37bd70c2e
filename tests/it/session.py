"""session.py PEERBUS: stands in for a Claude Code process, with one adapter and one hook that waits.

Does what the real one was seen to do: keeps a file about itself, offers a socket for messages to its
children, runs the hook in a shell and the adapter on pipes. When both run it prints the adapter's
process number. Then its standard input says what to do, a line each:

    hook NUMBER EVENT     runs a hook on the event, and prints "hook NUMBER" and what that said at its end
    status WORD           says in its file that it does this
    send TO TEXT          has the adapter send a message
    rename NAME           has the adapter take another name, and prints "renamed"
    ask [SCRIPT, SOCKET, LINE]
                          has a child ask at a socket (caller.py), and prints "asked" and the answer
    eof, int, term        ends the adapter in this way, prints "ended" when both are gone, and waits to be killed
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

peerbus = sys.argv[1]
home = Path(os.environ["HOME"])
me = os.getpid()

messages = home / "messages"
messages.mkdir(exist_ok=True)
inbox = socket.socket(socket.AF_UNIX)
inbox.bind(str(messages / f"{me}.sock"))
inbox.listen()
sessions = home / ".claude" / "sessions"
sessions.mkdir(parents=True, exist_ok=True)
about = {"pid": me, "sessionId": f"session-{me}", "cwd": str(home), "status": "idle"}
about["messagingSocketPath"] = inbox.getsockname()
(sessions / f"{me}.json").write_text(json.dumps(about))

event = {"session_id": about["sessionId"], "cwd": str(home), "source": "startup"}
event["hook_event_name"] = "SessionStart"
pipe = subprocess.PIPE
interactive = os.environ | {"CLAUDE_CODE_ENTRYPOINT": "cli"}
hook = subprocess.Popen(
    f"{peerbus} hook wait; exit $?", shell=True, stdin=pipe, start_new_session=True, env=interactive
)
hook.stdin.write(json.dumps(event).encode())
hook.stdin.close()

# What a client's configuration may give its server.
given = os.environ.get("ADAPTER_VARIABLES", "").split()
of_adapter = dict(variable.split("=", 1) for variable in given)
socket_of_ours = {
    "CLAUDE_CODE_MESSAGING_SOCKET": inbox.getsockname(),
    "CLAUDE_CODE_MESSAGING_TOKEN": "sesame",
}
adapter = subprocess.Popen(
    [peerbus, "adapter", "--adapter=cc"],
    stdin=pipe,
    stdout=pipe,
    env=os.environ | socket_of_ours | of_adapter,
)


def say(message):
    adapter.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    adapter.stdin.flush()


client = {"name": "claude-code", "version": "1"}
params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
say({"id": 0, "method": "initialize", "params": params})
adapter.stdout.readline()
say({"method": "notifications/initialized"})
print(adapter.pid, flush=True)


def run_hook(number, on):
    given = {"session_id": about["sessionId"], "cwd": str(home), **json.loads(on)}
    done = subprocess.run(
        [peerbus, "hook"], input=json.dumps(given), stdout=pipe, text=True, env=interactive
    )
    print(f"hook {number} {done.stdout.strip()}", flush=True)


for command in sys.stdin:
    what, _, rest = command.strip().partition(" ")
    if what == "hook":
        threading.Thread(target=run_hook, args=rest.split(" ", 1)).start()
    elif what == "status":
        (sessions / f"{me}.json").write_text(json.dumps(about | {"status": rest}))
    elif what == "send":
        to, text = rest.split(" ", 1)
        arguments = {"to": to, "body": text}
        params = {"name": "bus_send", "arguments": arguments}
        say({"id": 1, "method": "tools/call", "params": params})
        adapter.stdout.readline()
    elif what == "rename":
        params = {"name": "bus_rename", "arguments": {"name": rest}}
        say({"id": 2, "method": "tools/call", "params": params})
        while json.loads(line := adapter.stdout.readline()).get("id") != 2:
            pass
        print(f"renamed {line.decode().strip()}", flush=True)
    elif what == "ask":
        script, place, line = json.loads(rest)
        child = [sys.executable, "-c", script, place]
        done = subprocess.run(child, input=f"{line}\n", stdout=pipe, text=True, check=True)
        print(f"asked {done.stdout.strip()}", flush=True)
    else:
        break
match what:
    case "eof":
        adapter.stdin.close()
    case "int":
        adapter.send_signal(signal.SIGINT)
    case "term":
        adapter.send_signal(signal.SIGTERM)
adapter.wait()
hook.wait()
print("ended", flush=True)
sys.stdin.readline()
