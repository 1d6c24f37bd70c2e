//! What peers share (`mcp://PEER/NAME`), as servers of their own in a configuration: each an entry
//! that runs `peerbus mcp use`.

use peerbus_adapter::{Failure, PeerName};
use peerbus_agents::{Scope, ServerEntry};
use peerbus_mcp::side_channel::Advert;
use serde_json::Value as Json;

use super::naming;
use super::program::{is_peerbus, words};
use super::value::{Value, members};
use crate::text::escape;

/// How the name of such an entry begins.
const PREFIX: &str = "peerbus-";
/// Longest name of an entry, in bytes. It stands before the name of each tool, and both together
/// may have 64 for some models.
const ENTRY_BYTES_MAX: usize = 40;
/// Something that is made up for a `*` at the end of a name.
const SOME: &str = "x00000";

/// A server that a peer shares, whatever its generation.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) peer: PeerName,
    name: String,
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self.peer.key() == other.peer.key() && self.name == other.name
    }
}

impl Shared {
    /// Reads `mcp://PEER/NAME`; a generation behind it is left out.
    pub(crate) fn parse(uri: &str) -> Result<Self, String> {
        let (peer, name) = peerbus_mcp::side_channel::parse(uri)?;
        Ok(Self { peer, name })
    }

    pub(crate) fn uri(&self) -> String {
        format!("mcp://{}/{}", self.peer, self.name)
    }

    /// Whether this is what a peer shows of it.
    pub(crate) fn is(&self, advert: &Advert) -> bool {
        self.name == advert.name && advert.peer.eq_ignore_ascii_case(self.peer.as_str())
    }

    /// The name of its entry: letters, digits, `-` and `_`, which every client takes.
    fn entry(&self) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let words = format!("{PREFIX}{}-{}", self.peer, self.name);
        let fit = words.chars().map(|c| if plain(c) { c } else { '-' });
        fit.take(ENTRY_BYTES_MAX).collect()
    }

    /// The same for one whose name another server's entry has.
    fn other_entry(&self) -> String {
        let key = self.uri().to_ascii_lowercase();
        let hash = blake3::hash(key.as_bytes()).to_hex();
        let mut entry = self.entry();
        entry.truncate(ENTRY_BYTES_MAX - 7);
        format!("{entry}-{}", &hash[..6])
    }
}

/// The servers among those of a table that install wrote, or that read as if it had.
pub(crate) fn among(servers: Option<&Json>) -> impl Iterator<Item = (&str, &Json, Shared)> {
    let all = servers.and_then(Json::as_object).into_iter().flatten();
    all.filter_map(|(name, entry)| Some((name.as_str(), entry, of(name, entry)?)))
}

/// What an entry uses, if it is one of ours.
pub(crate) fn of(name: &str, entry: &Json) -> Option<Shared> {
    let all = name.starts_with(PREFIX).then(|| words(entry))?;
    match all.as_slice() {
        [program, mcp, verb, uri, ..] if mcp == "mcp" && verb == "use" && is_peerbus(program) => {
            Shared::parse(uri).ok()
        }
        _ => None,
    }
}

/// A name as it is on the bus when it is used from here, `*` for what is made up, or why it cannot
/// be one.
pub(crate) fn on_the_bus(given: &str) -> Result<String, String> {
    let Some(begins) = given.strip_suffix('*') else {
        return naming::expanded(given, |_| None);
    };
    let name = naming::expanded(&format!("{begins}{SOME}"), |_| None);
    let name = name.map_err(|why| why.replace(SOME, "*"))?;
    let begins = name.strip_suffix(SOME);
    let cut = || "the name is too long for something behind it".to_owned();
    begins.map(|begins| format!("{begins}*")).ok_or_else(cut)
}

/// Checks how the names begin of what is used of others, as [`naming::check`] does the whole of one.
pub(super) fn check_begins(begins: &str, scope: Scope) -> Result<(), Failure> {
    naming::check(begins, scope)?;
    let name = Uses::name(begins);
    let name = match scope {
        Scope::User => naming::filled(&name, &naming::OF_THE_PLACE),
        Scope::Project => naming::filled(&name, &naming::PLACEHOLDERS),
    };
    let long = |_| {
        let shown = escape(begins, naming::SHOWN_CHARS);
        Failure::config(format!(
            "the name \"{shown}\" is too long to begin another: 57 bytes at most"
        ))
    };
    on_the_bus(&name).map(drop).map_err(long)
}

