//! The commands of the documents, and how each is shown to work.

/// How a command is shown to work.
pub(super) enum How {
    /// It is run here, in the order of its document, and succeeds.
    Runs,
    /// It goes on until it is ended. It is run here until it prints this.
    Stays(&'static str),
    /// That file runs it, or what it stands for, in these words.
    By(&'static str, &'static str),
    /// No test runs it, for this reason.
    Not(&'static str),
}

use How::{By, Not, Runs, Stays};

const CI: &str = ".ci/run";
const CHANNELS: &str = "tests/it/side_channels.rs";
const ASKS: &str = "tests/it/requests.rs";
const INVITE: &str = "tests/it/invite.rs";
const WEB: &str = "tests/it/web.rs";
const WEB_SESSIONS: &str = "tests/it/web/sessions.rs";
const HOOKS: &str = "tests/it/web/webhooks.rs";
const BUS: &str = "tests/web/bus.py";
const NODES: &str = "tests/it/nodes.rs";
const CLIENT: &str = "tests/claude-code/node.py";
const ASKED: &str = "tests/claude-code/approvals_scenario.py";
const PLUGIN: &str = "tests/claude-code/plugin_scenario.py";
const MINUTES: &str = "it takes minutes or hours; CI runs the short form of the same program";
const SYSTEMD: &str =
    "it needs a user's systemd; `cargo xtask package` lets systemd verify the units";

pub(super) const COMMANDS: &[(&str, How)] = &[
    // README
    (
        "cargo install --locked --git https://github.com/peerbus/peerbus peerbus",
        Not("it needs the network, and compiles all anew; CI builds the same package"),
    ),
    (
        "cargo run --release -- serve",
        By(
            "tests/it/documents/facts.rs",
            "the_readme_names_the_repository_and_the_binary_of_the_workspace",
        ),
    ),
    ("peerbus install claude-code", Runs),
    ("peerbus doctor", Runs),
    (
        r#"peerbus ask bob "Are the tests green?""#,
        By("tests/pictures/record.py", "peerbus ask bob"),
    ),
    (
        "peerbus status 01a2181490ac7481a9d60ef64859b182",
        By("tests/pictures/record.py", "peerbus status"),
    ),
    ("peerbus uninstall claude-code", Runs),
    (
        "peerbus uninstall --all --purge",
        By("tests/it/demand/kept.rs", r#""--all", "--purge""#),
    ),
    // The guide and the reference
    ("peerbus uninstall --all", Runs),
    ("peerbus status", Runs),
    ("peerbus peers", Runs),
    ("peerbus --help", Runs),
    (r#"peerbus broadcast "the build is green""#, Runs),
    (
        "peerbus names retire bob",
        By("tests/it/hostile.rs", r#""names", "retire""#),
    ),
    (
        r#"peerbus send --name alice bob "the build is green""#,
        Runs,
    ),
    ("peerbus status 01a20135fd68715397194b8f40ee33c9", Runs),
    (
        "cargo install --locked --path crates/cli",
        Not("it compiles all anew; CI builds the same package"),
    ),
    // ANY_AGENT
    (
        r#"peerbus run --agent gemini --name reviewer "Review what peers send you""#,
        By("tests/acp/bus.py", r#""--agent""#),
    ),
    (
        "peerbus run --acp --name reviewer -- some-agent acp --flag",
        By("tests/it/driver/acp.rs", r#""--acp""#),
    ),
    // DOMAINS
    (
        "peerbus bridge account --domain alpha --domain beta",
        By("tests/domains/accounts.rs", "account::write"),
    ),
    (
        "peerbus bridge setup --nats tls://nats.example.org --creds peerbus-nats/_setup.nk --domain alpha --domain beta",
        By("tests/domains/accounts.rs", "set_up"),
    ),
    ("peerbus serve", Stays("listening on")),
    (
        "peerbus bridge --nats tls://nats.example.org --creds alpha.nk",
        By("tests/it/joined/mod.rs", r#""--nats""#),
    ),
    // CONTRIBUTING
    ("cargo build", By(CI, "cargo clippy --locked --workspace")),
    ("cargo test --workspace", By(CI, "cargo test --workspace")),
    ("cargo xtask tidy", By(CI, "cargo xtask tidy")),
    ("cargo xtask lines", By(CI, "cargo xtask lines")),
    (
        "cargo xtask sim --seed N",
        By("tests/sim/src/main.rs", "--seed"),
    ),
    ("cargo xtask chaos --minutes 30", Not(MINUTES)),
    ("cargo xtask chaos --rounds 50", Not(MINUTES)),
    ("cargo xtask chaos --broken", Not(MINUTES)),
    ("cargo xtask fuzz url --minutes 10", Not(MINUTES)),
    (
        "cargo xtask package deb",
        By(CI, "for kind in deb archive npm wheel"),
    ),
    (
        "python3 tests/pictures/record.py target/debug/peerbus",
        By("tests/it/pictures.rs", "pictures/record.py"),
    ),
    (".ci/macos", By(CI, ".ci/macos -- -D warnings")),
    (".ci/run", Not("it is what runs this test")),
    // AGENT
    ("peerbus --version", Runs),
    ("peerbus install claude-code --dry-run", Runs),
    ("peerbus install claude-code", Runs),
    // CLAUDE_CODE
    (
        "claude plugin marketplace add .",
        By(PLUGIN, r#""marketplace", "add""#),
    ),
    (
        "claude plugin install peerbus@peerbus",
        By(PLUGIN, r#""install", PLUGIN"#),
    ),
    (
        "claude --dangerously-load-development-channels plugin:peerbus@peerbus",
        By(PLUGIN, "--dangerously-load-development-channels"),
    ),
    // DRIVER
    (
        r#"peerbus run --name reviewer "Review what peers send you. Answer each of them." -- --allowedTools Read,Grep"#,
        By("tests/it/driver/mod.rs", "--allowedTools"),
    ),
    (
        r#"peerbus send reviewer "please look at src/main.rs" --wait seen"#,
        By("tests/it/conversation.rs", r#""--wait", "seen=50""#),
    ),
    (
        "peerbus run --initialize setup.json --name reviewer",
        By("tests/it/driver/stream.rs", "--initialize"),
    ),
    // OTHER_AGENTS
    ("peerbus install codex --dry-run", Runs),
    ("peerbus install codex", Runs),
    (
        "peerbus recv --name build-bot --count 1 --timeout 600",
        Stays("listening as build-bot"),
    ),
    // PERFORMANCE
    ("cargo xtask bench", Not(MINUTES)),
    ("cargo xtask bench --full", Not(MINUTES)),
    (
        "cargo xtask bench --quick",
        By(CI, "cargo xtask bench --quick"),
    ),
    (
        "cargo xtask instructions",
        By(CI, "cargo xtask instructions"),
    ),
    // OPERATING, COMMANDS and the guide
    (
        "peerbus recv --name bob --count 1 | jq -r '.body.text? // .body'",
        Runs,
    ),
    (
        r#"peerbus ask bob "are the tests green?""#,
        By(ASKS, r#""bob", "are the tests green?""#),
    ),
    (
        r#"peerbus ask '#shop' "review the parser" --within 2h --detach"#,
        By(ASKS, r##""#shop", "review the parser""##),
    ),
    ("peerbus requests", Runs),
    ("peerbus requests --done", Runs),
    (
        "peerbus requests cancel ID",
        By(ASKS, r#""requests", "cancel""#),
    ),
    ("peerbus invite laptop", By(INVITE, r#"invite("laptop")"#)),
    ("peerbus join", By(INVITE, r#"&["join"]"#)),
    (
        "peerbus invite phone --web --address desk.example",
        By(
            "tests/it/web/phone.rs",
            r#""invite", "phone", "--web", "--address""#,
        ),
    ),
    (
        "peerbus join ssh:you@desk.example",
        By("tests/it/invite/ssh.rs", r#"&["join", "ssh:desk""#),
    ),
    ("peerbus invite list", By(INVITE, r#""invite", "list""#)),
    (
        "peerbus invite revoke laptop",
        By(INVITE, r#""invite", "revoke", "laptop""#),
    ),
    ("peerbus invite off", By(INVITE, r#""invite", "off""#)),
    (
        "peerbus uninstall --join",
        By(INVITE, r#""uninstall", "--join""#),
    ),
    ("peerbus token keygen", Runs),
    (
        "peerbus serve --listen 0.0.0.0:47821 --tls-cert server.crt --tls-key server.key",
        Stays("listening on wss://"),
    ),
    (
        r#"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=our bus" -keyout ca.key -out ca.crt"#,
        Runs,
    ),
    (
        r#"openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=bus.example" -keyout server.key -out server.csr"#,
        Runs,
    ),
    (
        r"printf 'subjectAltName=DNS:bus.example,IP:192.0.2.7\nbasicConstraints=CA:FALSE\n' > server.ext",
        Runs,
    ),
    (
        "openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -extfile server.ext -out server.crt",
        Runs,
    ),
    ("peerbus held", Runs),
    (
        "peerbus held release DIGEST",
        By("tests/it/senders.rs", r#""release""#),
    ),
    (
        "peerbus held release DIGEST --always",
        By("tests/it/senders.rs", r#""--always""#),
    ),
    (
        "peerbus held refuse DIGEST",
        By("tests/it/senders.rs", r#""refuse""#),
    ),
    ("peerbus token add phone --names phone --rights send", Runs),
    (
        "peerbus token add ci --names 'build-*' --days 90 --max-names 50",
        Runs,
    ),
    ("peerbus token list", Runs),
    ("peerbus token revoke phone", Runs),
    ("peerbus secret rotate", Runs),
    ("peerbus secret retire", Runs),
    (
        "cargo xtask package static",
        Not("it needs a compiler for musl, and minutes; it tries what it made"),
    ),
    (
        "cargo xtask package archive",
        By(CI, "for kind in deb archive npm wheel"),
    ),
    (
        "cargo xtask package npm",
        By(CI, "for kind in deb archive npm wheel"),
    ),
    (
        "cargo xtask package wheel",
        By(CI, "for kind in deb archive npm wheel"),
    ),
    (
        "cargo xtask package formula",
        By(CI, "cargo xtask package formula"),
    ),
    (
        "cargo xtask package all",
        Not("it needs a compiler for musl, and minutes; CI makes each of a binary that is there"),
    ),
    (
        "sh deploy/install.sh --from target/package",
        By("tests/packages/installed.sh", "sh \"$script\" --from"),
    ),
    (
        "npm install -g target/package/peerbus-*.tgz",
        By("tests/packages/installed.sh", "npm install --silent"),
    ),
    (
        "pipx install target/package/peerbus-*.whl",
        By("tests/packages/installed.sh", "pip install --quiet"),
    ),
    (
        "sudo apt install ./target/package/peerbus_*.deb",
        By("tests/packages/clean.sh", "dpkg --root"),
    ),
    (
        "install -D -m 0644 deploy/peerbus.service ~/.config/systemd/user/peerbus.service",
        Runs,
    ),
    (
        "install -D -m 0644 deploy/peerbus.socket ~/.config/systemd/user/peerbus.socket",
        Runs,
    ),
    ("systemctl --user daemon-reload", Not(SYSTEMD)),
    ("systemctl --user enable --now peerbus", Not(SYSTEMD)),
    ("systemctl --user enable --now peerbus.socket", Not(SYSTEMD)),
    ("journalctl --user -u peerbus -f", Not(SYSTEMD)),
    ("peerbus stop", By("tests/it/demand/end.rs", r#""stop""#)),
    ("export $(peerbus token keygen)", Runs),
    (
        r#"(umask 077; printf 'PEERBUS_TOKENS=%s\n' "$PEERBUS_TOKEN" > deploy/peerbus.env)"#,
        Runs,
    ),
    (
        "docker compose -f deploy/compose.yaml up --build --detach",
        Not("it needs a Docker daemon, and the network"),
    ),
    ("peerbus serve --domain alpha", Stays("listening on")),
    ("peerbus history bob --since 2h", Runs),
    ("peerbus tail --follow", Stays("hello from yesterday")),
    (
        "peerbus tail --follow --short",
        Stays("hello from yesterday"),
    ),
    ("peerbus history purge", Runs),
    ("peerbus audit verify", Runs),
    (
        "peerbus audit verify --db FILE",
        By("tests/it/audit.rs", r#""--db""#),
    ),
    (
        "peerbus audit acknowledge",
        By("tests/it/audit.rs", r#""acknowledge""#),
    ),
    ("peerbus audit sessions", Runs),
    ("peerbus backup FILE", Runs),
    (
        "peerbus restore FILE",
        By("tests/it/backup.rs", r#""restore""#),
    ),
    // SESSIONS
    ("peerbus session list", Runs),
    ("peerbus session watch SESSION", By(CLIENT, r#""watch""#)),
    (
        r#"peerbus session inject SESSION "run the tests" --wait seen"#,
        By(CLIENT, r#""inject""#),
    ),
    (
        r#"peerbus session inject SESSION "what is wrong here?" --image screen.png"#,
        By("tests/it/driver/stream.rs", "--image"),
    ),
    ("peerbus session approve", Runs),
    ("peerbus session approve qkzmw", By(ASKED, "approve")),
    (
        "peerbus session approve qkzmw --always",
        By(ASKED, "--always"),
    ),
    (
        "peerbus session answer qkzmw 2",
        By(
            "tests/it/driver/node.rs",
            "\"session\", \"answer\", id, \"2\"",
        ),
    ),
    (
        r#"peerbus session deny qkzmw --message "use the test database""#,
        By(ASKED, "--message"),
    ),
    (
        "peerbus token add phone --names phone --rights send,approve",
        Runs,
    ),
    (
        "peerbus session interrupt SESSION",
        By("tests/claude-code/interrupt_scenario.py", "interrupt"),
    ),
    (
        r#"peerbus session inject SESSION "stop, the branch is frozen" --interrupt"#,
        By("tests/claude-code/interrupt_scenario.py", "--interrupt"),
    ),
    (
        "ssh host peerbus session list --json",
        Not("it needs another machine"),
    ),
    (
        "ssh -N -L ~/there.sock:/run/user/1000/peerbus/sessions/4711.4720.sock host",
        By(NODES, "sshd"),
    ),
    // WEB
    (
        r#"peerbus send reviewer "build failed""#,
        By("tests/it/conversation.rs", r#""send", "bob", "hi""#),
    ),
    ("peerbus web token add ci --to reviewer", Runs),
    ("peerbus web", By(WEB, "\"web\", \"--listen\"")),
    ("peerbus web --open", By(BUS, "\"--open\"")),
    (
        r#"curl -H "Authorization: Bearer $TOKEN" -d "build failed" http://127.0.0.1:47822/hook/reviewer"#,
        By(WEB, "POST /hook/bob"),
    ),
    (
        r#"curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:47822/v1/messages/$ID"#,
        By(WEB, "GET /v1/messages/{id}"),
    ),
    (
        r#"curl -N -H "Authorization: Bearer $TOKEN" http://127.0.0.1:47822/v1/replies"#,
        By(WEB, "GET /v1/replies"),
    ),
    (
        r#"curl -X POST -H "Authorization: Bearer $TOKEN" -H "Last-Event-ID: $ID" http://127.0.0.1:47822/v1/replies"#,
        By("tests/it/web/replies.rs", "POST /v1/replies"),
    ),
    (
        "peerbus web token add pocket --watch --inject --approve",
        Runs,
    ),
    ("peerbus web token add pocket --watch --approve", Runs),
    (
        r#"curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:47822/v1/sessions"#,
        By(WEB_SESSIONS, "GET /v1/sessions"),
    ),
    (
        r#"curl -N -H "Authorization: Bearer $TOKEN" http://127.0.0.1:47822/v1/sessions/events"#,
        By(WEB_SESSIONS, "GET /v1/sessions/events"),
    ),
    (
        r#"curl -H "Authorization: Bearer $TOKEN" -d '{"prompt":"run the tests"}' http://127.0.0.1:47822/v1/sessions/$ID/inject"#,
        By(WEB_SESSIONS, "POST /v1/sessions/{id}/inject"),
    ),
    (
        "peerbus web token add github --to reviewer --by signature --header X-GitHub-Event",
        Runs,
    ),
    (
        r#"BODY='{"action":"opened"}'"#,
        By(HOOKS, r#"BODY='{"action":"opened"}'"#),
    ),
    (
        r#"SIGNED=$(printf %s "$BODY" | openssl dgst -sha256 -hmac "$TOKEN" -r | cut -c1-64)"#,
        By(
            HOOKS,
            r#"SIGNED=$(printf %s "$BODY" | openssl dgst -sha256 -hmac "$TOKEN" -r | cut -c1-64)"#,
        ),
    ),
    (
        r#"curl -H "X-Hub-Signature-256: sha256=$SIGNED" -H "X-GitHub-Event: issues" -H "Content-Type: application/json" -d "$BODY" http://127.0.0.1:47822/hook/reviewer"#,
        By(
            HOOKS,
            r#"curl -H "X-Hub-Signature-256: sha256=$SIGNED" -H "X-GitHub-Event: issues" -H "Content-Type: application/json" -d "$BODY" http://127.0.0.1:47822/hook/reviewer"#,
        ),
    ),
    (
        "peerbus web token add gitlab --to reviewer --by header:X-Gitlab-Token --header X-Gitlab-Event",
        Runs,
    ),
    (
        r#"curl -H "X-Gitlab-Token: $TOKEN" -H "X-Gitlab-Event: Push Hook" -H "Content-Type: application/json" -d '{"ref":"main"}' http://127.0.0.1:47822/hook/reviewer"#,
        By(
            HOOKS,
            r#"curl -H "X-Gitlab-Token: $TOKEN" -H "X-Gitlab-Event: Push Hook" -H "Content-Type: application/json" -d '{"ref":"main"}' http://127.0.0.1:47822/hook/reviewer"#,
        ),
    ),
    (
        "peerbus web token add alerts --to reviewer --by basic",
        Runs,
    ),
    (
        r#"curl -u "alerts:$TOKEN" -d "the disk is full" http://127.0.0.1:47822/hook/reviewer"#,
        By(
            HOOKS,
            r#"curl -u "alerts:$TOKEN" -d "the disk is full" http://127.0.0.1:47822/hook/reviewer"#,
        ),
    ),
    // SIDE_CHANNELS
    (
        "peerbus mcp share files --allow serverTools --to 'dev-*' --name host -- mcp-server-filesystem ~/project",
        By(
            CHANNELS,
            "an_official_server_is_shared_and_used_by_an_official_client",
        ),
    ),
    ("peerbus mcp list", Runs),
    (
        "peerbus install claude-code --use mcp://host/files --as dev-anna",
        Runs,
    ),
    ("peerbus uninstall claude-code --use mcp://host/files", Runs),
    (
        "claude mcp add host-files -- peerbus mcp use mcp://host/files --name 'dev-anna-*'",
        By(
            "tests/it/install/used.rs",
            r#"["mcp", "use", URI, "--name", "dev-*"]"#,
        ),
    ),
];
