//! Server-side apply and field ownership (`metadata.managedFields`).
//!
//! The steps and their order are upstream's: decode the owners, compute the change in each owner's version, take ownership, merge what an
//! applier says, cut what it no longer says, keep at most ten entries of plain writers, encode.

use std::sync::OnceLock;

use allot_apimachinery::gvk::GroupVersion;
use serde_json::{Map, Value};

use crate::{Node, decode, fields::Set, types::Struct};

mod conflict;
mod managed;
mod scale;
mod update;

pub use conflict::{Conflict, Conflicts};
pub use managed::{Entry, Managed, Operation};

/// The annotation in which `kubectl apply` without `--server-side` stores the applied configuration.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The forms of a resource's objects in each of its versions.
pub trait Versions {
    /// The schema in `api_version` (`group/version` or `version`); `None` for an unknown version.
    fn node(&self, api_version: &str) -> Option<Node<'_>>;

    /// The object in `api_version`; `None` if it cannot be converted.
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value>;

    /// Checks the version of an entry.
    ///
    /// # Errors
    /// Objects cannot be converted to the version, and upstream fails the apply. Entries of other unknown versions are
    /// dropped.
    fn check(&self, _api_version: &str) -> Result<(), VersionError> {
        Ok(())
    }

    /// Fields that a write through this version and subresource does not change, and so never owns.
    fn reset_fields(&self, api_version: &str) -> Set;
}

/// Why objects cannot be converted to the version that an entry names; the texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// The text is not `group/version` or `version`.
    #[error("unexpected GroupVersion string: {0}")]
    Malformed(String),
    /// The definition of the custom resource does not have the version.
    #[error("request to convert CR to an invalid group/version: {0}")]
    Unknown(String),
}

/// Why an apply is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Others own fields that would change.
    #[error("{0}")]
    Conflict(Conflicts),
    /// The request is wrong in itself; a 400.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not fit the schema; upstream answers 500.
    #[error("{0}")]
    Typed(String),
}

/// Tracks the owners of the fields of one object for one request.
pub struct FieldManager<'a> {
    /// The resource's versions.
    pub versions: &'a dyn Versions,
    /// The version of the request.
    pub api_version: &'a str,
    /// The kind, for texts.
    pub kind: &'a str,
    /// The subresource that the request goes to, or empty.
    pub subresource: &'a str,
    /// The time of the request, RFC 3339 in UTC with seconds.
    pub now: &'a str,
}

impl FieldManager<'_> {
    /// The owners after a create, update or patch by `manager` that changed `live`, whose owners were `owned`, to `new`. For a create
    /// `live` is the kind's [empty object](empty_object). Both are in the version of the request; entries that `new` came with are taken
    /// out of it.
    pub fn update(&self, live: &Value, owned: &Managed, new: &mut Value, manager: &str) -> Managed {
        let managed = match managed::strip(new) {
            Some(Value::Array(sent)) if self.subresource.is_empty() => match managed::read(&sent) {
                _ if managed::is_reset(&sent) => Managed::default(),
                Some(managed) if !managed.is_empty() => managed,
                _ => owned.clone(),
            },
            _ => owned.clone(),
        };
        if managed.is_empty()
            && live["metadata"]["uid"]
                .as_str()
                .is_some_and(|uid| !uid.is_empty())
        {
            // This object has no managed fields so far; only an apply starts tracking.
            return managed;
        }
        match self.track(live, new, managed, manager) {
            Some(managed) => self.cap(managed),
            None => Managed::default(),
        }
    }

    /// Merges the configuration that `manager` applies into the live object, whose owners are `owned`. The result is not yet defaulted
    /// or validated; beside it stand the new owners.
    pub fn apply(
        &self,
        live: &Value,
        owned: &Managed,
        config: &Value,
        manager: &str,
        force: bool,
    ) -> Result<(Value, Managed), Error> {
        self.check_config(config)?;
        let mut managed = owned.clone();
        if managed.is_empty() {
            // Whatever is there was written before ownership was tracked.
            let node = self
                .versions
                .node(self.api_version)
                .ok_or_else(|| self.unknown_version())?;
            let empty = empty_object(node, self.api_version, self.kind);
            if let Some(tracked) =
                self.track(&empty, live, Managed::default(), "before-first-apply")
            {
                managed = self.cap(tracked);
            }
        }
        let result = match self.join(live, config, managed.clone(), manager, force) {
            Err(Error::Conflict(conflicts)) if manager == "kubectl" => {
                let rest = self.not_last_applied(live, conflicts);
                if rest.is_empty() {
                    self.join(live, config, managed, manager, true)
                } else {
                    Err(Error::Conflict(rest))
                }
            }
            result => result,
        };
        let (mut object, managed) = result?;
        if manager == "kubectl" {
            refresh_last_applied(&mut object, config);
        }
        Ok((object, managed))
    }

    fn check_config(&self, config: &Value) -> Result<(), Error> {
        let version = config["apiVersion"].as_str().unwrap_or_default();
        let kind = config["kind"].as_str().unwrap_or_default();
        // A version of the core group can be written without a group; a version that cannot be parsed hides the kind as well.
        let (version, kind) = match GroupVersion::parse(version) {
            Ok(version) => (version.to_string(), kind),
            Err(_) => (String::new(), ""),
        };
        if config["metadata"]["managedFields"].is_array() {
            return Err(Error::BadRequest(
                "metadata.managedFields must be nil".to_owned(),
            ));
        }
        if (version.as_str(), kind) != (self.api_version, self.kind) {
            return Err(Error::BadRequest(format!(
                "invalid object type: {}",
                gvk_text(&version, kind)
            )));
        }
        Ok(())
    }

    fn unknown_version(&self) -> Error {
        Error::Typed(format!(
            "no corresponding type for {}",
            gvk_text(self.api_version, self.kind)
        ))
    }
}

