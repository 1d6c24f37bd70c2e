//! Two mailboxes: a session whose agent answers everything that it is shown, and a peer of version 1
//! that does so, too, and says nothing of the conversation. It must end, and be able to begin anew.

use std::collections::VecDeque;

use peerbus_peer::mailbox::{
    Activity, Attempt, INBOX, Mail, MailboxMachine, MailboxMutation, MailboxOutput, Outcome,
    PathSpec, Policy, Portion,
};
use peerbus_peer::session::Key;
use peerbus_wire::{Conversation, MessageId, NameKey, PeerName};

use super::bus;
use super::plan::Letter;
use crate::failure::{Failure, Verdict, ensure};
use crate::rng::Rng;

/// The way in which both are woken.
static PUSH: PathSpec = PathSpec {
    word: "push",
    ..PathSpec::waking(1_000)
};

/// Messages after which nobody has stopped them.
const MESSAGES_MAX: usize = 200;

/// After so long without a message to a peer its conversation begins anew.
const SILENCE_MS: u64 = 600_000;

/// Runs the world of `seed`; gives how many messages the agent was shown before they were stopped.
///
/// # Errors
///
/// The promise that was broken.
pub fn run_echo(seed: u64, mutation: Option<MailboxMutation>) -> Result<usize, Failure> {
    let mut world = Echo::new(Rng::new(seed), mutation);
    world.talk()?;
    let shown = world.shown;
    // What the user begins is a conversation of its own, and so is what comes after a silence.
    if world.rng.chance(500) {
        world.now_ms += SILENCE_MS;
    }
    world.talk()?;
    ensure(world.shown > shown, "loop", || "nothing begins anew".into())?;
    Ok(shown)
}

struct Echo {
    rng: Rng,
    now_ms: u64,
    agent: MailboxMachine,
    bot: MailboxMachine,
    /// The session says what it does, and is woken; otherwise its agent looks by itself.
    tells: bool,
    replies: bool,
    messages: usize,
    shown: usize,
}

impl Echo {
    fn new(mut rng: Rng, mutation: Option<MailboxMutation>) -> Self {
        let limit = rng.pick(&[1, 2, 5, 16]);
        let mut agent = MailboxMachine::new(Policy::Auto, Some(limit));
        if let Some(mutation) = mutation {
            agent.mutate(mutation);
        }
        let mut bot = MailboxMachine::new(Policy::Pushed, None);
        for mailbox in [&mut agent, &mut bot] {
            mailbox.add_path(&PUSH);
            mailbox.open(0);
        }
        let (tells, replies) = (rng.chance(500), rng.chance(500));
        Self {
            rng,
            now_ms: 1_000,
            agent,
            bot,
            tells,
            replies,
            messages: 0,
            shown: 0,
        }
    }

    /// The user has the agent write to the bot; then both go on by themselves until one is silent.
    fn talk(&mut self) -> Verdict {
        self.agent.prompted();
        self.agent.set_activity(self.now_ms, Activity::Unknown);
        let mut to_bot = VecDeque::from([self.sends(None)?]);
        while let Some(mail) = to_bot.pop_front() {
            ensure(self.messages < MESSAGES_MAX, "loop", || {
                format!("nobody stopped them in {MESSAGES_MAX} messages")
            })?;
            self.now_ms += self.rng.range(1_000, 60_000);
            self.bot.message(self.now_ms, mail);
            for _ in self.pushed(true) {
                let answer = self.mail("bot", Conversation::default())?;
                self.now_ms += self.rng.range(1, 30_000);
                self.agent.message(self.now_ms, answer);
            }
            for attempt in self.looks() {
                let mails = attempt.items.iter().filter_map(|item| item.content.mail());
                for mail in mails {
                    self.shown += 1;
                    to_bot.push_back(self.sends(Some(mail))?);
                }
            }
            if self.tells {
                self.agent.set_activity(self.now_ms, Activity::Idle);
            }
        }
        Ok(())
    }

    /// The agent writes to the bot, as a reply or not.
    fn sends(&mut self, to: Option<&Mail>) -> Result<Mail, Failure> {
        let parent = to.and_then(|mail| self.agent.parent(&mail.inbound.id, None));
        let talk = match parent.filter(|_| self.replies) {
            Some(parent) => Conversation::reply(&parent.id, &parent.talk),
            None => Conversation {
                hops: self.agent.hops(self.now_ms, Some(&key("bot")?), 0),
                ..Conversation::default()
            },
        };
        let mail = self.mail("agent", talk)?;
        let (id, hops) = (mail.inbound.id.clone(), mail.talk.hops);
        let bot = key("bot")?;
        self.agent.sent(self.now_ms, Some(&bot), &id, hops);
        Ok(mail)
    }

    /// What the agent is shown now.
    fn looks(&mut self) -> Vec<Attempt> {
        if self.tells {
            return self.pushed(false);
        }
        let listed = self.agent.look();
        let listed = listed.iter().filter(|one| one.held.is_none());
        let chosen: Vec<_> = listed.map(|one| (one.no, Portion::All)).collect();
        let attempt = self.agent.check_out(self.now_ms, &INBOX, &chosen);
        if let Some(attempt) = &attempt {
            let id = attempt.id;
            self.agent.outcome(self.now_ms, id, Outcome::Written);
            self.agent.answered(self.now_ms, id);
        }
        attempt.into_iter().collect()
    }

    /// What the bot is pushed now and after the pause of its path, or the agent.
    fn pushed(&mut self, bot: bool) -> Vec<Attempt> {
        let mailbox = if bot { &mut self.bot } else { &mut self.agent };
        let mut pushed = Vec::new();
        for pause_ms in [0, 120_000] {
            self.now_ms += pause_ms;
            mailbox.set_path(self.now_ms, &PUSH, true);
            mailbox.handle_timeout(self.now_ms);
            while let Some(output) = mailbox.poll_output() {
                let MailboxOutput::Push(attempt) = output else {
                    continue;
                };
                mailbox.outcome(self.now_ms, attempt.id, Outcome::Written);
                mailbox.answered(self.now_ms, attempt.id);
                if !bot {
                    mailbox.set_activity(self.now_ms, Activity::Busy);
                }
                pushed.push(attempt);
            }
        }
        pushed
    }

    fn mail(&mut self, from: &'static str, talk: Conversation) -> Result<Mail, Failure> {
        self.messages += 1;
        let id = format!("m{}", self.messages);
        let message = MessageId::parse(&id).map_err(|error| broken(&error))?;
        let letter = Letter {
            from,
            bytes: 100,
            ..Letter::draw(&mut self.rng, 1)
        };
        let mail = bus::mail(Key::of(&key(from)?, &message), id, &letter);
        Ok(Mail { talk, ..mail })
    }
}

fn key(name: &str) -> Result<NameKey, Failure> {
    let name = PeerName::parse(name).map_err(|error| broken(&error))?;
    Ok(name.key())
}

fn broken(what: &dyn std::fmt::Display) -> Failure {
    Failure::new("world", what.to_string())
}
