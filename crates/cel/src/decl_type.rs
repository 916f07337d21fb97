//! Types of variables with the largest sizes that their values can have.

use std::{collections::BTreeMap, sync::Arc};

use crate::{size::Size, types::Type};

/// Words that are no identifiers in expressions. Properties of these names are fields like `__namespace__`, which since
/// Kubernetes 1.31 can also be selected by the word itself.
pub const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A type and the largest size of its values: length of a string, number of entries of a list or map.
#[derive(Debug, Clone)]
pub struct DeclType(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    ty: Type,
    max_elements: i64,
    shape: Shape,
    /// For a map: whether the estimator knows the size of the value of a selected key (`m.key`).
    selectable: bool,
    /// The JSON property, if it differs from the name of the field.
    property: Option<Arc<str>>,
}

/// The structure of a type.
#[derive(Debug, Clone)]
pub enum Shape {
    /// A scalar.
    Scalar,
    /// Elements.
    List(DeclType),
    /// Keys and values.
    Map(DeclType, DeclType),
    /// Fields.
    Object {
        /// Name of the type.
        name: Arc<str>,
        /// The fields, by name.
        fields: BTreeMap<Arc<str>, DeclType>,
    },
}

impl DeclType {
    fn new(ty: Type, max_elements: i64, shape: Shape) -> Self {
        Self(Arc::new(Inner {
            ty,
            max_elements,
            shape,
            selectable: false,
            property: None,
        }))
    }

    /// A type without parts, with a largest size.
    pub fn scalar(ty: Type, max_elements: u64) -> Self {
        Self::new(
            ty,
            i64::try_from(max_elements).unwrap_or(i64::MAX),
            Shape::Scalar,
        )
    }

    /// A string of at most `max` characters.
    pub fn string(max: u64) -> Self {
        Self::scalar(Type::String, max)
    }

    /// The type of 64-bit integers.
    pub fn int() -> Self {
        Self::scalar(Type::Int, 0)
    }

    /// The type of booleans.
    pub fn bool() -> Self {
        Self::scalar(Type::Bool, 0)
    }

    /// A list of at most `max` elements.
    pub fn list(element: Self, max: u64) -> Self {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        Self::new(Type::list(element.ty().clone()), max, Shape::List(element))
    }

    /// A map of at most `max` entries.
    pub fn map(key: Self, value: Self, max: u64) -> Self {
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        Self::new(
            Type::map(key.ty().clone(), value.ty().clone()),
            max,
            Shape::Map(key, value),
        )
    }

    /// Like [`Self::map`], but selecting a key as a field (`m.key`) gives the cost estimator the size of the value.
    pub(crate) fn selectable_map(key: Self, value: Self, max: i64) -> Self {
        let ty = Type::map(key.ty().clone(), value.ty().clone());
        Self(Arc::new(Inner {
            ty,
            max_elements: max,
            shape: Shape::Map(key, value),
            selectable: true,
            property: None,
        }))
    }

    /// An object with these fields.
    pub fn object<'n>(name: &str, fields: impl IntoIterator<Item = (&'n str, Self)>) -> Self {
        let name: Arc<str> = name.into();
        let fields = fields
            .into_iter()
            .map(|(name, ty)| (Arc::from(name), ty))
            .collect();
        Self::new(
            Type::Object(name.clone()),
            0,
            Shape::Object { name, fields },
        )
    }

    /// Adds a field to an object type, or replaces it; other types stay as they are. Copies that share this type do not
    /// change.
    pub(crate) fn add_field(&mut self, name: &str, ty: Self) {
        if let Shape::Object { fields, .. } = &mut Arc::make_mut(&mut self.0).shape {
            fields.insert(name.into(), ty);
        }
    }

    /// As this type, read from the JSON property of another name: property names that are no identifiers are escaped in
    /// expressions.
    #[must_use]
    pub fn from_property(&self, property: &str) -> Self {
        let Inner {
            ty,
            max_elements,
            shape,
            selectable,
            ..
        } = &*self.0;
        Self(Arc::new(Inner {
            ty: ty.clone(),
            max_elements: *max_elements,
            shape: shape.clone(),
            selectable: *selectable,
            property: Some(property.into()),
        }))
    }

    /// The JSON property that a field of this type and name is read from.
    pub(crate) fn property<'n>(&'n self, name: &'n str) -> &'n str {
        self.0.property.as_deref().unwrap_or(name)
    }

    /// The type for the type checker, without the bounds on sizes.
    pub fn ty(&self) -> &Type {
        &self.0.ty
    }

    /// What the type consists of, such as the elements of a list or the fields of an object.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The field of this name; a reserved word also finds the field whose name escapes it.
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Shape::Object { fields, .. } = self.shape() else {
            return None;
        };
        let escaped = || fields.get(format!("__{name}__").as_str());
        fields
            .get(name)
            .or_else(|| escaped().filter(|_| RESERVED.contains(&name)))
    }

    /// The largest size of a value.
    pub fn max_elements(&self) -> u64 {
        u64::try_from(self.0.max_elements).unwrap_or(0)
    }

    /// Size of the values.
    pub(crate) fn size(&self) -> Size {
        Size {
            min: 0,
            max: self.0.max_elements as u64,
        }
    }

    /// The part that one step of a path leads to.
    pub(crate) fn step(&self, step: &str) -> Option<&Self> {
        match (step, self.shape()) {
            ("@items", Shape::List(element)) | ("@values", Shape::List(element)) => Some(element),
            ("@items" | "@values", Shape::Map(_, value)) => Some(value),
            ("@keys", Shape::Map(key, _)) => Some(key),
            (_, Shape::Object { fields, .. }) => fields.get(step),
            (_, Shape::Map(_, value)) if self.0.selectable && !step.starts_with('@') => Some(value),
            _ => None,
        }
    }
}
