"""The v1 envelope: reading JSON as v1 does, the canonical form, signing and verifying.

Written from the v1 part of docs/PROTOCOL.md alone. Everything works on bytes: a body is carried and
signed as its bytes, never decoded. Standard library only.
"""

import hashlib
import hmac as hmac_lib
import json
import re

MEMBERS = ("protocol_version", "id", "from", "to", "ts", "source", "kind", "body")
SECRET_BYTES_MIN = 32
NESTING_MAX = 10_000

TOKEN = re.compile(
    rb'[ \t\n\r]*+(?:([{}\[\],:])'
    rb'|("[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+")'
    rb'|(-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null))'
)
SURROGATE = re.compile("[\ud800-\udfff]")
SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
BODY_ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


class Malformed(ValueError):
    """The bytes are no JSON, or not of the shape that was asked for."""


def tokens(raw):
    """The tokens of the one JSON value that `raw` holds: (depth, bytes) pairs, white space gone."""
    out, stack, at, expect = [], [], 0, "value"
    while expect != "end":
        found = TOKEN.match(raw, at)
        if not found:
            raise Malformed(f"no JSON token at byte {at}")
        at, token = found.end(), found[found.lastindex]
        if found.lastindex > 1:
            if expect in ("key", "key or }"):
                if found.lastindex != 2:
                    raise Malformed(f"expected a key before byte {at}")
                expect = "colon"
            elif expect in ("value", "value or ]"):
                expect = "comma or close" if stack else "end"
            else:
                raise Malformed(f"unexpected value before byte {at}")
            out.append((len(stack), token))
        else:
            expect = punctuation(token, expect, stack, out, at)
    if raw[at:].strip(b" \t\n\r"):
        raise Malformed(f"data after the value at byte {at}")
    return out


def punctuation(token, expect, stack, out, at):
    """Handles one of `{}[],:` and gives what may follow it."""
    if token in b"{[" and expect in ("value", "value or ]"):
        out.append((len(stack), token))
        stack.append(token)
        if len(stack) > NESTING_MAX:
            raise Malformed(f"nested deeper than {NESTING_MAX}")
        return "key or }" if token == b"{" else "value or ]"
    if token == b":" and expect == "colon":
        out.append((len(stack), token))
        return "value"
    if token == b"," and expect == "comma or close":
        out.append((len(stack), token))
        return "key" if stack[-1] == b"{" else "value"
    closes = {b"}": (b"{", "key or }"), b"]": (b"[", "value or ]")}
    opener, when_empty = closes.get(token, (None, None))
    if stack and stack[-1] == opener and expect in ("comma or close", when_empty):
        stack.pop()
        out.append((len(stack), token))
        return "comma or close" if stack else "end"
    raise Malformed(f"unexpected {token.decode()!r} before byte {at}")


def compact(raw):
    """`raw` without the white space outside its strings."""
    return b"".join(token for _, token in tokens(raw))


def members(raw):
    """The members of a JSON object, in order, duplicates included: (name, value bytes) pairs."""
    parts = tokens(raw)
    if parts[0][1] != b"{":
        raise Malformed("not a JSON object")
    out, at = [], 1
    while at < len(parts) - 1:
        name, at = text_of(parts[at][1]), at + 2
        start = at
        while not (parts[at][0] == 1 and parts[at][1] == b",") and at < len(parts) - 1:
            at += 1
        out.append((name, b"".join(token for _, token in parts[start:at])))
        at += 1
    return out


def text_of(token):
    """A JSON string token, decoded as v1 does: each bad byte or lone surrogate becomes U+FFFD."""
    return SURROGATE.sub("\ufffd", json.loads(token.decode("utf-8", "surrogateescape")))


def fields(raw, names):
    """The named members of an object: names match without regard to case, the last one wins.

    A string member is decoded, `null` leaves what was there; `body` and `envelope` stay bytes.
    """
    out = {}
    if raw.strip(b" \t\n\r") == b"null":
        return out
    for name, value in members(raw):
        name = name.casefold()
        if name not in names:
            continue
        if name in ("body", "envelope"):
            out[name] = value
        elif value.startswith(b'"'):
            out[name] = text_of(value)
        elif value != b"null":
            raise Malformed(f"member {name} must be a string")
    return out


def control_type(raw):
    """The `type` of a frame, or "" where v1 finds none."""
    try:
        return fields(raw, ("type",)).get("type", "")
    except Malformed:
        return ""


def decode(raw):
    """An envelope: its string members (absent ones are ""), `body` as bytes (absent: b""), `hmac`."""
    found = fields(raw, MEMBERS + ("hmac",))
    envelope = {name: found.get(name, "") for name in MEMBERS + ("hmac",)}
    envelope["body"] = found.get("body", b"")
    return envelope


def quote(value):
    """A string member as the canonical form writes it. Takes text, or bytes that may be bad UTF-8."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    out = []
    for char in value:
        if char in SHORT_ESCAPES:
            out.append(SHORT_ESCAPES[char])
        elif char < " " or char in "<>&\u2028\u2029":
            out.append(f"\\u{ord(char):04x}")
        elif "\ud800" <= char <= "\udfff":
            out.append("\\ufffd")
        else:
            out.append(char)
    return b'"' + "".join(out).encode() + b'"'


def canonical_body(raw):
    """A body as the canonical form writes it: white space out, five characters escaped."""
    if not raw:
        return b"null"
    body = compact(raw)
    for plain, escape in BODY_ESCAPES:
        body = body.replace(plain, escape)
    return body


def canonical(envelope):
    """The bytes that the signature covers."""
    parts = [b'"%s":%s' % (name.encode(), quote(envelope[name])) for name in MEMBERS[:-1]]
    parts.append(b'"body":' + canonical_body(envelope["body"]))
    return b"{" + b",".join(parts) + b"}"


def sign(envelope, secret):
    """HMAC-SHA256 over the canonical form, in lower-case hex."""
    key = secret.encode()
    if len(key) < SECRET_BYTES_MIN:
        raise ValueError(f"the HMAC secret must be at least {SECRET_BYTES_MIN} bytes, got {len(key)}")
    return hmac_lib.new(key, canonical(envelope), hashlib.sha256).hexdigest()


def verify(envelope, secret):
    """Whether the envelope's `hmac` is the signature of its canonical form."""
    try:
        claimed = bytes.fromhex(envelope["hmac"])
    except ValueError:
        return False
    return hmac_lib.compare_digest(claimed, bytes.fromhex(sign(envelope, secret)))


def encode(envelope):
    """The envelope as it goes over the wire: the canonical form plus `hmac`."""
    return canonical(envelope)[:-1] + b',"hmac":' + quote(envelope["hmac"]) + b"}"
