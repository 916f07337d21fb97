//! How upstream shows what a change may not change: a unified diff of its internal structs as JSON.
//!
//! The structs differ from those of the API in names, order and a few other places. [`STRUCTS`] describes the
//! differences for the types in pods and PersistentVolumeClaims; unknown structs are shown with API names.

use allot_apimachinery::quote::go_json;
use serde_json::{Map, Value, json};

/// Lines around a change.
const CONTEXT: usize = 3;

/// Limit of compared pairs of lines; beyond it everything is shown as removed and added.
const MAX_CELLS: usize = 1 << 20;

/// One struct on each line: its name, then fields in order. A field is its Go name, a letter for the text of an absent
/// one (`s` text, `i` number, `q` quantity, `b` bool, `n` nil, `v` an empty struct, `e` fields of an embedded struct),
/// the struct of a field or of its elements, and its name in the API where that does not follow from the Go name.
const STRUCTS: &str = include_str!("pod_diff.txt");

/// The change of a pod's spec as upstream shows it, line by line.
pub(crate) fn diff(before: &Value, after: &Value) -> String {
    of("PodSpec", &pod_spec(before), &pod_spec(after))
}

/// The change of one of [`STRUCTS`].
pub(crate) fn of(name: &str, before: &Value, after: &Value) -> String {
    unified(&lines(name, before), &lines(name, after))
}

/// A pod template in one line: its metadata, which is part of it in Go, as in the API, and its spec in the internal
/// form.
pub(crate) fn template(template: &Value) -> String {
    let mut out = "{".to_owned();
    for (name, value) in template["metadata"].as_object().into_iter().flatten() {
        out.push_str(&format!(
            "{}:{},",
            Value::from(name.as_str()),
            go_json(value)
        ));
    }
    out.push_str("\"Spec\":");
    out.push_str(&spec(&template["spec"]));
    out.push('}');
    out
}

/// The spec of a pod in one line, in the internal form.
pub(crate) fn spec(spec: &Value) -> String {
    let mut out = String::new();
    for line in lines("PodSpec", &pod_spec(spec)) {
        let line = line.trim_start();
        // A member has a space behind its name.
        match line.split_once("\": ") {
            Some((name, value)) if line.starts_with('"') => {
                out.push_str(name);
                out.push_str("\":");
                out.push_str(value);
            }
            _ => out.push_str(line),
        }
    }
    out
}

fn lines(name: &str, value: &Value) -> Vec<String> {
    let mut out = String::new();
    structure(&mut out, 0, name, value);
    out.lines().map(str::to_owned).collect()
}

fn pod_spec(spec: &Value) -> Value {
    let mut spec = spec.clone();
    // Upstream's structs have these fields in the security context.
    for key in [
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "shareProcessNamespace",
        "hostUsers",
    ] {
        let value = spec.as_object_mut().and_then(|map| map.remove(key));
        if let (Some(value), Value::Object(context)) = (value, &mut spec["securityContext"]) {
            context.insert(key.to_owned(), value);
        }
    }
    spec
}

fn fields(name: &str) -> Option<&'static str> {
    let mut lines = STRUCTS.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

/// The JSON name of a field: its first letters are small, up to the last capital letter before a small one.
fn json_name(go: &str) -> String {
    match go {
        "CephFS" | "StorageOS" => go.to_ascii_lowercase(),
        _ => {
            let capitals = go.bytes().take_while(u8::is_ascii_uppercase).count();
            let small = if capitals == go.len() || capitals == 1 {
                capitals
            } else {
                capitals - 1
            };
            format!("{}{}", go[..small].to_ascii_lowercase(), &go[small..])
        }
    }
}

fn structure(out: &mut String, depth: usize, name: &str, value: &Value) {
    let mut members = Vec::new();
    collect(&mut members, name, value);
    open(out, depth, '{', members.len(), |out, index| {
        let (go, rule, kind, value) = &members[index];
        out.push_str(&format!("{}: ", json!(go)));
        match (value, *rule) {
            (Value::Null, "s") => out.push_str("\"\""),
            (Value::Null, "i") => out.push('0'),
            (Value::Null, "q") => out.push_str("\"0\""),
            (Value::Null, "b") => out.push_str("false"),
            (Value::Null, "v") => structure(out, depth + 1, kind, &Value::Null),
            (value, _) => shown(out, depth + 1, kind, value),
        }
    });
}

type Member<'a> = (&'static str, &'static str, &'static str, &'a Value);

fn collect<'a>(members: &mut Vec<Member<'a>>, name: &str, value: &'a Value) {
    for field in fields(name).unwrap_or_default().split(' ') {
        let mut parts = field.split(':');
        let (Some(go), Some(rule)) = (parts.next(), parts.next()) else {
            continue;
        };
        let kind = parts.next().unwrap_or_default();
        let name = parts.next().map_or_else(|| json_name(go), str::to_owned);
        if rule == "e" {
            collect(members, kind, value);
        } else {
            members.push((go, rule, kind, &value[&name]));
        }
    }
}

