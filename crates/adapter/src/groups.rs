//! Groups: which this peer joins by itself, and which it is asked to.

use std::time::Duration;

use peerbus_peer::session::{Answer, Question};
use peerbus_wire::limits::GROUPS_MAX;
use peerbus_wire::{GroupName, escape};

use crate::bus::Bus;
use crate::compose;
use crate::error::{BusError, ConfigError};
use crate::project::{Group, Project};

const PROJECT: &str = "{project}";

/// The groups that an agent's session joins by itself: those that `PEERBUS_GROUPS` names, with commas
/// or spaces between them, where `{project}` is that of its project and `none` is none; without the
/// variable, that of its project.
///
/// # Errors
///
/// Says what is no group, and what one is.
pub fn own(env: impl Fn(&str) -> Option<String>) -> Result<Vec<GroupName>, ConfigError> {
    named(&said(env), || Project::here()?.group(true))
}

/// What is to be known of the group of this session's project where it is not called as the project's
/// directory: a sentence for its agent or its user.
#[must_use]
pub fn told(env: impl Fn(&str) -> Option<String>) -> Option<String> {
    of_project(env)?.told()
}

/// The same for who sends to `to`, if that is the group which the project's directory would have.
#[must_use]
pub fn mistaken(to: &str, env: impl Fn(&str) -> Option<String>) -> Option<String> {
    let group = to.starts_with('#').then(|| of_project(env))??;
    group.told().filter(|_| group.is_mistaken(to))
}

/// The group of the project, if the session joins it and not those that it is taken for.
fn of_project(env: impl Fn(&str) -> Option<String>) -> Option<Group> {
    let said = said(env);
    let mut words = said.split([',', ' ']).filter(|word| !word.is_empty());
    let group = Project::here()?.group(false)?;
    let joins = words.clone().any(|word| word == PROJECT);
    (joins && !words.any(|word| group.is_mistaken(word))).then_some(group)
}

/// What stands in the variable, or would.
fn said(env: impl Fn(&str) -> Option<String>) -> String {
    let said = env("PEERBUS_GROUPS").filter(|said| !said.trim().is_empty());
    said.unwrap_or_else(|| PROJECT.into())
}

/// Reads a group's name, with or without the `#`; that of a project may be spelt as its directory is.
///
/// # Errors
///
/// Says what is no group, and what one is.
pub fn read(name: &str) -> Result<GroupName, String> {
    let named = compose::project_named(name).map_or_else(|| GroupName::parse(name), Ok);
    named.map_err(|error| format!("\"{}\" is no group: {error}", escape(name, 80)))
}

fn named(said: &str, project: impl Fn() -> Option<Group>) -> Result<Vec<GroupName>, ConfigError> {
    let none = |word: &str| word.eq_ignore_ascii_case("none");
    if none(said.trim()) {
        return Ok(Vec::new());
    }
    let mut groups = Vec::new();
    for word in said.split([',', ' ']).filter(|word| !word.is_empty()) {
        if none(word) {
            return Err(ConfigError(format!(
                "PEERBUS_GROUPS is \"{}\": the word none stands alone, or a group is #none",
                escape(said, 100)
            )));
        }
        if word == PROJECT {
            groups.extend(project().map(|group| group.name));
            continue;
        }
        groups.push(read(word).map_err(|why| {
            ConfigError(format!(
                "PEERBUS_GROUPS: {why}; {PROJECT} stands for that of the project, and the word none \
                 for no group at all"
            ))
        })?);
    }
    match groups.len() {
        ..=GROUPS_MAX => Ok(groups),
        many => Err(ConfigError(format!(
            "PEERBUS_GROUPS names {many} groups, and {GROUPS_MAX} is the most"
        ))),
    }
}

impl Bus {
    /// Joins groups and leaves groups, all of them or none; gives those of which this peer is a member
    /// then. Names have a `#` in front, or not.
    ///
    /// # Errors
    ///
    /// [`BusError::Refused`] with what is no group, or why the broker did nothing;
    /// [`BusError::NotSupported`] from a broker that knows no groups; otherwise as for [`Bus::peers`].
    pub async fn regroup(
        &self,
        join: &[String],
        leave: &[String],
        deadline: Duration,
    ) -> Result<Vec<GroupName>, BusError> {
        let all = |names: &[String]| {
            let all = names.iter().map(|name| read(name));
            all.collect::<Result<_, _>>().map_err(BusError::Refused)
        };
        let question = Question::Regroup(all(join)?, all(leave)?);
        let Answer::Peers(frame) = self.ask(question, deadline).await? else {
            return Err(BusError::Closed);
        };
        match (frame.groups, frame.reason) {
            (_, Some(why)) => Err(BusError::Refused(why)),
            (Some(groups), None) => Ok(groups),
            (None, None) => Err(BusError::NotSupported),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(said: Option<&str>) -> Result<Vec<String>, String> {
        let adapter = || {
            let title = "Adapter".to_owned();
            let place = "/work/Adapter".into();
            let dir = tempfile::tempdir().unwrap();
            crate::project::claims::group(Some(dir.path()), &Project { place, title }, true)
        };
        let said = super::said(|_| said.map(str::to_owned));
        let groups = named(&said, adapter).map_err(|error| error.to_string())?;
        Ok(groups.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_session_joins_its_project_or_what_is_said() {
        assert_eq!(of(None).unwrap(), ["#adapter"]);
        assert_eq!(of(Some("none")).unwrap(), [""; 0]);
        assert_eq!(of(Some(" NONE ")).unwrap(), [""; 0]);
        let error = of(Some("shop none")).unwrap_err();
        assert!(error.contains("the word none stands alone"), "{error}");
        assert_eq!(of(Some("#shop, {project}")).unwrap(), ["#shop", "#adapter"]);
        let error = of(Some("shop!")).unwrap_err();
        assert!(
            error.contains("\"shop!\" is no group: a group is #"),
            "{error}"
        );
        let many: Vec<_> = (0..65).map(|n| format!("g{n}")).collect();
        assert!(of(Some(&many.join(","))).unwrap_err().contains("65 groups"));
    }
}
