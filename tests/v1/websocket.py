"""Just enough of RFC 6455 for a v1 client and a v1 broker. Standard library only."""

import base64
import hashlib
import os
import socket
import ssl
import struct
from urllib.parse import urlsplit

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MESSAGE_BYTES_MAX = 1_048_576
HEAD_BYTES_MAX = 16_384


class TooLarge(Exception):
    """A message is larger than `MESSAGE_BYTES_MAX`."""


class Closed(Exception):
    """The connection is over; `code` is 1006 when it ended without a close frame."""

    def __init__(self, code=1006, reason=""):
        super().__init__(f"{code} {reason}".strip())
        self.code, self.reason = code, reason


def accept_key(key):
    """`Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`, both as bytes."""
    return base64.b64encode(hashlib.sha1(key + GUID).digest())


def encode(opcode, payload, masked):
    """One unfragmented frame."""
    size, bit = len(payload), 0x80 if masked else 0
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, bit | size)
    elif size < 65_536:
        head = struct.pack("!BBH", 0x80 | opcode, bit | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, bit | 127, size)
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + apply_mask(payload, mask)


def apply_mask(payload, mask):
    """Masks or unmasks."""
    size = len(payload)
    pad = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(pad, "big")).to_bytes(size, "big")


def close_payload(code, reason):
    """The payload of a close frame."""
    return struct.pack("!H", code) + reason.encode()


class Decoder:
    """Turns received bytes into messages: feed bytes, take (opcode, payload) until None."""

    def __init__(self):
        self.buffer = bytearray()
        self.parts = []
        self.opcode = None

    def feed(self, data):
        self.buffer += data

    def message(self):
        """The next complete message or control frame, or None when more bytes are needed."""
        while True:
            frame = self.frame()
            if frame is None:
                return None
            final, opcode, payload = frame
            if opcode >= CLOSE:
                return opcode, payload
            if opcode != CONTINUATION:
                self.opcode, self.parts = opcode, []
            self.parts.append(payload)
            if sum(map(len, self.parts)) > MESSAGE_BYTES_MAX:
                raise TooLarge
            if final:
                return self.opcode, b"".join(self.parts)

    def frame(self):
        """The next complete frame, or None."""
        data = self.buffer
        if len(data) < 2:
            return None
        size, at = data[1] & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            if len(data) < 2 + width:
                return None
            size, at = int.from_bytes(data[2 : 2 + width], "big"), 2 + width
        if size > MESSAGE_BYTES_MAX:
            raise TooLarge
        masked = bool(data[1] & 0x80)
        end = at + 4 * masked + size
        if len(data) < end:
            return None
        payload = bytes(data[end - size : end])
        if masked:
            payload = apply_mask(payload, bytes(data[at : at + 4]))
        final, opcode = bool(data[0] & 0x80), data[0] & 0x0F
        del data[:end]
        return final, opcode, payload


class Connection:
    """A blocking client connection. Nothing is read unless `receive` is called."""

    def __init__(self, url, timeout=30.0):
        parts = urlsplit(url)
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise ValueError(f"the URL must look like ws://HOST:PORT/ or wss://HOST:PORT/, got {url!r}")
        self.decoder = Decoder()
        port = parts.port or (443 if parts.scheme == "wss" else 80)
        self.socket = socket.create_connection((parts.hostname, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if parts.scheme == "wss":
            # Trusts the system's authorities, or those of the file in SSL_CERT_FILE.
            context = ssl.create_default_context()
            self.socket = context.wrap_socket(self.socket, server_hostname=parts.hostname)
        self.upgrade(parts)

    def upgrade(self, parts):
        key = base64.b64encode(os.urandom(16))
        request = (
            f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\n\r\n"
        )
        self.socket.sendall(request.encode())
        head = b""
        while b"\r\n\r\n" not in head:
            data = self.socket.recv(4096)
            if not data or len(head) > HEAD_BYTES_MAX:
                raise Closed(reason=f"the HTTP upgrade was not answered: {head[:200]!r}")
            head += data
        head, rest = head.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0] or accept_key(key) not in head:
            raise Closed(reason=f"the HTTP upgrade was refused: {head[:200]!r}")
        self.decoder.feed(rest)

    def send(self, payload, opcode=TEXT):
        self.socket.sendall(encode(opcode, payload, masked=True))

    def receive(self, timeout=30.0):
        """The next message as (opcode, payload). Answers pings; raises `Closed`, `TimeoutError`."""
        while True:
            message = self.decoder.message()
            if message is None:
                self.fill(timeout)
                continue
            opcode, payload = message
            if opcode == PING:
                self.send(payload, PONG)
            elif opcode == CLOSE:
                self.answer_close(payload)
            elif opcode != PONG:
                return opcode, payload

    def fill(self, timeout):
        self.socket.settimeout(timeout)
        try:
            data = self.socket.recv(65_536)
        except ConnectionError as error:
            raise Closed(reason=str(error)) from error
        if not data:
            raise Closed
        self.decoder.feed(data)

    def answer_close(self, payload):
        try:
            self.send(payload[:2], CLOSE)
        except OSError:
            pass  # the other side is gone already
        self.socket.close()
        code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1005
        raise Closed(code, payload[2:].decode("utf-8", "replace"))

    def close(self, code=1000):
        """Says goodbye and closes."""
        try:
            self.send(close_payload(code, ""), CLOSE)
        except OSError:
            pass  # the other side is gone already
        self.socket.close()

    def cut(self):
        """Closes the socket without a word, as a crashed process does."""
        self.socket.close()