/// How these begin if nobody says: as the sessions' that were named earlier, else as the user is
/// called.
pub(super) fn begins(kept: Option<&str>, scope: Scope) -> Option<String> {
    let mut known = kept.into_iter().chain(["{user}"]);
    let known = known.find(|begins| check_begins(begins, scope).is_ok());
    known.map(str::to_owned)
}

/// What is wanted of shared servers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uses {
    /// Those that are to be there, or to go.
    pub(crate) shared: Vec<Shared>,
    /// How their names on the bus begin, also of those that are there.
    pub(crate) name: Option<String>,
    /// How the names begin of those that are new; `None`: they are made up.
    pub(crate) otherwise: Option<String>,
}

impl Uses {
    pub(crate) fn of(uris: &[String]) -> Result<Vec<Shared>, Failure> {
        let read = uris.iter().map(|uri| Shared::parse(uri));
        read.collect::<Result<_, _>>().map_err(Failure::config)
    }

    /// A name that begins so and ends in something that each process makes up: several can run.
    pub(crate) fn name(begins: &str) -> String {
        format!("{begins}-*")
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// How an entry looks there.
    pub(crate) form: &'static ServerEntry,
    /// That of the adapter.
    pub(crate) entry: Value,
    pub(crate) command: String,
    pub(crate) uses: Uses,
}

/// An entry that cannot be made, because of one of that name, and why.
pub(super) type Taken = (String, String);

impl Wanted {
    /// Every entry that is to be there, given the table of servers: those that are there brought up
    /// to date, then new ones.
    pub(crate) fn entries(&self, servers: Option<&Json>) -> Result<Vec<(String, Value)>, Taken> {
        let mut all = Vec::new();
        let mut there = Vec::new();
        for (name, entry, shared) in among(servers) {
            let mut args = words(entry).split_off(1);
            let begins = self.uses.name.as_ref();
            if let Some(begins) = begins.filter(|_| self.uses.shared.contains(&shared)) {
                rename(&mut args, begins);
            }
            all.push((name.to_owned(), self.entry(&args)));
            there.push(shared);
        }
        for shared in &self.uses.shared {
            if there.contains(shared) {
                continue;
            }
            let mut args = vec!["mcp".to_owned(), "use".to_owned(), shared.uri()];
            let begins = self.uses.name.as_ref().or(self.uses.otherwise.as_ref());
            if let Some(begins) = begins {
                rename(&mut args, begins);
            }
            let name = free(shared, servers, &all)?;
            all.push((name, self.entry(&args)));
            there.push(shared.clone());
        }
        Ok(all)
    }

