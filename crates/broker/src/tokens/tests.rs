use std::fs;

use super::*;

const HASH: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[test]
fn what_is_written_is_read_again_and_other_lines_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sub/tokens.toml");
    assert_eq!(read(&path).unwrap(), []);
    let grant = Grant {
        names: vec![NamePattern::parse("build-*").unwrap()],
        expires_ms: Some(1_798_761_599_000),
        rights: Rights::of([Right::Send, Right::Operate]),
        quotas: Quotas {
            names: 7,
            connections: Some(2),
            bytes: Some(1_000),
            per_second: NonZeroU32::new(50),
        },
        ..Grant::usual(TokenName::parse("ci.1").unwrap(), TokenHash([7; 32]))
    };
    add(&path, &grant).unwrap();
    assert_eq!(read(&path).unwrap(), std::slice::from_ref(&grant));
    assert!(peerbus_os::file::exposed_mode(&fs::metadata(&path).unwrap()).is_none());
    let text = fs::read_to_string(&path).unwrap() + "# mine\n";
    fs::write(&path, text).unwrap();
    let phone = Grant::usual(TokenName::parse("phone").unwrap(), TokenHash([8; 32]));
    add(&path, &phone).unwrap();
    let twice = add(&path, &phone).unwrap_err().to_string();
    assert!(twice.contains("there is a token phone already"), "{twice}");
    revoke(&path, &grant.name).unwrap();
    assert_eq!(read(&path).unwrap(), [phone]);
    let gone = revoke(&path, &grant.name).unwrap_err().to_string();
    assert!(gone.contains("there is no token ci.1"), "{gone}");
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.starts_with(FILE.heading) && text.contains("# mine"),
        "{text}"
    );
}

fn with_names(name: &str, hash: u8, names: &str) -> Grant {
    Grant {
        names: vec![NamePattern::parse(names).unwrap()],
        ..Grant::usual(TokenName::parse(name).unwrap(), TokenHash([hash; 32]))
    }
}

#[test]
fn what_is_kept_for_a_token_no_other_one_gets_also_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    let made = std::thread::scope(|scope| {
        let path = &path;
        let one = |n: u8| scope.spawn(move || add(path, &with_names(&format!("t{n}"), n, "phone")));
        let all: Vec<_> = (0..8).map(one).collect();
        let made = all.into_iter().map(|one| one.join().unwrap());
        made.collect::<Vec<_>>()
    });
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1);
    let why = made.into_iter().find_map(Result::err).unwrap();
    assert!(
        why.contains("the name phone is kept for the token t"),
        "{why}"
    );
    for names in ["web:*", "WEB:*", "web:ci", "web:c*"] {
        let why = add(&path, &with_names("z", 9, names)).unwrap_err();
        assert!(why.contains("are the gateway's"), "{names}: {why}");
    }
    let why = add(&path, &with_names("z", 9, "Dashboard")).unwrap_err();
    assert!(why.contains("the dashboard's page"), "{why}");
    assert_eq!(read(&path).unwrap().len(), 1);
}

#[test]
fn a_programs_own_token_takes_the_place_of_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    for name in ["web", "Web", "bridge"] {
        let why = add(&path, &with_names(name, 1, "server")).unwrap_err();
        assert!(why.contains("choose another name"), "{why}");
    }
    let gateway = with_names("web", 1, GATEWAY);
    assert_eq!(admit(&path, &gateway), Ok(true));
    assert_eq!(admit(&path, &gateway), Ok(false));
    let fewer = Grant {
        rights: Rights::of([Right::Send]),
        ..gateway
    };
    assert_eq!(admit(&path, &fewer), Ok(true), "its rights change");
    assert_eq!(read(&path).unwrap(), std::slice::from_ref(&fewer));

    // One that a person made before these names were the programs'.
    fs::remove_file(&path).unwrap();
    let hash = "ab".repeat(32);
    let text = format!("[Web]\nhash = \"{hash}\"\n");
    peerbus_os::file::replace_private(&path, text.as_bytes()).unwrap();
    let why = admit(&path, &fewer).unwrap_err();
    assert!(why.contains("peerbus token revoke Web"), "{why}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    // And one for which the gateway's names are kept.
    let text = format!("[z]\nhash = \"{hash}\"\nnames = [\"web:ci\"]\n");
    peerbus_os::file::replace_private(&path, text.as_bytes()).unwrap();
    let why = admit(&path, &fewer).unwrap_err();
    assert!(why.contains("web:ci is kept for the token z"), "{why}");
}

