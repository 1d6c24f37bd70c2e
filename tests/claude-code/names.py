"""A session that nobody named keeps the name that it got, and its queue with it, however it goes on."""

import os

import wake
from support import check, eventually

# So that the CLI has something to resume.
HELLO = "hello, whoever you are"
HELLO_AGAIN = "do we know each other"


def of_the_session(worker):
    """The name of the one session that is on the bus."""

    def look():
        details = worker.call("bus.peers", {})["details"]
        names = [p["name"] for p in details if p["online"] and p["name"] != "worker"]
        return names[0] if len(names) == 1 else None

    return eventually("one session is on the bus", look)


def is_called(worker, name):
    eventually(f"the session is {name}", lambda: of_the_session(worker) == name)
    check("the session has its name", True)


def hears(api, worker, name, body, is_seen):
    """Sends to the session, which is shown it."""
    identity = wake.send(worker, body, name)
    api.wait_for(body, lambda r: identity[-8:] in r.context)
    is_seen(worker, identity)


def is_cleared(session):
    """Until its hooks are done, what is typed is put off, and may stay in the line."""
    lines = [line.strip() for line in session.screen().splitlines() if line.startswith("❯")]
    return "❯ /clear" in lines[:-1] and lines[-1] == "❯"


def last(cli, api, worker, is_seen):
    """`cli` starts a session with arguments, `is_seen` waits until a message counts as seen."""
    os.environ.pop("PEERBUS_NAME", None)
    with cli(api) as session:
        name = of_the_session(worker)
        check(f"the session has a name of its own ({name})", name != "session", name)
        session.type(HELLO)
        api.wait_for("the first words", lambda r: HELLO in r.prompt)
        hears(api, worker, name, "are you there?", is_seen)
    queued = wake.send(worker, "while you were away", name)
    with cli(api, "--continue") as session:
        api.wait_for("what was queued", lambda r: queued[-8:] in r.context)
        check("a session that is continued gets its queue", True)
        is_called(worker, name)
        is_seen(worker, queued)
        session.type("/clear")
        eventually("the session is cleared", lambda: is_cleared(session))
        # In the new conversation there is something to resume, too.
        session.type(HELLO_AGAIN)
        api.wait_for("the first words after that", lambda r: HELLO_AGAIN in r.prompt)
        hears(api, worker, name, "are you still there?", is_seen)
    queued = wake.send(worker, "while you were away again", name)
    with cli(api, "--continue"):
        asked = api.wait_for("what was queued", lambda r: queued[-8:] in r.context)
        check("a cleared session that is continued, too", "are you there?" not in asked.context)
        is_called(worker, name)
        is_seen(worker, queued)
