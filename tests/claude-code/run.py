#!/usr/bin/env python3
"""Runs the real Claude Code CLI with the channel adapter, on a closed network.

    run.py PEERBUS [--version V] [--scenario NAME] [--keep]

PEERBUS is the binary, V an exact version of the public CLI. It is installed once from npm, into
${XDG_CACHE_HOME:-~/.cache}/peerbus-claude-code/V. NAME.py then runs in namespaces of its own:
no network but loopback, no processes but its own, its own /tmp, an empty home and a made-up key.
Logs are kept when a check fails, or with --keep: api.jsonl among them has what the model is shown.

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

VERSION = "2.1.330"
PACKAGE = "@anthropic-ai/claude-code"
INSTALL_S = 600
SCENARIO_S = 300
SCRIPTS = Path(__file__).resolve().parent
SCENARIOS = ["scenario", "hooks_scenario"]


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


def npm_install(version, prefix):
    """Installs the CLI below a directory. None of its scripts is run."""
    need("npm")
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    places = ["--prefix", str(prefix), "--cache", str(prefix.parent / "npm")]
    command = ["npm", "install", *flags, *places, f"{PACKAGE}@{version}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=INSTALL_S
        )
    except subprocess.TimeoutExpired:
        raise CannotRun(f"npm did not install {PACKAGE}@{version} within {INSTALL_S} s") from None
    if done.returncode != 0:
        why = " ".join(done.stderr.split())[:400]
        raise CannotRun(f"npm cannot install {PACKAGE}@{version}: {why}")


def installed_cli(version):
    """The directory of the CLI's native program."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(base) / "peerbus-claude-code"
    place = cache / version
    if not place.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="installing-") as fresh:
            prefix = Path(fresh) / "cli"
            prefix.mkdir()
            npm_install(version, prefix)
            try:
                prefix.rename(place)
            except OSError:
                # Another run was faster: what it put there is as good.
                if not place.is_dir():
                    raise
    found = list(place.glob(f"node_modules/{PACKAGE}-linux-*/claude"))
    if not found:
        raise CannotRun(f"{PACKAGE}@{version} has no program for this machine in {place}")
    return found[0].parent


def run_scenario(name, peerbus, cli, run):
    """Runs a scenario with `run` as its /tmp and tells how it ended."""
    for directory in ("bin", "cli", "deploy", "home", "log", "scripts"):
        (run / directory).mkdir()
    (run / "bin" / "peerbus").touch()
    # A virtual environment may lie where the private /tmp hides it; its interpreter does not.
    python = os.path.realpath(sys.executable)
    wrapper = ["bash", SCRIPTS / "namespace.sh", run, SCRIPTS, cli, peerbus, python, f"{name}.py"]
    environment = {
        "PATH": "/tmp/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": "/tmp/home",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
        "SHELL": "/bin/bash",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    command = [*unshare(), *wrapper]
    try:
        # When `unshare` is killed, so is all that runs in there.
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, timeout=SCENARIO_S
        )
    except subprocess.TimeoutExpired:
        print(f"FAILED the scenario did not end within {SCENARIO_S} s")
        return 1
    return done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peerbus")
    parser.add_argument("--version", default=VERSION)
    parser.add_argument("--scenario", default=SCENARIOS[0], choices=SCENARIOS)
    parser.add_argument("--keep", action="store_true", help="keep the logs in any case")
    args = parser.parse_args()
    if not os.access(args.peerbus, os.X_OK):
        parser.error(f"{args.peerbus} is not an executable file")
    run = Path(tempfile.mkdtemp(prefix="peerbus-claude-code-"))
    status = 3
    try:
        for program in ("bash", "ip", "mount", "tmux"):
            need(program)
        unshare()
        cli = installed_cli(args.version)
        status = run_scenario(args.scenario, Path(args.peerbus).resolve(), cli, run)
    except CannotRun as reason:
        print(reason, file=sys.stderr)
    finally:
        if status == 3 or (status == 0 and not args.keep):
            shutil.rmtree(run)
        else:
            print(f"logs are in {run / 'log'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
