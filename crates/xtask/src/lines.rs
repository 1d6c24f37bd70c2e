//! How many lines of production code there are.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;

use crate::run;
use crate::tidy::tree::Tree;

/// What the code is for, and the files of it, by the beginning of their path below `crates/`, with or
/// without `src`. A file belongs to the first that names it.
const FEATURES: &str = "\
web, side channels: web mcp/side_channel cli/web cli/args/web cli/mcp cli/args/mcp
mailbox: peer/mailbox adapter/mailbox adapter/transcript
MCP tools, Claude Code, other agents: mcp cc-adapter adapter/hooks adapter/inbox
names, tokens, audit: core/broker/naming core/broker/retire core/broker/left core/broker/grants core/grant \
    peer/session/naming adapter/name broker/tokens cli/token cli/args/token cli/names cli/args/names core/audit \
    core/witness store/witness store/verify store/backup store/watch cli/audit cli/backup
history, status, autostart: core/events core/broker/event core/broker/history core/broker/query \
    core/broker/status core/broker/retain store/history broker/operator adapter/operator adapter/demand \
    cli/history cli/args/history cli/inbox cli/status cli/tail cli/told cli/operator cli/serve cli/stop \
    cli/logging
groups, leases, requests: core/broker/groups core/broker/leases core/broker/requests adapter/groups store/leases \
    cli/requests
domains: peer/bridge bridge wire/bridge core/broker/domain adapter/domains cli/bridge
node, approvals, sessions: node cli/session cli/args/session cli/held
driver: driver cli/run cli/args/run
setup: setup agents cli/install cli/args/install cli/doctor
message core, client, credentials: wire core peer store broker adapter";

/// Prints the lines of each crate and of each feature: what is built into the programs, comments
/// included, tests not.
pub(crate) fn run() -> Result<ExitCode> {
    let tree = Tree::read(&run::root())?;
    let (mut crates, mut features) = (BTreeMap::new(), BTreeMap::new());
    let mut all = 0;
    for (path, lines) in tree.rust() {
        let Some((name, file)) = path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        // Built for tests alone.
        if is_below(file, "testing") {
            continue;
        }
        let count = lines.iter().filter(|line| !line.test).count();
        let feature = feature(&format!("{name}/{file}"));
        *crates.entry(name).or_insert(0) += count;
        *features.entry(feature).or_insert(0) += count;
        all += count;
    }
    for table in [&crates, &features] {
        for (what, count) in table {
            println!("{count:7}  {what}");
        }
        println!();
    }
    println!("{all:7}  all, in {} crates", crates.len());
    Ok(ExitCode::SUCCESS)
}

/// Whether a file is `start`, but for its ending, or in that directory.
fn is_below(file: &str, start: &str) -> bool {
    let rest = file.strip_prefix(start);
    rest.is_some_and(|rest| rest.starts_with(['/', '.']))
}

fn feature(file: &str) -> &'static str {
    let named = FEATURES.lines().filter_map(|line| line.split_once(": "));
    let mut named =
        named.filter(|(_, starts)| starts.split(' ').any(|start| is_below(file, start)));
    named.next().map_or("rest", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_first_feature_that_names_it() {
        assert_eq!(feature("peer/mailbox/mod.rs"), "mailbox");
        assert_eq!(
            feature("peer/mailboxes.rs"),
            "message core, client, credentials"
        );
        assert_eq!(feature("cli/audit.rs"), "names, tokens, audit");
        assert_eq!(feature("xtask/main.rs"), "rest");
    }
}
