#!/usr/bin/env python3
"""Runs the real Claude Code CLI with the channel adapter, on a closed network.

    run.py PEERBUS [--version V] [--scenario NAME] [--remind] [--refused] [--measure] [--keep]

PEERBUS is the binary, V an exact version of the public CLI. It is installed once from npm, into
${XDG_CACHE_HOME:-~/.cache}/peerbus-claude-code/V. NAME.py then runs in namespaces of its own:
no network but loopback, no processes but its own, its own /tmp, an empty home and a made-up key.
Logs are kept when a check fails, or with --keep: api.jsonl among them has what the model is shown.

Exit codes: 0 every check held, 1 one did not, 2 usage, 3 it cannot run here, for the reason that is
on stderr.
"""

import argparse
import shutil
import sys
from pathlib import Path

from isolated import NEWEST, CannotRun, arguments, claude_code, installed, need, other_agent, python, run, unshare, with_logs

SCRIPTS = Path(__file__).resolve().parent
SCENARIOS = ["scenario", "hooks_scenario", "approvals_scenario", "interrupt_scenario", "module_scenario", "witnesses_scenario", "driver_scenario", "plugin_scenario", "first_scenario", "shared_scenario", "domains_scenario", "join_scenario", "groups_scenario", "managed_scenario", "request_scenario", "person_scenario", "stories_scenario"]

# Of the machine whose server is shared.
SERVER = "mcp-server-filesystem"


def shared():
    """What runs beside Claude Code where a server is shared: Codex, and the server."""
    sys.path.append(str(SCRIPTS.parent / "other-agents"))
    from agents import AGENTS

    program = shutil.which(SERVER)
    if program is None:
        raise CannotRun(f"{SERVER} is not installed")
    package = AGENTS["codex"].package
    return {
        "agents/codex": installed(package, other_agent(package)),
        # Node finds packages by the name of their directory.
        "npm/node_modules": next(above for above in Path(program).parents if above.name == "node_modules"),
    }


def joined(peerbus):
    """What runs beside Claude Code where brokers are joined: nats-server, and the bridge beside peerbus."""
    nats = shutil.which("nats-server")
    if nats is None:
        raise CannotRun("nats-server is not installed")
    if not peerbus.with_name("peerbus-bridge").is_file():
        raise CannotRun(f"peerbus-bridge is not beside {peerbus}")
    return {"nats": Path(nats).parent, "programs": peerbus.parent}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peerbus")
    parser.add_argument("--version", default=NEWEST)
    parser.add_argument("--scenario", default=SCENARIOS[0], choices=SCENARIOS)
    parser.add_argument("--remind", action="store_true", help="request_scenario: wait for a reminder, too")
    parser.add_argument("--refused", action="store_true", help="the user's settings switch the module off")
    parser.add_argument("--measure", action="store_true", help="module_scenario: print how long things take, and no more")
    args = arguments(parser)

    def scenario(directory):
        need("tmux")
        if args.scenario == "person_scenario":
            need("chromium")
        if args.scenario == "join_scenario":
            need("nsenter")
        unshare()
        cli, newest = claude_code(args.version), claude_code(NEWEST)
        namespace = SCRIPTS / "namespace.sh"
        script = f"{args.scenario}.py"
        beside = {"shared_scenario": shared, "domains_scenario": lambda: joined(args.peerbus)}
        more = beside.get(args.scenario, dict)()
        bound = [f"{place}={source}" for place, source in more.items()]
        script = f"{script} remind" if args.remind else script
        script = f"{script} refused" if args.refused else script
        script = f"{script} measure" if args.measure else script
        wrapper = [namespace, directory, SCRIPTS, cli, newest, args.peerbus, python(), script, *bound]
        return run(wrapper, directory, ["cli", "newest", "repository", *more])

    return with_logs("peerbus-claude-code-", args.keep, scenario)


if __name__ == "__main__":
    sys.exit(main())
