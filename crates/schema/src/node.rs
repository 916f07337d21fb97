//! What merging needs to know about a value, whether a built-in type or a custom schema says it.

use serde_json::Value;

use crate::{
    openapi,
    structural::{Additional, Structural},
    types::{Struct, Topology, Type, object_meta},
};

/// A place in a schema.
#[derive(Debug, Clone, Copy)]
pub enum Node<'a> {
    /// A built-in struct, the root of an object.
    Struct(&'static Struct),
    /// A field's type with what the field says about merging.
    Type(&'a Type, &'a Topology),
    /// The root of a custom resource: its own schema below, apart from the fields that all objects have.
    Custom(&'a Structural),
    /// A custom schema.
    Structural(&'a Structural),
    /// Nothing is known: objects merge by key, lists are replaced.
    Deduced,
}

/// What a place holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Atom<'a> {
    Scalar(Scalar),
    List(List<'a>),
    Map(Map<'a>),
    /// Whatever the value is.
    Deduced,
    /// Whatever the value is, as one.
    Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Numeric,
    String,
    Boolean,
    Untyped,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct List<'a> {
    pub(crate) relation: Relation<'a>,
    pub(crate) element: Node<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Relation<'a> {
    Atomic,
    Set,
    Map(Keys<'a>),
}

/// The names of key fields.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keys<'a> {
    Static(&'a [&'static str]),
    Owned(&'a [String]),
}

impl<'a> Keys<'a> {
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a str> {
        let (fixed, owned): (&[&'static str], &[String]) = match self {
            Keys::Static(keys) => (keys, &[]),
            Keys::Owned(keys) => (&[], keys),
        };
        fixed
            .iter()
            .copied()
            .chain(owned.iter().map(String::as_str))
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Map<'a> {
    pub(crate) atomic: bool,
    of: Node<'a>,
}

const UNSET: Topology = Topology::Unset;

impl<'a> Node<'a> {
    pub(crate) fn atom(self) -> Atom<'a> {
        match self {
            Node::Deduced => Atom::Deduced,
            Node::Struct(structure) => Atom::Map(Map {
                atomic: structure.atomic,
                of: self,
            }),
            Node::Custom(_) => Atom::Map(Map {
                atomic: false,
                of: self,
            }),
            Node::Type(ty, topology) => match ty {
                Type::String | Type::Bytes | Type::Duration => Atom::Scalar(Scalar::String),
                // Their schemas have a format, with which any scalar is let through to the type's own parser.
                Type::Time | Type::MicroTime | Type::Quantity => Atom::Scalar(Scalar::Untyped),
                Type::Bool => Atom::Scalar(Scalar::Boolean),
                Type::Int32 | Type::Int64 | Type::Double => Atom::Scalar(Scalar::Numeric),
                Type::Raw => Atom::Whole,
                // The published schema of an IntOrString names no type: its parser alone says what fits.
                Type::Json | Type::SchemaOrBool | Type::SchemaOrArray | Type::IntOrString => {
                    Atom::Deduced
                }
                Type::List(element) => Atom::List(List {
                    relation: match topology {
                        Topology::Unset | Topology::Atomic | Topology::Granular => Relation::Atomic,
                        Topology::Set => Relation::Set,
                        Topology::Map(keys) => Relation::Map(Keys::Static(keys)),
                    },
                    element: Node::Type(element, &UNSET),
                }),
                Type::Map(_) => Atom::Map(Map {
                    atomic: *topology == Topology::Atomic,
                    of: self,
                }),
                Type::Struct(id) => {
                    let structure = id.get();
                    if structure.fields.is_empty() {
                        return Atom::Deduced;
                    }
                    Atom::Map(Map {
                        atomic: *topology == Topology::Atomic
                            || structure.atomic && *topology != Topology::Granular,
                        of: Node::Struct(structure),
                    })
                }
            },
            Node::Structural(schema) => structural_atom(schema, self),
        }
    }

    /// The published default of a field, which completes the keys of a list.
    pub(crate) fn field_default(self, name: &str) -> Option<Value> {
        match self {
            Node::Struct(structure) => published_default(structure, name),
            Node::Type(Type::Struct(id), _) => published_default(id.get(), name),
            Node::Structural(schema) | Node::Custom(schema) => {
                schema.properties.get(name)?.default.clone()
            }
            _ => None,
        }
    }
}

fn published_default(structure: &Struct, name: &str) -> Option<Value> {
    let field = structure.field(name)?;
    field
        .default
        .clone()
        .or_else(|| openapi::implied_default(field))
}

fn structural_atom<'a>(schema: &'a Structural, node: Node<'a>) -> Atom<'a> {
    if schema.int_or_string {
        return Atom::Deduced;
    }
    match schema.ty.as_str() {
        "object" => {
            let atomic = schema.map_type == "atomic";
            let free =
                schema.properties.is_empty() && !matches!(schema.additional, Additional::Schema(_));
            if free && !atomic && !schema.embedded {
                return Atom::Deduced;
            }
            Atom::Map(Map { atomic, of: node })
        }
        "array" => Atom::List(List {
            relation: match schema.list_type.as_str() {
                "set" => Relation::Set,
                "map" => Relation::Map(Keys::Owned(&schema.list_map_keys)),
                _ => Relation::Atomic,
            },
            element: schema
                .items
                .as_deref()
                .map_or(Node::Deduced, Node::Structural),
        }),
        "string" if matches!(schema.checks.format.as_str(), "" | "byte") => {
            Atom::Scalar(Scalar::String)
        }
        // A format lets any scalar through to validation.
        "string" => Atom::Scalar(Scalar::Untyped),
        "boolean" => Atom::Scalar(Scalar::Boolean),
        "integer" | "number" => Atom::Scalar(Scalar::Numeric),
        _ => Atom::Deduced,
    }
}

impl<'a> Map<'a> {
    /// The schema of a key, and whether the key is a declared field. None where the key is not allowed.
    pub(crate) fn field(self, name: &str) -> Option<(Node<'a>, bool)> {
        const STRING: Type = Type::String;
        match self.of {
            Node::Struct(structure) => {
                let field = structure.field(name)?;
                Some((Node::Type(&field.ty, &field.topology), true))
            }
            Node::Type(Type::Map(element), _) => Some((Node::Type(element, &UNSET), false)),
            Node::Custom(schema) => match name {
                "apiVersion" | "kind" => Some((Node::Type(&STRING, &UNSET), true)),
                "metadata" => Some((Node::Struct(object_meta()), true)),
                _ => Map {
                    atomic: false,
                    of: Node::Structural(schema),
                }
                .field(name),
            },
            Node::Structural(schema) => {
                if schema.embedded {
                    match name {
                        "metadata" => return Some((Node::Struct(object_meta()), true)),
                        "apiVersion" | "kind" => {
                            return Some((Node::Type(&STRING, &UNSET), true));
                        }
                        _ => {}
                    }
                }
                if let Some(sub) = schema.properties.get(name) {
                    return Some((Node::Structural(sub), true));
                }
                match &schema.additional {
                    Additional::Schema(sub) => Some((Node::Structural(sub), false)),
                    Additional::Allowed(true) => Some((Node::Deduced, false)),
                    _ if schema.open || schema.properties.is_empty() => {
                        Some((Node::Deduced, false))
                    }
                    _ => None,
                }
            }
            _ => Some((Node::Deduced, false)),
        }
    }

    /// The map of a value about which nothing is known.
    pub(crate) const DEDUCED: Map<'static> = Map {
        atomic: false,
        of: Node::Deduced,
    };
}

impl List<'_> {
    /// The list of a value about which nothing is known.
    pub(crate) const DEDUCED: List<'static> = List {
        relation: Relation::Atomic,
        element: Node::Deduced,
    };
}
