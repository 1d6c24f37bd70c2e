"""Checks envelope.py against the golden vectors. Run through `client.py vectors FILE`."""

import base64
import hashlib
import json

import envelope as env

# The file gives these bodies only by their hash; its notes say how they are made.
REBUILT = {
    "body-1000000-a": b'{"t":"' + b"a" * 1_000_000 + b'"}',
    "body-lt-100000": b'{"t":"' + b"<" * 100_000 + b'"}',
}


def value(entry):
    return base64.b64decode(entry.get("b64", ""))


def same(entry, found):
    """Whether `found` is the byte value that an entry of the file describes."""
    if "sha256" in entry:
        return entry["sha256"] == hashlib.sha256(found).hexdigest() and entry["len"] == len(found)
    return value(entry) == found


def check_signed(case):
    given = {k: v if k == "body" and case["name"] in REBUILT else value(v) for k, v in case["input"].items()}
    given["body"] = REBUILT.get(case["name"], given["body"])
    try:
        canonical = env.canonical(given)
    except env.Malformed:
        return None if "canonical" not in case else "canonical form refused"
    if "canonical" not in case:
        return "canonical form of a body that is no JSON"
    if not same(case["canonical"], canonical):
        return f"canonical form differs: {canonical[:300]!r}"
    if "hmac" not in case:
        try:
            env.sign(given, case["secret"])
        except ValueError:
            return None
        return "a short secret was taken"
    given["hmac"] = env.sign(given, case["secret"])
    if given["hmac"] != case["hmac"]:
        return f"hmac differs: {given['hmac']}"
    if "wire" not in case:
        return None
    wire = env.encode(given)
    if not same(case["wire"], wire):
        return f"wire form differs: {wire[:300]!r}"
    back = env.decode(wire)
    if not same(case["rt_canonical"], env.canonical(back)):
        return "canonical form differs after a round trip"
    if env.verify(back, case["secret"]) != (case["rt_verify"] == "ok"):
        return f"verify after a round trip should be {case['rt_verify']}"
    return None


def check_received(case):
    raw = value(case["raw"])
    if env.control_type(raw) != case["control_type"]:
        return f"control_type {env.control_type(raw)!r}, expected {case['control_type']!r}"
    try:
        found = env.decode(raw)
    except env.Malformed:
        return None if "decode_error" in case else "refused"
    if "decode_error" in case:
        return "decoded, but v1 refuses it"
    for name, expected in case["decoded"].items():
        got = found[name] if name == "body" else found[name].encode()
        # Between tokens of a body white space has no meaning, and `members` drops it.
        if not same(expected, got) and not (name == "body" and env.compact(value(expected)) == got):
            return f"member {name} is {got!r}"
    if found["hmac"] != case.get("hmac_field", ""):
        return f"hmac is {found['hmac']!r}"
    if not same(case["canonical"], env.canonical(found)):
        return f"canonical form differs: {env.canonical(found)[:300]!r}"
    if env.sign(found, case["secret"]) != case["hmac"]:
        return "hmac differs"
    return None


def run(path):
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    failed = 0
    for group, check in (("signed", check_signed), ("received", check_received)):
        for case in data[group]:
            problem = check(case)
            failed += problem is not None
            print(f"{'FAIL' if problem else 'ok  '} {group}/{case['name']}{': ' + problem if problem else ''}")
    print(f"{len(data['signed'])} signed, {len(data['received'])} received, {failed} failed")
    return 1 if failed else 0
