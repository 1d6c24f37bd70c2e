//! The licences of what is linked into the binary.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run::{cargo, output};

/// How the names of files with licences begin, in capitals.
const FILES: [&str; 5] = ["COPYING", "COPYRIGHT", "LICENCE", "LICENSE", "NOTICE"];
const INTRODUCTION: &str = "The binary of peerbus has these libraries in it, beside the standard library of Rust\n\
                            (https://www.rust-lang.org, MIT or Apache-2.0). Their licences follow.\n\n";

/// Cargo's metadata of the packages of a binary that is compiled for this target.
pub(super) fn metadata(target: &str) -> Result<Value> {
    let metadata = [
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform",
    ];
    let output = output(cargo().args(metadata).arg(target))?;
    Ok(serde_json::from_slice(&output)?)
}

/// The text about the licences of what is linked.
pub(super) fn text(metadata: &Value) -> Result<String> {
    let linked = linked(metadata).context("cargo metadata has another form than it had")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let (mut names, mut texts) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    let foreign = |package: &&Value| !package["source"].is_null();
    for package in packages.filter(foreign) {
        let word = |member: &str| package[member].as_str().unwrap_or_default();
        if !linked.contains(word("id")) {
            continue;
        }
        let name = format!("{} {}", word("name"), word("version"));
        writeln!(names, "{name} ({})", word("license"))?;
        let folder = Path::new(word("manifest_path")).parent();
        for file in fs::read_dir(folder.context("a manifest without a folder")?)? {
            let file = file?;
            let upper = file.file_name().to_string_lossy().to_uppercase();
            if file.file_type()?.is_file() && FILES.iter().any(|start| upper.starts_with(start)) {
                let text = String::from_utf8_lossy(&fs::read(file.path())?)
                    .trim()
                    .to_owned();
                texts.entry(text).or_default().push(name.clone());
            }
        }
    }
    let mut said = INTRODUCTION.to_owned() + &names;
    for (text, of) in texts {
        write!(said, "\n{}\n{}\n\n{text}\n", "-".repeat(72), of.join(", "))?;
    }
    Ok(said)
}

/// The ids of the packages that the binary is linked of.
pub(super) fn linked(metadata: &Value) -> Option<BTreeSet<&str>> {
    let nodes = metadata["resolve"]["nodes"].as_array()?;
    let nodes = nodes.iter().map(|node| (node["id"].as_str(), node));
    let nodes: BTreeMap<_, _> = nodes.filter_map(|(id, node)| Some((id?, node))).collect();
    let packages = metadata["packages"].as_array()?;
    let ours = packages
        .iter()
        .find(|package| package["name"] == "peerbus")?;
    let (mut found, mut next) = (BTreeSet::new(), vec![ours["id"].as_str()?]);
    while let Some(id) = next.pop() {
        if !found.insert(id) {
            continue;
        }
        for dependency in nodes.get(id)?["deps"].as_array()? {
            let mut kinds = dependency["dep_kinds"].as_array()?.iter();
            if kinds.any(|kind| kind["kind"].is_null()) {
                next.push(dependency["pkg"].as_str()?);
            }
        }
    }
    Some(found)
}
