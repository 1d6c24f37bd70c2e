"""What is tested: an agent that `peerbus run` drives over ACP is a peer. Seen from outside alone: the
commands of peerbus, what its model is asked, and the processes.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import json
import os
import signal
import subprocess
import sys

import bus
import pairs
import steps
from agents import AGENTS, HOME, PLACE, put_on_path, seed
from model import Model

PROJECT = HOME / "project"


class Failed(AssertionError):
    """A check that did not hold."""


class World:
    """An agent, its model, its driver, and what was found."""

    def __init__(self, word, model, project=PROJECT):
        self.word, self.agent, self.name = word, AGENTS[word], word
        self.model, self.project = model, project
        self.environment = seed(self.agent, model.url, project)
        put_on_path(self.agent, word, "/tmp/bin")
        if self.agent.prepare:
            self.agent.prepare(os.environ | self.environment)
        self.gates = HOME / f"{word}-gates.toml"
        self.open_gates()
        self.driver, self.step = None, ""
        self.facts, self.failures = {}, []

    def check(self, what, holds, found=""):
        """Notes a check, and ends the step when it does not hold."""
        if not holds:
            raise Failed(f"{what}: {str(found)[:3000]}")
        print(f"ok   {self.word} {self.step}: {what}")

    def open_gates(self, *gates):
        """Lets programs of the user do these things, and no others."""
        self.gates.write_text("".join(f"{gate} = true\n" for gate in gates), encoding="utf-8")

    def starts(self, *prompt):
        more = ["--", *self.agent.more] if self.agent.more else []
        arguments = ["--gates", str(self.gates), *prompt, *more]
        driver = bus.Driver(self.name, self.word, self.environment, self.project, *arguments)
        self.driver = driver

    def send(self, job, words="please"):
        return bus.send(self.name, f"{words} job:{job}")

    def left(self):
        """What runs besides the scenario and the broker."""
        return {p: line for p, (_, line) in bus.processes().items() if p not in self.kept}

    def run(self, chosen):
        self.kept = {os.getpid(), self.broker.pid}
        for name, step in chosen.items():
            self.step = name
            try:
                if self.driver is None and step is not steps.start:
                    self.starts()
                    steps.is_ready(self)
                step(self)
            except (AssertionError, subprocess.SubprocessError, OSError) as failure:
                print(f"FAIL {self.word} {name}: {failure}")
                self.failures.append(name)
                self.begins_anew()
        return self.failures

    def begins_anew(self):
        """Nothing of a step that failed is left for the next."""
        self.model.forgive()
        self.open_gates()
        if self.driver:
            self.driver.kill()
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        self.driver = None
        # What it owes is another name's affair.
        self.name = f"{self.word}-{len(self.failures)}"


def prepared():
    """A project, a broker and a model."""
    PROJECT.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(PROJECT)], check=True)
    os.environ["PEERBUS_BUDGET"] = "off"
    broker = bus.start_broker()
    return broker, Model(bus.LOG / "api.jsonl", PROJECT)


def one(word, wanted):
    """An agent through the steps; writes what was found."""
    broker, model = prepared()
    world = World(word, model)
    world.broker = broker
    chosen = {name: step for name, step in steps.STEPS.items() if not wanted or name in wanted}
    chosen |= {name: step for name, step in steps.SLOW.items() if name in wanted}
    failures = world.run(chosen)
    told = {"facts": world.facts, "failures": failures, "whole": len(chosen) == len(steps.STEPS)}
    (bus.LOG / "result.json").write_text(json.dumps(told), encoding="utf-8")
    return 1 if failures else 0


def main():
    words, wanted = sys.argv[1].split(":"), [word for word in sys.argv[2].split(",") if word]
    try:
        if len(words) == 1:
            return one(words[0], wanted)
        broker, model = prepared()
        return pairs.talk([World(word, model) for word in words], broker)
    except AssertionError as failure:
        print(f"FAIL {sys.argv[1]} preparation: {failure}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
