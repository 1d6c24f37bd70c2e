//! Another secret in the credentials file, and later none but that.

use std::path::Path;

use peerbus_os::private;
use zeroize::Zeroizing;

use super::{CredentialsError, FILE, load, parse, random_hex};

/// Puts a new secret into the file at `path`, and keeps the one that was there as
/// `hmac_secret_also`. Everything else in it stays.
///
/// # Errors
///
/// When the file cannot be used or written, or a rotation is under way.
pub fn rotate(path: &Path) -> Result<(), CredentialsError> {
    edit(path, rotated)
}

/// Fails where [`rotate`] would for what stands in the file.
///
/// # Errors
///
/// As for [`rotate`].
pub fn check_rotatable(path: &Path) -> Result<(), CredentialsError> {
    let text = FILE.text(path).map_err(CredentialsError::Unusable)?;
    let text = text.ok_or_else(|| CredentialsError::Missing(path.into()))?;
    let changed = rotated(&text).map_err(|why| FILE.says(path, why));
    changed.map(drop).map_err(CredentialsError::Unusable)
}

/// Takes `hmac_secret_also` out of the file at `path`. Everything else in it stays.
///
/// # Errors
///
/// When the file cannot be used or written, or has none.
pub fn retire(path: &Path) -> Result<(), CredentialsError> {
    edit(path, retired)
}

/// The text of a credentials file with a new secret, as [`rotate`] writes it.
///
/// # Errors
///
/// What is against it, to be read after the file's name.
pub fn rotated(text: &str) -> Result<Zeroizing<String>, String> {
    if parse(text)?.secret.is_rotated() {
        return Err(
            "has an `hmac_secret_also`: end that rotation first, with `peerbus secret \
                    retire`"
                .into(),
        );
    }
    private::edited(text, |document| {
        let fresh = random_hex().as_str().into();
        document["hmac_secret_also"] = std::mem::replace(&mut document["hmac_secret"], fresh);
        Ok(())
    })
    .map(|(edited, ())| edited)
}

/// The text of a credentials file without `hmac_secret_also`, as [`retire`] writes it.
///
/// # Errors
///
/// As for [`rotated`].
pub fn retired(text: &str) -> Result<Zeroizing<String>, String> {
    if !parse(text)?.secret.is_rotated() {
        return Err("has no `hmac_secret_also`: there is nothing to retire".into());
    }
    private::edited(text, |document| {
        document.remove("hmac_secret_also");
        Ok(())
    })
    .map(|(edited, ())| edited)
}

/// Replaces the file in one step by what `change` makes of its text.
fn edit(
    path: &Path,
    change: fn(&str) -> Result<Zeroizing<String>, String>,
) -> Result<(), CredentialsError> {
    // There must be one.
    load(path)?;
    let changed = FILE.edit_text(path, |text, _| {
        let edited = change(text).map_err(|why| FILE.says(path, why))?;
        Ok((edited, ()))
    });
    changed.map_err(CredentialsError::Unusable)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use peerbus_wire::Secret;

    use super::super::load_or_create;
    use super::*;

    #[test]
    fn a_rotation_keeps_the_old_secret_and_all_else_until_it_is_retired() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept/credentials.toml");
        let link = dir.path().join("credentials.toml");
        load_or_create(&path).unwrap();
        let old = load(&path).unwrap().secret;
        let text = fs::read_to_string(&path).unwrap() + "url = \"ws://bus.example:1\" # mine\n";
        fs::write(&path, &text).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let error = retire(&link).unwrap_err().to_string();
        assert!(error.contains("has no `hmac_secret_also`"), "{error}");

        rotate(&link).unwrap();
        let found = load(&link).unwrap();
        assert!(found.secret.accepts(&old) && !old.accepts(&found.secret));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let error = rotate(&link).unwrap_err().to_string();
        assert!(error.contains("peerbus secret retire"), "{error}");

        retire(&link).unwrap();
        let found = load(&link).unwrap();
        assert!(!found.secret.accepts(&old) && !found.secret.is_rotated());
        let rest = |text: &str| -> Vec<String> {
            let other = |line: &&str| !line.starts_with("hmac_secret");
            text.lines().filter(other).map(str::to_owned).collect()
        };
        assert_eq!(rest(&fs::read_to_string(&path).unwrap()), rest(&text));
    }

    #[test]
    fn a_file_may_be_laid_out_in_any_way() {
        let secret = "s".repeat(32);
        for text in [
            format!("token = \"t\"\n# kept\n\"hmac_secret\" = \"{secret}\" # the first\n"),
            format!("hmac_secret = \"\"\"\n{secret}\"\"\" # the first\n# kept\ntoken = \"t\""),
        ] {
            let old = parse(&text).unwrap().secret;
            let edited = rotated(&text).unwrap();
            let found = parse(&edited).unwrap().secret;
            assert!(found.accepts(&old) && !old.accepts(&found), "{}", *edited);
            assert!(edited.contains("# kept") && edited.contains("# the first"));
            assert!(
                !parse(&retired(&edited).unwrap())
                    .unwrap()
                    .secret
                    .accepts(&old)
            );
        }
    }

    #[test]
    fn a_domain_may_have_a_secret_of_its_own_which_no_rotation_of_the_other_touches() {
        let (home, beta) = ("h".repeat(32), "b".repeat(32));
        let text = format!(
            "token = \"t\"\nhmac_secret = \"{home}\"\n\n[domains.beta]\nhmac_secret = \"{beta}\"\n"
        );
        let is = |text: &str| {
            let found = parse(text).unwrap().secret;
            let beta = Secret::new(beta.as_bytes()).unwrap();
            let between = |from, to| found.between(from, to).accepts(&beta);
            assert!(between("a@alpha", "b@beta") && between("b@beta", "a@alpha"));
            assert!(!between("a", "b") && !between("a@alpha", "b@gamma"));
            found
        };
        let old = is(&text);
        let edited = rotated(&text).unwrap();
        let found = is(&edited);
        assert!(found.is_rotated() && found.accepts(&old) && !old.accepts(&found));
        assert!(!is(&retired(&edited).unwrap()).accepts(&old));
    }
}
