//! A definition in upstream's internal form, which is validated: a schema or subresource that is equal in all versions is
//! moved from the versions to the spec, and errors have its path there.

use serde_json::Value;

use super::list;

/// The versions of a definition, and which of their parts all share.
pub(super) struct InternalDefinition<'a> {
    pub(super) versions: &'a [Value],
    /// Whether there is a list of versions, be it empty.
    pub(super) has_versions: bool,
    shared: [bool; 4],
}

/// The parts of a version that are moved to the spec if all versions have the same.
#[derive(Clone, Copy)]
enum Part {
    Subresources,
    Schema,
    Columns,
    SelectableFields,
}

impl Part {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Subresources, "subresources"),
        (Self::Schema, "schema"),
        (Self::Columns, "additionalPrinterColumns"),
        (Self::SelectableFields, "selectableFields"),
    ];

    fn key(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// A part of one version, or of all of them.
pub(super) struct VersionParts<'a> {
    pub(super) subresources: &'a Value,
    /// The object around `openAPIV3Schema`.
    pub(super) schema: &'a Value,
    pub(super) columns: &'a [Value],
    pub(super) selectable_fields: &'a [Value],
}

impl<'a> InternalDefinition<'a> {
    pub(super) fn new(spec: &'a Value) -> Self {
        let versions = list(spec, "versions");
        let shared = Part::ALL.map(|(_, key)| {
            let mut said = versions.iter().map(|version| said(version, key));
            let first = said.next();
            first.is_some_and(|first| said.all(|other| other == first))
        });
        Self {
            versions,
            has_versions: spec["versions"].is_array(),
            shared,
        }
    }

    fn said(&self, of: Option<&'a Value>) -> VersionParts<'a> {
        let part = |part: Part| {
            // Above the versions stands what they share, in them the rest.
            let shared = self.shared[part as usize];
            match (of, shared) {
                (Some(version), false) => said(version, part.key()),
                (None, true) => said(&self.versions[0], part.key()),
                _ => &Value::Null,
            }
        };
        let entries = |value: &'a Value| value.as_array().map_or(&[][..], Vec::as_slice);
        VersionParts {
            subresources: part(Part::Subresources),
            schema: part(Part::Schema),
            columns: entries(part(Part::Columns)),
            selectable_fields: entries(part(Part::SelectableFields)),
        }
    }

    /// The part for all versions.
    pub(super) fn common(&self) -> VersionParts<'a> {
        self.said(None)
    }

    /// The part of this version alone.
    pub(super) fn own(&self, version: &'a Value) -> VersionParts<'a> {
        self.said(Some(version))
    }

    /// The subresources of a version, its own or those for all versions.
    pub(super) fn subresources(&self, version: &'a Value) -> &'a Value {
        said(version, Part::Subresources.key())
    }

    /// The schemas of all versions, each once.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &'a Value> {
        self.versions
            .iter()
            .map(|version| &version["schema"]["openAPIV3Schema"])
    }
}

/// A part of a version; `None` if it is empty.
fn said<'a>(version: &'a Value, key: &str) -> &'a Value {
    match &version[key] {
        Value::Array(entries) if entries.is_empty() => &Value::Null,
        part => part,
    }
}