#[test]
fn an_error_names_the_line_and_the_remedy() {
    let good = format!("[a]\nhash = \"{HASH}\"\n");
    for (text, line, says) in [
        ("[a]\nhash = ".to_owned(), 2, "cannot be used"),
        ("x = 1\n".into(), 1, "expected a token: `[NAME]`"),
        (
            "[a]\nrights = []\n".into(),
            1,
            "missing field `hash` in `a`",
        ),
        ("[a]\nhash = \"12\"\n".into(), 2, "64 hex digits"),
        (
            format!("{good}\nhush = 1\n"),
            4,
            "unknown field `hush`, expected one of `hash`",
        ),
        (
            format!("{good}rights = [\"fly\"]\n"),
            3,
            "unknown variant `fly`, expected one of `send`",
        ),
        (format!("{good}names = [\"a b\"]\n"), 3, "such as build-*"),
        (
            format!("{good}names = []\n"),
            3,
            "every name may be registered",
        ),
        (format!("{good}expires = \"soon\"\n"), 3, "2027-01-31"),
        (format!("{good}expires = 2027-01-31\n"), 3, "2027-01-31T00"),
        (
            format!("{good}max_names = -1\n"),
            3,
            "`-1`, expected usize in `a.max_names`",
        ),
        (format!("{good}max_per_second = 0\n"), 3, "a nonzero u32"),
        (
            format!("{good}[b]\nhash = \"{HASH}\"\n"),
            3,
            "the same token as [a]",
        ),
        (
            format!("[env-1]\nhash = \"{HASH}\"\n"),
            1,
            "cannot be a token's name",
        ),
    ] {
        let why = parse(&text).unwrap_err();
        assert!(
            why.contains(&format!("line {line}: ")) && why.contains(says),
            "{text}: {why}"
        );
    }
}

#[test]
fn an_end_is_read_in_its_own_offset() {
    let end = |text: &str| {
        let text = format!("[a]\nhash = \"{HASH}\"\nexpires = {text}\n");
        parse(&text).unwrap()[0].expires_ms.unwrap()
    };
    assert_eq!(end("2026-11-22T12:00:00Z"), 1_795_348_800_000);
    assert_eq!(end("2026-11-22T13:00:00+01:00"), 1_795_348_800_000);
    assert_eq!(end("2024-02-29T00:00:00Z"), 1_709_164_800_000);
}

#[test]
fn a_file_that_others_can_write_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    fs::write(&path, "").unwrap();
    peerbus_os::file::set_mode(&path, 0o660).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("(mode 0660): run `chmod 600 "), "{error}");
}

#[test]
fn tokens_that_are_added_at_the_same_time_are_all_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    let start = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let (path, start) = (&path, &start);
            scope.spawn(move || {
                start.wait();
                for n in 0..8 {
                    let name = TokenName::parse(&format!("t{writer}-{n}")).unwrap();
                    let token = TokenHash([writer * 8 + n; 32]);
                    add(path, &Grant::usual(name, token)).unwrap();
                }
            });
        }
    });
    assert_eq!(read(&path).unwrap().len(), 64);
}

#[test]
fn a_file_that_is_written_in_place_ends_no_token_while_it_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    for name in ["a", "b"] {
        let token = TokenHash([name.as_bytes()[0]; 32]);
        add(&path, &Grant::usual(TokenName::parse(name).unwrap(), token)).unwrap();
    }
    let whole = fs::read_to_string(&path).unwrap();
    let (watch, grants) = TokensWatch::new(path.clone(), Vec::new()).unwrap();
    assert_eq!(grants.len(), 2);
    fs::write(&path, "").unwrap();
    assert!(watch.changed().is_none(), "it may be about to be written");
    fs::write(&path, format!("{whole}# As it was.\n")).unwrap();
    assert!(watch.changed().is_none(), "it has changed since");
    let grants = watch.changed().expect("it stayed as it is").unwrap();
    assert_eq!(grants.len(), 2);
    assert!(watch.changed().is_none(), "nothing new");
    fs::remove_file(&path).unwrap();
    assert!(watch.changed().is_none());
    assert_eq!(watch.changed().expect("it is gone").unwrap(), []);
}
