"""A stand-in for Claude Code as the client of a channel.

The real CLI takes no channel notifications on a closed network: a switch at the vendor's opens
them. The MCP side here does what version 2.1.330 was seen to do; how a push becomes a tag is known
from the vendor's documentation only. So what passes here is no proof about the real channel.
"""

import os
import re
import signal
import subprocess
import time

from mcp_client import Server
from support import check

PUSH = "notifications/claude/channel"
# The id of the stand-in's session.
SESSION = "00000000-0000-4000-8000-000000000001"
CLIENT = {"name": "claude-code", "title": "Claude Code", "version": "2.1.330"}
CAPABILITIES = {"roots": {"listChanged": True}, "elicitation": {"form": {}, "url": {}}}
# How long the real client waits for an answer to its probe before it goes on without.
PROBE_S = 3.0
# What it sends a server that is to end, and how long it waits after each.
ENDING = [(signal.SIGINT, 0.1), (signal.SIGTERM, 0.4), (signal.SIGKILL, None)]


def start(server, project, log):
    """Starts the server of an entry in `.mcp.json`."""
    session = {
        "CLAUDECODE": "1",
        "CLAUDE_CODE_SESSION_ID": SESSION,
        "CLAUDE_PROJECT_DIR": str(project),
    }
    environment = os.environ | session | server.get("env", {})
    return Server([server["command"], *server["args"]], environment, f"{log}/channel-stderr.txt")


def probe(mcp):
    """Asks for a newer protocol, as the client does first of all."""
    begin = time.monotonic()
    answer = mcp.request(
        "server/discover", {}, identity="server-discover-probe-1", patience=PROBE_S
    )
    took_ms = (time.monotonic() - begin) * 1000
    code = answer.get("error", {}).get("code")
    check(f"probe is answered at once ({took_ms:.0f} ms)", code == -32601, answer)


def handshake(mcp):
    """Everything up to `notifications/initialized`; gives the instructions for the model."""
    result = mcp.initialize(CLIENT, CAPABILITIES)
    check("protocol version", result["protocolVersion"] == "2025-11-25", result["protocolVersion"])
    experimental = result["capabilities"].get("experimental")
    check(
        "channel capability, no permission relay",
        experimental == {"claude/channel": {}},
        experimental,
    )
    check("tools capability", "tools" in result["capabilities"], result["capabilities"])
    check("instructions", "untrusted" in result["instructions"], result["instructions"])
    return result["instructions"]


def tools(mcp, server):
    """The names under which the model is shown the tools, checked against the API's rule."""
    listed = mcp.request("tools/list", {})["result"]["tools"]
    names = [re.sub(r"[^A-Za-z0-9_-]", "_", f"mcp__{server}__{tool['name']}") for tool in listed]
    fit = all(len(name) <= 64 for name in names) and len(set(names)) == len(names)
    check("tool names fit", fit, names)
    return sorted(names)


def push(mcp, what, wanted):
    """The params of a push."""
    found = mcp.wait_for(what, lambda m: m.get("method") == PUSH and wanted(m["params"]))
    return found["params"]


def pushes(mcp):
    """The params of everything that was pushed so far."""
    return [message["params"] for message in mcp.notifications() if message["method"] == PUSH]


def tag(server, params):
    """What the session is shown, as documented: keys that are no identifiers are dropped, nothing
    is escaped."""
    keys = [key for key in params["meta"] if re.fullmatch(r"[A-Za-z0-9_]+", key)]
    attributes = "".join(f' {key}="{params["meta"][key]}"' for key in keys)
    return f'<channel source="{server}"{attributes}>{params["content"]}</channel>'


def pushes_are_well_formed(mcp, server):
    """Checks everything that was pushed so far."""
    params_of_all = pushes(mcp)
    strings = all(
        isinstance(value, str)
        for params in params_of_all
        for value in [params["content"], *params["meta"].values()]
    )
    check("pushes hold strings only", strings, params_of_all)
    keys = {key for params in params_of_all for key in params["meta"]}
    dropped = [key for key in keys if not re.fullmatch(r"[A-Za-z0-9_]+", key)]
    check("no attribute is dropped", not dropped, dropped)
    one_tag = re.compile(r'<channel( \w+="[^"<>\n]*")+>[^<>\n]*</channel>')
    tags = [tag(server, params) for params in params_of_all]
    broken = [shown for shown in tags if not one_tag.fullmatch(shown)]
    check(f"no push breaks out of its tag ({len(tags)} pushes)", not broken, broken)


def end(mcp):
    """Ends the server as the client does, and checks that it need not be killed."""
    begin, sent = time.monotonic(), []
    for number, patience_s in ENDING:
        mcp.process.send_signal(number)
        sent.append(number.name)
        try:
            status = mcp.process.wait(patience_s)
            break
        except subprocess.TimeoutExpired:
            continue
    took_ms = (time.monotonic() - begin) * 1000
    check(f"ends on {', '.join(sent)} ({took_ms:.0f} ms)", "SIGKILL" not in sent, sent)
    check("ends with success", status == 0, status)
    check("stdout is MCP only", not mcp.garbage, mcp.garbage)
