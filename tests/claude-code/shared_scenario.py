"""What is tested: a session of Claude Code reads a file through an MCP server that is shared on another
machine, beside a session of Codex.

The two machines are two homes with nothing in common but the broker's port and its credentials. Runs as
the first process of the namespaces that run.py makes. Exit codes: 0 every check held, 1 one did not.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import claude
import mock_api
import scenario
from support import check, eventually

sys.path.append("/tmp/repository/tests/other-agents")

from agents import AGENTS, HOME
from model import Model
from screen import Screen

CODEX = AGENTS["codex"]
HOST = Path("/tmp/host")
FILES = HOST / "project"
NOTES = FILES / "notes.txt"
URL = "ws://127.0.0.1:47821"
URI = "mcp://host/files"
ENTRY = "peerbus-host-files"
TOOL = f"mcp__{ENTRY}__read_text_file"
PROMPT = "what do the notes of the other machine say?"
AGAIN = "and what do they say now?"
LAST_WORDS = "now I know"
ASKS = "Do you want to proceed?"
FIRST = "the tests of the parser are red since Monday\n"
SECOND = "the tests of the parser are green again\n"
CALLER = re.compile(r"dev-anna-[0-9a-f]{6}")


def environment(home):
    """That of a user of one machine."""
    return os.environ | {"HOME": str(home), "PATH": f"{os.environ['PATH']}:/tmp/npm/node_modules/.bin"}


def peerbus(home, *arguments):
    """Runs a command as in a shell of a machine, and gives what it prints."""
    done = subprocess.run(
        ["peerbus", *arguments],
        cwd=home / "project",
        env=environment(home),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise AssertionError(f"peerbus {' '.join(arguments)} failed: {done.stdout}{done.stderr}")
    return done.stdout


class Share:
    """`peerbus mcp share` in a terminal of the host."""

    count = 0

    def __init__(self):
        Share.count += 1
        self.said = scenario.LOG / f"share-{Share.count}.txt"
        server = ["--", "mcp-server-filesystem", str(FILES)]
        share = ["mcp", "share", "files", "--allow", "serverTools", "--to", "dev-*", "--name", "host"]
        with open(self.said, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["peerbus", *share, *server],
                cwd=FILES,
                env=environment(HOST),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        [self.uri] = eventually("it is shared", lambda: self.lines(f"sharing {URI}/"))
        self.uri = self.uri.split()[-1]

    def lines(self, word):
        """What it said with this word."""
        lines = self.said.read_text(encoding="utf-8").splitlines()
        return [line for line in lines if word in line]

    def callers(self):
        """Who called the tool, as often as they did."""
        return [line.split(": ")[-2].split()[-1] for line in self.lines(": tools/call read_text_file")]

    def ends(self):
        self.process.terminate()
        check("sharing ends", self.process.wait(timeout=30) == 0, self.said.read_text())


def the_host_works():
    """The machine with the files: the broker, and a session of Codex. Gives its screen."""
    FILES.mkdir(parents=True)
    NOTES.write_text(FIRST, encoding="utf-8")
    with open(scenario.LOG / "serve.txt", "w", encoding="utf-8") as log:
        subprocess.Popen(
            ["peerbus", "serve"], env=environment(HOST), stdin=subprocess.DEVNULL, stderr=log
        )
    eventually("there are credentials", (HOST / ".config/peerbus/credentials.toml").exists)
    model = Model("nobody asks", [], "ok", scenario.LOG / "api-codex.jsonl")
    files, more, _ = CODEX.seed(model.url, FILES)
    for path, text in files.items():
        path = HOST / path.relative_to(HOME)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    peerbus(HOST, "install", "codex", "--name", "codex")
    return Screen(CODEX.screen(False), environment(HOST) | more, FILES)


def codex_is_there():
    """Whether the session of Codex is on the bus."""
    peers = json.loads(peerbus(HOST, "peers", "--json"))["peers"]
    return any(peer["name"] == "codex" and peer["online"] for peer in peers)


def the_other_machine_knows_the_broker():
    """As docs/OPERATING.md says: the host's credentials, with the broker's address."""
    place = scenario.HOME / ".config/peerbus"
    place.mkdir(parents=True, mode=0o700)
    kept = shutil.copy2(HOST / ".config/peerbus/credentials.toml", place)
    text = Path(kept).read_text(encoding="utf-8")
    Path(kept).write_text(f'url = "{URL}"\n{text}', encoding="utf-8")


def answer(request):
    """What the model says: it reads the notes when it is asked about them, once it is shown how."""
    if request.tool_results and TOOL not in str(request.tool_results):
        return mock_api.text(LAST_WORDS)
    if TOOL in request.tools:
        return mock_api.tool_use(TOOL, {"path": str(NOTES)})
    # The tools of servers may be hidden until they are looked for.
    return mock_api.tool_use("ToolSearch", {"query": f"select:{TOOL}", "max_results": 1})


def reads(session, api, words, text):
    """The model is asked, calls the tool, and is shown the text. Says whether the user was asked, who
    then allows it."""
    since, turns = len(api.asked), session.screen().count(LAST_WORDS)
    session.type(words)
    asked = False

    def shown():
        nonlocal asked
        if ASKS in session.screen():
            # A dialog takes no key in its first moment.
            session.press("Enter")
            asked = True
        results = [result for request in api.asked[since:] for result in request.tool_results]
        return [result for result in results if text.strip() in json.dumps(result)]

    result = eventually("the model is shown the file's text", shown)[0]
    check("the model is shown the file's text", result["type"] == "tool_result", result)
    check("as a result that is no error", not result.get("is_error"), result)
    eventually("the turn ends", lambda: session.screen().count(LAST_WORDS) > turns)
    return asked


def a_file_of_the_other_machine_is_read(session, api, share):
    session.said(f'MCP server "{ENTRY}": Successfully connected')
    asked = reads(session, api, PROMPT, FIRST)
    check("its user was asked before, --allow or not", asked)
    callers = share.callers()
    check("the host says who called what, once", len(callers) == 1, share.said.read_text())
    check(f"by the name that install gave ({callers[0]})", CALLER.fullmatch(callers[0]), callers)
    return callers[0]


def the_history_has_none_of_it(caller):
    """What one peer read of another's files is nobody else's, also later."""
    for words in (["--with", "host"], ["--with", caller], ["--grep", "parser"]):
        said = peerbus(HOST, "history", *words, "--json")
        check(f"the history has nothing of it: {words[0]} {words[1]}", not said, said)


def the_server_is_started_again(session, api, before):
    """The entry names no generation, and the session goes on with the next."""
    NOTES.write_text(SECOND, encoding="utf-8")
    share = Share()
    check("it is another generation", share.uri != before.uri, share.uri)
    reads(session, api, AGAIN, SECOND)
    check("and the same session calls it", share.callers() == before.callers(), share.callers())
    return share


def main():
    scenario.PROJECT.mkdir()
    claude.seed(scenario.HOME, scenario.PROJECT, scenario.SERVER, allowed=False)
    api = mock_api.MockApi(answer, scenario.LOG / "api.jsonl")
    try:
        codex = the_host_works()
        the_other_machine_knows_the_broker()
        codex.shows(CODEX.ready)
        eventually("the session of Codex is on the bus", codex_is_there)
        share = Share()
        peerbus(
            scenario.HOME, "install", "claude-code", "--allow", "--use", share.uri, "--as", "dev-anna"
        )
        said = peerbus(scenario.HOME, "doctor")
        check("doctor sees it", f"{URI} ({ENTRY}): it is shared now" in said, said)
        with scenario.cli(api) as session:
            caller = a_file_of_the_other_machine_is_read(session, api, share)
            the_history_has_none_of_it(caller)
            share.ends()
            share = the_server_is_started_again(session, api, share)
        share.ends()
        check("Codex went on meanwhile", codex_is_there())
        codex.end()
        peerbus(scenario.HOME, "uninstall", "claude-code")
        after = json.loads((scenario.HOME / ".claude.json").read_text())
        check("nothing of it stays", not after.get("mcpServers"), after)
        check("and what Claude Code wrote does", str(scenario.PROJECT) in after["projects"], after)
    except AssertionError as failed:
        print(f"FAILED {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
