//! What settings let take effect.

use serde_json::json;

use super::*;

/// Settings as if they stood in these files; those of `managed` are of who manages the machine.
fn settings(own: &[Value], managed: &[Value]) -> Settings {
    let file = |(path, value): (&str, &Value), managed| File {
        path: path.into(),
        value: value.clone(),
        managed,
    };
    let names = ["/user", "/project", "/local"];
    let own = names.into_iter().zip(own).map(|it| file(it, false));
    let names = ["/managed", "/managed.d/1", "/managed.d/2"];
    let managed = names.into_iter().zip(managed).map(|it| file(it, true));
    Settings {
        files: own.chain(managed).collect(),
        ..Settings::default()
    }
}

fn peerbus() -> Server {
    let words = ["/bin/peerbus", "adapter", "--adapter=cc"];
    Server::new("peerbus", words.map(str::to_owned).to_vec())
}

fn says(settings: &Settings) -> String {
    let found = settings.forbidden(&[peerbus()]);
    let found: Vec<_> = found.into_iter().map(|it| it.says).collect();
    found.join("\n")
}

#[test]
fn hooks_are_forbidden_by_whom_the_client_obeys() {
    let none = json!({});
    for (own, managed, found) in [
        (
            vec![json!({ "disableAllHooks": true })],
            vec![],
            "/user has `disableAllHooks`",
        ),
        (
            vec![
                json!({ "disableAllHooks": true }),
                none.clone(),
                json!({ "disableAllHooks": false }),
            ],
            vec![],
            "",
        ),
        (
            vec![json!({ "disableAllHooks": false })],
            vec![json!({ "disableAllHooks": true })],
            "/managed has",
        ),
        (vec![json!({ "allowManagedHooksOnly": true })], vec![], ""),
        (
            vec![],
            vec![json!({ "allowManagedHooksOnly": true })],
            "/managed has `allowManagedHooksOnly`",
        ),
        (
            vec![],
            vec![
                json!({ "allowManagedHooksOnly": true }),
                json!({ "allowManagedHooksOnly": false }),
            ],
            "",
        ),
        (
            vec![],
            vec![
                json!({ "allowManagedHooksOnly": true, "enabledPlugins": { "peerbus@corp": true } }),
            ],
            "",
        ),
        (
            vec![],
            vec![json!({ PLUGINS_ONLY: ["hooks"] })],
            "/managed has `strictPlugin",
        ),
    ] {
        let said = says(&settings(&own, &managed));
        assert_eq!(
            said.contains(found),
            !said.is_empty() || found.is_empty(),
            "{said}"
        );
        assert_eq!(
            said.is_empty(),
            found.is_empty(),
            "{own:?} {managed:?}: {said}"
        );
    }
}

#[test]
fn servers_are_denied_and_allowed_by_name_and_command() {
    let command = json!({ "serverCommand": ["/bin/peerbus", "adapter", "--adapter=cc"] });
    let filled =
        json!({ "serverCommand": ["${PEERBUS_NO:-/bin}/peerbus", "adapter", "--adapter=cc"] });
    let other = json!({ "serverCommand": ["/bin/peerbus", "adapter"] });
    let name = json!({ "serverName": "peerbus" });
    let url = json!({ "serverUrl": "https://*" });
    let denied = |rule: &Value| json!({ "deniedMcpServers": [rule] });
    let allowed = |rules: &[&Value]| json!({ "allowedMcpServers": rules });
    for (own, managed, found) in [
        (
            vec![denied(&name)],
            vec![],
            "/user has peerbus in `deniedMcpServers`",
        ),
        (vec![], vec![denied(&command)], "/managed has peerbus in"),
        (vec![], vec![denied(&filled)], "/managed has peerbus in"),
        (vec![denied(&other)], vec![denied(&url)], ""),
        // Nothing undoes a denial.
        (
            vec![denied(&name), allowed(&[&name])],
            vec![allowed(&[&name])],
            "deniedMcpServers",
        ),
        (
            vec![allowed(&[])],
            vec![],
            "/user has `allowedMcpServers` without peerbus",
        ),
        (
            vec![allowed(&[&url])],
            vec![],
            "`allowedMcpServers` without peerbus",
        ),
        (vec![allowed(&[&name])], vec![], ""),
        (vec![allowed(&[&name, &other])], vec![], "without peerbus"),
        (vec![allowed(&[&command, &other])], vec![], ""),
        (vec![allowed(&[&name])], vec![allowed(&[])], ""),
        (
            vec![allowed(&[&name])],
            vec![json!({ "allowedMcpServers": [], "allowManagedMcpServersOnly": true })],
            "/managed has `allowedMcpServers` without peerbus",
        ),
        (
            vec![
                allowed(&[&name]),
                json!({ "allowManagedMcpServersOnly": true }),
            ],
            vec![],
            "",
        ),
        (
            vec![],
            vec![json!({ PLUGINS_ONLY: ["mcp"] })],
            "does not start peerbus",
        ),
    ] {
        let said = says(&settings(&own, &managed));
        assert!(said.contains(found), "{own:?} {managed:?}: {said}");
        assert_eq!(
            said.is_empty(),
            found.is_empty(),
            "{own:?} {managed:?}: {said}"
        );
        assert!(said.lines().count() < 2, "said once: {said}");
    }
}

#[test]
fn servers_of_who_manages_the_machine_are_the_only_ones() {
    let mut all = settings(&[], &[]);
    for (servers, forbidden) in [
        (json!({}), true),
        (
            json!({ "peerbus": { "command": "peerbus", "args": ["adapter"] } }),
            false,
        ),
        (json!({ "peerbus": { "command": "other" } }), true),
    ] {
        all.servers = Some(File {
            path: "/managed-mcp".into(),
            value: json!({ "mcpServers": servers }),
            managed: true,
        });
        assert_eq!(
            says(&all).contains("/managed-mcp has the only servers"),
            forbidden
        );
    }
}

#[test]
fn variables_are_those_of_the_last_file_that_has_them() {
    let env = |url: &str| json!({ "env": { "PEERBUS_URL": url, "OTHER": "x" } });
    let all = settings(&[env("ws://a"), env("ws://b")], &[]);
    let found = all.variables();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found["PEERBUS_URL"],
        ("ws://b".into(), Path::new("/project"))
    );
}
