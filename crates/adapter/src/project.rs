//! Where a session runs: its project, the branch that is checked out there, this machine.

pub(crate) mod claims;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use peerbus_os::user;

pub use claims::{Group, kept};

use crate::paths::Paths;

/// More than a file that names a branch or a directory has.
const FILE_BYTES_MAX: u64 = 4_096;

/// What the name of a repository without a checkout ends in.
const BARE: &str = ".git";

/// Where a session runs: agents start us there; some also say where it is.
#[must_use]
pub fn root() -> Option<PathBuf> {
    let variables = peerbus_agents::ALL.iter();
    let mut variables = variables.filter_map(|agent| agent.project_variable);
    let said = |variable| std::env::var_os(variable).map(PathBuf::from);
    variables
        .find_map(|variable| said(variable).filter(|path| path.is_absolute()))
        .or_else(|| std::env::current_dir().ok())
}

/// A project: a repository of Git with all its worktrees and directories, or a directory that is in
/// none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// The top of its main checkout; the repository itself where it has none there.
    pub place: PathBuf,
    /// What its directory is called.
    pub title: String,
}

impl Project {
    /// That of this process's session.
    #[must_use]
    pub fn here() -> Option<Self> {
        root().as_deref().and_then(Self::at)
    }

    /// That of a directory. No program is run, and nothing is written.
    #[must_use]
    pub fn at(dir: &Path) -> Option<Self> {
        let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
        let name = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
        let common = repository(&dir);
        let place = match &common {
            Some(common) if common.ends_with(BARE) => common.parent()?.to_owned(),
            Some(common) => common.clone(),
            None => dir,
        };
        let title = name(&place)?;
        let title = match common.as_ref() == Some(&place) {
            false => title,
            // A repository that is hidden in its project's directory.
            true if title.starts_with('.') => name(place.parent()?)?,
            true => title.strip_suffix(BARE).unwrap_or(&title).to_owned(),
        };
        Some(Self { place, title })
    }

    /// Its group, as it is kept for the projects of this user. Nothing is written unless `claims`: then
    /// the name is this project's from now on.
    #[must_use]
    pub fn group(&self, claims: bool) -> Option<Group> {
        let state = Paths::find().ok().map(|paths| paths.state_dir);
        let kept = state.map(|state| state.join(claims::DIRECTORY));
        claims::group(kept.as_deref(), self, claims)
    }
}

/// What all worktrees of the repository around a directory share (gitrepository-layout(5)).
fn repository(dir: &Path) -> Option<PathBuf> {
    let home = peerbus_agents::home().and_then(|home| fs::canonicalize(home).ok());
    // Under version control, a home is no project of what lies below it.
    let inside = |above: &&Path| {
        *above == dir || Some(*above) != home.as_deref() && above.parent().is_some()
    };
    dir.ancestors().take_while(inside).find_map(common)
}

/// The same for the directory at the top of a checkout, or for the repository itself.
fn common(top: &Path) -> Option<PathBuf> {
    let is_repository = |dir: &Path| {
        let part = |name| fs::symlink_metadata(dir.join(name)).is_ok();
        part("HEAD") && part("objects") && part("refs")
    };
    let dot_git = top.join(BARE);
    let Ok(found) = fs::symlink_metadata(&dot_git) else {
        return is_repository(top).then(|| top.to_owned());
    };
    // In a directory such as /tmp anybody can make one.
    if !user::owns(&dot_git) && fs::metadata(top).ok()?.uid() != found.uid() {
        return None;
    }
    match found.is_file() {
        true => Some(linked(top, &dot_git).unwrap_or(dot_git)),
        false => is_repository(&dot_git).then_some(dot_git),
    }
}

/// The repository to which a file `.git` leads. It comes with the directory, wherever that is from:
/// the repository must know the checkout, or lie in it or in the repository around it.
fn linked(top: &Path, dot_git: &Path) -> Option<PathBuf> {
    let leads = |from: &Path, to: &str| fs::canonicalize(from.join(to.trim())).ok();
    let git_dir = leads(top, read_small(dot_git)?.strip_prefix("gitdir:")?)?;
    if let Some(shared) = read_small(&git_dir.join("commondir")) {
        let shared = leads(&git_dir, &shared)?;
        let back = leads(&git_dir, &read_small(&git_dir.join("gitdir"))?)?;
        let known = git_dir.parent()? == shared.join("worktrees") && back == dot_git;
        return known.then_some(shared);
    }
    if git_dir.starts_with(top) {
        return Some(git_dir);
    }
    // A submodule, in the main checkout or in a worktree.
    let around = repository(top.parent()?)?;
    let mut inside = git_dir.strip_prefix(&around).ok()?.components();
    if inside.as_path().starts_with("worktrees") {
        inside.by_ref().take(2).for_each(drop);
    }
    let module = inside.as_path();
    module.starts_with("modules").then(|| around.join(module))
}

