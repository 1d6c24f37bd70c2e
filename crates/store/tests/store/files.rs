//! Opening: what is made, what is refused, and who else may be there.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use peerbus_core::Stamp;
use peerbus_core::audit::{AuditLog, ChainHead};
use peerbus_core::store::{Store as _, Txn as _};
use peerbus_store::SqliteStore;
use rusqlite::Connection;

use crate::{open, place};

fn refusal(path: &Path) -> String {
    SqliteStore::open(path).unwrap_err().to_string()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Each file there is closed to others. The witness's fresh file takes the old one's place meanwhile.
fn are_private(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_fresh = path.extension().is_some_and(|it| it == "new");
        match fs::metadata(&path) {
            Err(error) if is_fresh && error.kind() == ErrorKind::NotFound => {}
            found => {
                let mode = found.unwrap().permissions().mode() & 0o777;
                assert_eq!(mode, 0o600, "{}", path.display());
            }
        }
    }
}

/// Commits one audit block, so that the database depends on its key.
fn seal(store: &mut SqliteStore) {
    let key = store.audit_key().clone();
    let mut head = ChainHead::new(&key);
    let block = AuditLog::default().seal(&key, &mut head, Stamp::default());
    store.begin().unwrap();
    store.append_audit(&block, &head).unwrap();
    store.commit().unwrap();
}

#[test]
fn what_is_made_is_for_the_owner_only() {
    let (directory, _) = place();
    let path = directory.path().join("state/peerbus/bus.db");
    let mut store = open(&path);
    seal(&mut store);
    assert_eq!(mode(&directory.path().join("state")), 0o700);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    are_private(path.parent().unwrap());
}

#[test]
fn a_second_broker_is_refused_and_told_who_is_there() {
    let (directory, path) = place();
    let store = open(&path);
    let found = refusal(&path);
    let holder = format!("in use by another broker, process {}", std::process::id());
    assert!(
        found.contains(&holder) && found.contains("bus.db.lock"),
        "{found}"
    );

    // By another way to the same file, too.
    let link = directory.path().join("link.db");
    symlink(&path, &link).unwrap();
    assert!(refusal(&link).contains(&holder), "{}", refusal(&link));

    // Readers are not kept out, and a closed database is free again.
    let reader = Connection::open(&path).unwrap();
    reader
        .query_row("SELECT count(*) FROM messages", [], |_| Ok(()))
        .unwrap();
    drop(reader);
    store.close().unwrap();
    open(&path);
}

#[test]
fn a_number_left_by_a_dead_broker_locks_nobody_out() {
    let (directory, path) = place();
    fs::write(directory.path().join("bus.db.lock"), "1\n").unwrap();
    open(&path);
}

