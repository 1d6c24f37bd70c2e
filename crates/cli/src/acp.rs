//! `peerbus acp`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use peerbus_adapter::paths::Paths;
use peerbus_adapter::{Bus, Failure, LinkState, Naming, RegistrationRefusal, connect};
use peerbus_driver::{DrivenAgent, Settings};
use peerbus_mcp::AdapterOptions;
use peerbus_wire::PeerName;

use crate::args::Acp;
use crate::{adapter, client, run};

/// How long another name may take to be registered.
const NAMED_WITHIN: Duration = Duration::from_secs(5);
/// So many sessions are told apart by a number.
const NUMBER_MAX: u32 = 999;

pub(crate) fn run(verb: Acp) -> Result<(), Failure> {
    let mut flags = verb.connection.flags(verb.name);
    // A path is meant where this begins, and not in the directory of a session.
    absolute(&mut flags.credentials).map_err(Failure::failed)?;
    // Says at once what is wrong with it.
    let mut tls = client::driven(&flags)?.tls;
    for path in [&mut tls.ca, &mut tls.cert, &mut tls.key] {
        absolute(path).map_err(Failure::failed)?;
    }
    let variable = |name: &str| std::env::var(name).ok();
    let options = AdapterOptions::read(variable).map_err(Failure::config)?;
    let wake = adapter::wake_list(variable).map_err(Failure::config)?;
    let us = std::env::current_exe().map_err(Failure::failed)?;
    let agent = run::over_acp(verb.agent, &verb.command);
    let settings = Settings {
        agent: DrivenAgent::Acp(agent.clone()),
        prompt: None,
        before: vec![us.into(), "driven-guard".into()],
        approval: run::APPROVAL,
        places: adapter::places(Paths::find()?, &adapter::gates(verb.gates)?),
    };
    let join = |cwd: &Path| {
        // Its name, its group and its branch are those of its project.
        std::env::set_current_dir(cwd).map_err(|error| error.to_string())?;
        let mut config = client::driven(&flags).map_err(|error| error.to_string())?;
        config.tls = tls.clone();
        let name = match &config.naming {
            Naming::Verbatim(name) => Some(name.clone()),
            Naming::Generated => None,
        };
        let (bus, link) = connect(config);
        tokio::spawn(link.run());
        tokio::spawn(tell(bus.clone(), name));
        Ok((bus, options))
    };
    let runtime = client::runtime()?;
    let edited = peerbus_driver::edit(agent, settings, &wake, &join);
    let ended = runtime.block_on(edited);
    // The end of this process that the editor has is read by a thread where it is no pipe.
    runtime.shutdown_background();
    match ended.map_err(Failure::failed)? {
        Some(code) => {
            peerbus_adapter::stderr::flush();
            std::process::exit(code)
        }
        None => Ok(()),
    }
}

fn absolute(path: &mut Option<PathBuf>) -> io::Result<()> {
    if let Some(path) = path {
        *path = std::path::absolute(&*path)?;
    }
    Ok(())
}

/// Says under which name a session is on the bus. One whose name another session has gets a number.
async fn tell(bus: Bus, name: Option<PeerName>) {
    let mut link = bus.link();
    let mut number = 1;
    let mut told = String::new();
    loop {
        let state = link.borrow_and_update().clone();
        let is_in_use = matches!(
            &state,
            LinkState::Refused {
                why: RegistrationRefusal::InUse { .. },
                ..
            }
        );
        if let Some(name) = name.as_ref().filter(|_| is_in_use && number < NUMBER_MAX) {
            number += 1;
            if let Ok(next) = PeerName::parse(&format!("{name}-{number}")) {
                // The next state says what came of it.
                let _ = bus.rename(next, NAMED_WITHIN).await;
                continue;
            }
        }
        client::say(&state, &mut told);
        if state == LinkState::Closed || link.changed().await.is_err() {
            return;
        }
    }
}
