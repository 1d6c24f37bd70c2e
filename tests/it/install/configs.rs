//! Configurations as people have them.

/// A client's file, and what somebody has in it.
pub(super) struct Case {
    pub(super) client: &'static str,
    pub(super) scope: &'static str,
    /// Below the home, which is the project too.
    pub(super) file: &'static str,
    pub(super) text: &'static str,
}

const CLAUDE_STATE: &str = r#"{
  "numStartups": 412,
  "installMethod": "native",
  "tipsHistory": { "new-user-warmup": 3, "shift-enter": 12 },
  "mcpServers": {
    "postgres": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "@example/postgres-mcp", "postgresql://localhost/dev"],
      "env": { "PG_PASSWORD": "do-not-show-this" }
    },
    "docs": { "type": "http", "url": "https://docs.example/mcp" }
  },
  "projects": { "/home/me/work": { "allowedTools": [], "history": [] } },
  "oauthAccount": null
}
"#;

const CLAUDE_SETTINGS: &str = r#"{
  "model": "opus",
  "permissions": {
    "allow": ["Bash(cargo test:*)", "Read(~/src/**)"],
    "deny": []
  },
  "hooks": {
    "PostToolUse": [
      {
        "matcher": "Edit|Write",
        "hooks": [
          { "type": "command", "command": "jq -r '.tool_input.file_path' | xargs rustfmt" }
        ]
      }
    ],
    "Stop": [
      { "hooks": [{ "type": "command", "command": "notify-send done", "timeout": 5 }] }
    ]
  },
  "env": { "EDITOR": "vim" }
}
"#;

const CODEX: &str = r#"# My Codex
model = "gpt-5"   # the good one
approval_policy = "on-request"

[mcp_servers.docs]
command = "npx"
args = ["-y", "docs-mcp"]
env = { TOKEN = "do-not-show-this" }

[projects."/home/me/work"]
trust_level = "trusted"

[[hooks.Stop]]
[[hooks.Stop.hooks]]
type = "command"
command = "true"
"#;

const OPENCODE: &str = r#"{
  // everything that I use
  "$schema": "https://opencode.ai/config.json",
  "theme": "system", /* follows the terminal */
  "mcp": {
    // the documentation
    "docs": {
      "type": "remote",
      "url": "https://docs.example/mcp", // with a key
    },
  },
}
"#;

const QWEN: &str = r#"{
  "$version": 4,
  // accounts
  "security": { "auth": { "selectedType": "openai" } },
  "model": { "name": "qwen3-coder" }
}
"#;

pub(super) const GEMINI: &str = r#"{
  "security": { "auth": { "selectedType": "oauth-personal" } }, // signed in
  "mcpServers": {
    "docs": { "httpUrl": "https://docs.example/mcp" }
  },
  "ui": { "theme": "GitHub" }
}
"#;

const COPILOT: &str = r#"{
  "mcpServers": {
    "docs": {
      "type": "http",
      "url": "https://docs.example/mcp",
      "tools": ["*"]
    }
  }
}
"#;

const CURSOR: &str = r#"{
  "mcpServers": {}
}
"#;

const fn case(
    client: &'static str,
    scope: &'static str,
    file: &'static str,
    text: &'static str,
) -> Case {
    Case {
        client,
        scope,
        file,
        text,
    }
}

pub(super) const CASES: [Case; 15] = [
    case("claude-code", "--user", ".claude.json", CLAUDE_STATE),
    case(
        "claude-code",
        "--user",
        ".claude/settings.json",
        CLAUDE_SETTINGS,
    ),
    case("claude-code", "--project", ".mcp.json", GEMINI),
    case(
        "claude-code",
        "--project",
        ".claude/settings.json",
        CLAUDE_SETTINGS,
    ),
    case("codex", "--user", ".codex/config.toml", CODEX),
    case("codex", "--project", ".codex/config.toml", CODEX),
    case(
        "opencode",
        "--user",
        ".config/opencode/opencode.jsonc",
        OPENCODE,
    ),
    case("opencode", "--project", "opencode.json", OPENCODE),
    case("qwen", "--user", ".qwen/settings.json", QWEN),
    case("gemini", "--user", ".gemini/settings.json", GEMINI),
    case("gemini", "--project", ".gemini/settings.json", QWEN),
    case("copilot", "--user", ".copilot/mcp-config.json", COPILOT),
    case("copilot", "--project", ".github/mcp.json", COPILOT),
    case("cursor", "--user", ".cursor/mcp.json", CURSOR),
    case("cursor", "--project", ".cursor/mcp.json", COPILOT),
];
