//! Manifests of older releases as `resource.k8s.io/v1`, and the parts that v1 cannot express.
//!
//! [`migrate`] takes all documents of a set of files, since classic objects refer to each other: a class and a claim to
//! objects with their parameters, which become configuration inside the v1 objects. Parts without a counterpart are
//! dropped and reported, with the path and the reason. Objects of other groups are passed through; pods get the current
//! form of their claims.

mod alpha3;
mod classic;
mod parameters;
pub mod pod;
mod selector;
mod slice;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::availability;
use crate::convert;
use crate::features::Release;
use crate::kind::{GROUP, Kind, Version};
use crate::view::View;

/// A part that was not migrated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationNote {
    /// Index of the document in the input, from zero.
    pub document: usize,
    /// The path in the document: member names and, for items of lists, their index.
    pub path: Vec<String>,
    /// The part and the reason.
    pub text: String,
}

/// The result of [`migrate`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Migration {
    /// The new documents, in the order of the old ones.
    pub objects: Vec<Value>,
    /// The parts that were not migrated, in the order of the old documents.
    pub notes: Vec<MigrationNote>,
}

/// Turns documents of any version of the group into version `to`, which is v1 unless the cluster is old.
///
/// `slices` are ResourceSlices of the drivers in the cluster, in v1 form: with them, attribute names that v1 does not
/// allow are matched with those that the driver publishes now.
pub fn migrate(documents: &[Value], slices: &[Value], to: Version) -> Migration {
    let mut context = Context {
        documents,
        slices,
        to,
        current: 0,
        result: Migration::default(),
    };
    for (index, document) in documents.iter().enumerate() {
        context.current = index;
        context.document(document);
    }
    context.result
}

/// The inputs of the conversion of one document, and its outputs.
pub(crate) struct Context<'a> {
    documents: &'a [Value],
    slices: &'a [Value],
    to: Version,
    current: usize,
    result: Migration,
}

impl<'a> Context<'a> {
    fn document(&mut self, document: &'a Value) {
        let (group, version) = document
            .text("apiVersion")
            .split_once('/')
            .unwrap_or(("", document.text("apiVersion")));
        let kind = document.text("kind");
        if group != GROUP {
            let mut object = document.clone();
            pod::flatten_claims(&mut object);
            return self.emit(object);
        }
        match version {
            "v1alpha1" | "v1alpha2" => self.classic(kind, document),
            "v1alpha3" => self.alpha3(kind, document),
            _ => match (Kind::from_name(kind), version.parse::<Version>()) {
                (Some(kind), Ok(version)) => self.modern(kind, version, document.clone()),
                _ => self.note(
                    &["apiVersion"],
                    format!("{kind} in {version} is not known; left out"),
                ),
            },
        }
    }

    /// Converts an object whose structure is that of a version of 1.36.
    pub(crate) fn modern(&mut self, kind: Kind, from: Version, object: Value) {
        // A kind that is not in the target version yet goes to the newest one that servers of the default release have.
        let served = availability::versions(Release::DEFAULT, kind.name());
        let newest = kind
            .versions()
            .iter()
            .copied()
            .find(|version| *version >= self.to && served.contains(&version.name()));
        let target = newest.or(kind.versions().last().copied()).unwrap_or(from);
        match convert::convert(kind, from, target, object) {
            Ok(object) => self.emit(object),
            Err(error) => self.note(&["apiVersion"], error.to_string()),
        }
    }

    pub(crate) fn emit(&mut self, object: Value) {
        self.result.objects.push(object);
    }

    pub(crate) fn note(&mut self, path: &[&str], text: impl Into<String>) {
        let path = path.iter().map(|part| (*part).to_owned()).collect();
        self.result.notes.push(MigrationNote {
            document: self.current,
            path,
            text: text.into(),
        });
    }

    /// The slices of a driver that the caller gave, in v1 form.
    pub(crate) fn devices_of(&self, driver: &str) -> impl Iterator<Item = &'a Value> {
        let slices = self.slices;
        let driver = driver.to_owned();
        slices
            .iter()
            .filter(move |slice| slice.at("spec").text("driver") == driver)
            .flat_map(|slice| slice.at("spec").list("devices"))
    }
}

/// The metadata of a manifest without the fields that a server adds.
pub(crate) fn own_metadata(metadata: &Value) -> Value {
    let mut metadata = metadata.clone();
    for key in [
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
        "selfLink",
    ] {
        crate::view::remove(&mut metadata, key);
    }
    metadata
}
