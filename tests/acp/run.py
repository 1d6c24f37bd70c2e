#!/usr/bin/env python3
"""Runs the real agents that speak ACP in the hands of `peerbus run`, on a closed network.

    run.py PEERBUS [AGENT...] [--steps STEP,...] [--pairs A:B,...] [--install] [--no-table] [--keep]
    run.py PEERBUS [AGENT...] --bin DIRECTORY

PEERBUS is the binary, AGENT a word of agents.py; without one, all. An agent that is not installed is
skipped, with the reason; --install installs it first, from npm or PyPI, in the version that agents.py
names, into ${XDG_CACHE_HOME:-~/.cache}/peerbus-other-agents. steps.py then runs for each agent in
namespaces of its own: no network but loopback, no processes but its own, its own /tmp, a home of this
run, a made-up key. A run of all steps in which each check holds writes the agent's row in
docs/ANY_AGENT.md. With --pairs, agents talk with each other, see pairs.py. --bin makes programs of
the agents' names in a directory, for use by hand. The step `remind` is run when it is named.

Exit codes: 0 every check held, 1 one did not, 2 usage, 3 it cannot run here, for the reason that is
on stderr.
"""

import argparse
import json
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
SHARED = SCRIPTS.parent / "claude-code"
NAMESPACE = SCRIPTS.parent / "other-agents" / "namespace.sh"
sys.path.append(str(SHARED))

import install
import table
from agents import AGENTS
from isolated import CannotRun, arguments, need, python, run, unshare, with_logs

# A scenario waits for pauses of the driver and of agents.
LIMIT_S = 1500


def runs(words, steps, args):
    """What scenario.py does with an agent, or two. Gives the exit code and what was found."""
    agents = {word: AGENTS[word] for word in words}
    print(f"== {', '.join(f'{word} {agent.version}' for word, agent in agents.items())}", flush=True)
    told = {}

    def scenario(directory):
        new = {f"agents/{word}": install.place_of(agent) for word, agent in agents.items()}
        new |= {"shared": SHARED}
        if install.node_place().is_dir():
            new["node"] = install.node_place()
        bound = new | {"scripts": SCRIPTS, "bin/peerbus": args.peerbus}
        bound = [f"{place}={source}" for place, source in bound.items()]
        wrapper = [NAMESPACE, directory, python(), ":".join(words), ",".join(steps), *bound]
        status = run(wrapper, directory, ["agents", *new], LIMIT_S, PYTHONPATH="/tmp/shared")
        result = directory / "log/result.json"
        if result.exists():
            told.update(json.loads(result.read_text(encoding="utf-8")))
        return status

    return with_logs("peerbus-acp-", args.keep, scenario), told


def one(word, args):
    """An agent, and its row."""
    status, told = runs([word], args.steps, args)
    whole = status == 0 and told.get("whole")
    if whole and not args.no_table:
        table.write(word, AGENTS[word], told["facts"])
    return status


def here(words, args):
    """Those of the agents that are installed."""
    found = []
    for word in words:
        if args.install:
            install.install(AGENTS[word])
        if install.is_here(AGENTS[word]):
            found.append(word)
        else:
            place = install.place_of(AGENTS[word])
            print(f"skip {word}: {place} or its Node is not there; --install brings it", file=sys.stderr)
    return found


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    listed = lambda text: [word for word in text.split(",") if word]
    parser.add_argument("peerbus")
    parser.add_argument("agents", nargs="*", metavar="AGENT")
    parser.add_argument("--steps", type=listed, default=[], help="only these, as they are named")
    parser.add_argument("--pairs", type=listed, default=[], help="A:B,C:D talk with each other")
    parser.add_argument("--install", action="store_true", help="install what is missing")
    parser.add_argument("--bin", type=Path, help="make programs of the agents' names here")
    parser.add_argument("--no-table", action="store_true", help="leave the table as it is")
    args = arguments(parser)
    unknown = set(args.agents) - set(AGENTS)
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}: the agents are {', '.join(AGENTS)}")
    args.pairs = [pair.split(":") for pair in args.pairs]
    if any(len(pair) != 2 or not set(pair) <= set(AGENTS) for pair in args.pairs):
        parser.error("--pairs takes A:B, of agents that agents.py names")
    return args


def main():
    args = parsed()
    words = args.agents or ([] if args.pairs else list(AGENTS))
    try:
        need("git")
        unshare()
        asked = [*words, *(word for pair in args.pairs for word in pair)]
        found = here(dict.fromkeys(asked), args)
        if args.bin:
            install.commands_in(args.bin.resolve(), {word: AGENTS[word] for word in found})
            return 0
        pairs = [pair for pair in args.pairs if set(pair) <= set(found)]
        words = [word for word in words if word in found]
        if not words and not pairs:
            raise CannotRun("none of these agents is installed")
    except CannotRun as reason:
        print(reason, file=sys.stderr)
        return 3
    statuses = [one(word, args) for word in words]
    statuses += [runs(pair, [], args)[0] for pair in pairs]
    return max(statuses, key=lambda status: {0: 0, 3: 1}.get(status, 2))


if __name__ == "__main__":
    sys.exit(main())
