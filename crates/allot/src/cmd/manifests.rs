//! Reading manifests: files and folders of YAML or JSON, with the place of each document.

use std::path::{Path, PathBuf};

use allot_reflector::{Readable, everything};
use anyhow::Context as _;
use serde_json::Value;

pub mod check;

/// A document of a file.
#[derive(Debug)]
pub struct Document {
    /// The file, `-` for standard input.
    pub file: PathBuf,
    /// What the document contains, converted from YAML.
    pub object: Value,
    /// The text, to find the line of a field.
    text: String,
    /// The number of the first line of the text.
    first_line: usize,
}

impl Document {
    /// The line of a field, given by its member names and list indexes, or of its nearest parent in the text.
    pub fn line(&self, path: &[String]) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        let start = lines.iter().position(|line| !is_blank(line)).unwrap_or(0);
        let (mut found, mut from, mut indent) = (start, start, None);
        for part in path {
            let next = match part.parse::<usize>() {
                Ok(index) => nth_item(&lines, from, index),
                Err(_) => member(&lines, from, part, indent),
            };
            let Some((line, column)) = next else { break };
            found = line;
            // The members of an item begin on its own line.
            from = if part.parse::<usize>().is_ok() {
                line
            } else {
                line + 1
            };
            indent = Some(column);
        }
        self.first_line + found
    }
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// The column at which a line's member begins: after blanks and the dashes of list items.
fn column(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '-']).len()
}

fn member(lines: &[&str], from: usize, name: &str, above: Option<usize>) -> Option<(usize, usize)> {
    for (index, line) in lines.iter().enumerate().skip(from) {
        if is_blank(line) {
            continue;
        }
        let column = column(line);
        let key = line[column..]
            .split(':')
            .next()
            .unwrap_or_default()
            .trim_matches(['"', '\'', ' ', '{']);
        if key == name {
            return Some((index, column));
        }
        let ended = above.is_some_and(|above| {
            index > from && column <= above && !line.trim_start().starts_with('-')
        });
        if ended {
            return None;
        }
    }
    None
}

fn nth_item(lines: &[&str], from: usize, wanted: usize) -> Option<(usize, usize)> {
    let first = lines
        .iter()
        .enumerate()
        .skip(from)
        .find(|(_, line)| !is_blank(line))?;
    let indent = first.1.len() - first.1.trim_start().len();
    let mut items = lines
        .iter()
        .enumerate()
        .skip(from)
        .take_while(|(_, line)| is_blank(line) || line.len() - line.trim_start().len() >= indent)
        .filter(|(_, line)| {
            line.trim_start().starts_with('-') && line.len() - line.trim_start().len() == indent
        });
    items
        .nth(wanted)
        .map(|(index, line)| (index, column(line).saturating_sub(1)))
}

/// The manifests that a command is about.
#[derive(Debug, clap::Args)]
pub struct Files {
    /// Files and folders with manifests; - is standard input
    #[arg(value_name = "FILE", required_unless_present = "filename")]
    files: Vec<PathBuf>,
    /// The same, as kubectl takes it. May be repeated
    #[arg(short, long, value_name = "FILE", num_args = 1..)]
    filename: Vec<PathBuf>,
}

impl Files {
    /// Reads them, as [`read`] does.
    ///
    /// # Errors
    /// See [`read`].
    pub fn read(&self) -> anyhow::Result<Vec<Document>> {
        read(&[&*self.files, &*self.filename].concat())
    }
}

/// Reads all documents of files and folders; `-` is standard input. The items of a `List` count as documents.
///
/// # Errors
/// A file cannot be read, is no YAML or no manifest, or there is nothing in any of them; the message names it and the line.
pub fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
    let (mut documents, mut found) = (Vec::new(), paths.is_empty());
    for path in paths {
        if path.is_dir() {
            let mut files = Vec::new();
            for entry in std::fs::read_dir(path)
                .with_context(|| format!("cannot list {}", path.display()))?
            {
                files.push(entry?.path());
            }
            files.retain(|file| {
                file.extension().is_some_and(|extension| {
                    matches!(extension.to_str(), Some("yaml" | "yml" | "json"))
                })
            });
            files.sort();
            anyhow::ensure!(
                !files.is_empty(),
                "{}: no .yaml, .yml or .json file in there; folders in it are not looked into",
                path.display()
            );
            for file in files {
                found |= read_file(&file, &mut documents)?;
            }
        } else {
            found |= read_file(path, &mut documents)?;
        }
    }
    anyhow::ensure!(
        found,
        "no manifest in {}",
        super::some(
            &paths
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        )
    );
    // Items of a list need not have a kind.
    for document in documents.iter().filter(|d| !d.text.is_empty()) {
        let has = |field: &str| document.object.get(field).is_some_and(Value::is_string);
        anyhow::ensure!(
            has("apiVersion") && has("kind"),
            "{}:{}: no manifest: it has no apiVersion and kind",
            document.file.display(),
            document.first_line
        );
    }
    Ok(documents)
}

