//! The file format of a model.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{Error, MOST_BYTES};

/// A model of one kind of node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Model {
    /// Its name in the catalogue: lower case letters, digits and dashes.
    pub name: String,
    /// A title in one line.
    pub title: String,
    /// The sources of the facts.
    pub sources: Vec<Source>,
    /// Values with names, for expressions.
    #[serde(default)]
    pub(crate) tables: BTreeMap<String, Value>,
    /// Labels and capacity of the Node.
    #[serde(default)]
    pub(crate) node: NodeModel,
    /// The classes of the drivers.
    #[serde(default)]
    pub classes: Vec<Class>,
    /// The pools of the drivers, one for each node.
    pub(crate) pools: Vec<PoolModel>,
}

/// A source of a model's facts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// A repository with a path in it, or a document.
    pub from: String,
    /// The facts from this source.
    pub facts: String,
}

/// Labels and capacity of a Node with this hardware.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeModel {
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) capacity: BTreeMap<String, String>,
}

/// A DeviceClass of a driver.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Name of the object.
    pub name: String,
    /// Its spec, as in `resource.k8s.io/v1`.
    pub spec: Value,
}

/// The pool of one driver.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolModel {
    pub(crate) driver: String,
    #[serde(default)]
    pub(crate) prepare: Prepare,
    pub(crate) slices: Vec<SliceModel>,
}

/// The preparation of a driver's devices for containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    /// Environment variables with one value for each device of a request, separated by commas: an attribute, or `name`
    /// for the device's name. A variable with an attribute in its own name, such as `GPU_{index}`, is one for each device.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Environment variables for each device, with the amount that the claim consumes of a capacity. They should have an
    /// attribute in their name.
    #[serde(default)]
    pub consumed: BTreeMap<String, String>,
    /// Environment variables that are always the same.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// The CPUs that each claim gets exclusively.
    #[serde(default)]
    pub cpus: Option<Cpus>,
    /// The kinds of opaque parameters that the driver accepts, of every version: `resource.nvidia.com/GpuConfig`. Without
    /// this member it accepts all of them, with an empty list none.
    #[serde(default)]
    pub parameters: Option<Vec<String>>,
    /// The fields of those kinds of parameters whose driver refuses unknown ones, as paths: `sharing.strategy`. What is
    /// below the last member of a path can be anything. A kind without an entry may have any field.
    #[serde(default)]
    pub fields: BTreeMap<String, Vec<String>>,
}

impl Prepare {
    /// Checks that a driver accepts opaque parameters: by the kind of the object, and by its fields where they are known.
    ///
    /// # Errors
    /// The error of the driver.
    pub fn accepts(&self, parameters: &Value) -> Result<(), String> {
        let Some(known) = &self.parameters else {
            return Ok(());
        };
        let text = |field: &str| parameters[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let is_known = |name: &&String| name.split_once('/') == Some((group, kind));
        let Some(name) = known.iter().find(is_known) else {
            return Err(match known.is_empty() {
                true => "opaque parameters are not allowed".to_owned(),
                false => format!(
                    "no kind {kind:?} is registered for version {api_version:?}; known are {}",
                    known.join(", ")
                ),
            });
        };
        let unknown = self.fields.get(name).and_then(|fields| {
            let members = parameters.as_object()?.iter();
            let members = members.filter(|(name, _)| !matches!(&***name, "apiVersion" | "kind"));
            unknown_field(members, "", fields)
        });
        match unknown {
            None => Ok(()),
            Some(path) => Err(format!("strict decoding error: unknown field {path:?}")),
        }
    }
}

/// The path of a member that is not in one of the paths `known`. It goes no deeper than these do.
fn unknown_field<'a>(
    mut members: impl Iterator<Item = (&'a String, &'a Value)>,
    parent: &str,
    known: &[String],
) -> Option<String> {
    members.find_map(|(name, value)| {
        // A dot in a name must not look like two members.
        let path = format!("{parent}{name}");
        if name.contains('.') {
            return Some(path);
        }
        if known.contains(&path) {
            return None;
        }
        let below = format!("{path}.");
        if !known.iter().any(|known| known.starts_with(&below)) {
            return Some(path);
        }
        unknown_field(value.as_object()?.iter(), &below, known)
    })
}

/// How the CPUs of a claim are chosen, and the environment variable that lists them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpus {
    /// The environment variable with the list of them; its name is followed by an underscore and the claim's UID.
    pub variable: String,
    /// The consumed capacity that is the number of CPUs.
    pub amount: String,
    /// The attribute with the number of the device's NUMA node.
    pub numa: String,
    /// The attribute with the number of CPUs of a NUMA node.
    pub count: String,
}

/// One or more slices.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SliceModel {
    /// A slice for each of these; one slice, when empty.
    #[serde(default)]
    pub(crate) each: Vec<String>,
    /// Counters that devices of the pool share.
    #[serde(default)]
    pub(crate) counters: Vec<CountersModel>,
    #[serde(default)]
    pub(crate) devices: Vec<DeviceModel>,
}

