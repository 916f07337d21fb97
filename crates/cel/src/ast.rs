//! The syntax tree of an expression and the positions of its nodes.

use std::sync::Arc;

/// Number of a node, unique within an expression.
pub type Id = u32;

/// A constant in the source of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A string.
    String(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
}

/// A node of the tree.
#[derive(Debug, Clone)]
pub struct Expr {
    /// The number of the node, unique in its tree; positions are looked up by it.
    pub id: Id,
    /// The variant of the node, with its children.
    pub kind: ExprKind,
}

/// What a node is.
#[derive(Debug, Clone)]
pub enum ExprKind {
    /// An expression that did not parse.
    Unspecified,
    /// A literal.
    Literal(Literal),
    /// A variable.
    Ident(Arc<str>),
    /// A field of an object or a string key of a map.
    Select {
        /// The object.
        operand: Box<Expr>,
        /// Name of the field.
        field: Arc<str>,
        /// Only whether the field is set (`has`).
        test_only: bool,
    },
    /// A function or operator.
    Call {
        /// Its name, as in `_+_`.
        function: Arc<str>,
        /// The receiver of a member function.
        target: Option<Box<Expr>>,
        /// The arguments.
        args: Vec<Expr>,
    },
    /// A list.
    List {
        /// The elements.
        elements: Vec<Expr>,
        /// Which of them are optional (`[?x]`).
        optional: Vec<usize>,
    },
    /// A map.
    Map(Vec<Entry<Expr>>),
    /// A message.
    Struct {
        /// The type's qualified name, as written.
        type_name: Arc<str>,
        /// Its fields.
        fields: Vec<Entry<Arc<str>>>,
    },
    /// What the macros become.
    Comprehension(Box<Comprehension>),
}

/// An entry of a map or a field of a message.
#[derive(Debug, Clone)]
pub struct Entry<K> {
    /// Number of the entry.
    pub id: Id,
    /// Key or field name.
    pub key: K,
    /// The expression of the value.
    pub value: Expr,
    /// Omitted if the value is `optional.none()`.
    pub optional: bool,
}

/// A loop over a list or map that accumulates a result.
#[derive(Debug, Clone)]
pub struct Comprehension {
    /// The range of the loop.
    pub range: Expr,
    /// Variable of the element (of the key, in a map; of index or key where there is a second variable).
    pub var: Arc<str>,
    /// Variable of the value.
    pub var2: Option<Arc<str>>,
    /// Variable of the result.
    pub accu: Arc<str>,
    /// First value of the result.
    pub init: Expr,
    /// The loop ends when this is false.
    pub condition: Expr,
    /// Next value of the result.
    pub step: Expr,
    /// Value of the whole.
    pub result: Expr,
}

/// Name of the hidden variable that macros accumulate in.
pub const ACCUMULATOR: &str = "@result";
/// Variable name of a comprehension over an empty list (`cel.bind`).
pub const UNUSED_VAR: &str = "#unused";

/// An expression with the positions of its nodes.
#[derive(Debug, Clone)]
pub struct Ast {
    /// The root of the tree.
    pub expr: Expr,
    /// Positions of the nodes.
    pub positions: Positions,
}

/// Offset of each node in code points, by number.
#[derive(Debug, Clone, Default)]
pub struct Positions(Vec<Option<u32>>);

impl Positions {
    /// Gives out the next number, for a node at `offset`.
    pub(crate) fn next(&mut self, offset: Option<u32>) -> Id {
        if self.0.is_empty() {
            self.0.push(None);
        }
        self.0.push(offset);
        (self.0.len() - 1) as Id
    }

    /// The position of node `id`.
    pub fn get(&self, id: Id) -> Option<u32> {
        self.0.get(id as usize).copied().flatten()
    }

    /// One more than the largest number.
    pub fn len(&self) -> usize {
        self.0.len().max(1)
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.0.len() <= 1
    }
}

impl Expr {
    /// The name `a.b.c` that a chain of identifiers and selections spells.
    pub fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.to_string()),
            ExprKind::Select {
                operand,
                field,
                test_only: false,
            } => {
                let mut name = operand.qualified_name()?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }

    /// The string of a string literal.
    pub fn as_string(&self) -> Option<&Arc<str>> {
        match &self.kind {
            ExprKind::Literal(Literal::String(text)) => Some(text),
            _ => None,
        }
    }
}
