//! Names that are put together from where a session runs.

use crate::project::{self, Project};

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = peerbus_wire::limits::NAME_BYTES_MAX;

/// Replaces `{project}`, `{branch}`, `{host}` and `{user}`. What is put in keeps to the characters
/// of a name, and the whole to its length.
pub(crate) fn expand(text: &str, env: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    if !text.contains('{') {
        return Ok(text.to_owned());
    }
    let mut name = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        name.push_str(before);
        let Some((word, after)) = after.split_once('}') else {
            return Err("a { has no }; write {project}, {branch}, {host} or {user}".into());
        };
        let value = value(word, env)?;
        name.push_str(&fit(&value));
        rest = after;
    }
    name.push_str(rest);
    // Whatever comes first must be a letter or a digit.
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let end = name.len().min(NAME_BYTES_MAX);
    Ok(name.get(..end).unwrap_or(name).to_owned())
}

fn value(word: &str, env: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let found = match word {
        "project" => Project::here().and_then(|here| Some(here.group(false)?.spelt)),
        "branch" => project::root().and_then(|root| project::branch(&root)),
        "host" => project::host(),
        "user" => ["USER", "LOGNAME"]
            .into_iter()
            .find_map(|variable| env(variable).filter(|name| !name.is_empty()))
            .or_else(peerbus_os::user::name),
        _ => {
            let shown = peerbus_wire::escape_name(word, 40);
            return Err(format!(
                "there is no {{{shown}}}; write {{project}}, {{branch}}, {{host}} or {{user}}"
            ));
        }
    };
    found
        .filter(|value| value.chars().any(|c| c.is_ascii_alphanumeric()))
        .ok_or_else(|| format!("there is no {word} here; leave {{{word}}} out"))
}

/// What a name cannot hold becomes a hyphen, one for each run of it.
fn fit(value: &str) -> String {
    let mut fit = String::new();
    for c in value.chars() {
        if c.is_ascii_alphanumeric() || "._@:-".contains(c) {
            fit.push(c);
        } else if !fit.ends_with('-') {
            fit.push('-');
        }
    }
    fit.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_ann(variable: &str) -> Option<String> {
        (variable == "USER").then(|| "Ann Lee/\u{fc}".to_owned())
    }

    #[test]
    fn what_stands_in_braces_is_filled_in() {
        for (text, expected) in [
            ("plain", "plain"),
            ("{user}", "Ann-Lee"),
            ("x.{user}.y", "x.Ann-Lee.y"),
            ("-{user}", "Ann-Lee"),
        ] {
            assert_eq!(expand(text, &as_ann).unwrap(), expected);
        }
        let here = Project::here().unwrap().group(false).unwrap();
        assert_eq!(expand("{project}", &as_ann).unwrap(), here.spelt);
        let long = |_: &str| Some("x".repeat(200));
        assert_eq!(expand("{user}", &long).unwrap().len(), NAME_BYTES_MAX);
    }

    #[test]
    fn a_user_without_variables_is_found_in_the_systems_list() {
        let empty = |variable: &str| (variable == "USER").then(String::new);
        let logged_in = |variable: &str| (variable == "LOGNAME").then(|| "ann".to_owned());
        assert_eq!(expand("{user}", &logged_in).unwrap(), "ann");
        match peerbus_os::user::name() {
            Some(name) => assert_eq!(expand("{user}", &empty).unwrap(), fit(&name)),
            None => assert!(expand("{user}", &empty).unwrap_err().contains("no user")),
        }
    }

    #[test]
    fn what_cannot_be_filled_in_is_named() {
        for (text, says) in [
            ("a-{porject}", "there is no {porject}"),
            ("a-{b\u{3164}\u{1b}}", r"there is no {b\u3164\u001b}"),
            ("a-{user", "a { has no }"),
        ] {
            let error = expand(text, &|_| None).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
