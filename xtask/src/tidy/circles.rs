//! Circles among the top-level modules of a crate: modules of which each uses the next, directly or through others.
//!
//! Modules in a circle cannot be read, tested or moved separately. `xtask/circles.txt` names the modules that were in
//! one when this rule was introduced; others may not join them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Which top-level module uses which others.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The modules that are known to be in a circle, by crate: lines `CRATE: MODULE MODULE...`.
pub fn known(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(':'))
        .map(|(name, modules)| {
            let modules = modules.split_whitespace().map(str::to_owned).collect();
            (name.to_owned(), modules)
        })
        .collect()
}

/// Adds what a file uses to the graph of its crate. `path` is relative to `src`.
pub fn add(path: &Path, text: &str, modules: &BTreeSet<String>, graph: &mut Graph) {
    let place = place(path);
    let Some(top) = place.first() else { return };
    let code: String = super::library(text)
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .flat_map(|line| [line, "\n"])
        .collect();
    let uses = graph.entry(top.clone()).or_default();
    let from_root = "super::".repeat(place.len());
    for (start, prefix) in [("crate::", "crate::"), ("super::", from_root.as_str())] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before == ':' || before == '_' || before.is_alphanumeric() || before == '$' {
                continue;
            }
            let Some(rest) = code[at..].strip_prefix(prefix) else {
                continue;
            };
            // More `super`s than modules refer to a module inside of the file.
            for name in first_names(rest) {
                if modules.contains(&name) && name != *top {
                    uses.insert(name);
                }
            }
        }
    }
}

/// The module that a file is: `a/b.rs` is `a::b`. The root is none.
fn place(path: &Path) -> Vec<String> {
    let mut parts: Vec<_> = path
        .with_extension("")
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if parts.len() == 1 && ["lib", "main"].contains(&parts[0].as_str()) {
        parts.clear();
    }
    parts
}

/// The first names of the paths at the start of the text: `a::b` has one, `{a::b, c}` two.
fn first_names(text: &str) -> Vec<String> {
    let Some(group) = text.strip_prefix('{') else {
        return vec![name(text)];
    };
    let mut names = Vec::new();
    let mut depth = 0;
    let mut fresh = true;
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            character if fresh && !character.is_whitespace() => {
                names.push(name(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

fn name(text: &str) -> String {
    text.chars()
        .take_while(|character| character.is_alphanumeric() || *character == '_')
        .collect()
}

/// The modules that are in a circle.
pub fn in_circles(graph: &Graph) -> BTreeSet<String> {
    let modules = graph.keys();
    modules
        .filter(|module| reaches(graph, module, module))
        .cloned()
        .collect()
}

fn reaches(graph: &Graph, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in graph.get(module).into_iter().flatten() {
            if next == to {
                return true;
            }
            if seen.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        let modules = files
            .iter()
            .filter_map(|(path, _)| place(Path::new(path)).first().cloned())
            .collect();
        let mut graph = Graph::new();
        for (path, text) in files {
            add(Path::new(path), text, &modules, &mut graph);
        }
        graph
    }

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        in_circles(&graph(files)).into_iter().collect()
    }

    #[test]
    fn modules_that_use_each_other_are_in_a_circle() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::{x::{b, c}, b::Thing};"),
            ("b/part.rs", "fn f() { super::super::c::f() }"),
            ("c.rs", "use super::a;"),
            ("d.rs", "use crate::a::Thing;"),
        ];
        assert_eq!(circles(&files), ["a", "b", "c"]);
    }

    #[test]
    fn comments_tests_and_own_parts_are_no_use_of_others() {
        let files = [
            ("a.rs", "use crate::b::B; // crate::c\nuse self::part::P;"),
            ("a/part.rs", "use super::Thing; use crate::a::Other;"),
            (
                "b.rs",
                "fn f() {}\n#[cfg(test)]\nmod tests { use crate::a::A; }",
            ),
            ("c.rs", "use allot_crate::a; use super::a::A;"),
        ];
        assert!(circles(&files).is_empty());
        assert_eq!(graph(&files)["c"], BTreeSet::from(["a".to_owned()]));
    }

    #[test]
    fn the_list_of_known_circles_is_read() {
        let known = known("# why\nnode: claims plugins\n");
        assert_eq!(known["node"].len(), 2);
    }
}