/// A set of counters, or the counters that a device consumes from one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountersModel {
    #[serde(default)]
    pub(crate) each: Vec<String>,
    pub(crate) set: String,
    /// Capacities that are counters as well; their names are brought into the form of counters (`copyEngines`:
    /// `copy-engines`).
    pub(crate) of: Option<Value>,
    /// Counters by name.
    #[serde(default)]
    pub(crate) counters: Option<Value>,
}

/// One or more devices.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct DeviceModel {
    #[serde(default)]
    pub(crate) each: Vec<String>,
    pub(crate) name: String,
    /// Maps of attributes, later ones win: `{attribute: text, number, flag, or {version: text}}`.
    #[serde(default)]
    pub(crate) attributes: Vec<Value>,
    /// Capacities: quantities, or objects with `value` and `requestPolicy`.
    #[serde(default)]
    pub(crate) capacity: Option<Value>,
    #[serde(default)]
    pub(crate) consumes: Vec<CountersModel>,
    #[serde(default)]
    pub(crate) taints: Option<Value>,
    #[serde(default)]
    pub(crate) allow_multiple_allocations: Option<bool>,
    /// Other members of the device, as in the API.
    #[serde(default)]
    pub(crate) more: Option<Value>,
}

impl Model {
    /// Reads a model, and expands it once as a check.
    ///
    /// # Errors
    /// The text is too long, is not a model, or does not expand.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > MOST_BYTES {
            return Err(Error::Large);
        }
        let model: Self =
            serde_saphyr::from_str(text).map_err(|error| Error::Shape(first_line(&error)))?;
        model.check()?;
        Ok(model)
    }

    /// The preparation of the devices of a driver for containers.
    pub fn prepare(&self, driver: &str) -> Option<&Prepare> {
        let pool = self.pools.iter().find(|pool| pool.driver == driver);
        pool.map(|pool| &pool.prepare)
    }

    /// The drivers that are modelled, each once.
    pub fn drivers(&self) -> Vec<&str> {
        let mut drivers: Vec<&str> = self.pools.iter().map(|pool| pool.driver.as_str()).collect();
        drivers.sort_unstable();
        drivers.dedup();
        drivers
    }

    fn check(&self) -> Result<(), Error> {
        let wrong = |place: &str, reason: &str| Error::Value {
            place: place.to_owned(),
            reason: reason.to_owned(),
        };
        let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 63 || !self.name.chars().all(name) {
            return Err(wrong(
                "name",
                "must have lower case letters, digits and dashes only, and 63 at most",
            ));
        }
        if self.sources.is_empty() {
            return Err(wrong("sources", "must name at least one"));
        }
        if self.pools.is_empty() {
            return Err(wrong("pools", "must have at least one"));
        }
        for (index, pool) in self.pools.iter().enumerate() {
            if self.pools[..index]
                .iter()
                .any(|other| other.driver == pool.driver)
            {
                return Err(wrong(&format!("pools[{index}].driver"), "is there twice"));
            }
        }
        for (index, pool) in self.pools.iter().enumerate() {
            let prepare = &pool.prepare;
            let mut kinds = prepare.parameters.iter().flatten();
            if let Some(kind) = kinds.find(|kind| !is_kind(kind)) {
                return Err(wrong(
                    &format!("pools[{index}].prepare.parameters"),
                    &format!("{kind:?} has not the form GROUP/KIND"),
                ));
            }
            let kinds = prepare.parameters.as_deref().unwrap_or_default();
            if let Some(kind) = prepare.fields.keys().find(|kind| !kinds.contains(kind)) {
                return Err(wrong(
                    &format!("pools[{index}].prepare.fields"),
                    &format!("{kind:?} is not in parameters"),
                ));
            }
            let names = prepare.env.keys().chain(prepare.consumed.keys());
            if let Some(name) = names.chain(prepare.set.keys()).find(|it| !is_variable(it)) {
                return Err(wrong(
                    &format!("pools[{index}].prepare"),
                    &format!("{name:?} is no name of an environment variable"),
                ));
            }
        }
        // Expressions may depend on the index, tables may end too early.
        for index in [0, 1, 4999] {
            self.expand("node-0", index)?;
        }
        Ok(())
    }
}

/// Whether a text is an API group and a kind.
fn is_kind(text: &str) -> bool {
    let parts = text.split_once('/');
    parts.is_some_and(|(group, kind)| !group.is_empty() && !kind.is_empty() && !kind.contains('/'))
}

/// Whether a text is the name of an environment variable, with attributes of a device in braces.
fn is_variable(name: &str) -> bool {
    let mut parts = name.split('{');
    let start = parts.next().unwrap_or_default();
    let plain = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let starts = start
        .bytes()
        .next()
        .is_some_and(|byte| !byte.is_ascii_digit());
    starts
        && plain(start)
        && parts.all(|part| {
            let braces = part.split_once('}');
            braces.is_some_and(|(attribute, rest)| !attribute.is_empty() && plain(rest))
        })
}

/// The error of a YAML document, without the excerpt that follows.
fn first_line(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let text = text.split("\n --> <input>").next().unwrap_or_default();
    text.replacen("error: line ", "line ", 1)
}
