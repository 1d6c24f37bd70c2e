"""What a v1 client may expect of a broker, one check a line. Run through `client.py scenario`."""

import json
import secrets

import envelope as env
import websocket as ws
from client import WAIT_S, Client

ODD_BODIES = [
    {"text": "hello"},
    "a plain string",
    {"html": "<b>&amp;</b>", "lines": "a\u2028b\u2029c", "emoji": "📨", "quote": '"\\'},
    [1, 2.50, None, True, {"deep": [[[]]]}],
    None,
]


class Run:
    """The broker under test and fresh names on it."""

    def __init__(self, args):
        self.url, self.token, self.token2, self.secret = args.url, args.token, args.token2, args.secret
        self.tag = secrets.token_hex(4)
        self.clients = []

    def name(self, base):
        return f"{base}-{self.tag}"

    def join(self, base):
        """Registers a client under a name of this run."""
        client = Client(self.url, self.token, self.name(base), self.secret)
        self.clients.append(client)
        return client

    def refused(self, first, binary=False):
        """Sends one first frame; gives the close code and text that answer it."""
        connection = ws.Connection(self.url, WAIT_S)
        try:
            connection.send(first, ws.BINARY if binary else ws.TEXT)
            _, raw = connection.receive(WAIT_S)
            raise AssertionError(f"answered with {raw[:200]!r} instead of a close")
        except ws.Closed as closed:
            return closed.code, closed.reason


def equal(found, expected, what):
    if found != expected:
        raise AssertionError(f"{what}: expected {expected!r}, found {found!r}")


def bodies(deliveries):
    return [delivery.body for delivery in deliveries]


def take(client, count, ack=True):
    """Receives `count` deliveries, checks their signatures, acks them if told to."""
    out = []
    for _ in range(count):
        delivery = client.receive()
        equal(delivery.verified, True, f"signature of {delivery.envelope}")
        if ack:
            client.ack(delivery)
        out.append(delivery)
    return out


def handshake_failures_come_in_order(run):
    frame = {"protocol_version": "v2", "type": "peers", "name": "", "token": "wrong" + run.token}
    equal(run.refused(b"\x00", binary=True), (1003, "handshake must be text"), "a binary first message")
    equal(run.refused(b"{"), (1007, "malformed handshake"), "a first message that is no JSON")
    steps = (
        ({"type": "register"}, "first frame must be register"),
        ({"protocol_version": "v1"}, "unsupported protocol version"),
        ({"name": run.name("handshake")}, "empty peer name"),
        ({"token": run.token}, "invalid bearer token"),
    )
    for mended, text in steps:
        equal(run.refused(json.dumps(frame).encode()), (1008, text), f"handshake {frame}")
        frame.update(mended)
    connection = ws.Connection(run.url, WAIT_S)
    connection.send(json.dumps(frame).encode())
    equal(env.control_type(connection.receive(WAIT_S)[1]), "peers", "the frame with everything mended")
    connection.close()


def a_name_is_not_given_to_another_token(run):
    owner = run.join("claimed")
    frame = {"protocol_version": "v1", "type": "register", "name": owner.name, "token": run.token2}
    expected = (1008, "name claimed under a different token")
    equal(run.refused(json.dumps(frame).encode()), expected, "a second token")
    equal(owner.name in owner.peers(), True, "the owner stays")


def a_frame_over_the_limit_closes_with_1009(run):
    code, _ = run.refused(b'"' + b"x" * (ws.MESSAGE_BYTES_MAX - 1) + b'"')
    equal(code, 1009, "close code")


def register_is_answered_with_the_connected_names(run):
    alice, bob = run.join("alice"), run.join("bob")
    equal(bob.connected, sorted(bob.connected), "names are sorted")
    equal({alice.name, bob.name} <= set(bob.connected), True, f"both are in {bob.connected}")
    equal({alice.name, bob.name} <= set(alice.peers()), True, "a later peers answer has both")


def bodies_arrive_as_signed(run):
    alice, bob = run.join("alice"), run.join("bob")
    ids = [alice.send(bob.name, body) for body in ODD_BODIES]
    got = take(bob, len(ids))
    equal(bodies(got), ODD_BODIES, "bodies")
    for delivery, message_id in zip(got, ids):
        head = {k: delivery.envelope[k] for k in ("id", "from", "to", "kind", "source", "protocol_version")}
        expected = (message_id, alice.name, bob.name, "msg", "peer-bus", "v1")
        equal(tuple(head.values()), expected, "members")


