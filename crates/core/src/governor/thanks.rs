//! Recognises what only thanks or acknowledges: nobody needs to answer it.

/// Longer texts say more than thanks.
const CHARS_MAX: usize = 120;

/// What thanks or acknowledges, without apostrophes; longer ones before those that begin them.
const PHRASES: &[&[&str]] = &[
    &["you", "are", "most", "welcome"],
    &["you", "are", "very", "welcome"],
    &["you", "are", "welcome"],
    &["have", "a", "great", "day"],
    &["have", "a", "good", "day"],
    &["have", "a", "nice", "day"],
    &["same", "to", "you"],
    &["glad", "to", "help"],
    &["happy", "to", "help"],
    &["thanks", "a", "lot"],
    &["thank", "you"],
    &["got", "it"],
    &["will", "do"],
    &["no", "problem"],
    &["no", "worries"],
    &["of", "course"],
    &["my", "pleasure"],
    &["youre", "most", "welcome"],
    &["youre", "very", "welcome"],
    &["youre", "welcome"],
    &["sounds", "good"],
    &["sounds", "great"],
    &["all", "good"],
    &["all", "right"],
    &["well", "noted"],
    &["roger", "that"],
    &["thanks"],
    &["thx"],
    &["ty"],
    &["tysm"],
    &["np"],
    &["yw"],
    &["cheers"],
    &["ok"],
    &["okay"],
    &["k"],
    &["kk"],
    &["okey"],
    &["alright"],
    &["understood"],
    &["roger"],
    &["ack"],
    &["acknowledged"],
    &["noted"],
    &["received"],
    &["great"],
    &["perfect"],
    &["excellent"],
    &["awesome"],
    &["wonderful"],
    &["nice"],
    &["cool"],
    &["sure"],
    &["anytime"],
    &["welcome"],
    &["likewise"],
    &["appreciated"],
    &["bye"],
    &["goodbye"],
];

/// What goes along with thanks and says nothing by itself.
const FILLERS: &[&str] = &[
    "so",
    "very",
    "much",
    "many",
    "again",
    "really",
    "and",
    "too",
    "for",
    "the",
    "your",
    "that",
    "this",
    "everything",
    "help",
    "update",
    "info",
    "information",
    "quick",
    "reply",
    "answer",
    "message",
    "confirmation",
    "everyone",
    "all",
];

/// Signs that do the same.
const SIGNS: &[char] = &[
    '👍', '🙏', '👌', '✅', '🎉', '😊', '🙂', '😀', '😄', '❤', '🤝', '🙌', '✔',
];

/// Whether `text` thanks or acknowledges and says nothing else. Case and punctuation do not
/// matter.
pub(super) fn only(text: &str) -> bool {
    if text.chars().nth(CHARS_MAX).is_some() {
        return false;
    }
    let words: Vec<String> = words(text);
    let mut left: &[String] = &words;
    let mut found = text.chars().any(|c| SIGNS.contains(&c));
    while let Some((first, after)) = left.split_first() {
        let begins = |phrase: &&&[&str]| {
            let head = left.get(..phrase.len());
            head.is_some_and(|head| head.iter().zip(**phrase).all(|(word, part)| word == part))
        };
        if let Some(phrase) = PHRASES.iter().find(begins) {
            found = true;
            left = &left[phrase.len()..];
        } else if FILLERS.contains(&first.as_str()) {
            left = after;
        } else {
            return false;
        }
    }
    found
}

fn words(text: &str) -> Vec<String> {
    let plain: String = text.chars().filter(|c| !matches!(c, '\'' | '’')).collect();
    let words = plain.split(|c: char| !c.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::only;

    #[test]
    fn thanks_and_acknowledgements_say_nothing_else() {
        for text in [
            "Thanks!",
            "thank you so much for the quick reply :-)",
            "OK.",
            "Got it, thanks",
            "Understood 👍",
            "👍🏽",
            "You're welcome!",
            "You’re very welcome — happy to help.",
            "  ok,\nok  ",
            "No problem. Have a great day!",
            "ACK",
        ] {
            assert!(only(text), "{text:?}");
        }
    }

    #[test]
    fn whatever_says_more_is_not_thanks() {
        for text in [
            "",
            "...",
            "yes",
            "no",
            "ok, do it",
            "ok but the build is red",
            "Thanks, merged as 1f3a",
            "done",
            "for your update",
            "🔥",
            "got the flag?",
            &"thanks ".repeat(30),
        ] {
            assert!(!only(text), "{text:?}");
        }
    }
}
