//! Where agents keep what is their user's.

use std::path::{Path, PathBuf};

use crate::{File, Scope};

/// A directory of a user's: the one that a variable names, else one below the home.
#[derive(Debug, Clone, Copy)]
pub struct Base {
    /// The variable; empty: there is none.
    pub variable: &'static str,
    /// The directory below the home; empty: the home itself.
    pub below_home: &'static str,
}

impl Base {
    /// The directory for this process's user. A variable counts only with an absolute path. `None`:
    /// there is no home.
    #[must_use]
    pub fn directory(&self) -> Option<PathBuf> {
        self.among(|name| std::env::var_os(name).map(PathBuf::from), home())
    }

    /// The value of its variable, if it is there and no absolute path.
    #[must_use]
    pub fn wrong(&self) -> Option<PathBuf> {
        let named = Some(self.variable).filter(|name| !name.is_empty());
        let value = named.and_then(std::env::var_os).map(PathBuf::from)?;
        (!value.as_os_str().is_empty() && !value.is_absolute()).then_some(value)
    }

    fn among(
        &self,
        env: impl Fn(&str) -> Option<PathBuf>,
        home: Option<PathBuf>,
    ) -> Option<PathBuf> {
        let named = Some(self.variable).filter(|name| !name.is_empty());
        let named = named.and_then(env).filter(|path| path.is_absolute());
        named.or_else(|| Some(home?.join(self.below_home)))
    }
}

/// The user's home.
#[must_use]
pub fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

/// The name under which clients keep a project's conversations: JavaScript's `/[^a-zA-Z0-9]/g` replaced in
/// its directory, which counts UTF-16 units.
#[must_use]
pub fn project_slug(cwd: &Path) -> String {
    let plain = |unit: u16| char::from_u32(u32::from(unit)).filter(char::is_ascii_alphanumeric);
    let path = cwd.to_string_lossy();
    let units = path.encode_utf16();
    units.map(|unit| plain(unit).unwrap_or('-')).collect()
}

/// Longest id of a session that is taken for one.
const ID_BYTES_MAX: usize = 128;

/// Whether a text can be the id of a session, which is part of a file's name: nothing else gets there.
#[must_use]
pub fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.len() <= ID_BYTES_MAX && text.bytes().all(plain)
}

impl File {
    /// Where it may be, for this process's user or for a project.
    #[must_use]
    pub fn candidates(&self, scope: Scope, project: &Path) -> Vec<PathBuf> {
        let (dir, names) = match scope {
            Scope::User => (self.user.directory(), self.user_names),
            Scope::Project => (Some(project.to_owned()), self.project_names),
        };
        let all = dir.map(|dir| names.iter().map(|name| dir.join(name)).collect());
        all.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_absolute_path_in_a_variable_counts() {
        let base = Base {
            variable: "THEIRS",
            below_home: ".theirs",
        };
        let home = || Some(PathBuf::from("/home/me"));
        for (value, found) in [
            (Some("/etc/theirs"), "/etc/theirs"),
            (Some("theirs"), "/home/me/.theirs"),
            (Some(""), "/home/me/.theirs"),
            (None, "/home/me/.theirs"),
        ] {
            let env = |name: &str| value.filter(|_| name == "THEIRS").map(PathBuf::from);
            assert_eq!(base.among(env, home()), Some(found.into()), "{value:?}");
        }
        assert_eq!(base.among(|_| None, None), None);
    }

    #[test]
    fn a_project_has_the_name_that_clients_give_it() {
        let cwd = Path::new("/home/ann/My_proj.2/é");
        assert_eq!(project_slug(cwd), "-home-ann-My-proj-2--");
    }
}
