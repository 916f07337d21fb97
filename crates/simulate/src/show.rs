//! Showing objects to the scheduler, as its watches would.

use allot_reflector::{Observed, everything};
use allot_scheduler::core::Input;
use allot_scheduler::podgroups::claims::PodGroup;
use allot_scheduler::taint_rules::DeviceTaintRule;
use allot_scheduler::watched::{self, POD_GROUPS, Plain, TAINT_RULES, Visitor};
use anyhow::Context as _;
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::prepare::title;

/// What a watch says, without the kind.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    /// All objects of the kind.
    Listed(Vec<Value>),
    /// One that is new or changed.
    Applied(Value),
    /// An object that was deleted.
    Deleted(Value),
}

/// What the scheduler is told about a kind; `None` for kinds that it does not watch, pods and claims among them, which
/// are kept in another form.
///
/// # Errors
/// An object is not what its kind says; the message names it.
pub(crate) fn input(kind: &str, seen: Seen) -> anyhow::Result<Option<Input>> {
    if kind == TAINT_RULES.kind {
        let rules = observed(seen, parsed::<DynamicObject>)?;
        return Ok(rules
            .filter_map(|r| DeviceTaintRule::read(&r))
            .map(Input::TaintRule));
    }
    if kind == POD_GROUPS.kind {
        let groups = observed(seen, parsed::<DynamicObject>)?;
        return Ok(groups
            .filter_map(|g| PodGroup::read(&g))
            .map(Input::PodGroup));
    }
    let mut find = Find {
        kind,
        seen: Some(seen),
        input: Ok(None),
    };
    watched::everywhere(&mut find);
    watched::of_devices(&mut find);
    find.input
}

/// Finds the kind by its name.
struct Find<'a> {
    kind: &'a str,
    seen: Option<Seen>,
    input: anyhow::Result<Option<Input>>,
}

impl Visitor for Find<'_> {
    fn visit<K: Plain>(&mut self, input: fn(Observed<K>) -> Input) {
        if K::KIND != self.kind {
            return;
        }
        if let Some(seen) = self.seen.take() {
            let read = |object: Value| {
                K::read(&object.to_string(), everything)
                    .with_context(|| format!("{} cannot be read", title(&object)))
            };
            self.input = observed(seen, read).map(|o| Some(input(o)));
        }
    }
}

/// An object of a type.
///
/// # Errors
/// The object is not what its kind says; the message names it.
pub(crate) fn parsed<T: DeserializeOwned>(object: Value) -> anyhow::Result<T> {
    let title = title(&object);
    serde_json::from_value(object).with_context(|| format!("{title} cannot be read"))
}

fn observed<T>(
    seen: Seen,
    read: impl Fn(Value) -> anyhow::Result<T>,
) -> anyhow::Result<Observed<T>> {
    Ok(match seen {
        Seen::Listed(objects) => Observed::Listed {
            items: objects.into_iter().map(read).collect::<Result<_, _>>()?,
            version: String::new(),
        },
        Seen::Applied(object) => Observed::Applied(Box::new(read(object)?)),
        Seen::Deleted(object) => Observed::Deleted(Box::new(read(object)?)),
    })
}