#[test]
fn a_link_in_place_of_a_file_of_ours_is_refused_and_its_target_left_alone() {
    for suffix in ["-wal", "-shm", ".lock", ".audit-key"] {
        let (directory, path) = place();
        let target = directory.path().join("precious");
        fs::write(&target, "precious").unwrap();
        let link = directory.path().join(format!("bus.db{suffix}"));
        symlink(&target, &link).unwrap();
        let found = refusal(&path);
        assert!(found.contains(&format!("bus.db{suffix}")), "{found}");
        assert!(found.contains("is a symbolic link"), "{found}");
        fs::remove_file(&link).unwrap();
        fs::hard_link(&target, &link).unwrap();
        let found = refusal(&path);
        assert!(found.contains("has 2 names"), "{found}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }
}

#[test]
fn a_link_in_place_of_the_unfinished_key_is_not_followed() {
    let (directory, path) = place();
    let target = directory.path().join("precious");
    fs::write(&target, "precious").unwrap();
    symlink(&target, directory.path().join("bus.db.audit-key.new")).unwrap();
    open(&path);
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
}

#[test]
fn a_database_with_a_second_name_is_refused() {
    let (directory, path) = place();
    open(&path).close().unwrap();
    let second = directory.path().join("second.db");
    fs::hard_link(&path, &second).unwrap();
    for path in [&path, &second] {
        let found = refusal(path);
        assert!(found.contains("has 2 names (hard links)"), "{found}");
    }
    fs::remove_file(&second).unwrap();
    open(&path);
}

#[test]
fn files_that_others_could_read_are_closed_to_them() {
    let (directory, path) = place();
    let mut store = open(&path);
    seal(&mut store);
    store.close().unwrap();
    for entry in fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let _store = open(&path);
    are_private(directory.path());
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    let (directory, path) = place();
    for mode in [0o777, 0o1777] {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(directory.path(), permissions).unwrap();
        let found = refusal(&path);
        assert!(
            found.contains(&format!("(mode {mode:04o}): run `chmod o-w ")),
            "{found}"
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_foreign_file_is_refused_and_left_alone() {
    let (directory, path) = place();
    let text = "SELECT is not select ".repeat(400);
    fs::write(&path, &text).unwrap();
    let open_to_all = fs::Permissions::from_mode(0o644);
    fs::set_permissions(&path, open_to_all.clone()).unwrap();
    assert!(refusal(&path).contains("no peerbus database (found no SQLite header)"));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert_eq!(mode(&path), 0o644);

    let path = directory.path().join("foreign.db");
    let foreign = Connection::open(&path).unwrap();
    foreign
        .execute_batch("CREATE TABLE peers(name); PRAGMA application_id = 77")
        .unwrap();
    drop(foreign);
    fs::set_permissions(&path, open_to_all).unwrap();
    let before = fs::read(&path).unwrap();
    let found = refusal(&path);
    assert!(
        found.contains("found an SQLite database with application id 77"),
        "{found}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(mode(&path), 0o644);
    let left = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 2, "nothing was made beside them");
}

#[test]
fn a_newer_schema_is_refused() {
    let (_directory, path) = place();
    open(&path).close().unwrap();
    let db = Connection::open(&path).unwrap();
    db.execute_batch("PRAGMA user_version = 42").unwrap();
    drop(db);
    let found = refusal(&path);
    assert!(
        found.contains("has schema version 42, and this peerbus knows versions"),
        "{found}"
    );
}

#[test]
fn the_key_stays_and_is_asked_for() {
    let (directory, path) = place();
    let key = directory.path().join("bus.db.audit-key");
    let mut store = open(&path);
    let first = store.audit_key().0;
    seal(&mut store);
    store.close().unwrap();
    assert_eq!(open(&path).audit_key().0, first);

    let kept = fs::read(&key).unwrap();
    fs::remove_file(&key).unwrap();
    let found = refusal(&path);
    assert!(found.contains("bus.db.audit-key is missing"), "{found}");
    assert!(found.contains("put the key file back"), "{found}");
    assert!(!key.exists());

    fs::write(&key, "ab".repeat(32)).unwrap();
    let found = refusal(&path);
    assert!(found.contains("not authentic under"), "{found}");
    fs::write(&key, kept).unwrap();
    open(&path);
}

#[test]
fn two_databases_have_two_keys() {
    let ((_one, one), (_two, two)) = (place(), place());
    assert_ne!(open(&one).audit_key().0, open(&two).audit_key().0);
}

#[test]
fn a_key_whose_database_is_gone_serves_the_next_one() {
    let (_directory, path) = place();
    let store = open(&path);
    let key = store.audit_key().0;
    store.close().unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(open(&path).audit_key().0, key);
}

#[test]
fn a_path_that_cannot_be_is_named() {
    let (directory, path) = place();
    fs::write(&path, "").unwrap();
    let found = refusal(&path.join("bus.db"));
    assert!(
        found.contains("cannot create the directory") && found.contains("bus.db"),
        "{found}"
    );
    let made = directory.path().join("made");
    fs::create_dir(&made).unwrap();
    let found = refusal(&made);
    assert!(
        found.contains("cannot use the database file")
            && found.contains(": it is not a regular file"),
        "{found}"
    );
}
