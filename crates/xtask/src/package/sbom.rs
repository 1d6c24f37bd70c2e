//! The bill of materials of a binary, as CycloneDX 1.5 has it: the crates that are linked into it, with their licences and
//! sums, and their dependencies. It has no time and no number of its own, so it is the same each time.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::licences::linked;

/// The bill, from the words of cargo about the binary's target, and from the lock file.
pub(super) fn of(metadata: &Value, lock: &str) -> Result<String> {
    let bill = bill(metadata, &sums(lock)?);
    let bill = bill.context("cargo metadata has another form than it had")?;
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

/// The sums of what comes from a registry, by name and version.
fn sums(lock: &str) -> Result<BTreeMap<String, String>> {
    let lock: toml::Table = lock.parse()?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let sum = |package: &toml::Value| {
        let word = |member| package.get(member).and_then(toml::Value::as_str);
        let name = format!("{}@{}", word("name")?, word("version")?);
        Some((name, word("checksum")?.to_owned()))
    };
    Ok(packages.into_iter().flatten().filter_map(sum).collect())
}

fn bill(metadata: &Value, sums: &BTreeMap<String, String>) -> Option<Value> {
    let linked = linked(metadata)?;
    let packages = metadata["packages"].as_array()?.iter();
    let packages: BTreeMap<&str, &Value> = packages
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .filter(|(id, _)| linked.contains(id))
        .collect();
    let reference = |id: &str| {
        let package = packages.get(id)?;
        let [name, version] = ["name", "version"].map(|member| package[member].as_str());
        Some(format!("{}@{}", name?, version?))
    };
    let (mut product, mut components, mut dependencies) = (None, BTreeMap::new(), BTreeMap::new());
    for (id, package) in &packages {
        let reference = reference(id)?;
        match package["name"] == "peerbus" {
            true => product = Some(component("application", package, &reference, sums)),
            false => {
                let library = component("library", package, &reference, sums);
                components.insert(reference, library);
            }
        }
    }
    for node in metadata["resolve"]["nodes"].as_array()? {
        let Some(from) = node["id"].as_str().and_then(reference) else {
            continue;
        };
        let ids = node["deps"].as_array()?.iter().filter(|on| {
            let mut kinds = on["dep_kinds"].as_array().into_iter().flatten();
            kinds.any(|kind| kind["kind"].is_null())
        });
        let mut on: Vec<_> = ids
            .filter_map(|on| reference(on["pkg"].as_str()?))
            .collect();
        on.sort();
        dependencies.insert(from.clone(), json!({ "ref": from, "dependsOn": on }));
    }
    Some(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": product? },
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies.into_values().collect::<Vec<_>>(),
    }))
}

fn component(
    kind: &str,
    package: &Value,
    reference: &str,
    sums: &BTreeMap<String, String>,
) -> Value {
    let mut component = json!({
        "type": kind, "bom-ref": reference, "name": package["name"], "version": package["version"],
    });
    if let Some(licence) = package["license"].as_str() {
        // As some have it who wrote it down before there were expressions.
        let expression = licence.replace('/', " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if let Some(sum) = sums.get(reference) {
        component["purl"] = format!("pkg:cargo/{reference}").into();
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    component
}
