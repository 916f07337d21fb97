//! Selectors of the named resources model as device selectors.
//!
//! There, attributes stood in one map per type: `attributes.string["model"]`. Now they stand in one map per domain,
//! quantities apart: `device.attributes["driver"].model`, `device.capacity["driver"].memory`.

use std::sync::LazyLock;

use allot_cel::device;
use regex::{Captures, Regex};

use super::Context;
use super::classic::quoted;
use crate::view::View;

/// `attributes.TYPE["name"]`, `attributes.TYPE.name`, or `attributes.TYPE` alone.
static ATTRIBUTE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"\battributes\.(string|bool|int|version|quantity|intslice|stringslice)\b(?:\["([^"\\]*)"\]|\['([^'\\]*)'\]|\.([A-Za-z_][A-Za-z0-9_]*)(\()?)?"#)
        .ok()
});

/// `"name" in attributes.TYPE`.
static GUARD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"(?:"([^"\\]*)"|'([^'\\]*)')\s+in\s+attributes\.(string|bool|int|version|quantity)\b"#,
    )
    .ok()
});

impl Context<'_> {
    /// A selector in its new form; `None` with a note if there is no such form, or if the selector is empty.
    pub(super) fn rewritten(
        &mut self,
        expression: &str,
        driver: &str,
        path: &[&str],
    ) -> Option<String> {
        if matches!(expression.trim(), "" | "true") {
            return None;
        }
        let result = self.rewrite(expression, driver).and_then(|new| {
            let options = device::Options::default();
            device::compile(&new, &options)
                .map(|_| new)
                .map_err(|error| error.to_string())
        });
        match result {
            Ok(new) => Some(new),
            Err(reason) => {
                self.note(path, format!("selector {expression:?}: {reason}"));
                None
            }
        }
    }

    fn rewrite(&self, expression: &str, driver: &str) -> Result<String, String> {
        let (Some(attribute), Some(guard)) = (ATTRIBUTE.as_ref(), GUARD.as_ref()) else {
            return Err("cannot be rewritten".to_owned());
        };
        let mut problem = None;
        let mut place = |map: &str, name: &str| match self.new_name(driver, map, name) {
            Ok(name) => name,
            Err(reason) => {
                problem.get_or_insert(reason);
                String::new()
            }
        };
        let guarded = guard.replace_all(expression, |found: &Captures<'_>| {
            let name = found
                .get(1)
                .or(found.get(2))
                .map_or("", |name| name.as_str());
            let map = new_map(&found[3]);
            format!(
                "{} in device.{map}[{}]",
                quoted(&place(map, name)),
                quoted(driver)
            )
        });
        let (mut whole, mut lists) = (false, false);
        let new = attribute.replace_all(&guarded, |found: &Captures<'_>| {
            lists |= found[1].ends_with("slice");
            let name = found.get(2).or(found.get(3)).or(found.get(4));
            let (Some(name), None) = (name, found.get(5)) else {
                whole = true;
                return String::new();
            };
            let map = new_map(&found[1]);
            format!(
                "device.{map}[{}].{}",
                quoted(driver),
                place(map, name.as_str())
            )
        });
        if lists {
            return Err("list-valued attributes need the feature DRAListTypeAttributes".to_owned());
        }
        if whole {
            return Err(
                "uses a whole map of attributes, which are no longer kept by type".to_owned(),
            );
        }
        problem.map_or_else(|| Ok(new.into_owned()), Err)
    }

    /// The name of an attribute now: the same if it is an identifier, else one that the driver publishes for it.
    fn new_name(&self, driver: &str, map: &str, name: &str) -> Result<String, String> {
        if allot_apimachinery::names::c_identifier(name).is_empty()
            && name.len() <= crate::limits::QUALIFIED_IDENTIFIER
        {
            return Ok(name.to_owned());
        }
        let plain = super::slice::identifier(name);
        let member = if map == "capacity" {
            "capacity"
        } else {
            "attributes"
        };
        let published = self
            .devices_of(driver)
            .any(|device| device.entries(member).contains(&plain));
        if published {
            Ok(plain)
        } else {
            Err(format!(
                "{name:?} is not a valid name of an attribute in v1"
            ))
        }
    }
}

fn new_map(old: &str) -> &'static str {
    if old == "quantity" {
        "capacity"
    } else {
        "attributes"
    }
}
