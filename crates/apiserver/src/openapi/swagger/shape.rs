//! What the objects of a document have, and of which type.

use self::Shape::*;

/// The type of a member.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Text,
    Bool,
    Whole,
    Number,
    /// Any value.
    Any,
    /// A list of texts.
    Texts,
    /// A list of media types.
    Media,
    /// A list of any values.
    Values,
    Schema,
    Schemas,
    /// Schemas by name.
    Properties,
    /// A schema, or a list of them.
    Items,
    SchemaOrBool,
    Operation,
    Parameters,
    Responses,
}

/// Members by name. Others are not taken over, except those that begin with `x-`.
pub(super) type Table = &'static [(&'static str, Shape)];

/// The types of values.
pub(super) const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

pub(super) const PATH: Table = &[
    ("delete", Operation),
    ("get", Operation),
    ("head", Operation),
    ("options", Operation),
    ("parameters", Parameters),
    ("patch", Operation),
    ("post", Operation),
    ("put", Operation),
];

pub(super) const OPERATION: Table = &[
    ("consumes", Media),
    ("deprecated", Bool),
    ("description", Text),
    ("operationId", Text),
    ("parameters", Parameters),
    ("produces", Media),
    ("responses", Responses),
    ("summary", Text),
    ("tags", Texts),
];

/// The types of parameters that are no bodies.
pub(super) const PLAIN_TYPES: [&str; 5] = ["array", "boolean", "integer", "number", "string"];

pub(super) const PARAMETER: Table = &[
    ("description", Text),
    ("format", Text),
    ("in", Text),
    ("name", Text),
    ("required", Bool),
    ("type", Text),
    ("uniqueItems", Bool),
];

/// A parameter that is the body.
pub(super) const BODY: Table = &[
    ("description", Text),
    ("in", Text),
    ("name", Text),
    ("required", Bool),
    ("schema", Schema),
];

pub(super) const RESPONSE: Table = &[("description", Text), ("schema", Schema)];

/// A schema with a reference.
pub(super) const REFERENCE: Table = &[("default", Any), ("description", Text)];

/// A schema without its type. What only the newer format has (`oneOf`, `nullable`) is an error for readers of the older one.
pub(super) const SCHEMA: Table = &[
    ("additionalProperties", SchemaOrBool),
    ("allOf", Schemas),
    ("default", Any),
    ("description", Text),
    ("enum", Values),
    ("example", Any),
    ("exclusiveMaximum", Bool),
    ("exclusiveMinimum", Bool),
    ("format", Text),
    ("items", Items),
    ("maxItems", Whole),
    ("maxLength", Whole),
    ("maxProperties", Whole),
    ("maximum", Number),
    ("minItems", Whole),
    ("minLength", Whole),
    ("minProperties", Whole),
    ("minimum", Number),
    ("multipleOf", Number),
    ("pattern", Text),
    ("properties", Properties),
    ("readOnly", Bool),
    ("required", Texts),
    ("title", Text),
    ("uniqueItems", Bool),
];
