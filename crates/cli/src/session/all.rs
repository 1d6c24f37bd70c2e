//! What is asked of every session, and of the person who decides by it.

use peerbus_node::index::LiveSession;
use peerbus_node::{NodeClient, each};

use super::{called, open, sessions};
use crate::failure::Failure;
use crate::output;

/// Asks all sessions at the same time. Gives their answers, and how many gave none, each of which is
/// named.
pub(crate) fn asked<A: Send>(
    ask: impl Fn(&mut NodeClient) -> Result<A, Failure> + Sync,
) -> Result<(Vec<(LiveSession, A)>, usize), Failure> {
    let all = sessions()?;
    let asked = each(&all, |session| {
        open(session).and_then(|mut it| ask(&mut it))
    });
    let (mut found, mut silent) = (Vec::new(), 0);
    for (session, asked) in all.into_iter().zip(asked) {
        let why = match asked {
            Some(Ok(answer)) => {
                found.push((session, answer));
                continue;
            }
            Some(Err(why)) => why.to_string(),
            None => "this process gets no more threads".to_owned(),
        };
        silent += 1;
        output::complain(&format!(
            "the session {} was not asked: {why}",
            called(&session)
        ));
    }
    Ok((found, silent))
}

/// Whether all sessions were asked.
pub(crate) fn complete(silent: usize) -> Result<(), Failure> {
    match silent {
        0 => Ok(()),
        _ => Err(Failure::failed(
            "there may be more: not every session was asked",
        )),
    }
}

/// Asks the person at the terminal, who decides by `shown`.
pub(crate) fn agreed(shown: &str, question: &str) -> Result<(), Failure> {
    output::line(&format!("{shown}\n{question}")).map_err(|error| {
        Failure::failed(format!(
            "nothing was answered: the question cannot be shown on stdout: {error}"
        ))
    })?;
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| Failure::failed(format!("cannot read the answer: {error}")))?;
    match line.trim() {
        "yes" => Ok(()),
        _ => Err(Failure::failed("nothing was answered")),
    }
}
