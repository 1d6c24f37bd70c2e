"""What is tested: two sessions of Claude Code on two machines, each with its own broker, that NATS joins.

The two machines are two homes with nothing in common but the address of NATS and a secret. Runs as the
first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one did not.
"""

import json
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import claude
import mock_api
import scenario
from support import check, eventually

NATS = "nats://127.0.0.1:4222"
KEYS = Path("/tmp/keys")
ASK = "ask bob of the other machine"
WHO = "who is on the other machine"
QUESTION = "does the build of the other machine pass?"
REPLY = "it does, since noon"
LAST_WORDS = "so that is that"
TOOL = f"mcp__{scenario.SERVER}__bus_"


class Machine:
    """A home, a broker with a domain, the bridge, and what a session's model is shown."""

    def __init__(self, domain, other, shared, name, answer):
        self.domain, self.name = domain, name
        self.home = Path(f"/tmp/{domain}")
        self.project = self.home / "project"
        self.project.mkdir(parents=True)
        self.environment = os.environ | {
            "HOME": str(self.home),
            "PATH": f"{os.environ['PATH']}:/tmp/programs:/tmp/nats",
        }
        place = self.home / ".config/peerbus"
        place.mkdir(parents=True, mode=0o700)
        text = f'token = "{secrets.token_hex(32)}"\nhmac_secret = "{secrets.token_hex(32)}"\n'
        text += f'domain = "{domain}"\n\n[domains.{other}]\nhmac_secret = "{shared}"\n'
        (place / "credentials.toml").write_text(text, encoding="utf-8")
        (place / "credentials.toml").chmod(0o600)
        adapter = scenario.MCP_JSON["mcpServers"][scenario.SERVER] | {"env": {"PEERBUS_NAME": name}}
        config = json.dumps({"mcpServers": {scenario.SERVER: adapter}})
        (self.project / ".mcp.json").write_text(config, encoding="utf-8")
        claude.seed(self.home, self.project, scenario.SERVER)
        self.api = mock_api.MockApi(answer, scenario.LOG / f"api-{domain}.jsonl")

    def runs(self, *command):
        """Starts a program that goes on."""
        with open(scenario.LOG / f"{self.domain}-{command[1]}.txt", "w", encoding="utf-8") as log:
            arguments = {"env": self.environment, "stdin": subprocess.DEVNULL, "stderr": log}
            return subprocess.Popen(command, cwd=self.home, **arguments)

    def peerbus(self, *arguments):
        """Runs a command as in a shell of this machine, and gives what it prints."""
        done = subprocess.run(
            ["peerbus", *arguments],
            cwd=self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            raise AssertionError(f"peerbus {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def has_joined(self, other):
        domains = json.loads(self.peerbus("peers", "--json"))["domains"]
        return any(one["domain"] == other and one["reachable"] for one in domains)

    def session(self):
        """A session of the real CLI, which is on the bus."""
        session = claude.Claude(self.project, self.api.url, scenario.LOG, home=self.home)
        session.said(f'MCP server "{scenario.SERVER}": Successfully connected')
        # A session that nobody has written to yet may ask its user something.
        session.type("good morning")
        eventually("the turn ends", lambda: LAST_WORDS in session.screen() and session.activity() == "idle")
        return session


def join(alpha, beta):
    """As docs/DOMAINS.md says, with a key for each."""
    domains = ["--domain", alpha.domain, "--domain", beta.domain]
    alpha.peerbus("bridge", "account", *domains, "--dir", str(KEYS))
    config = KEYS / "nats.conf"
    store = "/tmp/nats-store"
    config.write_text(f'listen: "127.0.0.1:4222"\njetstream {{ store_dir: "{store}" }}\ninclude accounts.conf\n')
    alpha.runs("nats-server", "-c", str(config))
    setup = ["bridge", "setup", "--nats", NATS, "--creds", str(KEYS / "_setup.nk"), *domains]

    works("the stream is made", alpha, *setup)
    for machine in (alpha, beta):
        machine.runs("peerbus", "serve", "--listen", "127.0.0.1:0")
        key = str(KEYS / f"{machine.domain}.nk")
        works("the broker answers", machine, "peers")
        machine.runs("peerbus", "bridge", "--nats", NATS, "--creds", key)
    eventually("alpha has joined beta", lambda: alpha.has_joined("beta"))
    eventually("beta has joined alpha", lambda: beta.has_joined("alpha"))


def works(what, machine, *arguments):
    """Runs a command until it succeeds, and says what it said last when it never does."""
    failed = []

    def tried():
        try:
            machine.peerbus(*arguments)
        except AssertionError as error:
            failed.append(error)
            return False
        return True

    try:
        eventually(what, tried)
    except AssertionError as error:
        raise AssertionError(f"{error}; {failed[-1]}") from None


def alice(request):
    """What the model at alpha says."""
    if request.tool_results:
        return mock_api.text(LAST_WORDS)
    if ASK in request.prompt:
        return mock_api.tool_use(f"{TOOL}send", {"to": "bob@beta", "body": QUESTION})
    if WHO in request.prompt:
        return mock_api.tool_use(f"{TOOL}peers", {"domain": "beta"})
    return mock_api.text(LAST_WORDS)


def bob(request):
    """What the model at beta says: it answers what it is asked."""
    asked = re.search(rf'alice@alpha: "{re.escape(QUESTION)}".* \[([^\]]+)\]', request.prompt)
    if asked and not request.tool_results:
        return mock_api.tool_use(f"{TOOL}reply", {"msg_id": asked[1], "body": REPLY})
    return mock_api.text(LAST_WORDS)


def steps(machine, identity):
    """What became of a message, as its sender's broker knows it."""
    return machine.peerbus("status", identity)


def a_message_wakes_the_other_machine(alpha, beta, session, other):
    eventually("bob's session is idle", lambda: other.activity() == "idle")
    session.type(ASK)
    after = alpha.api.wait_for("the tool's result", lambda request: request.tool_results)
    result = json.dumps(after.tool_results[0])
    check("the model at alpha reads that it goes to beta", "to go to beta" in result, result)
    woken = beta.api.wait_for("what wakes bob", lambda request: QUESTION in request.context)
    [line] = [line for line in woken.context.splitlines() if QUESTION in line]
    check("the idle session at beta is woken, by alice of alpha", "alice@alpha: " in line, line)
    identity = line.rsplit("[", 1)[1].split("]", 1)[0]
    told = eventually("seen comes back", lambda: has(steps(alpha, identity), "seen"))
    check("the sender's broker was told that it was forwarded", "forwarded" in told, told)
    check("and how it was seen", "seen       bob@beta  by socket" in told, told)


def has(text, word):
    return text if word in text else None


def the_answer_wakes_the_first(alpha, session):
    asked = alpha.api.wait_for("what wakes alice", lambda request: REPLY in request.context)
    [line] = [line for line in asked.context.splitlines() if REPLY in line]
    check("the answer wakes the session at alpha", "bob@beta: " in line, line)
    identity = line.rsplit("[", 1)[1].split("]", 1)[0]
    eventually("the turn ends", lambda: session.activity() == "idle")
    return identity


def the_model_can_ask_who_is_there(alpha, session):
    # Beta tells it every few seconds.
    eventually("beta told of bob", lambda: "bob@beta" in alpha.peerbus("peers", "--domain", "beta"))
    since = len(alpha.api.asked)
    session.type(WHO)
    after = alpha.api.wait_for("who is there", lambda request: request.tool_results, since)
    result = json.dumps(after.tool_results[0])
    for word in ("bob@beta", "claude-code", "as beta told"):
        check(f"the model at alpha is told who is at beta: {word}", word in result, result)


def main():
    shared = secrets.token_hex(32)
    alpha = Machine("alpha", "beta", shared, "alice", alice)
    beta = Machine("beta", "alpha", shared, "bob", bob)
    sessions = []
    try:
        join(alpha, beta)
        session, other = alpha.session(), beta.session()
        sessions.extend([session, other])
        a_message_wakes_the_other_machine(alpha, beta, session, other)
        identity = the_answer_wakes_the_first(alpha, session)
        told = eventually("seen comes back for the answer, too", lambda: has(steps(beta, identity), "seen "))
        check("and how the answer was seen", "seen       alice@alpha  by socket" in told, told)
        the_model_can_ask_who_is_there(alpha, session)
        for one in (session, other):
            one.quit()
    except AssertionError as failed:
        for one in sessions:
            print(f"--- a screen\n{one.screen()}")
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