def the_envelope_travels_in_canonical_form(run):
    alice, bob = run.join("alice"), run.join("bob")
    message = alice.compose(bob.name, b'{ "b" : 1.0, "a" : "<\\u003C>" , "b" : [ ] }')
    parts = [b'"body" : ' + message["body"]]
    parts += [f'"{k}" :\t"{v}"'.encode() for k, v in reversed(message.items()) if k != "body"]
    alice.connection.send(b" { " + b" ,\n".join(parts) + b" } ")
    delivery = take(bob, 1)[0]
    equal(delivery.envelope["body"], b'{"b":1.0,"a":"\\u003c\\u003C\\u003e","b":[]}', "body bytes")
    raw = next(f["envelope"] for f in reversed(bob.frames) if f["type"] == b'"deliver"')
    equal(raw, env.encode(message), "the envelope in the deliver frame")


def an_acked_message_does_not_come_back(run):
    alice, bob = run.join("alice"), run.join("bob")
    alice.send(bob.name, "acked")
    equal(bodies(take(bob, 1)), ["acked"], "first delivery")
    bob.peers()
    bob.cut()
    bob = run.join("bob")
    alice.send(bob.name, "marker")
    equal(bodies(take(bob, 1)), ["marker"], "after the reconnect")


def unacked_messages_come_again_in_order(run):
    alice, bob = run.join("alice"), run.join("bob")
    for number in range(6):
        alice.send(bob.name, number)
    first = take(bob, 6, ack=False)
    equal(bodies(first), list(range(6)), "first deliveries")
    bob.ack(first[2])
    bob.peers()
    bob.cut()
    bob = run.join("bob")
    again = take(bob, 5)
    equal(bodies(again), [0, 1, 3, 4, 5], "redelivered")
    equal([d.envelope["id"] for d in again], [first[n].envelope["id"] for n in (0, 1, 3, 4, 5)], "ids")


def mail_waits_for_a_known_name_that_is_away(run):
    alice, bob = run.join("alice"), run.join("bob")
    bob.close()
    for number in range(50):
        alice.send(bob.name, number)
    alice.peers()
    bob = run.join("bob")
    for number in range(50, 100):
        alice.send(bob.name, number)
    equal(bodies(take(bob, 100)), list(range(100)), "queued and live mail in one order")


def a_broadcast_reaches_everyone_but_its_sender(run):
    alice, bob, carol = run.join("alice"), run.join("bob"), run.join("carol")
    alice.broadcast("to all")
    for client in (bob, carol):
        delivery = take(client, 1)[0]
        seen = (delivery.body, delivery.envelope["kind"], delivery.envelope["to"])
        equal(seen, ("to all", "broadcast", "*"), f"what {client.name} got")
    bob.send(alice.name, "marker")
    equal(bodies(take(alice, 1)), ["marker"], "the sender's first message")


def a_broadcast_copy_is_acked_for_its_recipient_only(run):
    alice, bob, carol = run.join("alice"), run.join("bob"), run.join("carol")
    alice.broadcast("copy")
    take(bob, 1)
    bob.peers()
    take(carol, 1, ack=False)
    bob.cut(), carol.cut()
    bob, carol = run.join("bob"), run.join("carol")
    equal(bodies(take(carol, 1)), ["copy"], "carol's unacked copy")
    alice.send(bob.name, "marker")
    equal(bodies(take(bob, 1)), ["marker"], "bob's acked copy")


def a_second_register_takes_the_name_over(run):
    alice, old = run.join("alice"), run.join("bob")
    alice.send(old.name, "unacked")
    take(old, 1, ack=False)
    new = run.join("bob")
    try:
        while True:
            old.connection.receive(WAIT_S)
    except ws.Closed:
        pass
    equal(bodies(take(new, 1)), ["unacked"], "what the newcomer gets")
    alice.send(new.name, "live")
    equal(bodies(take(new, 1)), ["live"], "what the newcomer gets next")


def junk_after_the_handshake_is_ignored(run):
    alice, bob = run.join("alice"), run.join("bob")
    for junk in (b"", b"not json", b"[]", b"null", b'{"protocol_version":"v1","type":"nonsense"}', b'{"type":7}'):
        alice.connection.send(junk)
    alice.connection.send(b"\x00\x01", ws.BINARY)
    alice.command("ack", id="no-such-delivery")
    alice.send(bob.name, "after the junk")
    equal(bodies(take(bob, 1)), ["after the junk"], "the message behind the junk")
    equal(alice.name in alice.peers(), True, "the connection stays")


