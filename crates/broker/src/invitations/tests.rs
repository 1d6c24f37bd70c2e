use std::fs;

use peerbus_wire::Token;
use tempfile::TempDir;

use super::*;

const NOW: u64 = 1_000_000;

struct Desk {
    dir: TempDir,
    name: TokenName,
    asked: JoinRequest,
}

impl Desk {
    /// One that has invited a machine.
    fn new() -> Self {
        let token = |digit: &str, len| Token::parse(&digit.repeat(len)).unwrap();
        let desk = Self {
            dir: tempfile::tempdir().unwrap(),
            name: TokenName::parse("laptop").unwrap(),
            asked: JoinRequest {
                code: token("a", 32),
                token: token("b", 64),
            },
        };
        let secret = TokenHash::of(&desk.asked.code);
        let invitation = Invitation::new(desk.name.clone(), secret, NOW);
        change(&desk.file(), |known| known.push(invitation)).unwrap();
        desk
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("invitations.toml")
    }

    fn tokens(&self) -> PathBuf {
        self.dir.path().join("tokens.toml")
    }

    fn token(&self) -> TokenHash {
        TokenHash::of(&self.asked.token)
    }

    /// What lets machines in; `meanwhile` happens between the first word of a machine and its token.
    fn invited(&self, meanwhile: impl Fn() + Send + Sync + 'static) -> Arc<Invited> {
        self.invited_beside(Vec::new(), meanwhile)
    }

    /// The same at a broker with tokens that stand in no file.
    fn invited_beside(
        &self,
        base: Vec<Grant>,
        meanwhile: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Invited> {
        let secret: SecretSource = Box::new(move || {
            meanwhile();
            Ok("k".repeat(32).into())
        });
        let inviting = Inviting {
            file: self.file(),
            secret,
            listen: None,
        };
        let (watch, _) = TokensWatch::new(self.tokens(), base).unwrap();
        Arc::new(Invited::open(Some(inviting), Some(&watch)).unwrap())
    }
}

#[test]
fn a_machine_whose_invitation_ends_while_it_is_let_in_keeps_no_token() {
    let desk = Desk::new();
    let (file, tokens) = (desk.file(), desk.tokens());
    let invited = desk.invited(move || {
        let ended = end(&file, &tokens, |_| true).unwrap();
        assert_eq!(ended.len(), 1);
        assert!(ended[0].0.holder.is_some() && !ended[0].1, "{ended:?}");
    });
    let (name, outcome) = invited.admit(&desk.asked, NOW);
    assert_eq!(name.as_ref(), Some(&desk.name));
    assert_eq!(outcome, Err(JoinRefusal::Unknown));
    assert_eq!(tokens::read(&desk.tokens()).unwrap(), []);
    assert_eq!(read(&desk.file()).unwrap(), []);
}

#[test]
fn an_invitation_is_forgotten_after_its_token_only() {
    let desk = Desk::new();
    desk.invited(|| ()).admit(&desk.asked, NOW).1.unwrap();
    let text = fs::read_to_string(desk.tokens()).unwrap();
    fs::write(desk.tokens(), "no table").unwrap();
    end(&desk.file(), &desk.tokens(), |_| true).unwrap_err();
    let known = read(&desk.file()).unwrap();
    assert_eq!(known.len(), 1);
    assert_eq!(known[0].holder, Some(desk.token()));
    fs::write(desk.tokens(), text).unwrap();
    let (_, outcome) = desk.invited(|| ()).admit(&desk.asked, NOW);
    assert_eq!(
        outcome,
        Err(JoinRefusal::Expired),
        "nobody is let in meanwhile"
    );
    let ended = end(&desk.file(), &desk.tokens(), |_| true).unwrap();
    assert!(ended.len() == 1 && ended[0].1);
    assert_eq!(tokens::read(&desk.tokens()).unwrap(), []);
    assert_eq!(read(&desk.file()).unwrap(), []);
}

#[test]
fn that_a_machine_is_in_is_written_down_when_the_file_can_be_written_again() {
    let desk = Desk::new();
    let invited = desk.invited(|| ());
    invited.admit(&desk.asked, NOW).1.unwrap();
    let token = desk.token();
    assert!(lock(&invited.fresh).remove(&token));
    let text = fs::read_to_string(desk.file()).unwrap();
    fs::write(desk.file(), "no table").unwrap();
    invited.joined(&token, NOW + 1_000);
    fs::write(desk.file(), text).unwrap();
    assert!(lock(&invited.fresh).remove(&token));
    invited.joined(&token, NOW + 2_000);
    let known = read(&desk.file()).unwrap();
    assert_eq!(known[0].joined_ms, Some(NOW + 2_000));
    assert!(lock(&invited.fresh).is_empty());
}

#[test]
fn a_token_of_somebody_else_is_neither_replaced_nor_revoked() {
    let desk = Desk::new();
    let other = grant(&desk.name, TokenHash([1; 32])).unwrap();
    tokens::add(&desk.tokens(), &other).unwrap();
    let (_, outcome) = desk.invited(|| ()).admit(&desk.asked, NOW);
    assert_eq!(outcome, Err(JoinRefusal::Failed));
    let why = tokens::admit(&desk.tokens(), &grant(&desk.name, desk.token()).unwrap());
    let why = why.unwrap_err();
    assert!(
        why.contains("none that the machine that asks has made") && !why.contains("peerbus laptop"),
        "{why}"
    );
    let ended = end(&desk.file(), &desk.tokens(), |_| true).unwrap();
    assert!(ended.len() == 1 && !ended[0].1);
    assert_eq!(tokens::read(&desk.tokens()).unwrap(), [other]);
}

#[test]
fn a_machine_that_is_in_already_takes_nobodys_invitation() {
    let desk = Desk::new();
    let other = grant(&TokenName::parse("third").unwrap(), desk.token()).unwrap();
    tokens::admit(&desk.tokens(), &other).unwrap();
    let invited = desk.invited(|| ());
    let (_, outcome) = invited.admit(&desk.asked, NOW);
    assert_eq!(outcome, Err(JoinRefusal::Failed));
    assert_eq!(read(&desk.file()).unwrap()[0].holder, None);
}

#[test]
fn a_token_of_the_brokers_own_is_not_narrowed_to_a_machines() {
    let desk = Desk::new();
    for name in ["credentials", "env-1"] {
        let name = TokenName::parse(name).unwrap();
        let own = Grant::usual(name, desk.token());
        let invited = desk.invited_beside(vec![own], || panic!("no secret is told"));
        let (_, outcome) = invited.admit(&desk.asked, NOW);
        assert_eq!(outcome, Err(JoinRefusal::Failed));
        assert_eq!(read(&desk.file()).unwrap()[0].holder, None);
        assert!(!desk.tokens().exists(), "its file is as it was");
    }
    let free = desk.invited(|| ());
    free.admit(&desk.asked, NOW)
        .1
        .expect("the code is not spent");
}
