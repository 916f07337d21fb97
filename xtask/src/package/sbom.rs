//! The software bill of materials: CycloneDX 1.5, from what cargo has resolved.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// cargo's metadata of the workspace, for a target.
pub(super) fn metadata(target: &str) -> Result<Value> {
    let flags = [
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        target,
    ];
    let text = super::output(crate::cargo().args(flags))?;
    Ok(serde_json::from_str(&text)?)
}

/// The version of a package of the workspace.
pub(super) fn version(metadata: &Value, name: &str) -> Option<String> {
    let package = package(metadata, name)?;
    Some(package["version"].as_str()?.to_owned())
}

/// A package of the workspace; these have no registry.
fn package<'a>(metadata: &'a Value, name: &str) -> Option<&'a Value> {
    let mut packages = metadata["packages"].as_array()?.iter();
    packages.find(|package| package["name"] == name && package["source"].is_null())
}

/// The SBOM of a package: everything that is compiled into it, without build and test dependencies.
pub(super) fn bill(metadata: &Value, root: &str, time: u64) -> Result<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .map(|package| (text(&package["id"]), package))
        .collect();
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node["id"]), node))
        .collect();
    let root = package(metadata, root).context("no such package")?;
    let root = text(&root["id"]);
    let mut seen = BTreeSet::from([root.clone()]);
    let mut open = vec![root.clone()];
    let mut edges = BTreeMap::new();
    while let Some(id) = open.pop() {
        let node = nodes
            .get(&id)
            .with_context(|| format!("{id} is not resolved"))?;
        let mut needs = BTreeSet::new();
        for dependency in list(&node["deps"]) {
            let normal = |kind: &Value| kind["kind"].is_null();
            if list(&dependency["dep_kinds"]).iter().any(normal) {
                let id = text(&dependency["pkg"]);
                needs.insert(id.clone());
                if seen.insert(id.clone()) {
                    open.push(id);
                }
            }
        }
        edges.insert(id, needs);
    }
    let component = |id: &String, kind: &str| -> Result<Value> {
        let package = packages
            .get(id)
            .with_context(|| format!("{id} is no package"))?;
        let mut component = json!({
            "type": kind, "name": package["name"], "version": package["version"],
            "bom-ref": purl(package), "purl": purl(package),
        });
        if let Some(license) = package["license"].as_str() {
            // Cargo once wrote alternatives with a slash.
            component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
        }
        Ok(component)
    };
    let mut components = Vec::new();
    for id in seen.iter().filter(|id| **id != root) {
        components.push(component(id, "library")?);
    }
    components.sort_by_key(|component| text(&component["bom-ref"]));
    let reference = |id: &String| packages.get(id).map(purl).unwrap_or_default();
    let mut dependencies: Vec<Value> = edges
        .iter()
        .map(|(id, needs)| {
            let needs: BTreeSet<String> = needs.iter().map(reference).collect();
            json!({"ref": reference(id), "dependsOn": needs})
        })
        .collect();
    dependencies.sort_by_key(|dependency| text(&dependency["ref"]));
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"timestamp": rfc3339(time)?, "component": component(&root, "application")?},
        "components": components, "dependencies": dependencies,
    }))
}

/// The SBOM with files of the build machine that are in an image.
pub(super) fn with_files(bill: &Value, files: &[(String, Vec<u8>)]) -> Value {
    let mut bill = bill.clone();
    let added = files.iter().map(|(path, content)| {
        json!({
            "type": "file", "name": path, "bom-ref": format!("file:{path}"),
            "hashes": [{"alg": "SHA-256", "content": super::sha256(content)}],
        })
    });
    if let Some(components) = bill["components"].as_array_mut() {
        components.extend(added);
    }
    bill
}

/// A document to read, with a last newline.
pub(super) fn document(bill: &Value) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(bill)?;
    text.push(b'\n');
    Ok(text)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The package URL of a crate.
fn purl(package: &Value) -> String {
    format!(
        "pkg:cargo/{}@{}",
        text(&package["name"]),
        text(&package["version"])
    )
}

/// A time as JSON documents have it.
pub(super) fn rfc3339(time: u64) -> Result<String> {
    Ok(jiff::Timestamp::from_second(time.try_into()?)?.to_string())
}
