#!/usr/bin/env python3
"""A peerbus v1 client, written from the v1 part of docs/PROTOCOL.md alone, and a test scenario.

As a library: `Client(url, token, name, secret)`. As a program:

    client.py scenario --url ws://127.0.0.1:PORT --token T --secret S [--token2 T2]
    client.py vectors crates/wire/testdata/vectors.json
    client.py self-check                 the scenario against broker.py beside this file

All print one line per check; exit code 0: all passed, 1: one failed, 2: usage. Standard library only.
"""

import argparse
import contextlib
import datetime
import json
import pathlib
import secrets
import subprocess
import sys
from collections import deque
from dataclasses import dataclass

import envelope as env
import websocket as ws

WAIT_S = 30.0


@dataclass
class Delivery:
    """A received message: what to ack, the decoded envelope, and whether its signature holds."""

    key: str
    envelope: dict
    verified: bool

    @property
    def body(self):
        return json.loads(self.envelope["body"])


class Client:
    """One registered connection. Frames are read only inside `peers` and `receive`."""

    def __init__(self, url, token, name, secret):
        self.name, self.secret = name, secret
        self.inbox = deque()
        self.frames = []
        self.connection = ws.Connection(url, WAIT_S)
        self.command("register", token=token, name=name)
        first = self.read()
        if first["type"] != "peers":
            raise AssertionError(f"the handshake ack must be a peers frame, got {first['type']!r}")
        self.connected = first["names"]

    def command(self, kind, **members):
        """Sends a control frame."""
        frame = {"protocol_version": "v1", "type": kind, **members}
        self.connection.send(json.dumps(frame).encode())

    def send(self, to, body, kind="msg"):
        """Signs and sends an envelope; gives its id."""
        message = self.compose(to, json.dumps(body, ensure_ascii=False).encode(), kind)
        self.connection.send(env.encode(message))
        return message["id"]

    def compose(self, to, body, kind="msg", message_id=None):
        """A signed envelope around a body in bytes."""
        now = datetime.datetime.now(datetime.timezone.utc)
        message = {
            "protocol_version": "v1",
            "id": message_id or secrets.token_hex(16),
            "from": self.name,
            "to": to,
            "ts": now.strftime("%Y-%m-%dT%H:%M:%S.%f000Z"),
            "source": "peer-bus",
            "kind": kind,
            "body": body,
        }
        message["hmac"] = env.sign(message, self.secret)
        return message

    def broadcast(self, body):
        """Sends to every registered peer but this one."""
        return self.send("*", body, kind="broadcast")

    def peers(self):
        """The connected names; also a barrier for every frame sent before."""
        self.command("peers")
        while True:
            frame = self.read()
            if frame["type"] == "peers":
                return frame["names"]
            self.keep(frame)

    def receive(self):
        """The next delivery, waiting up to 30 s. The caller acks it."""
        while not self.inbox:
            self.keep(self.read())
        return self.inbox.popleft()

    def ack(self, delivery):
        """Says that the delivery is done with."""
        self.command("ack", id=delivery.key)

    def close(self):
        self.connection.close()

    def cut(self):
        """Drops the connection without a goodbye."""
        self.connection.cut()

    def read(self):
        """The next frame: its members, `envelope` as bytes."""
        _, raw = self.connection.receive(WAIT_S)
        frame = dict(env.members(raw))
        self.frames.append(frame)
        names = ("protocol_version", "type", "delivery_key", "envelope")
        return {**env.fields(raw, names), "names": json.loads(frame.get("names", b"null"))}

    def keep(self, frame):
        """Files a deliver frame; any other unknown frame is ignored, as v1 clients do."""
        if frame["type"] == "deliver":
            message = env.decode(frame["envelope"])
            verified = env.verify(message, self.secret)
            self.inbox.append(Delivery(frame["delivery_key"], message, verified))


def main():
    parser = argparse.ArgumentParser(description="peerbus v1 client")
    verbs = parser.add_subparsers(dest="verb", required=True)
    scenario = verbs.add_parser("scenario", help="exercise a running broker")
    scenario.add_argument("--url", required=True)
    scenario.add_argument("--token", required=True)
    scenario.add_argument("--token2", help="a second token of the broker, for the check of claimed names")
    scenario.add_argument("--secret", required=True)
    vectors = verbs.add_parser("vectors", help="check the canonical form against a vectors file")
    vectors.add_argument("file")
    verbs.add_parser("self-check", help="run the scenario against broker.py")
    args = parser.parse_args()
    # The programs import this module as a library.
    import scenario
    import vectors

    if args.verb == "vectors":
        return vectors.run(args.file)
    if args.verb == "scenario":
        return scenario.run(args)
    with v1_broker("token-one", "token-two") as url:
        known = {"token": "token-one", "token2": "token-two", "secret": "s" * 32}
        return scenario.run(argparse.Namespace(url=url, **known))


@contextlib.contextmanager
def v1_broker(*tokens):
    """Runs broker.py while the block runs; gives its URL."""
    program = pathlib.Path(__file__).with_name("broker.py")
    command = [sys.executable, program, "--tokens", ",".join(tokens)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        yield f"ws://127.0.0.1:{int(broker.stdout.readline())}"
        # Leaving the block closes its standard input, which ends it.


if __name__ == "__main__":
    sys.modules["client"] = sys.modules["__main__"]
    sys.exit(main())
