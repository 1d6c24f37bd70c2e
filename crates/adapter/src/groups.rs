//! Groups: which this peer joins by itself, and which it is asked to.

use std::time::Duration;

use peerbus_core::peer::{Answer, Session};
use peerbus_wire::limits::GROUPS_MAX;
use peerbus_wire::{GroupName, escape};

use crate::bus::Bus;
use crate::compose;
use crate::error::{BusError, ConfigError};
use crate::project;

/// What stands for the group of the project.
const PROJECT: &str = "{project}";

/// The groups that an agent's session joins by itself: those that `PEERBUS_GROUPS` names, with commas
/// or spaces between them, where `{project}` is that of its project and `none` is none; without the
/// variable, that of its project.
///
/// # Errors
///
/// Says what is no group, and what one is.
pub fn own(env: impl Fn(&str) -> Option<String>) -> Result<Vec<GroupName>, ConfigError> {
    let said = env("PEERBUS_GROUPS").filter(|said| !said.trim().is_empty());
    let said = said.unwrap_or_else(|| PROJECT.into());
    let none = |word: &str| word.eq_ignore_ascii_case("none");
    if none(said.trim()) {
        return Ok(Vec::new());
    }
    let mut groups = Vec::new();
    for word in said.split([',', ' ']).filter(|word| !word.is_empty()) {
        if none(word) {
            return Err(ConfigError(format!(
                "PEERBUS_GROUPS is \"{}\": the word none stands alone, or a group is #none",
                escape(&said, 100)
            )));
        }
        if word == PROJECT {
            let name = project::root().and_then(|root| project::name(&root));
            groups.extend(name.and_then(|name| GroupName::near(&name)));
            continue;
        }
        groups.push(compose::group(word).map_err(|why| {
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
            let parsed = names.iter().map(|name| compose::group(name));
            parsed
                .collect::<Result<Vec<_>, _>>()
                .map_err(BusError::Refused)
        };
        let both = (all(join)?, all(leave)?);
        let asked = |session: &mut Session, until_ms| session.regroup(both, until_ms);
        let Answer::Peers(roster) = self.query(asked, deadline).await? else {
            return Err(BusError::Closed);
        };
        match (roster.groups, roster.reason) {
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
        let groups = own(|_| said.map(str::to_owned)).map_err(|error| error.to_string())?;
        Ok(groups.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_session_joins_its_project_or_what_is_said() {
        // The tests run in this crate's directory.
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
