//! `allot convert`: manifests of older releases in a newer version.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;

use allot_model::migrate::migrate;
use allot_model::{GROUP, Kind, Version, convert};
use serde_json::Value;

use super::manifests::{self, Files};

/// Flags of `allot convert`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The new manifests go to standard output. What has no counterpart is reported on
standard error, one line each with the place and the reason; the exit status is
then 1. A stream with both definitions and their custom objects has to be applied
twice; a message says so.

  allot convert old/ > new.yaml
  kubectl get resourceslices -o yaml | allot convert old/ --slices -")]
pub struct Args {
    #[command(flatten)]
    files: Files,
    /// The version to convert to
    #[arg(long, value_name = "VERSION", default_value = "resource.k8s.io/v1")]
    to: String,
    /// ResourceSlices that the drivers publish now, to find the new names of attributes
    #[arg(long, value_name = "FILE")]
    slices: Vec<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    let to = target(&args.to)?;
    let documents = args.files.read()?;
    let objects: Vec<Value> = documents
        .iter()
        .map(|document| document.object.clone())
        .collect();
    let slices = read_slices(&args.slices)?;
    let migration = migrate(&objects, &slices, to);

    let mut out = std::io::stdout().lock();
    for (index, object) in migration.objects.iter().enumerate() {
        let text = serde_saphyr::to_string(object)?;
        write!(out, "{}{}", if index > 0 { "---\n" } else { "" }, text)?;
        if !text.ends_with('\n') {
            writeln!(out)?;
        }
    }
    out.flush()?;
    let definitions = used_definitions(&migration.objects);
    if !definitions.is_empty() {
        // kubectl looks up the kinds of all objects before it creates the first one.
        eprintln!(
            "note: run `kubectl apply` twice: it does not know the objects of {} before the first time",
            Vec::from_iter(definitions).join(", ")
        );
    }
    for note in &migration.notes {
        let document = &documents[note.document];
        let (file, line) = (document.file.display(), document.line(&note.path));
        eprintln!(
            "{file}:{line}: {}: {}: {}",
            manifests::title(&document.object),
            note.path.join("."),
            note.text
        );
    }
    match migration.notes.len() {
        0 => Ok(()),
        1 => anyhow::bail!("one thing could not be carried over"),
        count => anyhow::bail!("{count} things could not be carried over"),
    }
}

/// Names of the CRDs in the input that have custom resources in it.
fn used_definitions(objects: &[Value]) -> BTreeSet<&str> {
    let group = |object: &Value| {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let group = version.split_once('/').map(|(group, _)| group.to_owned());
        group.unwrap_or_default()
    };
    let definitions = objects
        .iter()
        .filter(|object| object["kind"] == "CustomResourceDefinition");
    let used = definitions.filter(|definition| {
        let spec = &definition["spec"];
        objects
            .iter()
            .any(|object| spec["group"] == group(object) && spec["names"]["kind"] == object["kind"])
    });
    used.filter_map(|definition| definition["metadata"]["name"].as_str())
        .collect()
}

fn target(text: &str) -> anyhow::Result<Version> {
    match text.parse() {
        Ok(version @ (Version::V1 | Version::V1Beta2 | Version::V1Beta1)) => Ok(version),
        _ => anyhow::bail!(
            "cannot convert to {text:?}; choose {GROUP}/v1, {GROUP}/v1beta2 or {GROUP}/v1beta1"
        ),
    }
}

/// Slices in v1, converted from their version.
fn read_slices(paths: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let documents = manifests::read(paths)?;
    let objects = documents.into_iter().map(|document| document.object);
    let slices = objects.filter(|object| object["kind"] == Kind::ResourceSlice.name());
    slices
        .map(|slice| {
            let version = slice["apiVersion"]
                .as_str()
                .unwrap_or_default()
                .parse::<Version>()?;
            Ok(convert::convert(
                Kind::ResourceSlice,
                version,
                Version::V1,
                slice,
            )?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Value {
        serde_json::json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "cats.example.com"}, "spec": {"group": "example.com", "names": {"kind": "Cat"}}})
    }

    #[test]
    fn regression_definitions_with_their_objects_are_reported() {
        let cat = serde_json::json!({"apiVersion": "example.com/v1", "kind": "Cat"});
        let other = serde_json::json!({"apiVersion": "v1", "kind": "Cat"});
        let objects = [definition(), cat, definition()];
        let told = used_definitions(&objects);
        assert_eq!(Vec::from_iter(told), ["cats.example.com"]);
        assert!(used_definitions(&[definition(), other]).is_empty());
    }
}