/// How Go prints a kind.
fn gvk_text(api_version: &str, kind: &str) -> String {
    let gv = if api_version.contains('/') {
        api_version.to_owned()
    } else {
        format!("/{api_version}")
    };
    format!("{gv}, Kind={kind}")
}

/// The empty object of a kind before the first write: for built-ins the zero value of its type.
pub fn empty_object(node: Node<'_>, api_version: &str, kind: &str) -> Value {
    let mut object = match node {
        Node::Struct(structure) => zero_of(structure),
        _ => Value::Object(Map::new()),
    };
    if let Value::Object(map) = &mut object {
        map.insert("apiVersion".to_owned(), api_version.into());
        map.insert("kind".to_owned(), kind.into());
    }
    object
}

fn zero_of(structure: &'static Struct) -> Value {
    let mut value = Value::Object(Map::new());
    decode::normalize(&mut value, structure);
    value
}

/// Whether two objects differ only in their resource version (and managed fields); the write is then no write, unless
/// [ownership has changed](Managed::same_but_times).
pub fn same_content(a: &Value, b: &Value) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else {
        return a == b;
    };
    let bookkeeping = |key: &str| matches!(key, "resourceVersion" | "managedFields");
    let same_meta = |a: &Value, b: &Value| match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let rest = |map| Map::iter(map).filter(|(key, _)| !bookkeeping(key));
            rest(a).eq(rest(b))
        }
        _ => a == b,
    };
    a.len() == b.len()
        && a.iter().zip(b).all(|((key, a), (other, b))| {
            key == other
                && if key == "metadata" {
                    same_meta(a, b)
                } else {
                    a == b
                }
        })
}

/// kubectl's annotation of client-side apply is updated if it exists.
fn refresh_last_applied(object: &mut Value, config: &Value) {
    let Some(Value::String(text)) = object
        .pointer_mut("/metadata/annotations")
        .and_then(|a| a.get_mut(LAST_APPLIED))
    else {
        return;
    };
    if text.is_empty() {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(annotations)) = config.pointer_mut("/metadata/annotations") {
        annotations.remove(LAST_APPLIED);
    }
    *text = go_text(&config);
}

/// JSON as Go's encoder ends and escapes it; clients compare the annotation as text.
fn go_text(value: &Value) -> String {
    // Outside of strings none of these occurs.
    let mut text = String::new();
    for c in value.to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => text.push(c),
        }
    }
    text.push('\n');
    text
}

/// The paths that no entry ever holds.
fn meta_paths() -> &'static Set {
    static PATHS: OnceLock<Set> = OnceLock::new();
    PATHS.get_or_init(|| {
        Set::of_fields([
            &["apiVersion"][..],
            &["kind"],
            &["metadata"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "creationTimestamp"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
            &["metadata", "clusterName"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "resourceVersion"],
        ])
    })
}

#[cfg(test)]
mod tests;
