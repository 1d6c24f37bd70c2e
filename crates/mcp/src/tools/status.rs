//! `bus.status`

use peerbus_adapter::Receipt;
pub(super) use peerbus_adapter::wall_ms;
use peerbus_node::index;
use peerbus_view::{Around, Audience, Trail, depends_on_peers};
use serde::Serialize;

use super::room::{beside, cut, firsts, written};
use super::{Context, DEADLINE, Tool, done, talk};
use crate::arguments::{Argument, ArgumentKind, Arguments};
use crate::reply::Reply;
use crate::rpc::schemars::{self, JsonSchema};

const IDS_MAX: usize = 16;

/// Room for the sentence on a message.
const NOTE_BYTES: usize = 8 * 1024;

#[derive(Serialize, JsonSchema)]
struct Output {
    /// How far each message got.
    messages: Vec<Trail>,
    /// What has no room here.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

pub(crate) const TOOL: Tool = Tool {
    title: "How far a message got",
    description: "Tells how far messages that you sent got, with times: accepted, forwarded (to \
        another domain), delivered, pushed, presented, seen, or why not, and what became of a request. Only `seen` means that the peer's \
        model got it.",
    input: &[
        Argument::new("id", ArgumentKind::Text, "The message's id."),
        Argument::new(
            "ids",
            ArgumentKind::Texts(Some(IDS_MAX)),
            "Several instead.",
        ),
    ],
    output: crate::rpc::output_schema::<Output>,
    read_only: true,
    idempotent: true,
    ..Tool::new("bus.status", |context, arguments| {
        Box::pin(call(context, arguments))
    })
};

async fn call(context: &Context<'_>, arguments: &Arguments) -> Result<Reply, String> {
    let ids = ids(arguments)?.into_iter();
    let ids = ids.map(|id| talk::own(context.mailbox, id));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let receipts = context.bus.statuses(&ids, DEADLINE).await;
    let receipts = receipts.map_err(|error| error.to_string())?;
    let messages = trails(context, &ids, &receipts).await;
    let is_cut = ids.len() > 1 && messages.iter().any(|trail| trail.omitted > 0);
    let note = is_cut.then_some("steps are left out (`omitted`): ask for each message alone");
    done(&Output { messages, note })
}

/// How far these messages got, with what the list of peers tells where that says more, as far as it has room.
pub(super) async fn trails(
    context: &Context<'_>,
    ids: &[String],
    receipts: &[Receipt],
) -> Vec<Trail> {
    let now_ms = wall_ms();
    let depends = ids.iter().any(|id| depends_on_peers(id, receipts));
    // How far the messages got is known without them.
    let peers = match depends {
        true => context.bus.peers(DEADLINE).await.ok(),
        false => None,
    };
    let mut peers = peers.map_or_else(Vec::new, |peers| peers.entries);
    index::look(&mut peers);
    let around = Around {
        now_ms,
        peers: &peers,
        audience: Audience::Peer,
    };
    let trail = |id: &String| Trail::among(id, receipts, around);
    fitting(ids.iter().map(trail).collect())
}

/// The first steps of each that have room beside those of the others.
fn fitting(mut trails: Vec<Trail>) -> Vec<Trail> {
    let (mut left, mut others) = (beside(0), trails.len());
    for trail in &mut trails {
        let share = left / others;
        if written(&trail.note) > NOTE_BYTES.min(share / 2) {
            trail.note = cut(&trail.note, NOTE_BYTES.min(share / 2));
        }
        let steps = std::mem::take(&mut trail.steps);
        let (all, room) = (steps.len(), share.saturating_sub(written(trail) + 1));
        trail.steps = firsts(steps.into_iter(), room).0;
        trail.omitted += all - trail.steps.len();
        left = left.saturating_sub(written(trail) + 1);
        others -= 1;
    }
    trails
}

fn ids(arguments: &Arguments) -> Result<Vec<String>, String> {
    let mut ids = arguments.strings("ids")?.unwrap_or_default();
    let one = talk::id(arguments, "id")?;
    ids.extend(one.map(|id| id.as_str().to_owned()));
    ids.sort();
    ids.dedup();
    match ids.len() {
        0 => Err("say which message: the argument id, as the bus send tool gave it".into()),
        1..=IDS_MAX => Ok(ids),
        more => Err(format!(
            "{more} ids; at most {IDS_MAX} can be asked for at once"
        )),
    }
}

#[cfg(test)]
mod tests {
    use peerbus_view::Step;

    use super::super::room::RESULT_BYTES;
    use super::*;

    #[test]
    fn the_steps_of_all_messages_have_room_and_a_short_one_keeps_its_own() {
        let trail = |id: &str, count: usize, odd: &str| Trail {
            id: id.to_owned(),
            steps: vec![
                Step {
                    reason: Some(odd.repeat(300)),
                    ..Step::default()
                };
                count
            ],
            omitted: 0,
            note: odd.repeat(1_000 * count),
        };
        for odd in ["x", "\\u0001", "@"] {
            let mut all = vec![trail("last", 1, "x")];
            all.extend((1..IDS_MAX).map(|n| trail(&n.to_string(), 64, odd)));
            for trails in [all.clone(), vec![all.remove(1)]] {
                let fit = fitting(trails.clone());
                let result = Output {
                    messages: fit.clone(),
                    note: None,
                };
                assert!(
                    written(&result) <= RESULT_BYTES,
                    "{odd} {}",
                    written(&result)
                );
                for (fit, trail) in fit.iter().zip(&trails) {
                    assert_eq!(fit.omitted + fit.steps.len(), trail.steps.len());
                    assert!(!fit.steps.is_empty() || trails.len() > 1);
                    assert!(!fit.note.is_empty());
                }
                assert!(trails.len() == 1 || fit[0].omitted == 0);
            }
        }
    }

    #[test]
    fn one_id_or_several_are_asked_for() {
        let ids = |json: &str| ids(&serde_json::from_str(json).unwrap());
        assert_eq!(ids(r#"{"id":"a"}"#), Ok(vec!["a".into()]));
        assert_eq!(ids(r#"{"id":"b","ids":["a","b"]}"#).unwrap(), ["a", "b"]);
        assert!(ids("{}").unwrap_err().contains("which message"));
        assert_eq!(ids(r#"{"ids":"a"}"#), Ok(vec!["a".into()]));
        assert_eq!(ids(r#"{"ids":"[\"a\"]"}"#), Ok(vec!["a".into()]));
        assert!(ids(r#"{"ids":7}"#).unwrap_err().contains("must be a list"));
        let many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
        let many = serde_json::json!({ "ids": many }).to_string();
        assert!(ids(&many).unwrap_err().starts_with("17 ids; at most 16"));
    }
}
