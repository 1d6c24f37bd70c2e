#!/usr/bin/env python3
"""Runs the real CLIs of other agents with the generic adapter, on a closed network.

    run.py PEERBUS AGENT... [--wake | --kill | --relay | --request | --remind] [--cached] [--keep]

PEERBUS is the binary, AGENT one of codex, opencode, qwen, gemini, copilot, or `all`. Each CLI is
installed once from npm, in the version that agents.py names, into
${XDG_CACHE_HOME:-~/.cache}/peerbus-other-agents: 1.3 GB in all. scenario.py then runs for each agent
and each scope of `peerbus install` in namespaces of its own: no network but loopback, no processes
but its own, its own /tmp, an empty home and a made-up key. With --cached nothing is installed: an
agent that is not there yet cannot run. With --wake, what is tested is how sessions of codex,
opencode, qwen and copilot in a terminal are woken, see wake.py; with --kill, what becomes of it when
the adapter, the agent or the broker is killed meanwhile, see kill.py; with --request, what becomes of
what a shell asks them, see request.py, and with --remind of what they forget. With --relay the agents and a
Claude Code run on one bus and write to each other, see relay.py.

Exit codes: 0 every check held, 1 one did not, 2 usage, 3 it cannot run here, for the reason that is
on stderr.
"""

import argparse
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent
SHARED = SCRIPTS.parent / "claude-code"
V1 = SCRIPTS.parent / "v1"
sys.path.append(str(SHARED))

from agents import AGENTS, CLAUDE_CODE, NODE
from isolated import (
    CannotRun,
    arguments,
    claude_code,
    installed,
    need,
    other_agent,
    python,
    run,
    unshare,
    with_logs,
)


def package(name, cached):
    """The directory of a package."""
    place = other_agent(name)
    if cached and not place.is_dir():
        raise CannotRun(f"{name} is not in {place.parent}: run tests/other-agents/run.py by hand")
    return installed(name, place)


def run_agents(word, scope, agents, args):
    """What scenario.py does with some agents in one scope, with its logs."""
    words = {"wake": "a session is woken", "kill": "kills while it is woken", "relay": "a relay", "request": "a shell asks", "remind": "a shell asks, and waits for a reminder"}
    what = words.get(scope, f"peerbus install --{scope}")
    print(f"== {', '.join(f'{name} {agent.version}' for name, agent in agents.items())}: {what}")

    def scenario(directory):
        new = {"node": package(NODE, args.cached), "shared": SHARED, "v1": V1}
        for name, agent in agents.items():
            if agent is CLAUDE_CODE:
                new["cli"] = claude_code(agent.version)
            else:
                new[f"agents/{name}"] = package(agent.package, args.cached)
        bound = new | {"scripts": SCRIPTS, "bin/peerbus": args.peerbus}
        bound = [f"{place}={source}" for place, source in bound.items()]
        wrapper = [SCRIPTS / "namespace.sh", directory, python(), word, scope, *bound]
        return run(wrapper, directory, ["agents", *new], PYTHONPATH="/tmp/shared:/tmp/v1")

    return with_logs("peerbus-other-agents-", args.keep, scenario)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peerbus")
    parser.add_argument("agents", nargs="+", choices=[*AGENTS, "all"], metavar="AGENT")
    parser.add_argument("--cached", action="store_true", help="install nothing")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--wake", action="store_true", help="test how sessions are woken")
    mode.add_argument("--kill", action="store_true", help="kill while sessions are woken")
    mode.add_argument("--relay", action="store_true", help="let them and Claude Code write in turn")
    mode.add_argument("--request", action="store_true", help="ask them for something")
    mode.add_argument("--remind", action="store_true", help="the same, and wait for a reminder")
    args = arguments(parser)
    words = list(AGENTS) if "all" in args.agents else args.agents
    scopes = [scope for scope in ("wake", "kill", "relay", "request", "remind") if getattr(args, scope)]
    if scopes:
        words = [word for word in words if AGENTS[word].path]
    try:
        need("git", *(["tmux"] if scopes else []))
        unshare()
    except CannotRun as reason:
        print(reason, file=sys.stderr)
        return 3
    if args.relay:
        agents = {"claude-code": CLAUDE_CODE} | {word: AGENTS[word] for word in words}
        return run_agents(",".join(agents), "relay", agents, args)
    statuses = [
        run_agents(word, scope, {word: AGENTS[word]}, args)
        for word in words
        for scope in scopes or ("user", "project")
    ]
    return max(statuses, key=lambda status: {0: 0, 3: 1}.get(status, 2))


if __name__ == "__main__":
    sys.exit(main())
