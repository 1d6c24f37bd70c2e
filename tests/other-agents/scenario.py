"""What is tested: `peerbus install AGENT`, and then the agent reads its mail and answers.

Runs as the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one
did not.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import client
import envelope
import kill
import relay
import request
import wake
from agents import AGENTS, CLAUDE_CODE, HOME
from model import Model, plain
from support import check, eventually

PROJECT = HOME / "project"
RUNTIME = HOME / "runtime"
LOG = Path("/tmp/log")
PROMPT = "read your mail and thank the friend"
LAST_WORDS = "the friend has been thanked"
NAME = "other-agent"
MAIL = "the tests are green"
# JSON by its grammar; many readers refuse the whole line for it.
ODD = rb'{"odd":"half \ud82d","n":1e999}'
ANSWER = "thanks from the agent"
RUN_S = 120


def peerbus(*arguments):
    """Runs the program to its end and gives what it printed."""
    done = subprocess.run(
        ["peerbus", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        cwd=PROJECT,
    )
    with open(LOG / "peerbus.txt", "a", encoding="utf-8") as log:
        log.write(f"$ peerbus {' '.join(arguments)}\n{done.stdout}{done.stderr}\n")
    if done.returncode != 0:
        raise AssertionError(f"peerbus {' '.join(arguments)} failed: {done.stderr}")
    return done.stdout


def start_broker():
    """Starts `peerbus serve` as a service manager would: with a runtime directory."""
    with open(LOG / "serve.txt", "a", encoding="utf-8") as log:
        command = ["peerbus", "serve", "--listen", "127.0.0.1:0"]
        broker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)
    eventually("the broker listens", (RUNTIME / "peerbus/peerbus.sock").exists)
    return broker


def send_as_it_is(body):
    """Sends a body as the bytes that it is, which no command does."""
    log = (LOG / "serve.txt").read_text(encoding="utf-8")
    url = re.search(r"listening on (ws://\S+)", log)[1]
    keys = tomllib.loads((HOME / ".config/peerbus/credentials.toml").read_text(encoding="utf-8"))
    sender = client.Client(url, keys["token"], "odd-one", keys["hmac_secret"])
    sender.connection.send(envelope.encode(sender.compose(NAME, body)))
    sender.peers()
    sender.close()


def contents():
    """Every file below the home that is somebody's configuration."""
    ours = (HOME / ".config/peerbus", HOME / ".local/state/peerbus", RUNTIME)
    files = {}
    for path in sorted(HOME.rglob("*")):
        inside = any(place in path.parents for place in ours)
        if path.is_file() and not inside and ".git" not in path.parts:
            files[path] = path.read_bytes()
    return files


def run_agent(command, environment):
    """One run of the agent without a screen."""
    with open(LOG / "agent.txt", "w", encoding="utf-8") as log:
        done = subprocess.run(
            [*command, PROMPT],
            env=os.environ | {"PWD": str(PROJECT)} | environment,
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=RUN_S,
        )
    said = (LOG / "agent.txt").read_text(encoding="utf-8", errors="replace")
    check("the agent ends well", done.returncode == 0, said[-2000:])
    check("the agent says the model's last words", LAST_WORDS in said, said[-2000:])


def woken(agent):
    """An install, and then sessions in a terminal."""
    prepare()
    model = wake.WakingModel(LOG / "api.jsonl")
    environment, _ = seed(AGENTS[agent], model)
    start_broker()
    peerbus("install", agent, "--user", "--name", NAME, *AGENTS[agent].unasked)
    wake.scenario(agent, model, PROJECT, environment, LOG, peerbus)


def killed(agent):
    """An install, and then kills."""
    prepare()
    model = wake.WakingModel(LOG / "api.jsonl")
    environment, _ = seed(AGENTS[agent], model)
    peerbus("install", agent, "--user", "--name", NAME, *AGENTS[agent].unasked)
    kill.scenario(agent, model, PROJECT, environment, LOG, start_broker)