def an_ack_may_be_repeated(run):
    alice, bob = run.join("alice"), run.join("bob")
    alice.send(bob.name, "once")
    delivery = take(bob, 1)[0]
    bob.ack(delivery)
    equal(bob.name in bob.peers(), True, "the connection stays")


def a_direct_message_is_acked_by_its_id(run):
    alice, bob = run.join("alice"), run.join("bob")
    message_id = alice.send(bob.name, "acked by id")
    take(bob, 1, ack=False)
    bob.command("ack", id=message_id)
    comes_back(run, alice, bob, [])


def a_copy_of_a_broadcast_is_acked_by_id_and_recipient(run):
    alice, bob = run.join("alice"), run.join("bob")
    message_id = alice.broadcast("acked by id and recipient")
    take(bob, 1, ack=False)
    bob.command("ack", id=f"{message_id}|{bob.name}")
    comes_back(run, alice, bob, [])


def a_key_that_was_not_given_acks_nothing(run):
    alice, bob = run.join("alice"), run.join("bob")
    message_id = alice.send(bob.name, "owed")
    take(bob, 1, ack=False)
    for key in (*map(str, range(1, 200)), "n1", f"{message_id}|{bob.name}", f"{message_id}#1", message_id.upper()):
        bob.command("ack", id=key)
    alice.command("ack", id=message_id)
    alice.peers()
    comes_back(run, alice, bob, ["owed"])


def ids_of_two_senders_may_be_the_same(run):
    alice, bob, carol = run.join("alice"), run.join("bob"), run.join("carol")
    message_id = secrets.token_hex(16)
    for sender in (alice, carol):
        body = json.dumps(f"from {sender.name}").encode()
        sender.connection.send(env.encode(sender.compose(bob.name, body, message_id=message_id)))
        sender.peers()
    first, second = take(bob, 2, ack=False)
    equal(first.key, message_id, "the key of the first")
    equal(first.key == second.key, False, "the keys are the same")
    bob.ack(second)
    comes_back(run, alice, bob, [f"from {alice.name}"])


def comes_back(run, sender, recipient, expected):
    """What the recipient gets again on its next connection."""
    recipient.peers()
    recipient.cut()
    again = run.join("bob")
    sender.send(again.name, "marker")
    equal(bodies(take(again, len(expected) + 1)), [*expected, "marker"], "after the reconnect")


def only_v1_frames_were_sent(run):
    shapes = {
        b'"peers"': {"protocol_version", "type", "names"},
        b'"deliver"': {"protocol_version", "type", "delivery_key", "envelope"},
    }
    for client in run.clients:
        for frame in client.frames:
            equal(set(frame), shapes.get(frame.get("type")), f"members of {str(frame)[:200]}")


CHECKS = (
    handshake_failures_come_in_order,
    a_name_is_not_given_to_another_token,
    a_frame_over_the_limit_closes_with_1009,
    register_is_answered_with_the_connected_names,
    bodies_arrive_as_signed,
    the_envelope_travels_in_canonical_form,
    an_acked_message_does_not_come_back,
    unacked_messages_come_again_in_order,
    mail_waits_for_a_known_name_that_is_away,
    a_broadcast_reaches_everyone_but_its_sender,
    a_broadcast_copy_is_acked_for_its_recipient_only,
    a_second_register_takes_the_name_over,
    junk_after_the_handshake_is_ignored,
    an_ack_may_be_repeated,
    a_direct_message_is_acked_by_its_id,
    a_copy_of_a_broadcast_is_acked_by_id_and_recipient,
    a_key_that_was_not_given_acks_nothing,
    ids_of_two_senders_may_be_the_same,
)


def run(args):
    """Runs every check with names of its own; gives the exit code."""
    failed, clients = 0, []
    runs = [(check, Run(args)) for check in CHECKS]
    for check, this in runs:
        if check is a_name_is_not_given_to_another_token and not args.token2:
            print(f"skip {check.__name__}: needs --token2")
            continue
        failed += not passes(check, this)
        for client in this.clients:
            client.close()
        clients += this.clients
    last = Run(args)
    last.clients = clients
    failed += not passes(only_v1_frames_were_sent, last)
    print(f"{len(CHECKS) + 1} checks, {failed} failed")
    return 1 if failed else 0


def passes(check, this):
    """Runs one check and prints its line."""
    try:
        check(this)
    except (AssertionError, OSError, ws.Closed, env.Malformed) as error:
        print(f"FAIL {check.__name__}: {type(error).__name__}: {error}", flush=True)
        return False
    print(f"ok   {check.__name__}", flush=True)
    return True
