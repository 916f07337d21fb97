//! The steps that expressions are compiled to.

use std::sync::Arc;

use super::super::call_cost::Rule;
use crate::{
    library::{Function, Regex},
    value::{Key, Value},
};

/// A string key with its hash.
#[derive(Debug, Clone)]
pub(crate) struct KeyBuf {
    hash: u64,
    text: Arc<str>,
}

impl KeyBuf {
    pub(crate) fn new(text: &Arc<str>) -> Self {
        Self {
            hash: Key::new(text).hash(),
            text: text.clone(),
        }
    }

    pub(crate) fn key(&self) -> Key<'_> {
        Key::hashed(self.hash, &self.text)
    }

    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }
}

/// A step.
#[derive(Debug)]
pub(in crate::program) enum Node {
    /// A constant; costs nothing.
    Const(Value<'static>),
    /// The result of a call with constant arguments, computed beforehand; costs what the call costs.
    Folded(Value<'static>, u64),
    /// A variable or a value, and a path into it.
    Path(Box<Path>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Equal(Box<[Node; 2]>),
    /// Equality with a constant string.
    EqualText(Box<(Node, Text)>),
    NotEqual(Box<[Node; 2]>),
    /// `x in [constants]`.
    InSet(Box<(Node, Vec<Value<'static>>)>),
    Call(Box<Call>),
    /// `accumulator + [x]`: the accumulator is extended in place.
    Append(Box<(usize, Node)>),
    /// `cel.@mapInsert(accumulator, …)`: likewise.
    Insert(Box<(usize, Vec<Node>)>),
    Matches(Box<(Node, Regex, Option<u64>)>),
    Find(Box<FindCall>),
    List(Vec<(Node, bool)>),
    Map(Vec<MapEntry>),
    /// An object with its fields. Only those of patches can be created; evaluating another one is an error.
    Struct(Arc<str>, Vec<ObjectField>),
    Fold(Box<Fold>),
    OptionalOr(Box<[Node; 2]>),
    OptionalOrValue(Box<[Node; 2]>),
}

/// A field of a created object.
#[derive(Debug)]
pub(in crate::program) struct ObjectField {
    pub(in crate::program) name: Arc<str>,
    pub(in crate::program) value: Node,
    /// It is omitted if the value is an empty optional.
    pub(in crate::program) optional: bool,
}

/// A constant string that is compared with.
#[derive(Debug)]
pub(in crate::program) struct Text {
    pub(in crate::program) text: Arc<str>,
    /// Cost of a comparison with a string that is not shorter.
    pub(in crate::program) cost: u64,
    pub(in crate::program) on_the_left: bool,
}

impl Text {
    pub(super) fn new(text: &str, on_the_left: bool) -> Self {
        Self {
            text: text.into(),
            cost: compare_cost(text.chars().count()),
            on_the_left,
        }
    }

    /// Cost of a comparison with this string.
    pub(in crate::program) fn cost_beside(&self, other: &str) -> u64 {
        compare_cost(other.chars().count()).min(self.cost)
    }
}

/// Cost of comparing two texts of which the shorter one has so many characters.
pub(in crate::program) fn compare_cost(length: usize) -> u64 {
    crate::cost::times_factor(length as u64, crate::cost::PER_CHAR)
}

#[derive(Debug)]
pub(in crate::program) struct MapEntry {
    pub(in crate::program) key: Node,
    pub(in crate::program) value: Node,
    pub(in crate::program) optional: bool,
}

#[derive(Debug)]
pub(in crate::program) struct FindCall {
    pub(in crate::program) text: Node,
    pub(in crate::program) regex: Regex,
    pub(in crate::program) regex_cost: u64,
    /// Find all matches, at most so many.
    pub(in crate::program) all: bool,
    pub(in crate::program) limit: Option<Node>,
}

#[derive(Debug)]
pub(in crate::program) struct Path {
    pub(in crate::program) root: Root,
    pub(in crate::program) steps: Vec<Step>,
    /// Only tests whether the last step exists.
    pub(in crate::program) test_only: bool,
    /// All steps are constant keys that must exist.
    pub(in crate::program) plain: bool,
}

#[derive(Debug)]
pub(in crate::program) enum Root {
    Variable(usize),
    Local(usize),
    Value(Node),
    Choice(Box<Choice>),
}

/// `condition ? then : otherwise`. Reading a branch that is a path does not cost what reading a variable costs.
#[derive(Debug)]
pub(in crate::program) struct Choice {
    pub(in crate::program) condition: Node,
    pub(in crate::program) then: Node,
    pub(in crate::program) otherwise: Node,
}

#[derive(Debug)]
pub(in crate::program) enum Step {
    Key(KeyBuf, bool),
    Value(Value<'static>, bool),
    Node(Node, bool),
}

#[derive(Debug)]
pub(in crate::program) struct Call {
    pub(in crate::program) name: Arc<str>,
    pub(in crate::program) function: Function,
    pub(in crate::program) args: Vec<Node>,
    pub(in crate::program) rule: Rule,
    /// The arguments after one that fails are not evaluated, and then the call costs nothing.
    pub(in crate::program) stops_early: bool,
    /// How a call with unsuitable arguments is reported.
    pub(in crate::program) complaint: Complaint,
    /// Gets errors as arguments.
    pub(in crate::program) lenient: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::program) enum Complaint {
    /// `no such overload`.
    Plain,
    /// `no such overload: name`, if the first argument does not have the trait.
    Name,
    /// `no such overload: name(types)`.
    Types,
}

#[derive(Debug)]
pub(in crate::program) struct Fold {
    pub(in crate::program) range: Node,
    pub(in crate::program) var: usize,
    pub(in crate::program) var2: Option<usize>,
    pub(in crate::program) accu: usize,
    pub(in crate::program) init: Node,
    pub(in crate::program) condition: Node,
    pub(in crate::program) step: Node,
    pub(in crate::program) result: Node,
}