/// This machine's name, up to the first dot.
#[must_use]
pub fn host() -> Option<String> {
    let said = read_small(Path::new("/proc/sys/kernel/hostname"))
        .or_else(|| read_small(Path::new("/etc/hostname")))
        .or_else(|| std::env::var("HOSTNAME").ok())?;
    let name = said.trim().split('.').next()?.to_owned();
    (!name.is_empty()).then_some(name)
}

/// The checked-out branch, read from the repository's files (gitrepository-layout(5)).
#[must_use]
pub fn branch(root: &Path) -> Option<String> {
    let dot_git = root
        .ancestors()
        .map(|dir| dir.join(BARE))
        .find(|path| path.exists())?;
    let dir = if dot_git.is_file() {
        let link = read_small(&dot_git)?;
        dot_git.parent()?.join(link.strip_prefix("gitdir:")?.trim())
    } else {
        dot_git
    };
    let head = read_small(&dir.join("HEAD"))?;
    head.trim()
        .strip_prefix("ref: refs/heads/")
        .map(str::to_owned)
}

fn read_small(path: &Path) -> Option<String> {
    peerbus_os::file::read_small(path, FILE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_branch_is_found_in_a_clone_and_in_a_worktree() {
        let dir = tempfile::tempdir().unwrap();
        let (clone, tree) = (dir.path().join("clone"), dir.path().join("tree"));
        std::fs::create_dir_all(clone.join(".git/worktrees/tree")).unwrap();
        std::fs::create_dir_all(clone.join("src")).unwrap();
        std::fs::create_dir_all(&tree).unwrap();
        std::fs::write(clone.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::write(
            clone.join(".git/worktrees/tree/HEAD"),
            "ref: refs/heads/fix/x\n",
        )
        .unwrap();
        std::fs::write(tree.join(".git"), "gitdir: ../clone/.git/worktrees/tree\n").unwrap();
        assert_eq!(branch(&clone.join("src")).as_deref(), Some("main"));
        assert_eq!(branch(&tree).as_deref(), Some("fix/x"));
        std::fs::write(clone.join(".git/HEAD"), "0123456789abcdef\n").unwrap();
        assert_eq!(branch(&clone), None);
    }

    /// A directory with what these files hold; a name with a slash at its end is a directory.
    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(dir.path()).unwrap();
        for (name, text) in files {
            let file = path.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            match name.ends_with('/') {
                true => fs::create_dir_all(file).unwrap(),
                false => fs::write(file, text.replace("DIR", path.to_str().unwrap())).unwrap(),
            }
        }
        (dir, path)
    }

    fn bare(dir: &str) -> Vec<(String, &'static str)> {
        ["HEAD", "objects/", "refs/"]
            .map(|name| (format!("{dir}/{name}"), "ref: refs/heads/main\n"))
            .to_vec()
    }

    fn repositories(dirs: &[&str], files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let bares: Vec<_> = dirs.iter().flat_map(|dir| bare(dir)).collect();
        let mut all: Vec<_> = bares
            .iter()
            .map(|(name, text)| (name.as_str(), *text))
            .collect();
        all.extend(files);
        tree(&all)
    }

    #[test]
    fn worktrees_and_directories_of_a_repository_are_one_project() {
        let (_dir, path) = repositories(
            &["shop/.git"],
            &[
                ("shop/src/bin/", ""),
                ("shop/.git/worktrees/fix/commondir", "../..\n"),
                ("shop/.git/worktrees/fix/gitdir", "DIR/shop-fix/.git\n"),
                ("shop-fix/.git", "gitdir: DIR/shop/.git/worktrees/fix\n"),
                ("shop-fix/src/", ""),
                // As `worktree.useRelativePaths` writes it.
                ("shop/.git/worktrees/feat/commondir", "../..\n"),
                (
                    "shop/.git/worktrees/feat/gitdir",
                    "../../../.claude/worktrees/feat/.git\n",
                ),
                (
                    "shop/.claude/worktrees/feat/.git",
                    "gitdir: ../../../.git/worktrees/feat\n",
                ),
                ("shop/.claude/worktrees/plain/", ""),
            ],
        );
        let shop = Project {
            place: path.join("shop"),
            title: "shop".into(),
        };
        for dir in [
            "shop",
            "shop/src/bin",
            "shop/.git/objects",
            "shop-fix",
            "shop-fix/src",
            "shop/.claude/worktrees/feat",
            "shop/.claude/worktrees/plain",
        ] {
            assert_eq!(Project::at(&path.join(dir)).as_ref(), Some(&shop), "{dir}");
        }
        std::os::unix::fs::symlink(path.join("shop/src"), path.join("link")).unwrap();
        assert_eq!(Project::at(&path.join("link")), Some(shop));
        let outside = Project::at(&path).unwrap();
        assert_eq!(
            outside.place, path,
            "a directory in no repository is itself"
        );
    }

    #[test]
    fn repositories_without_a_checkout_and_submodules_are_projects_of_their_own() {
        let (_dir, path) = repositories(
            &[
                "depot/shop.git",
                "lab/.bare",
                "top/.git",
                "top/.git/modules/libs/sub",
            ],
            &[
                ("depot/shop.git/worktrees/main/commondir", "../..\n"),
                ("depot/shop.git/worktrees/main/gitdir", "DIR/main/.git\n"),
                ("main/.git", "gitdir: DIR/depot/shop.git/worktrees/main\n"),
                ("lab/.git", "gitdir: ./.bare\n"),
                ("lab/.bare/worktrees/a/commondir", "../..\n"),
                ("lab/.bare/worktrees/a/gitdir", "DIR/lab/a/.git\n"),
                ("lab/a/.git", "gitdir: DIR/lab/.bare/worktrees/a\n"),
                ("top/libs/sub/.git", "gitdir: ../../.git/modules/libs/sub\n"),
                ("top/.git/worktrees/w/commondir", "../..\n"),
                ("top/.git/worktrees/w/gitdir", "DIR/w/.git\n"),
                ("top/.git/worktrees/w/modules/libs/sub/HEAD", ""),
                ("w/.git", "gitdir: DIR/top/.git/worktrees/w\n"),
                (
                    "w/libs/sub/.git",
                    "gitdir: DIR/top/.git/worktrees/w/modules/libs/sub\n",
                ),
            ],
        );
        for (dir, place, title) in [
            ("depot/shop.git", "depot/shop.git", "shop"),
            ("main", "depot/shop.git", "shop"),
            ("lab", "lab/.bare", "lab"),
            ("lab/a", "lab/.bare", "lab"),
            ("top/libs", "top", "top"),
            ("top/libs/sub", "top/.git/modules/libs/sub", "sub"),
            ("w", "top", "top"),
            ("w/libs/sub", "top/.git/modules/libs/sub", "sub"),
        ] {
            let found = Project::at(&path.join(dir)).unwrap();
            assert_eq!(
                (found.place, found.title.as_str()),
                (path.join(place), title),
                "{dir}"
            );
        }
    }

    #[test]
    fn a_directory_makes_itself_no_part_of_a_repository_that_does_not_know_it() {
        let (_dir, path) = repositories(
            &["acme/api/.git"],
            &[
                ("acme/api/.git/worktrees/own/commondir", "../..\n"),
                ("acme/api/.git/worktrees/own/gitdir", "DIR/own/.git\n"),
                ("a/x/.git", "gitdir: DIR/acme/api/.git\n"),
                ("b/x/.git", "gitdir: DIR/acme/api/.git/worktrees/own\n"),
                ("c/x/.git", "gitdir: fake\n"),
                ("c/x/fake/commondir", "DIR/acme/api/.git\n"),
                ("c/x/fake/gitdir", "DIR/c/x/.git\n"),
                ("d/x/.git", "gitdir: /nowhere\n"),
                ("e/x/.git", "nothing of Git's\n"),
                ("f/x/.git/", ""),
                ("g/x/", ""),
            ],
        );
        std::os::unix::fs::symlink(path.join("acme/api/.git"), path.join("g/x/.git")).unwrap();
        for dir in ["a", "b", "c", "d", "e", "f", "g"] {
            let dir = path.join(dir).join("x");
            assert_eq!(Project::at(&dir).unwrap().place, dir);
        }
    }

    #[test]
    fn a_head_that_is_no_small_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let head = dir.path().join(".git/HEAD");
        std::fs::create_dir_all(&head).unwrap();
        assert_eq!(branch(dir.path()), None);
        std::fs::remove_dir(&head).unwrap();
        std::fs::write(&head, format!("ref: refs/heads/{}", "x".repeat(5_000))).unwrap();
        assert_eq!(branch(dir.path()), None);
        std::fs::remove_file(&head).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &head).unwrap();
        assert_eq!(branch(dir.path()), None, "it has no end");
    }
}
