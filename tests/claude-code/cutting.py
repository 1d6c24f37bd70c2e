"""Becomes the real CLI, the one that CLI names or the one under test. Where that speaks over `--sdk-url`, it does so through a proxy, a process
below it, which cuts the connection at random places.

A cut loses what is on the way, in both directions. Each is noted in CUTS; there are MOST in all.
"""

import contextlib
import ctypes
import os
import random
import signal
import socket
import struct
import sys
import threading
from pathlib import Path

PROGRAM = os.environ.get("CLI", "/tmp/cli/claude")
CUTS = Path("/tmp/log/cuts.txt")
MOST = 20
FLAG = "--sdk-url"
# Pieces that go through before a cut. The first two are how the connection begins. A new client's
# first words are with the server behind the stream: one that loses those has to be started again,
# and few may do so in a row.
PIECES = (3, 24)
PIECES_AT_FIRST = (3, 60)
PR_SET_PDEATHSIG = 1


def cuts():
    """How many there were, in all processes of this scenario."""
    return len(CUTS.read_text().splitlines()) if CUTS.exists() else 0


class Pair:
    """A connection of the client's, and its other half to the driver."""

    def __init__(self, client, driver, pieces):
        self.halves = (client, driver)
        self.lock = threading.Lock()
        number = cuts()
        self.random = random.Random(f"cut {number}")
        self.left = self.random.randint(*pieces) if number < MOST else None
        for source, sink in ((client, driver), (driver, client)):
            threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    def carry(self, source, sink):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                with self.lock:
                    if self.left is not None:
                        self.left -= 1
                    if self.left == 0:
                        # All of the last piece gets there, a part of it, or nothing.
                        sink.sendall(piece[: int(len(piece) * self.random.choice([0, 0.5, 1]))])
                        with open(CUTS, "a", encoding="utf-8") as noted:
                            way = "to the driver" if source is self.halves[0] else "to the client"
                            noted.write(f"{way}, {len(piece)} bytes\n")
                        return self.cut()
                    sink.sendall(piece)
        self.cut()

    def cut(self):
        for half in self.halves:
            # The other thread may have closed it.
            with contextlib.suppress(OSError):
                half.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                half.shutdown(socket.SHUT_RDWR)
                half.close()


def serve(listener, driver):
    """For as long as the client lives, and apart from its streams."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    pieces = PIECES_AT_FIRST
    while True:
        client, _ = listener.accept()
        Pair(client, socket.create_connection(driver), pieces)
        pieces = PIECES


def main():
    arguments = sys.argv[1:]
    if FLAG in arguments:
        at = arguments.index(FLAG) + 1
        host, port = arguments[at].removeprefix("ws://").rstrip("/").split(":")
        listener = socket.create_server(("127.0.0.1", 0))
        arguments[at] = f"ws://127.0.0.1:{listener.getsockname()[1]}/"
        if os.fork() == 0:
            serve(listener, (host, int(port)))
    os.execv(PROGRAM, ["claude", *arguments])


if __name__ == "__main__":
    main()
