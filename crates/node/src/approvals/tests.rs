use super::asked::INPUT_MAX;
use super::*;

fn refusal(refused: Result<Verdict, VerdictRefusal>) -> String {
    match refused {
        Err(VerdictRefusal::Wrong(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn wish(id: &str, decision: Decision, digest: Option<&str>) -> Wish {
    Wish {
        id: id.to_owned(),
        decision,
        digest: digest.map(str::to_owned),
        rule: None,
        destination: None,
        message: None,
        answers: Vec::new(),
        input: None,
        permissions: Vec::new(),
        interrupt: false,
        source: None,
    }
}

fn open(approvals: &mut Approvals, asked: Asked) -> (String, String) {
    let Opened { id, new, .. } = approvals.open(Source::Hook, asked, || 7).unwrap();
    assert!(new);
    let told = approvals.get(&id).unwrap();
    (id, told["digest"].as_str().unwrap().to_owned())
}

fn peer() -> By {
    By::Peer("phone".into())
}

#[test]
fn a_program_here_allows_only_what_it_saw() {
    let mut approvals = Approvals::default();
    let (id, digest) = open(&mut approvals, Asked::new("Bash", r#"{"command":"ls"}"#));
    let (other, theirs) = open(&mut approvals, Asked::new("Bash", r#"{"command":"rm"}"#));
    assert_ne!((&id, &digest), (&other, &theirs));
    for wrong in [None, Some(theirs.as_str()), Some("")] {
        let refused = approvals.decide(wish(&id, Decision::Allow, wrong), By::Node);
        assert!(refusal(refused).starts_with("`digest` is not that of"));
    }
    let allowed = approvals.decide(wish(&id, Decision::Allow, Some(&digest)), By::Node);
    assert_eq!(allowed.unwrap().decision, Some(Decision::Allow));
    let late = approvals.decide(wish(&id, Decision::Deny, None), By::Node);
    let Err(VerdictRefusal::Late(said, _)) = late else {
        panic!("{late:?}")
    };
    assert_eq!(said, format!("request {id} is over: allow, by node"));
    assert!(
        approvals
            .decide(wish(&other, Decision::Deny, None), By::Node)
            .is_ok()
    );
    let unknown = approvals.decide(wish("zzzzz", Decision::Deny, None), By::Node);
    assert!(refusal(unknown).contains("no request \"zzzzz\""));
}

#[test]
fn what_was_not_shown_whole_can_only_be_denied() {
    let mut approvals = Approvals::default();
    let long =
        |bytes: usize| Asked::new("Write", &json!({ "x": "é".repeat(bytes / 2) }).to_string());
    let (id, digest) = open(&mut approvals, long(INPUT_MAX));
    let refused = approvals.decide(wish(&id, Decision::Allow, Some(&digest)), By::Node);
    assert!(
        refusal(refused.clone()).starts_with(['8', '9']),
        "{refused:?}"
    );
    let (middle, digest) = open(&mut approvals, long(AFAR_MAX));
    let refused = approvals.decide(wish(&middle, Decision::Allow, None), peer());
    assert!(
        refusal(refused.clone()).starts_with(['8', '9']),
        "{refused:?}"
    );
    assert!(approvals.preview(&middle).unwrap()["missing"].as_u64() > Some(0));
    assert!(
        approvals
            .decide(wish(&middle, Decision::Allow, Some(&digest)), By::Node)
            .is_ok()
    );
    assert!(
        approvals
            .decide(wish(&id, Decision::Deny, None), peer())
            .is_ok()
    );
    let (short, _) = open(&mut approvals, Asked::new("Bash", "{}"));
    assert!(
        approvals
            .decide(wish(&short, Decision::Allow, None), peer())
            .is_ok()
    );
    let (named, digest) = open(&mut approvals, Asked::new(&"x".repeat(5_000), "{}"));
    assert!(
        approvals
            .decide(wish(&named, Decision::Allow, Some(&digest)), By::Node)
            .is_err()
    );
}

#[test]
fn only_a_rule_that_allows_can_be_made_to_stay() {
    let rule = |content: &str| {
        json!({ "type": "addRules", "behavior": "allow",
        "rules": [{ "toolName": "Bash", "ruleContent": content }], "destination": "localSettings" })
    };
    let mode = json!({ "type": "setMode", "mode": "acceptEdits", "destination": "session" });
    let deny = json!({ "type": "addRules", "behavior": "deny", "destination": "session",
        "rules": [{ "toolName": "Bash" }] });
    let mut approvals = Approvals::default();
    let asked = |suggestions: &[Value]| Asked::new("Bash", "{}").suggested(suggestions);
    let always = |id: &str, digest: &str| wish(id, Decision::AllowAlways, Some(digest));
    let (id, digest) = open(&mut approvals, asked(&[mode.clone(), deny]));
    let refused = approvals.decide(always(&id, &digest), By::Node);
    assert!(refusal(refused).contains("offers no rule"));
    let (id, digest) = open(&mut approvals, asked(&[mode, rule("ls:*")]));
    let verdict = approvals.decide(always(&id, &digest), By::Node).unwrap();
    assert_eq!(verdict.rule.unwrap().suggestion, rule("ls:*"));
    let (id, digest) = open(&mut approvals, asked(&[rule("ls:*"), rule("rm:*")]));
    let refused = refusal(approvals.decide(always(&id, &digest), By::Node));
    let both = "Bash(ls:*) in localSettings; Bash(rm:*) in localSettings";
    assert!(refused.ends_with(both), "{refused}");
    let mut named = always(&id, &digest);
    named.rule = Some("Bash(rm:*)".into());
    let verdict = approvals.decide(named, By::Node).unwrap();
    assert_eq!(verdict.rule.unwrap().suggestion, rule("rm:*"));
}

#[test]
fn a_rule_stays_where_the_one_that_was_chosen_stays() {
    let rule = |content: &str, destination: &str| {
        json!({ "type": "addRules", "behavior": "allow", "destination": destination,
        "rules": [{ "toolName": "Bash", "ruleContent": content }] })
    };
    let offered = [
        rule("npm test:*", "userSettings"),
        rule("npm test:*", "session"),
    ];
    let mut approvals = Approvals::default();
    let (id, digest) = open(&mut approvals, Asked::new("Bash", "{}").suggested(&offered));
    let always = |rule: Option<&str>, destination: Option<&str>| Wish {
        rule: rule.map(str::to_owned),
        destination: destination.map(str::to_owned),
        ..wish(&id, Decision::AllowAlways, Some(&digest))
    };
    let text = Some("Bash(npm test:*)");
    for unclear in [
        always(None, None),
        always(text, None),
        always(text, Some("localSettings")),
        always(Some("Bash(ls)"), Some("session")),
    ] {
        let refused = refusal(approvals.decide(unclear, By::Node));
        assert!(refused.contains("Bash(npm test:*) in session"), "{refused}");
    }
    let verdict = approvals.decide(always(text, Some("session")), By::Node);
    assert_eq!(verdict.unwrap().rule.unwrap().suggestion, offered[1]);
}

#[test]
fn a_call_that_is_asked_about_in_two_ways_is_one_request() {
    let mut approvals = Approvals::default();
    let input = json!({ "command": "x".repeat(300) }).to_string();
    let (id, _) = open(&mut approvals, Asked::new("Bash", &input));
    let mut preview = Asked::new("Bash", &input[..200]);
    preview.cut = 1;
    let channel = |approvals: &mut Approvals| {
        let asked = preview.clone();
        approvals.open(Source::Channel, asked, || 7).unwrap()
    };
    let joined = channel(&mut approvals);
    assert_eq!((joined.id.as_str(), joined.new), (id.as_str(), false));
    // Another dialog of the same call is another request.
    let second = channel(&mut approvals);
    assert!(second.new);
    assert!(!approvals.left(&id, Source::Hook));
    assert!(approvals.left(&id, Source::Channel));
    approvals.close(&id, Verdict::closed(None, By::Client));
    // What shows all of it takes its place: an id never stands for two digests.
    let whole = approvals.open(Source::Hook, Asked::new("Bash", &input), || 7);
    let whole = whole.unwrap();
    assert_eq!(whole.replaces, Some(second.id.clone()));
    assert!(whole.new && whole.id != second.id);
    assert!(approvals.get(&second.id).is_none());
}

#[test]
fn an_id_is_never_used_again_and_few_are_open() {
    let mut approvals = Approvals::default();
    let mut ids = HashSet::new();
    for n in 0..200 {
        let (id, _) = open(&mut approvals, Asked::new("Bash", &n.to_string()));
        assert!(ids.insert(id.clone()));
        assert_eq!(
            in_words(&format!("yes {id}")),
            Some((id.clone(), Said::Verdict(true)))
        );
        approvals.close(&id, Verdict::closed(None, By::Client));
    }
    for n in 0..OPEN_MAX {
        open(&mut approvals, Asked::new("Bash", &n.to_string()));
    }
    assert!(!approvals.has_unlisted());
    assert_eq!(
        approvals.open(Source::Hook, Asked::new("Bash", "no"), || 7),
        None
    );
    approvals.dialog_gone();
    assert!(approvals.has_unlisted(), "its dialog was not seen yet");
    approvals.dialog_shown();
    assert!(approvals.has_unlisted());
    approvals.dialog_gone();
    assert!(!approvals.has_unlisted());
    // Of a client without a terminal nobody else is asked.
    for n in OPEN_MAX..OPEN_MAX_DRIVEN {
        let asked = Asked::new("Bash", &n.to_string());
        assert!(approvals.open(Source::Stream, asked, || 7).is_some(), "{n}");
    }
    let asked = Asked::new("Bash", "no");
    assert_eq!(approvals.open(Source::Stream, asked, || 7), None);
}

#[test]
fn a_verdict_in_words_is_two_words_and_nothing_else() {
    for (text, verdict) in [
        ("yes abcde", Some(("abcde", true))),
        ("  Y ABCDE\n", Some(("abcde", true))),
        ("no zzzzz", Some(("zzzzz", false))),
        ("N\tabcde", Some(("abcde", false))),
        ("yes abcle", None),
        ("yes abcdef", None),
        ("yes abcd", None),
        ("yes abcde please", None),
        ("yes, abcde", None),
        ("yesabcde", None),
        ("ja abcde", None),
        ("yes äbcd", None),
        ("two abcde", None),
        (",2 abcde", None),
        ("-2 abcde", None),
    ] {
        let verdict = verdict.map(|(id, allows)| (id.to_owned(), Said::Verdict(allows)));
        assert_eq!(in_words(text), verdict, "{text:?}");
    }
    for numbers in ["2", "1,3"] {
        let said = in_words(&format!("{numbers} ABCDE"));
        let answer = Said::Answer(numbers.to_owned());
        assert_eq!(said, Some(("abcde".to_owned(), answer)));
    }
}

#[test]
fn a_question_wants_answers_and_nothing_else_does() {
    let input = json!({ "questions": [
        { "question": "Which colour?", "options": [{ "label": "Red" }, { "label": "Blue" }] },
        { "question": "What with?", "multiSelect": true, "options": [{ "label": "A" }, { "label": "B" }] },
    ] });
    let mut approvals = Approvals::default();
    let asked = Asked::new("AskUserQuestion", &input.to_string());
    let (id, digest) = open(&mut approvals, asked);
    let told = approvals.get(&id).unwrap();
    assert_eq!(told["questions"][0]["options"][1]["label"], "Blue");
    let answers = |answers: &[&str]| Wish {
        answers: answers.iter().map(ToString::to_string).collect(),
        ..wish(&id, Decision::Allow, Some(&digest))
    };
    for (given, why) in [
        (&[][..], "is a question"),
        (&["2"], "2 questions, and 1"),
        (&["3", "1"], "no option 3: the last is 2"),
        (&["0", "1"], "no option 0"),
        (&["1,2", "1"], "one option"),
        (&["99999999999999999999999", "1"], "no option 9"),
        (&[" ", "1"], "empty"),
    ] {
        let why_not = refusal(approvals.decide(answers(given), By::Node));
        assert!(why_not.contains(why), "{given:?}: {why_not}");
    }
    let always = wish(&id, Decision::AllowAlways, Some(&digest));
    assert!(refusal(approvals.decide(always, By::Node)).contains("is a question"));
    let verdict = approvals.decide(answers(&["2", "1, 2"]), By::Node).unwrap();
    let Some(NewInput::Answered(answered)) = verdict.input else {
        panic!("{verdict:?}")
    };
    let chosen = json!({ "Which colour?": "Blue", "What with?": "A, B" });
    assert_eq!(answered["answers"], chosen);
    assert_eq!(answered["questions"], input["questions"]);

    let hidden = json!({ "command": "rm", "questions": [{ "question": "short?" }] });
    let asked = Asked::new("AskUserQuestion", &hidden.to_string());
    let (id, digest) = open(&mut approvals, asked);
    assert_eq!(approvals.get(&id).unwrap()["input"], hidden);
    let unseen = Wish {
        answers: vec!["yes".into()],
        ..wish(&id, Decision::Allow, Some(&digest))
    };
    let why = refusal(approvals.decide(unseen, By::Node));
    assert!(why.contains("not known here"), "{why}");

    let (id, digest) = open(&mut approvals, Asked::new("Bash", "{}"));
    let wrong = Wish {
        answers: vec!["1".into()],
        ..wish(&id, Decision::Allow, Some(&digest))
    };
    assert!(refusal(approvals.decide(wrong, By::Node)).contains("is no question"));
}

#[test]
fn an_option_is_chosen_by_its_number_or_by_its_label_in_any_case() {
    let label = |label: &str| json!({ "label": label });
    let options = ["Bleu", " 3", "BLUE, or not", "Ärger", "ÄRGER"].map(label);
    for (given, multiple, chosen) in [
        ("bleu", false, Ok("Bleu")),
        (" BLEU ", true, Ok("Bleu")),
        ("ärger", false, Err("may be option 4 or option 5")),
        ("blue, or not", false, Ok("BLUE, or not")),
        ("2", false, Ok(" 3")),
        ("3", false, Ok("BLUE, or not")),
        ("bleu,4", true, Ok("Bleu, Ärger")),
        ("bleu, 4", false, Ok("bleu, 4")),
        ("bleu, please", true, Ok("bleu, please")),
        ("ble", false, Ok("ble")),
    ] {
        let question = json!({ "question": "?", "multiSelect": multiple, "options": options });
        let input = json!({ "questions": [question] });
        let asked = Asked::new("AskUserQuestion", &input.to_string());
        let answered = asked.answered(&[given.to_owned()]);
        match chosen {
            Ok(chosen) => assert_eq!(answered.unwrap()["answers"]["?"], chosen, "{given}"),
            Err(why) => assert!(answered.unwrap_err().contains(why), "{given}"),
        }
    }
}

#[test]
fn a_client_that_takes_yes_or_no_gets_nothing_else() {
    for source in [Source::Channel, Source::Options] {
        let mut approvals = Approvals::default();
        let asked = Asked::new("Bash", r#"{"command":"ls"}"#);
        let Opened { id, .. } = approvals.open(source, asked, || 7).unwrap();
        let digest = approvals.get(&id).unwrap()["digest"].clone();
        let wish = wish(&id, Decision::Allow, digest.as_str());
        let changed = Wish {
            input: Some(serde_json::Map::new()),
            ..wish.clone()
        };
        let why = refusal(approvals.decide(changed, By::Node));
        assert!(why.contains("no more than yes or no"), "{source:?}: {why}");
        assert!(approvals.decide(wish, By::Node).is_ok());
    }
}