/// Whether there is any in the file; a list may be empty.
fn read_file(path: &Path, documents: &mut Vec<Document>) -> anyhow::Result<bool> {
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?
    } else {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?
    };
    parse(path, &text, documents)
}

fn parse(path: &Path, text: &str, documents: &mut Vec<Document>) -> anyhow::Result<bool> {
    let mut found = false;
    let mut part = String::new();
    let mut first_line = 1;
    let mut finish = |part: &mut String, first_line: usize| -> anyhow::Result<()> {
        let text = std::mem::take(part);
        if text.lines().all(is_blank) {
            return Ok(());
        }
        found = true;
        let object: Value = serde_saphyr::from_str(&text).map_err(|error| {
            anyhow::anyhow!(
                "{}: the document that begins in line {first_line} is no YAML: {}",
                path.display(),
                crate::without_excerpt(&error.to_string())
            )
        })?;
        anyhow::ensure!(
            object.is_object(),
            "{}:{first_line}: not an object",
            path.display()
        );
        let items = object.get("items").and_then(Value::as_array);
        let is_list = object
            .get("kind")
            .and_then(Value::as_str)
            .is_some_and(|kind| kind.ends_with("List"));
        match items.filter(|_| is_list) {
            Some(items) => documents.extend(items.iter().map(|item| Document {
                file: path.to_owned(),
                object: item_of(&object, item),
                text: String::new(),
                first_line,
            })),
            None => documents.push(Document {
                file: path.to_owned(),
                object,
                text,
                first_line,
            }),
        }
        Ok(())
    };
    for (index, line) in text.lines().enumerate() {
        if line == "---" || line.starts_with("--- ") {
            finish(&mut part, first_line)?;
            first_line = index + 2;
        } else {
            part.push_str(line);
            part.push('\n');
        }
    }
    finish(&mut part, first_line)?;
    Ok(found)
}

/// An item of a list; items of typed lists (`PodList`) need not have a kind.
fn item_of(list: &Value, item: &Value) -> Value {
    let mut item = item.clone();
    let kind = list["kind"]
        .as_str()
        .and_then(|kind| kind.strip_suffix("List"));
    let Some(kind) = kind.filter(|kind| !kind.is_empty() && item.is_object()) else {
        return item;
    };
    for (field, value) in [
        ("kind", &Value::from(kind)),
        ("apiVersion", &list["apiVersion"]),
    ] {
        if item.get(field).is_none() {
            item[field] = value.clone();
        }
    }
    item
}

/// The parts of a path such as `spec.devices[0].name`.
pub fn split_path(path: &str) -> Vec<String> {
    let parts = path
        .split(['.', '['])
        .map(|part| part.trim_end_matches(']').to_owned());
    parts.filter(|part| !part.is_empty()).collect()
}

/// What a document is, for messages: `ResourceClaim team/gpu`.
pub fn title(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let kind = text("/kind");
    match (text("/metadata/namespace"), text("/metadata/name")) {
        ("", "") => kind.to_owned(),
        ("", name) => format!("{kind} {name}"),
        (namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}

/// The objects of a kind.
///
/// # Errors
/// An object that does not match its kind; the message names it.
pub fn typed<K: Readable>(objects: &[Value], kind: &str) -> anyhow::Result<Vec<K>> {
    let of_kind = objects.iter().filter(|object| object["kind"] == kind);
    let read = |object: &Value| {
        K::read(&object.to_string(), everything)
            .with_context(|| format!("{} cannot be read", title(object)))
    };
    of_kind.map(read).collect()
}

#[cfg(test)]
mod tests;