    fn entry(&self, args: &[String]) -> Value {
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        Value::Object(members(self.form, &self.command, &args))
    }
}

fn rename(args: &mut Vec<String>, begins: &str) {
    let name = Uses::name(begins);
    match args.iter().position(|word| word == "--name") {
        Some(at) if at + 1 < args.len() => args[at + 1] = name,
        Some(_) => args.push(name),
        None => args.extend(["--name".to_owned(), name]),
    }
}

/// A name that no other entry has. Two of ours may be called alike; somebody else's is not evaded.
fn free(
    shared: &Shared,
    servers: Option<&Json>,
    made: &[(String, Value)],
) -> Result<String, Taken> {
    let ours = |name: &str| made.iter().any(|(other, _)| other == name);
    let theirs = |name: &str| !ours(name) && servers.and_then(|all| all.get(name)).is_some();
    let names = [shared.entry(), shared.other_entry()];
    let [first, _] = &names;
    let taken = |entry: &str| {
        let why = format!(
            "there is a server called {entry} that does not run `peerbus mcp use`: rename or remove it"
        );
        (entry.to_owned(), why)
    };
    if theirs(first) {
        return Err(taken(first));
    }
    let mut free = names.iter().filter(|name| !ours(name) && !theirs(name));
    free.next().cloned().ok_or_else(|| taken(&names[1]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::edit::{self, Target, Want};
    use super::super::tests::{codex, document, found, install, server, there_and_back};
    use super::super::value::plain;

    use super::*;

    fn wanted(uris: &[&str], name: Option<&str>) -> Wanted {
        let uris: Vec<_> = uris.iter().map(|uri| (*uri).to_owned()).collect();
        Wanted {
            form: &ServerEntry::USUAL,
            entry: Value::Null,
            command: "peerbus".into(),
            uses: Uses {
                shared: Uses::of(&uris).expect("URIs"),
                name: name.map(str::to_owned),
                otherwise: Some("ann".into()),
            },
        }
    }

    /// The same with a shared server beside the adapter.
    fn using(mut target: Target) -> Target {
        if let Want::Servers(wanted_there) = &mut target.want {
            wanted_there.uses = wanted(&["mcp://host/files"], None).uses;
        }
        target
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn shared_servers_go_in_and_out_with_the_rest_and_alone(text in document()) {
            there_and_back(&using(server()), Some(&text));
            let first = install(&server(), Some(&text), None);
            let after = first.after.expect("a text");
            let more = install(&using(server()), Some(&after), first.done.as_ref());
            let text_of_both = more.after.expect("a text");
            prop_assert!(text_of_both.contains("peerbus-host-files"));
            let file = found(&server(), Some(&text_of_both));
            let less = edit::take_out(&using(server()), file, more.done.as_ref()).expect("an edit");
            let plain = |text: &str| edit::read(&server().want, text.trim_start_matches('\u{feff}')).expect("JSON");
            let left = less.after.expect("a text");
            prop_assert_eq!(plain(&left), plain(&after));
            let file = found(&server(), Some(&left));
            let back = edit::uninstall(&server(), file, less.done.as_ref()).expect("an edit");
            prop_assert_eq!(back.after, Some(text));
        }
    }

    #[test]
    fn they_stand_in_tables_of_toml_too() {
        for text in [
            "",
            "x = 1\n",
            "# a\r\n[mcp_servers.docs]\r\ncommand = \"npx\"\r\n# b\r\n",
        ] {
            there_and_back(&using(codex()), Some(text));
        }
    }

    fn names(servers: &Json, uris: &[&str]) -> Result<Vec<String>, String> {
        let entries = wanted(uris, None).entries(Some(servers));
        let entries = entries.map_err(|(_, why)| why)?;
        Ok(entries.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn an_entry_has_a_name_that_every_client_takes_and_no_other_has() {
        let long = format!("mcp://{}/files", "p".repeat(64));
        let cut = format!("peerbus-{}", "p".repeat(32));
        for (uri, name) in [
            ("mcp://host/files", "peerbus-host-files"),
            ("mcp://Host/files/1c0ffee1", "peerbus-Host-files"),
            ("mcp://a.b@c:d/x.y_z", "peerbus-a-b-c-d-x-y_z"),
            (&long, &cut),
        ] {
            assert_eq!(names(&json!({}), &[uri]), Ok(vec![name.to_owned()]));
        }
        let both = names(&json!({}), &["mcp://a-b/c", "mcp://a/b-c", "mcp://A/b-c/1"]);
        let both = both.expect("names");
        assert_eq!(both.len(), 2, "{both:?}");
        assert_eq!(both[0], "peerbus-a-b-c");
        assert!(both[1].starts_with("peerbus-a-b-c-"), "{both:?}");
        let longer = names(&json!({}), &[&long, &format!("{long}-2")]).expect("names");
        assert!(longer.iter().all(|name| name.len() <= 40), "{longer:?}");
        assert_ne!(longer[0], longer[1]);
    }

    #[test]
    fn what_is_somebody_elses_is_not_replaced() {
        for theirs in [
            json!({ "command": "npx", "args": ["mcp", "use", "mcp://host/files"] }),
            json!({ "command": "peerbus", "args": ["adapter"] }),
            json!({ "command": "sh", "args": ["-c", "peerbus mcp use mcp://host/files"] }),
            json!({ "url": "https://files.example" }),
            json!("what?"),
        ] {
            let servers = json!({ "peerbus-host-files": theirs });
            let refused = names(&servers, &["mcp://host/files"]).expect_err("a sentence");
            assert!(
                refused.contains("called peerbus-host-files that does not"),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_is_there_keeps_its_name_and_what_its_user_added() {
        let args = [
            "mcp",
            "use",
            "mcp://host/files/7",
            "--timeout",
            "9",
            "--name",
            "me-*",
        ];
        let servers = json!({ "peerbus-x": { "command": ["/old/peerbus"], "args": args } });
        let of = |name| {
            let entries = wanted(&["mcp://HOST/files"], name).entries(Some(&servers));
            let entries = entries.map_err(|(_, why)| why).expect("entries");
            let [(name, entry)] = &entries[..] else {
                panic!("one entry")
            };
            (name.clone(), plain(entry))
        };
        let (name, entry) = of(None);
        assert_eq!(
            (name.as_str(), &entry["command"]),
            ("peerbus-x", &json!("peerbus"))
        );
        assert_eq!(entry["args"], json!(args));
        assert_eq!(of(Some("dev")).1["args"][6], "dev-*");
    }
}
