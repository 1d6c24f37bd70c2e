#!/usr/bin/env python3
"""Starts adapters the ways that clients do, and checks that none outlives its session.

    lifecycle_drive.py PEERBUS [--home DIR]

PEERBUS is the binary. DIR is a HOME; no broker needs to run there. Prints one line per check.

Exit codes: 0 every check held, 1 one did not, 2 usage.
"""

import argparse
import json
import os
import pty
import signal
import socket
import subprocess
import sys

PATIENCE_S = 30
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "some-bot", "version": "1"},
    },
}
HELLO = (json.dumps(INITIALIZE) + "\n").encode()


def check(what, holds, found=""):
    if not holds:
        print(f"FAILED {what}: {found!r}", flush=True)
        sys.exit(1)
    print(f"ok {what}", flush=True)


def ends(what, process):
    """Checks that a process ends of its own accord, and well."""
    try:
        status = process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        check(what, False, "it stays")
    check(what, status == 0, status)


def over_sockets(command, env):
    """Node gives its children sockets, not pipes."""
    (ours_in, theirs_in), (ours_out, theirs_out) = socket.socketpair(), socket.socketpair()
    adapter = subprocess.Popen(command, env=env, stdin=theirs_in, stdout=theirs_out)
    theirs_in.close()
    theirs_out.close()
    ours_out.settimeout(PATIENCE_S)
    ours_in.sendall(HELLO)
    answer = json.loads(ours_out.makefile("rb").readline())
    check("answers over sockets", answer["id"] == 1 and "result" in answer, answer)
    threads = len(os.listdir(f"/proc/{adapter.pid}/task"))
    check("no thread blocks in read", threads == 1, threads)
    ours_in.shutdown(socket.SHUT_WR)
    ends("ends when its socket is closed", adapter)


def on_a_terminal(command, env):
    """On a terminal a read blocks, and must not keep the process."""
    ours, theirs = pty.openpty()
    adapter = subprocess.Popen(command, env=env, stdin=theirs, stdout=theirs)
    os.close(theirs)
    os.write(ours, HELLO)
    # The terminal echoes the line, and then there is the answer.
    seen = b""
    while b'"result"' not in seen:
        seen += os.read(ours, 65_536)
    adapter.send_signal(signal.SIGTERM)
    ends("ends on a terminal", adapter)


def orphaned(command, env):
    """A client that is killed leaves its pipes to others who hold them."""
    child_in, our_in = os.pipe()
    our_out, child_out = os.pipe()
    client = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *command],
        env=env,
        stdin=child_in,
        stdout=child_out,
    )
    os.close(child_in)
    os.close(child_out)
    os.write(our_in, HELLO)
    answers = os.fdopen(our_out, "rb")
    check("answers its client's client", b'"result"' in answers.readline())
    client.kill()
    client.wait()
    # Its end of the pipe closes with it, and with nothing else: stdin is still open.
    signal.alarm(PATIENCE_S)
    rest = answers.read()
    signal.alarm(0)
    check("ends with its parent", b"error" not in rest, rest)
    os.close(our_in)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peerbus")
    parser.add_argument("--home", default=os.environ.get("HOME", ""))
    args = parser.parse_args()
    if not os.access(args.peerbus, os.X_OK):
        parser.error(f"{args.peerbus} is not an executable file")
    env = {"HOME": args.home, "PATH": os.environ["PATH"], "PEERBUS_AUTOSTART": "off"}
    for kind in ("cc", "generic"):
        command = [args.peerbus, "adapter", "--adapter", kind]
        over_sockets(command, env)
        on_a_terminal(command, env)
        orphaned(command, env)
    return 0


if __name__ == "__main__":
    sys.exit(main())
