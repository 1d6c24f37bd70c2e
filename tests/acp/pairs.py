"""Two agents of different vendors talk for four turns, each woken by the other."""

import json
import os

import bus
import steps
from support import eventually

TURNS = 4


def script(world, turn, reply):
    """What a model does when it is shown this turn."""
    calls = []
    if reply:
        calls = [world.agent.bus("reply", {"msg_id": "{msg}", "body": f"job:turn{turn + 1}"})]
    world.model.script(f"turn{turn}", *calls, text=f"that was turn {turn}")


def talk(worlds, broker):
    first, second = worlds
    kept = {os.getpid(), broker.pid}
    title = f"{first.word}:{second.word}"
    for world in worlds:
        world.step, world.kept = f"with {worlds[world is first].word}", kept
    try:
        for world in worlds:
            world.starts()
        for world in worlds:
            steps.is_ready(world)
        call = first.agent.bus("send", {"to": second.name, "body": "job:turn1"})
        first.model.script("begin", call, text="it is asked")
        for turn in range(1, TURNS + 1):
            script((first, second)[turn % 2], turn, turn < TURNS)
        begin = first.send("begin")
        steps.is_seen(first, "the beginning", begin)
        for turn in range(1, TURNS + 1):
            here = (first, second)[turn % 2]
            identity = eventually(f"turn {turn}", lambda turn=turn: identity_of(f"job:turn{turn}"))
            steps.is_seen(here, f"turn {turn}", identity, steps.AGAIN_S)
            steps.is_shown_once(here, "it", identity)
        for world in worlds:
            steps.is_stopped(world)
        steps.nothing_is_left(first)
    except AssertionError as failure:
        print(f"FAIL {title} talk: {failure}")
        return 1
    return 0


def identity_of(words):
    """The id of the message with this text."""
    lines = bus.peerbus("history", "--json", "--limit", "50").stdout.splitlines()
    found = [json.loads(line) for line in lines]
    return next((m["id"] for m in found if words == said(m["body"])), None)


def said(body):
    return body.get("text") if isinstance(body, dict) else body
