"""Programs from npm, and scenarios that run them on a closed network: namespaces of their own, no
network but loopback, no processes but their own, their own /tmp, an empty home and a made-up key.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

INSTALL_S = 900
SCENARIO_S = 600
CLAUDE_CODE = "@anthropic-ai/claude-code"
# The newest version on npm that was tested, as of 2026-11-26.
NEWEST = "2.1.331"
PROGRAMS = ("bash", "ip", "mount")
ENVIRONMENT = {
    "PATH": "/tmp/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
    "HOME": "/tmp/home",
    "LANG": "C.UTF-8",
    "TERM": "xterm-256color",
    "SHELL": "/bin/bash",
    # Each scenario starts the brokers that it wants.
    "PEERBUS_AUTOSTART": "off",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}


class CannotRun(Exception):
    """Something is missing here that is no fault of what is tested."""


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise CannotRun(f"{program} is not installed")


def unshare():
    """The command that gives its argument its own namespaces, once it is known to work."""
    need("unshare", *PROGRAMS)
    command = ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        command.append("--map-root-user")
    tried = subprocess.run(
        [*command, "true"], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if tried.returncode != 0:
        raise CannotRun(f"no namespaces are to be had: {tried.stderr.strip()}")
    return command


def user_cache(name):
    """A directory in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / name


def installed(package, place):
    """The directory `place`, with a package such as `@openai/codex@0.169.0` in it. None of its
    scripts is run."""
    if not place.is_dir():
        cache = place.parent
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="installing-") as fresh:
            prefix = Path(fresh) / "package"
            prefix.mkdir()
            npm_install(package, prefix, cache / "npm")
            try:
                prefix.rename(place)
            except OSError:
                # Another run was faster: what it put there is as good.
                if not place.is_dir():
                    raise
    return place


def claude_code(version):
    """The directory of the native program of Claude Code."""
    place = installed(f"{CLAUDE_CODE}@{version}", user_cache("peerbus-claude-code") / version)
    found = list(place.glob(f"node_modules/{CLAUDE_CODE}-linux-*/claude"))
    if not found:
        raise CannotRun(f"{CLAUDE_CODE}@{version} has no program for this machine in {place}")
    return found[0].parent


def other_agent(package):
    """Where another agent is kept: a package such as `@openai/codex@0.169.0`."""
    return user_cache("peerbus-other-agents") / package.replace("/", "-").lstrip("@")


def npm_install(package, prefix, cache):
    need("npm")
    flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    places = ["--prefix", str(prefix), "--cache", str(cache)]
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


def python():
    """This interpreter. A virtual environment may lie where the private /tmp hides it; it does not."""
    return os.path.realpath(sys.executable)


def run(wrapper, directory, binds, limit_s=SCENARIO_S, **environment):
    """Runs a wrapper with `directory` as its /tmp, in which it binds things at `binds`, and tells
    how it ended."""
    for name in ("bin", "home", "log", "scripts", *binds):
        (directory / name).mkdir(parents=True)
    (directory / "bin" / "peerbus").touch()
    try:
        # When `unshare` is killed, so is all that runs in there.
        done = subprocess.run(
            [*unshare(), "bash", *wrapper],
            env=ENVIRONMENT | environment,
            stdin=subprocess.DEVNULL,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        print(f"FAILED the scenario did not end within {limit_s} s")
        return 1
    return done.returncode


def with_logs(prefix, keep, scenario):
    """Runs a scenario with a directory of its own, whose logs are kept when a check fails or on
    demand, and gives the exit code: 3 when it cannot run."""
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    status = 3
    try:
        status = scenario(directory)
    except CannotRun as reason:
        print(reason, file=sys.stderr)
    finally:
        if status == 3 or (status == 0 and not keep):
            shutil.rmtree(directory)
        else:
            print(f"logs are in {directory / 'log'}")
    return status


def arguments(parser):
    """Reads the arguments with those that every run has: the binary, and whether to keep logs."""
    parser.add_argument("--keep", action="store_true", help="keep the logs in any case")
    args = parser.parse_args()
    if not os.access(args.peerbus, os.X_OK):
        parser.error(f"{args.peerbus} is not an executable file")
    args.peerbus = Path(args.peerbus).resolve()
    return args
