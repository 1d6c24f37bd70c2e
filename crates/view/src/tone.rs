//! Whether what became of a message is good news to its sender.

use serde::Serialize;

use crate::message::MessageView;
use crate::trail::Step;

/// What a step, or a message as it stands, is to its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tone {
    /// It was read, or answered.
    Good,
    /// Somebody's user has to let it go on.
    Wait,
    /// It will not come to what it was sent for.
    Bad,
}

impl Step {
    /// `None`: it is on its way.
    #[must_use]
    pub fn tone(&self) -> Option<Tone> {
        Some(match &*self.state {
            "seen" | "done" => Tone::Good,
            "held" => Tone::Wait,
            "refused" | "expired" | "dead" | "unanswered" | "declined" | "failed" => Tone::Bad,
            _ => return None,
        })
    }
}

impl MessageView {
    /// What it is as it stands: the worst of its recipients counts, and good is what is so at each.
    #[must_use]
    pub fn tone(&self) -> Option<Tone> {
        let standing = self.standing();
        let tones = || standing.values().map(|step| step.tone());
        let has = |tone| tones().any(|it| it == Some(tone));
        let good = !standing.is_empty() && tones().all(|it| it == Some(Tone::Good));
        [Tone::Bad, Tone::Wait]
            .into_iter()
            .find(|tone| has(*tone))
            .or(good.then_some(Tone::Good))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(steps: &[(&'static str, &str)]) -> Option<Tone> {
        let steps = steps.iter().map(|(state, to)| Step {
            state: (*state).into(),
            to: Some((*to).to_owned()),
            ..Step::default()
        });
        let message = MessageView {
            steps: steps.collect(),
            ..MessageView::default()
        };
        message.tone()
    }

    #[test]
    fn the_worst_of_its_recipients_counts() {
        for (steps, is) in [
            (&[][..], None),
            (&[("held", "a"), ("seen", "a")], Some(Tone::Good)),
            (&[("seen", "a"), ("pushed", "b")], None),
            (&[("seen", "a"), ("done", "b")], Some(Tone::Good)),
            (&[("seen", "a"), ("held", "b")], Some(Tone::Wait)),
            (&[("held", "a"), ("dead", "b")], Some(Tone::Bad)),
            (
                &[("dead", "a"), ("recalled", "a"), ("seen", "b")],
                Some(Tone::Good),
            ),
        ] {
            assert_eq!(tone(steps), is, "{steps:?}");
        }
    }
}
