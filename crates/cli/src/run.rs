//! `peerbus run`.

mod detached;

use std::ffi::OsString;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use peerbus_adapter::paths::Paths;
use peerbus_adapter::stderr;
use peerbus_adapter::{Failure, LinkState, connect};
use peerbus_agents::Agent;
use peerbus_driver::{AcpAgent, ClientOptions, DrivenAgent, Initialize, RunEnd, Settings};
use peerbus_mcp::AdapterOptions;
use tokio::sync::watch;

use crate::args::{Run, Transport};
use crate::{adapter, client, output};

/// The client, as the search path has it.
const PROGRAM: &str = "claude";
/// How long a request to use a tool waits where somebody may allow it.
pub(crate) const APPROVAL: Duration = Duration::from_secs(600);

/// Bytes of lines that wait for whoever reads what the model says, and how long the last ones may take.
const OUT_BYTES_MAX: usize = 1_048_576;
const LAST_LINES: Duration = Duration::from_secs(1);

/// Longest name of a program that is repeated, in characters.
const NAME_CHARS: usize = 300;
/// Longest id of a session that is repeated, in characters.
const ID_CHARS: usize = 64;

pub(crate) fn run(verb: Run) -> Result<(), Failure> {
    if verb.detach {
        return detached::start();
    }
    if verb.detached {
        detached::leave()?;
    }
    let agent = agent(&verb)?;
    let named = verb.name.clone().filter(|name| peerbus_agents::is_id(name));
    let named = named.map_or_else(String::new, |name| format!(" --name {name}"));
    let flags = verb.connection.flags(verb.name);
    let config = client::driven(&flags)?;
    let variable = |name: &str| std::env::var(name).ok();
    let options = AdapterOptions::read(variable).map_err(Failure::config)?;
    let wake = adapter::wake_list(variable).map_err(Failure::config)?;
    let us = std::env::current_exe().map_err(Failure::failed)?;
    let settings = Settings {
        agent,
        prompt: verb.prompt,
        before: vec![us.into(), "driven-guard".into()],
        approval: APPROVAL,
        places: adapter::places(Paths::find()?, &adapter::gates(verb.gates)?),
    };
    // The session works on whether it is read or not.
    let out = stderr::stdout(OUT_BYTES_MAX, LAST_LINES)?;
    let which = match &settings.agent {
        DrivenAgent::Claude { .. } => String::new(),
        DrivenAgent::Acp(agent) if agent.agent.acp.is_none() => " --acp".to_owned(),
        DrivenAgent::Acp(agent) => format!(" --agent {}", agent.word),
    };
    let runtime = client::runtime()?;
    let ended = runtime.block_on(async {
        let (bus, link) = connect(config);
        // Registers at once; the end of the driver ends it.
        tokio::spawn(link.run());
        tokio::spawn(tell(bus.link()));
        let say = |line: &str| {
            out.push(format!("{line}\n").as_bytes());
            !out.is_closed()
        };
        peerbus_driver::run(bus, options, &wake, settings, say).await
    });
    out.flush();
    let (ended, session) = ended;
    let command = match which.as_str() {
        " --acp" => " -- COMMAND",
        _ => "",
    };
    // One that a shell would read otherwise is not told.
    if let Some(id) = session.filter(|id| peerbus_agents::is_id(id) && !id.starts_with('-')) {
        output::complain(&format!(
            "`peerbus run{which}{named} --resume {id}{command}` goes on with this session"
        ));
    }
    match ended {
        RunEnd::Signal(_) | RunEnd::Stopped => Ok(()),
        RunEnd::OutputClosed => Err(Failure::OutputClosed),
        RunEnd::Failed(why) => Err(Failure::failed(why)),
    }
}

/// Which agent is driven, and how.
fn agent(verb: &Run) -> Result<DrivenAgent, Failure> {
    let (agent, known) = match (verb.acp, verb.agent.acp) {
        (true, _) => (&Agent::UNKNOWN, &[][..]),
        (false, Some(facts)) => (verb.agent, facts.command),
        (false, None) => return claude(verb),
    };
    let claudes = [
        ("--fork", verb.fork.is_some()),
        ("--initialize", verb.initialize.is_some()),
        (
            "--transport sdk-url",
            matches!(verb.transport, Transport::SdkUrl),
        ),
    ];
    if let Some((flag, _)) = claudes.iter().find(|(_, given)| *given) {
        let why =
            format!("{flag} is for Claude Code's own stream: leave it out, or leave out --agent");
        return Err(Failure::config(why));
    }
    if known.is_empty() && verb.client.is_empty() {
        let why = "--acp needs the command of an agent: `peerbus run --acp -- some-agent acp`";
        return Err(Failure::config(why));
    }
    Ok(DrivenAgent::Acp(AcpAgent {
        resume: verb.resume.clone(),
        model: verb.model.clone(),
        mode: verb.permission_mode.clone(),
        ..over_acp(Some(agent).filter(|_| !verb.acp), &verb.client)
    }))
}

