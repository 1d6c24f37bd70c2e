#!/usr/bin/env python3
"""Runs the real CLIs of other agents with the generic adapter, on a closed network.

    run.py PEERBUS AGENT... [--wake | --kill] [--cached] [--keep]

PEERBUS is the binary, AGENT one of codex, opencode, qwen, gemini, copilot, or `all`. Each CLI is
installed once from npm, in the version that agents.py names, into
${XDG_CACHE_HOME:-~/.cache}/peerbus-other-agents: 1.3 GB in all. scenario.py then runs for each agent
and each scope of `peerbus install` in namespaces of its own: no network but loopback, no processes
but its own, its own /tmp, an empty home and a made-up key. With --cached nothing is installed: an
agent that is not there yet cannot run. With --wake, what is tested is how sessions of codex,
opencode, qwen and copilot in a terminal are woken, see wake.py; with --kill, what becomes of it when
the adapter, the agent or the broker is killed meanwhile, see kill.py.

Exit codes: 0 every check held, 1 one did not, 2 usage, 3 it cannot run here, for the reason that is
on stderr.
"""

import argparse
import sys
from pathlib import Path

from agents import AGENTS, NODE

SCRIPTS = Path(__file__).resolve().parent
SHARED = SCRIPTS.parent / "claude-code"
sys.path.append(str(SHARED))

from isolated import CannotRun, arguments, installed, need, python, run, unshare, user_cache, with_logs


def package(name, cached):
    """The directory of a package."""
    cache = user_cache("peerbus-other-agents")
    place = cache / name.replace("/", "-").lstrip("@")
    if cached and not place.is_dir():
        raise CannotRun(f"{name} is not in {cache}: run tests/other-agents/run.py by hand")
    return installed(name, place)


def run_one(agent, scope, args):
    """One agent in one scope, with its logs."""
    words = {"wake": "a session is woken", "kill": "kills while it is woken"}
    what = words.get(scope, f"peerbus install --{scope}")
    print(f"== {agent} {AGENTS[agent].version}, {what}")

    def scenario(directory):
        cli = package(AGENTS[agent].package, args.cached)
        node = package(NODE, args.cached)
        bound = [SCRIPTS, SHARED, cli, node, args.peerbus]
        wrapper = [SCRIPTS / "namespace.sh", directory, *bound, python(), agent, scope]
        return run(wrapper, directory, ["cli", "node", "shared"], PYTHONPATH="/tmp/shared")

    return with_logs("peerbus-other-agents-", args.keep, scenario)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peerbus")
    parser.add_argument("agents", nargs="+", choices=[*AGENTS, "all"], metavar="AGENT")
    parser.add_argument("--cached", action="store_true", help="install nothing")
    parser.add_argument("--wake", action="store_true", help="test how sessions are woken")
    parser.add_argument("--kill", action="store_true", help="kill while sessions are woken")
    args = arguments(parser)
    agents = list(AGENTS) if "all" in args.agents else args.agents
    if args.wake or args.kill:
        agents = [agent for agent in agents if AGENTS[agent].path]
    scopes = ("kill",) if args.kill else ("wake",) if args.wake else ("user", "project")
    try:
        need("git", *(["tmux"] if scopes[0] in ("wake", "kill") else []))
        unshare()
    except CannotRun as reason:
        print(reason, file=sys.stderr)
        return 3
    statuses = [run_one(agent, scope, args) for agent in agents for scope in scopes]
    return max(statuses, key=lambda status: {0: 0, 3: 1}.get(status, 2))


if __name__ == "__main__":
    sys.exit(main())
