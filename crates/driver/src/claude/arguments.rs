//! The command line of the client. Pure.

use std::fmt;

use super::Initialize;

/// The first version that is known to take `--sdk-url` from its vendor's hosts only.
const REFUSES_SDK_URL: [u32; 3] = [2, 1, 220];

/// What carries the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// Standard input and output.
    #[default]
    Stdio,
    /// A WebSocket on loopback that the client connects to.
    SdkUrl,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdio => "stdio",
            Self::SdkUrl => "sdk-url",
        })
    }
}

/// Whether a version may take a transport; an unknown one may.
///
/// # Errors
///
/// A sentence, for one that is known not to.
pub(crate) fn takes(transport: Transport, version: &str) -> Result<(), String> {
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let numbers: [u32; 3] = std::array::from_fn(|_| numbers.next().unwrap_or(0));
    if transport == Transport::Stdio || numbers < REFUSES_SDK_URL {
        return Ok(());
    }
    let [major, minor, patch] = REFUSES_SDK_URL;
    Err(format!(
        "Claude Code {version} takes --sdk-url from its vendor's hosts only, as all versions from \
         {major}.{minor}.{patch} on: use --transport stdio"
    ))
}

const OWN: [&str; 9] = [
    "--print",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--permission-prompt-tool",
    "stdio",
    "--replay-user-messages",
];

/// Further arguments of the client that are the driver's, and what to use in their place.
const TAKEN: [(&[&str], &str); 4] = [
    (&["--sdk-url"], "--transport sdk-url"),
    (
        &[
            "-r",
            "--resume",
            "-c",
            "--continue",
            "--session-id",
            "--fork-session",
        ],
        "--resume",
    ),
    (&["--model"], "--model"),
    (&["--permission-mode"], "--permission-mode"),
];

/// What a user chose for the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// The session to go on with.
    pub resume: Option<String>,
    /// The session to begin a copy of.
    pub fork: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The permission mode at the start.
    pub permission_mode: Option<String>,
    /// Its setup.
    pub initialize: Initialize,
    /// Further arguments, as they are.
    pub more: Vec<String>,
}

impl ClientOptions {
    /// Checks the further arguments.
    ///
    /// # Errors
    ///
    /// A sentence, for one that the driver sets itself.
    pub fn check(&self) -> Result<(), String> {
        for argument in &self.more {
            let mut flag = argument.split('=').next().unwrap_or_default();
            // A short flag may have its value attached, or others: `-rID`, `-pc`.
            let short = flag.starts_with('-') && !flag.starts_with("--");
            if let Some(letter) = flag.get(..2).filter(|_| short) {
                flag = letter;
            }
            let is_own = flag == "-p" || flag.starts_with("--") && OWN.contains(&flag);
            let remedy = match TAKEN.iter().find(|(flags, _)| flags.contains(&flag)) {
                Some((_, instead)) => format!("put {instead} before the `--`"),
                None if is_own => "leave it out".to_owned(),
                None => continue,
            };
            return Err(format!("{flag} is set by peerbus run itself; {remedy}"));
        }
        Ok(())
    }

    /// The arguments of a client that goes on with this session, or begins one.
    pub(crate) fn arguments(&self, resume: Option<&str>) -> Vec<String> {
        let mut all: Vec<String> = OWN.iter().map(|own| (*own).to_owned()).collect();
        let fork = self.fork.as_deref().filter(|_| resume.is_none());
        if fork.is_some() {
            all.push("--fork-session".to_owned());
        }
        let chosen = [
            ("--resume", resume.or(fork)),
            ("--model", self.model.as_deref()),
            ("--permission-mode", self.permission_mode.as_deref()),
        ];
        for (flag, value) in chosen {
            if let Some(value) = value {
                all.extend([flag.to_owned(), value.to_owned()]);
            }
        }
        all.extend(self.more.iter().cloned());
        all
    }
}

/// The number in what `claude --version` prints, `2.1.330 (Claude Code)`.
pub(crate) fn version(printed: &str) -> &str {
    let first = printed.split_whitespace().next().unwrap_or_default();
    let number = |c: char| c.is_ascii_digit() || c == '.';
    let is_number = !first.is_empty() && first.len() <= 32 && first.chars().all(number);
    if is_number { first } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_sets_is_refused_and_the_rest_goes_through() {
        for (taken, instead) in [
            ("-p", "leave it out"),
            ("--output-format=text", "leave it out"),
            ("--sdk-url=ws://x", "--transport sdk-url before"),
            ("--continue", "--resume before"),
            ("-rsome-id", "--resume before"),
            ("-pc", "leave it out"),
            ("-cv", "--resume before"),
            ("--model=x", "--model before"),
        ] {
            let more = vec!["--debug".to_owned(), taken.to_owned()];
            let choice = ClientOptions {
                more,
                ..ClientOptions::default()
            };
            let error = choice.check().unwrap_err();
            assert!(error.contains(instead), "{error}");
        }
        let choice = ClientOptions {
            model: Some("m".into()),
            more: vec!["--allowedTools".into(), "Bash".into()],
            ..ClientOptions::default()
        };
        choice.check().unwrap();
        let line = choice.arguments(Some("id")).join(" ");
        let end = "--resume id --model m --allowedTools Bash";
        assert!(
            line.starts_with("--print ") && line.ends_with(end),
            "{line}"
        );
    }

    #[test]
    fn a_version_that_is_known_to_refuse_a_transport_is_not_tried() {
        for version in ["", "2.1.114", "2.1.219", "1.9.999"] {
            assert_eq!(takes(Transport::SdkUrl, version), Ok(()), "{version}");
        }
        for version in ["2.1.220", "2.1.330", "2.2.0", "3.0"] {
            assert_eq!(takes(Transport::Stdio, version), Ok(()), "{version}");
            let why = takes(Transport::SdkUrl, version).unwrap_err();
            assert!(why.contains("--transport stdio"), "{why}");
        }
    }

    #[test]
    fn a_version_is_a_number_or_nothing() {
        assert_eq!(version("2.1.330 (Claude Code)\n"), "2.1.330");
        assert_eq!(version("error: \u{1b}[2J"), "");
    }
}