/// An agent of the table with further arguments, or another one with its command.
pub(crate) fn over_acp(agent: Option<&'static Agent>, more: &[OsString]) -> AcpAgent {
    let known = agent
        .and_then(|agent| agent.acp)
        .map_or(&[][..], |acp| acp.command);
    let known = known.iter().map(OsString::from);
    let command: Vec<_> = known.chain(more.iter().cloned()).collect();
    let program = command.first().map(Path::new).and_then(Path::file_name);
    let name = program.unwrap_or_default().to_string_lossy();
    let name = peerbus_wire::escape(&name, ID_CHARS);
    AcpAgent {
        agent: agent.unwrap_or(&Agent::UNKNOWN),
        word: agent.map_or_else(|| name.clone(), |agent| agent.word.to_owned()),
        title: agent.map_or(name, |agent| agent.title.to_owned()),
        command,
        resume: None,
        model: None,
        mode: None,
    }
}

/// Claude Code, by its own stream.
fn claude(verb: &Run) -> Result<DrivenAgent, Failure> {
    let more = verb.client.iter().map(|argument| {
        let argument = argument.to_str().map(str::to_owned);
        argument.ok_or_else(|| Failure::config("an argument of Claude Code's is no UTF-8"))
    });
    let initialize = verb.initialize.as_deref().map(Initialize::read).transpose();
    let choice = ClientOptions {
        initialize: initialize.map_err(Failure::config)?.unwrap_or_default(),
        resume: verb.resume.clone(),
        fork: verb.fork.clone(),
        model: verb.model.clone(),
        permission_mode: verb.permission_mode.clone(),
        more: more.collect::<Result<_, _>>()?,
    };
    choice.check().map_err(Failure::config)?;
    Ok(DrivenAgent::Claude {
        program: PROGRAM.into(),
        choice,
        transport: match verb.transport {
            Transport::Stdio => peerbus_driver::Transport::Stdio,
            Transport::SdkUrl => peerbus_driver::Transport::SdkUrl,
        },
    })
}

/// Says under which name the session is on the bus, and what is wrong when it is not.
async fn tell(mut link: watch::Receiver<LinkState>) {
    let mut told = String::new();
    loop {
        let state = link.borrow_and_update().clone();
        client::say(&state, &mut told);
        if link.changed().await.is_err() {
            return;
        }
    }
}

/// Starts a client, and ends as it does once nothing is left below this process.
pub(crate) fn guard(command: Vec<OsString>) -> Result<(), Failure> {
    let us = std::env::current_exe().map_err(Failure::failed)?;
    // Nobody guards the guard, but the client itself ends with it.
    let mut words = vec![
        "driven-client".into(),
        std::process::id().to_string().into(),
    ];
    words.extend(command);
    let guarded = peerbus_driver::guard(&us, &words);
    let code = client::runtime()?
        .block_on(guarded)
        .map_err(Failure::failed)?;
    std::process::exit(code)
}

/// Becomes a client that ends when its guard does, however that ends.
pub(crate) fn client(parent: u32, command: &[OsString]) -> Result<(), Failure> {
    // Nobody is left then to wait for one that does not heed SIGTERM.
    peerbus_driver::end_with_parent().map_err(Failure::failed)?;
    if parent_id() != parent {
        return Err(Failure::failed("the guard has ended already"));
    }
    let (program, arguments) = command.split_first().unzip();
    let program = program.ok_or_else(|| Failure::config("there is no program"))?;
    let error = Command::new(program)
        .args(arguments.unwrap_or_default())
        .exec();
    let name = peerbus_wire::escape(&program.to_string_lossy(), NAME_CHARS);
    Err(Failure::failed(format!(
        "`{name}` cannot be started ({error}): install the agent, and have it on PATH"
    )))
}