def requested(agent, remind):
    """An install, and then requests of a session in a terminal."""
    prepare()
    model = request.Playing(LOG / "api.jsonl")
    environment, _ = seed(AGENTS[agent], model)
    start_broker()
    peerbus("install", agent, "--user", "--name", NAME, *AGENTS[agent].unasked)
    request.scenario(agent, model, PROJECT, environment, remind)


def relayed(words):
    """Several agents on one bus."""
    prepare()
    start_broker()
    agents = {word: (AGENTS | {relay.FIRST: CLAUDE_CODE})[word] for word in words}
    relay.scenario(agents, PROJECT, seed, LOG, peerbus)


def prepare():
    """A project, and where a service manager would have the broker's socket."""
    PROJECT.mkdir(parents=True)
    RUNTIME.mkdir(mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(RUNTIME)
    subprocess.run(["git", "init", "-q", str(PROJECT)], check=True)


def seed(agent, model):
    """Writes what a user has before the install. Gives the environment and the command."""
    files, environment, command = agent.seed(model.url, PROJECT)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return environment, command


def scenario(agent, scope):
    prepare()
    script = [("bus_drain", {}), ("bus_send", {"to": "friend", "body": ANSWER})]
    model = Model(PROMPT, script, LAST_WORDS, LOG / "api.jsonl")
    environment, command = seed(AGENTS[agent], model)
    start_broker()
    for name in ("friend", NAME):
        peerbus("recv", "--name", name, "--timeout", "2")
    send_as_it_is(ODD)
    peerbus("send", NAME, MAIL)

    before = contents()
    dry = peerbus("install", agent, f"--{scope}", "--name", NAME, "--dry-run")
    check("--dry-run shows what is added", "+" in dry and "peerbus" in dry, dry)
    check("--dry-run writes nothing", contents() == before)
    peerbus("install", agent, f"--{scope}", "--name", NAME)
    installed = contents()
    changed = [path for path in installed if installed[path] != before.get(path)]
    programs = [path for path in changed if path not in before and path.suffix in (".js", ".mjs")]
    changed = [path for path in changed if path not in programs]
    check("install changes one file", len(changed) == 1, changed)

    run_agent(command, environment)
    tools = sorted(name for name in model.tools if "bus_" in plain(name))
    for verb in ("drain", "send", "peers", "broadcast"):
        check(f"the model is shown bus {verb}", any(verb in name for name in tools), tools)
    check("the model called both tools", len(model.results) == 2, model.results)
    check("the mail came out of drain", MAIL in model.results[0], model.results)
    check("so did what is odd in front of it", "half" in model.results[0], model.results)
    check("the answer was accepted", "accepted" in model.results[1], model.results)
    got = json.loads(peerbus("recv", "--name", "friend", "--count", "1", "--timeout", "30"))
    check("the friend got the answer", got["from"] == NAME, got)
    text = got["body"] if isinstance(got["body"], str) else got["body"]["text"]
    check("the answer is what the model said", text == ANSWER, got)

    path = changed[0]
    rewritten = path.read_bytes() != installed[path]
    peerbus("uninstall", agent, f"--{scope}")
    there = [path for path in programs if path.exists()]
    check("uninstall takes away what runs in the agent", not there, there)
    left = path.read_bytes() if path.exists() else None
    if rewritten:
        # Some agents add to their file or lay it out anew when they start. That stays.
        print(f"   {agent} has rewritten {path}")
        check("uninstall leaves nothing of peerbus", b"peerbus" not in (left or b""), left)
        check("uninstall leaves what others wrote", keeps(before.get(path), left), left)
    else:
        check("uninstall gives the bytes back", left == before.get(path), left)


def keeps(before, left):
    """Whether every line that a person wrote is still there, whatever its layout."""
    words = re.findall(rb'"[^"]*"', before or b"")
    return all(word in (left or b"") for word in words)


def main():
    try:
        agent, scope = sys.argv[1:3]
        if scope == "wake":
            woken(agent)
        elif scope == "kill":
            killed(agent)
        elif scope in ("request", "remind"):
            requested(agent, scope == "remind")
        elif scope == "relay":
            relayed(agent.split(","))
        else:
            scenario(agent, scope)
    except (AssertionError, subprocess.TimeoutExpired) as failure:
        print(f"FAILED {failure}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
