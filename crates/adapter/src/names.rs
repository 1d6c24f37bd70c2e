//! Generated names.

use peerbus_wire::PeerName;
use petname::Petnames;
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;

/// Longest word of a generated name, in bytes.
const WORD_BYTES_MAX: usize = 10;
/// Words that are drawn at most before a default is taken.
const DRAWS_MAX: usize = 100;
/// Words that nobody wants to be called by; a list word that contains one is not used.
const RUDE: [&str; 34] = [
    "anal", "arous", "ass", "bang", "bitch", "boob", "cock", "crap", "cum", "damn", "dead",
    "devil", "dick", "dumb", "enema", "erect", "fag", "fat", "fuck", "gay", "hell", "hoe", "homo",
    "hooker", "idiot", "kinky", "moan", "naked", "nude", "rape", "sex", "slut", "tit", "ugly",
];

/// Makes up a name of a command that is gone soon: `shell-<6 base36>`. Nobody takes it for a session's.
#[must_use]
pub fn of_command() -> PeerName {
    named("shell", 6, &mut rand::rng())
}

/// Makes up a name: `<adjective>-<noun>-<3 base36>`, lower case.
#[must_use]
pub fn generate() -> PeerName {
    let words = Petnames::medium();
    let mut rng = rand::rng();
    let adjective = pick(&words.adjectives, &mut rng).unwrap_or("quiet");
    let noun = pick(&words.nouns, &mut rng).unwrap_or("otter");
    named(&format!("{adjective}-{noun}"), 3, &mut rng)
}

/// The words, and so many characters that tell names of the same words apart.
fn named(words: &str, count: usize, rng: &mut rand::rngs::ThreadRng) -> PeerName {
    const BASE36: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let tail = (0..count).map(|_| char::from(BASE36[rng.random_range(0..BASE36.len())]));
    #[expect(
        clippy::expect_used,
        reason = "lower-case words and digits make a valid name"
    )]
    PeerName::parse(&format!("{words}-{}", tail.collect::<String>())).expect("valid name")
}

/// The name behind this beginning, where that can be one.
#[must_use]
pub fn begin(begins: &str, name: PeerName) -> PeerName {
    PeerName::parse(&format!("{begins}{name}")).unwrap_or(name)
}

/// A word that is fit. Nearly all are, so a few draws are enough; looking through the whole list
/// would be a good part of an adapter's start.
fn pick<'w>(words: &[&'w str], rng: &mut rand::rngs::ThreadRng) -> Option<&'w str> {
    (0..DRAWS_MAX).find_map(|_| words.choose(rng).copied().filter(|word| is_fit(word)))
}

fn is_fit(word: &str) -> bool {
    (2..=WORD_BYTES_MAX).contains(&word.len())
        && word.bytes().all(|b| b.is_ascii_lowercase())
        && !RUDE.iter().any(|rude| word.contains(rude))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_form() {
        for _ in 0..500 {
            let name = generate();
            let parts: Vec<&str> = name.as_str().split('-').collect();
            let [adjective, noun, tail] = parts[..] else {
                panic!("{name}")
            };
            assert!(is_fit(adjective) && is_fit(noun), "{name}");
            assert!(
                tail.len() == 3
                    && tail
                        .bytes()
                        .all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
            );
        }
        assert_ne!(generate(), generate());
    }

    #[test]
    fn most_words_are_left_to_choose_from() {
        let words = Petnames::medium();
        for list in [&words.adjectives, &words.nouns] {
            let fit = list.iter().filter(|word| is_fit(word)).count();
            assert!(fit * 10 > list.len() * 8, "{fit} of {}", list.len());
        }
        assert!(!is_fit("sexy") && !is_fit("cockatoo") && is_fit("otter"));
    }
}
