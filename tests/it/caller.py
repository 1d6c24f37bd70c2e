"""caller.py SOCKET [orphan]: says each line of its standard input at a session's socket, over a connection of
its own, and prints what comes back, or an empty line where nothing does.

`orphan`: does so as a process that nobody above it knows, as a daemon is.
"""

import os
import socket
import sys
import time

if "orphan" in sys.argv:
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    deadline = time.monotonic() + 30
    while os.getppid() == parent and time.monotonic() < deadline:
        time.sleep(0.001)

for line in sys.stdin:
    with socket.socket(socket.AF_UNIX) as node:
        node.settimeout(30)
        try:
            node.connect(sys.argv[1])
            node.sendall(line.encode())
            answer = node.makefile().readline()
        except (BrokenPipeError, ConnectionResetError):
            answer = ""
    print(answer.strip(), flush=True)
