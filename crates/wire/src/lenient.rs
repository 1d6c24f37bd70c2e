//! Members of others' JSON that may be of any type.

use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Deserializer};
use serde_json::value::RawValue;

/// For `deserialize_with`: a member of another type than expected says nothing.
///
/// # Errors
///
/// When it is no JSON.
pub fn lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let json = Box::<RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(json.get()).ok())
}