fn shown(out: &mut String, depth: usize, kind: &str, value: &Value) {
    match value {
        Value::Object(_) if fields(kind).is_some() => structure(out, depth, kind, value),
        Value::Object(map) => plain(out, depth, kind, map),
        Value::Array(list) => open(out, depth, '[', list.len(), |out, index| {
            shown(out, depth + 1, kind, &list[index]);
        }),
        other => out.push_str(&escaped(other)),
    }
}

fn plain(out: &mut String, depth: usize, kind: &str, map: &Map<String, Value>) {
    let mut members: Vec<_> = map.iter().collect();
    // It has one form inside and outside, with its fields in the order of the struct.
    if kind == "LabelSelector" {
        members.reverse();
    }
    open(out, depth, '{', members.len(), |out, index| {
        let (key, value) = members[index];
        out.push_str(&format!("{}: ", escaped(&json!(key))));
        shown(out, depth + 1, "", value);
    });
}

/// Brackets with one item on each line between them.
fn open(
    out: &mut String,
    depth: usize,
    bracket: char,
    count: usize,
    item: impl Fn(&mut String, usize),
) {
    let close = if bracket == '{' { '}' } else { ']' };
    out.push(bracket);
    for index in 0..count {
        out.push('\n');
        out.push_str(&" ".repeat(depth + 1));
        item(out, index);
        if index + 1 < count {
            out.push(',');
        }
    }
    if count > 0 {
        out.push('\n');
        out.push_str(&" ".repeat(depth));
    }
    out.push(close);
}

/// A scalar as Go writes it: with HTML escapes.
fn escaped(value: &Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// Lines that stay, are removed or added.
#[derive(Clone, Copy, PartialEq)]
enum Edit {
    Keep(usize, usize),
    Remove(usize),
    Add(usize),
}

fn unified(before: &[String], after: &[String]) -> String {
    let edits = edits(before, after);
    let changed = |edit: &Edit| !matches!(edit, Edit::Keep(..));
    let mut out = String::new();
    let mut start = 0;
    while let Some(first) = edits[start..].iter().position(changed).map(|at| at + start) {
        // A group continues while changes are near each other.
        let (from, mut last) = (first.saturating_sub(CONTEXT).max(start), first);
        while let Some(next) = edits[last + 1..].iter().position(changed) {
            if next > 2 * CONTEXT {
                break;
            }
            last += 1 + next;
        }
        let until = (last + 1 + CONTEXT).min(edits.len());
        hunk(&mut out, &edits, from..until, before, after);
        start = until;
    }
    out
}

fn hunk(
    out: &mut String,
    edits: &[Edit],
    range: std::ops::Range<usize>,
    before: &[String],
    after: &[String],
) {
    let old = |edit: &&Edit| !matches!(edit, Edit::Add(_));
    let new = |edit: &&Edit| !matches!(edit, Edit::Remove(_));
    let place = |skipped: usize, length: usize| match length {
        1 => format!("{}", skipped + 1),
        0 => format!("{skipped},0"),
        length => format!("{},{length}", skipped + 1),
    };
    let (head, part) = (&edits[..range.start], &edits[range.clone()]);
    out.push_str(&format!(
        "@@ -{} +{} @@\n",
        place(
            head.iter().filter(old).count(),
            part.iter().filter(old).count()
        ),
        place(
            head.iter().filter(new).count(),
            part.iter().filter(new).count()
        ),
    ));
    for edit in part {
        let (mark, line) = match *edit {
            Edit::Keep(at, _) => (' ', &before[at]),
            Edit::Remove(at) => ('-', &before[at]),
            Edit::Add(at) => ('+', &after[at]),
        };
        out.push_str(&format!("{mark}{line}\n"));
    }
}

/// From one text to the other, by what both have in common.
fn edits(before: &[String], after: &[String]) -> Vec<Edit> {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (old, new) = (&before[head..], &after[head..]);
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    if old.len() * new.len() > MAX_CELLS {
        let mut edits: Vec<Edit> = (0..head).map(|at| Edit::Keep(at, at)).collect();
        edits.extend((0..old.len()).map(|at| Edit::Remove(head + at)));
        edits.extend((0..new.len()).map(|at| Edit::Add(head + at)));
        let (from, to) = (before.len() - tail, after.len() - tail);
        edits.extend((0..tail).map(|at| Edit::Keep(from + at, to + at)));
        return edits;
    }
    // Length of the longest common subsequence of the rest of both, from each position on.
    let width = new.len() + 1;
    let mut common = vec![0u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = if old[i] == new[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let mut edits: Vec<Edit> = (0..head).map(|at| Edit::Keep(at, at)).collect();
    let (mut i, mut j) = (0, 0);
    let mut added = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            edits.append(&mut added);
            edits.push(Edit::Keep(head + i, head + j));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len()
            || (i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            edits.push(Edit::Remove(head + i));
            i += 1;
        } else {
            // Added lines are shown after removed ones.
            added.push(Edit::Add(head + j));
            j += 1;
        }
    }
    edits.append(&mut added);
    let (from, to) = (before.len() - tail, after.len() - tail);
    edits.extend((0..tail).map(|at| Edit::Keep(from + at, to + at)));
    edits
}
