//! Where a session runs: its project, the branch that is checked out there, this machine.

use std::path::{Path, PathBuf};

/// More than a file that names a branch or a directory has.
const FILE_BYTES_MAX: u64 = 4_096;

/// The project's directory: agents start us in it; some also say where it is.
#[must_use]
pub fn root() -> Option<PathBuf> {
    let variables = peerbus_agents::ALL.iter();
    let mut variables = variables.filter_map(|agent| agent.project_variable);
    let said = |variable| std::env::var_os(variable).map(PathBuf::from);
    variables
        .find_map(|variable| said(variable).filter(|path| path.is_absolute()))
        .or_else(|| std::env::current_dir().ok())
}

/// The project's name: that of its directory.
#[must_use]
pub fn name(root: &Path) -> Option<String> {
    Some(root.file_name()?.to_string_lossy().into_owned())
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
        .map(|dir| dir.join(".git"))
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
