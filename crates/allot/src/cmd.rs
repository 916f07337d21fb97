//! One module per subcommand; each has `Args` and `run`.

pub mod access;
pub mod allocate;
pub mod bench;
pub mod cel;
pub mod completion;
pub mod conformance;
pub mod controllers;
pub mod convert;
pub mod dashboard;
pub mod demo;
pub mod devices;
pub mod down;
pub mod drain_driver;
pub mod driver;
pub mod explain;
pub mod hardware;
pub mod image;
pub mod lint;
pub mod logs;
pub mod manifests;
pub mod manual;
pub mod node;
pub mod output;
pub mod scheduler;
pub mod simulate;
pub mod snapshot;
pub mod status;
pub mod store;
pub mod up;

use std::collections::BTreeSet;

use allot_apimachinery::suggest;

pub(crate) use crate::{apiserver, bounds, component};

/// So many of something, in words.
fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// Reads the name of a namespace, which becomes a part of paths.
pub fn namespace_name(text: &str) -> Result<String, String> {
    match allot_apimachinery::names::dns1123_label(text).first() {
        None => Ok(text.to_owned()),
        Some(why) => Err(why.clone()),
    }
}

/// Refuses a question that needs all objects of a kind if there is no right to list them. `what` names them in the error.
fn may_list(snapshot: &snapshot::Snapshot, kind: &str, what: &str) -> anyhow::Result<()> {
    let mut hidden = snapshot.about.hidden.iter();
    if let Some(hidden) = hidden.find(|hidden| hidden.kind == kind) {
        let resource = &hidden.resource;
        anyhow::bail!("{what} are in {resource}, and there is no right to list them");
    }
    Ok(())
}

/// Refuses a name that is not one of those `there are`, and says which are: `no device of node a; there are: node-0`.
fn known<'a>(
    no: &str,
    wanted: Option<&str>,
    there_are: impl Iterator<Item = &'a str>,
) -> anyhow::Result<()> {
    let Some(wanted) = wanted else {
        return Ok(());
    };
    let names: BTreeSet<&str> = there_are.collect();
    if names.contains(wanted) {
        return Ok(());
    }
    anyhow::bail!("{no} {wanted}{}", others(wanted, names))
}

/// The name that was probably meant by one that does not exist, and those that do.
fn others<'a>(wanted: &str, there_are: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = there_are.into_iter().collect();
    let hint = suggest::hint(wanted, names.iter().copied());
    match names.is_empty() {
        true => hint,
        false => format!("{hint}; there are: {}", some(&names)),
    }
}

/// How many names of a long list are shown.
const SHOWN: usize = 5;

/// The first of many names, and how many more there are.
fn some<S: std::borrow::Borrow<str>>(names: &[S]) -> String {
    let (shown, more) = names.split_at(names.len().min(SHOWN));
    match more.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_does_not_exist_is_answered_with_those_that_do() {
        let check = |wanted: Option<&str>, names: &[&str]| {
            let known = known("no node", wanted, names.iter().copied());
            known.map_err(|error| error.to_string())
        };
        let nodes = ["node-1", "node-0", "node-1"];
        assert_eq!(check(None, &nodes), Ok(()));
        assert_eq!(check(Some("node-1"), &nodes), Ok(()));
        let error = check(Some("nodeo-1"), &nodes).expect_err("unknown");
        let expected = "no node nodeo-1; did you mean node-1?; there are: node-0, node-1";
        assert_eq!(error, expected);
        assert_eq!(check(Some("x"), &[]).expect_err("unknown"), "no node x");
    }
}
