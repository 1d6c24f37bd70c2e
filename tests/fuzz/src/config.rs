//! What a user writes, or another program for him.

use peerbus_adapter::{Url, credentials};

/// A credentials file: read or refused, without a word of what stands in it, and rotated or left.
pub(crate) fn credentials(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(found) = credentials::parse(text) else {
        assert!(credentials::rotated(text).is_err());
        return;
    };
    assert!(!format!("{found:?}").contains(found.token.expose()) || found.token.expose().len() < 8);
    if let Ok(rotated) = credentials::rotated(text) {
        let now = credentials::parse(&rotated).expect("a credentials file");
        assert!(now.secret.accepts(&found.secret) && now.secret.is_rotated());
        let retired = credentials::retired(&rotated).expect("it can be ended");
        let last = credentials::parse(&retired).expect("a credentials file");
        assert!(now.secret.accepts(&last.secret) && !last.secret.accepts(&found.secret));
        assert!(last.token == found.token && last.url == found.url);
    }
}

/// A broker's URL: what is read and written anew is the same.
pub(crate) fn url(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(url) = Url::parse(text)
    {
        assert_eq!(Url::parse(&url.to_string()).expect("a URL"), url);
    }
}

/// An agent's configuration; the first byte says whose. What install puts in, uninstall takes out.
pub(crate) fn agent_config(bytes: &[u8]) {
    if let Some((which, text)) = bytes.split_first()
        && let Ok(text) = std::str::from_utf8(text)
    {
        peerbus_setup::fuzz(*which, text);
    }
}
