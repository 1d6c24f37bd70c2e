#!/usr/bin/env python3
"""Runs the real CLIs of other agents with the generic adapter, on a closed network.

    run.py PEERBUS AGENT... [--cached] [--keep]

PEERBUS is the binary, AGENT one of codex, opencode, qwen, gemini, copilot, or `all`. Each CLI is
installed once from npm, in the version that agents.py names, into
${XDG_CACHE_HOME:-~/.cache}/peerbus-other-agents: 1.3 GB in all. scenario.py then runs for each agent
and each scope of `peerbus install` in namespaces of its own: no network but loopback, no processes
but its own, its own /tmp, an empty home and a made-up key. With --cached nothing is installed: an
agent that is not there yet cannot run.

Exit codes: 0 every check held, 1 one did not, 2 usage, 3 it cannot run here, for the reason that is
on stderr.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from agents import AGENTS, NODE

INSTALL_S = 900
SCENARIO_S = 300
SCRIPTS = Path(__file__).resolve().parent


class CannotRun(Exception):
    """Something is missing here that is no fault of what is tested."""


def need(program):
    if shutil.which(program) is None:
        raise CannotRun(f"{program} is not installed")


def unshare():
    """The command that gives its argument its own namespaces, once it is known to work."""
    need("unshare")
    command = ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        command.append("--map-root-user")
    tried = subprocess.run(
        [*command, "true"], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if tried.returncode != 0:
        raise CannotRun(f"no namespaces are to be had: {tried.stderr.strip()}")
    return command


def installed(package, cached):
    """The directory of a package such as `@openai/codex@0.169.0`. None of its scripts is run."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(base) / "peerbus-other-agents"
    place = cache / package.replace("/", "-").lstrip("@")
    if place.is_dir():
        return place
    if cached:
        raise CannotRun(f"{package} is not in {cache}: run tests/other-agents/run.py by hand")
    need("npm")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="installing-") as fresh:
        prefix = Path(fresh) / "package"
        prefix.mkdir()
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        places = ["--prefix", str(prefix), "--cache", str(cache / "npm")]
        command = ["npm", "install", *flags, *places, package]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=INSTALL_S
            )
        except subprocess.TimeoutExpired:
            raise CannotRun(f"npm did not install {package} within {INSTALL_S} s") from None
        if done.returncode != 0:
            why = " ".join(done.stderr.split())[:400]
            raise CannotRun(f"npm cannot install {package}: {why}")
        prefix.rename(place)
    return place


def run_scenario(peerbus, agent, scope, cached, run):
    """Runs scenario.py with `run` as its /tmp and tells how it ended."""
    for name in ("bin", "cli", "home", "log", "node", "scripts", "shared"):
        (run / name).mkdir()
    (run / "bin" / "peerbus").touch()
    cli = installed(AGENTS[agent].package, cached)
    node = installed(NODE, cached)
    # A virtual environment may lie where the private /tmp hides it; its interpreter does not.
    python = os.path.realpath(sys.executable)
    shared = SCRIPTS.parent / "claude-code"
    wrapper = ["bash", SCRIPTS / "namespace.sh", run, SCRIPTS, shared, cli, node, peerbus, python]
    environment = {
        "PATH": "/tmp/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": "/tmp/home",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "SHELL": "/bin/bash",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": "/tmp/shared",
    }
    command = [*unshare(), *wrapper, agent, scope]
    try:
        # When `unshare` is killed, so is all that runs in there.
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, timeout=SCENARIO_S
        )
    except subprocess.TimeoutExpired:
        print(f"FAILED the scenario did not end within {SCENARIO_S} s")
        return 1
    return done.returncode


def run_one(peerbus, agent, scope, args):
    """One agent in one scope, with its logs."""
    print(f"== {agent} {AGENTS[agent].version}, peerbus install --{scope}")
    run = Path(tempfile.mkdtemp(prefix="peerbus-other-agents-"))
    status = 3
    try:
        status = run_scenario(peerbus, agent, scope, args.cached, run)
    except CannotRun as reason:
        print(reason, file=sys.stderr)
    finally:
        if status == 3 or (status == 0 and not args.keep):
            shutil.rmtree(run)
        else:
            print(f"logs are in {run / 'log'}")
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peerbus")
    parser.add_argument("agents", nargs="+", choices=[*AGENTS, "all"], metavar="AGENT")
    parser.add_argument("--cached", action="store_true", help="install nothing")
    parser.add_argument("--keep", action="store_true", help="keep the logs in any case")
    args = parser.parse_args()
    if not os.access(args.peerbus, os.X_OK):
        parser.error(f"{args.peerbus} is not an executable file")
    agents = list(AGENTS) if "all" in args.agents else args.agents
    try:
        for program in ("bash", "ip", "mount", "git"):
            need(program)
        unshare()
    except CannotRun as reason:
        print(reason, file=sys.stderr)
        return 3
    peerbus = Path(args.peerbus).resolve()
    statuses = [
        run_one(peerbus, agent, scope, args)
        for agent in agents
        for scope in ("user", "project")
    ]
    return max(statuses, key=lambda status: {0: 0, 3: 1}.get(status, 2))


if __name__ == "__main__":
    sys.exit(main())
