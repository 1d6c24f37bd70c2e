#!/usr/bin/env python3
"""A small v1-only peerbus broker, written from the v1 part of docs/PROTOCOL.md alone, for tests.

    broker.py --listen 127.0.0.1:0 --tokens T1[,T2]

Its first line of output is the port. It ends on SIGTERM, SIGINT or the end of its standard input.
Everything is in memory: a restart forgets all. It knows nothing of `ext`: unknown members of
`register` are ignored, and frames beyond v1 are neither sent nor understood. Standard library only.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import threading

import envelope as env
import websocket as ws


class Refused(Exception):
    """The handshake failed: a close code and its text."""


class Peer:
    """A name that registered once: its token, its connection if any, what it has not acked."""

    def __init__(self, token):
        self.token = token
        self.link = None
        self.unacked = {}  # delivery key -> deliver frame, in accept order


class Broker:
    def __init__(self, tokens):
        self.tokens = tokens
        self.peers = {}
        self.seen = set()

    async def serve(self, reader, writer):
        """The life of one connection."""
        link = Link(reader, writer)
        try:
            await link.upgrade()
            opcode, first = await link.receive()
            name = self.register(link, opcode, first)
            while True:
                opcode, raw = await link.receive()
                if opcode == ws.TEXT:
                    self.frame(name, link, raw)
                await writer.drain()
        except Refused as refusal:
            link.send(ws.close_payload(*refusal.args), ws.CLOSE)
        except ws.TooLarge:
            link.send(ws.close_payload(1009, "frame too large"), ws.CLOSE)
        except (ws.Closed, ConnectionError, asyncio.IncompleteReadError):
            pass  # the connection is over
        finally:
            for peer in self.peers.values():
                if peer.link is link:
                    peer.link = None
            await link.end()

    def register(self, link, opcode, raw):
        """Checks the first frame in v1's order, answers it and flushes the backlog; gives the name."""
        if opcode != ws.TEXT:
            raise Refused(1003, "handshake must be text")
        try:
            kind = env.fields(raw, ("type",)).get("type", "")
            frame = env.fields(raw, ("protocol_version", "token", "name"))
        except env.Malformed:
            raise Refused(1007, "malformed handshake") from None
        name, token = frame.get("name", ""), frame.get("token", "")
        if kind != "register":
            raise Refused(1008, "first frame must be register")
        if frame.get("protocol_version") != "v1":
            raise Refused(1008, "unsupported protocol version")
        if not name:
            raise Refused(1008, "empty peer name")
        if token not in self.tokens:
            raise Refused(1008, "invalid bearer token")
        peer = self.peers.setdefault(name, Peer(token))
        if peer.link and peer.token != token:
            raise Refused(1008, "name claimed under a different token")
        if peer.link:
            peer.link.cut()
        peer.link, peer.token = link, token
        link.send(self.names())
        for frame in peer.unacked.values():
            link.send(frame)
        return name

    def names(self):
        """The peers frame."""
        names = sorted(name for name, peer in self.peers.items() if peer.link)
        frame = {"protocol_version": "v1", "type": "peers", "names": names}
        return json.dumps(frame, separators=(",", ":")).encode()

    def frame(self, name, link, raw):
        """Handles one frame after the handshake; what is malformed is ignored."""
        kind = env.control_type(raw)
        try:
            if kind == "peers":
                link.send(self.names())
            elif kind == "ack":
                self.peers[name].unacked.pop(env.fields(raw, ("id",)).get("id", ""), None)
            elif kind not in ("register", "deliver"):
                self.route(name, env.decode(raw))
        except env.Malformed:
            pass

    def route(self, name, envelope):
        """Queues an envelope for its recipients, and delivers to those that are here."""
        key = (envelope["from"], envelope["id"])
        if envelope["protocol_version"] != "v1" or not envelope["id"] or key in self.seen:
            return
        broadcast = envelope["kind"] == "broadcast"
        if broadcast != (envelope["to"] == "*"):
            return
        self.seen.add(key)
        others = [other for other, peer in self.peers.items() if peer.link and other != name]
        for recipient in others if broadcast else [envelope["to"]]:
            peer = self.peers.get(recipient)
            if peer is None:
                continue  # v1 drops mail for a name that nobody ever registered
            delivery_key = envelope["id"] + (f"|{recipient}" if broadcast else "")
            if delivery_key in peer.unacked:
                delivery_key += f"#{len(self.seen)}"  # another sender's message has the same id
            peer.unacked[delivery_key] = deliver_frame(delivery_key, envelope)
            if peer.link:
                peer.link.send(peer.unacked[delivery_key])


def deliver_frame(key, envelope):
    head = b'{"protocol_version":"v1","type":"deliver","delivery_key":' + env.quote(key)
    return head + b',"envelope":' + env.encode(envelope) + b"}"


class Link:
    """One WebSocket connection, seen from the server."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.decoder = ws.Decoder()

    async def upgrade(self):
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = (line.split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
        key = {name.strip().lower(): value.strip() for name, value in lines}.get(b"sec-websocket-key")
        if key is None:
            self.writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            raise ws.Closed
        self.writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + ws.accept_key(key) + b"\r\n\r\n"
        )

    async def receive(self):
        """The next message as (opcode, payload)."""
        while True:
            message = self.decoder.message()
            if message is None:
                data = await self.reader.read(65_536)
                if not data:
                    raise ws.Closed
                self.decoder.feed(data)
            elif message[0] == ws.PING:
                self.send(message[1], ws.PONG)
            elif message[0] == ws.CLOSE:
                self.send(message[1][:2], ws.CLOSE)
                raise ws.Closed
            elif message[0] != ws.PONG:
                return message

    def send(self, payload, opcode=ws.TEXT):
        if not self.writer.is_closing():
            self.writer.write(ws.encode(opcode, payload, masked=False))

    def cut(self):
        self.writer.transport.abort()

    async def end(self):
        """Closes once what was written is gone; reads to the end, so that no reset drops a close frame."""
        try:
            if not self.writer.is_closing():
                self.writer.write_eof()
                async with asyncio.timeout(5):
                    while await self.reader.read(65_536):
                        pass
        except (OSError, TimeoutError):
            pass  # it is being closed anyway
        self.writer.close()


async def run(args):
    host, port = args.listen.rsplit(":", 1)
    broker = Broker(args.tokens.split(","))
    server = await asyncio.start_server(broker.serve, host, int(port))
    print(server.sockets[0].getsockname()[1], flush=True)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    threading.Thread(target=wait_for_end_of_input, args=(loop, stop), daemon=True).start()
    await stop.wait()


def wait_for_end_of_input(loop, stop):
    while os.read(sys.stdin.fileno(), 4096):
        pass
    loop.call_soon_threadsafe(stop.set)


def main():
    parser = argparse.ArgumentParser(description="small v1-only peerbus broker for tests")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--tokens", required=True, metavar="T1[,T2]")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
