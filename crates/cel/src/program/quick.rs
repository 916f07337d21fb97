//! Conditions on fields, tested without creating values.
//!
//! Most selectors are comparisons of fields with constants, joined by logical operators. Such an expression is also
//! compiled to a tree of tests, with the cost of the steps in [`super::eval`] summed in advance. A test that encounters
//! anything unusual (a missing field, another type, an error) gives no answer; then the steps are evaluated from the
//! start, and give the result, the error and the cost.

use std::{cmp::Ordering, sync::Arc};

use allot_apimachinery::Quantity;

use super::{
    call_cost::{Rule, regex_text},
    plan::{Call, Node, Path, Root, Step, compare_cost},
};
use crate::{cost::SELECT, library::Regex, semver::Version, value::Value};

/// The value of a scalar field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Field<'a> {
    Bool(bool),
    Int(i64),
    Text(&'a str),
    Quantity(&'a Quantity),
    Version(&'a Version),
}

/// The input of the tests. Fields are identified by the position in [`Quick::fields`].
pub(crate) trait Fields {
    /// The value; `None` if it does not exist or is no scalar.
    fn get(&self, field: usize) -> Option<Field<'_>>;

    /// Whether the field exists, for fields that are only tested for presence.
    fn has(&self, field: usize) -> bool;
}

/// How a field is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Its value counts.
    Value,
    /// `has(path)`.
    Has,
    /// `key in path`, with the key as the last of the path.
    In,
}

/// A field that is tested: constant keys from a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldPath {
    pub(crate) variable: usize,
    pub(crate) keys: Vec<Arc<str>>,
    pub(crate) usage: Use,
}

/// An expression as a tree of tests.
#[derive(Debug)]
pub(crate) struct Quick {
    root: Test,
    pub(crate) fields: Vec<FieldPath>,
}

#[derive(Debug)]
enum Test {
    Const(bool),
    All(Box<[Test]>),
    Any(Box<[Test]>),
    Not(Box<Test>),
    /// One test of a field, with its minimum cost.
    Field {
        field: usize,
        cost: u64,
        check: Check,
    },
}

#[derive(Debug)]
enum Check {
    Present,
    True,
    Bool(bool),
    Int(Orders, i64),
    Text {
        text: Arc<str>,
        /// Cost of the comparison with a text that is not shorter.
        cost: u64,
        negated: bool,
    },
    Among(Box<[Arc<str>]>),
    /// The regular expression, and its cost per text if it has one.
    Matches(Box<(Regex, Option<u64>)>),
    Quantity(Orders, Box<Quantity>),
    Version(Orders, Box<Version>),
}

/// A set of outcomes of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Orders(u8);

impl Orders {
    /// The orders for which `accept` is true.
    fn new(accept: impl Fn(Ordering) -> bool) -> Self {
        let all = [Ordering::Less, Ordering::Equal, Ordering::Greater];
        let accepted = all.into_iter().filter(|order| accept(*order));
        Self(accepted.fold(0, |bits, order| bits | 1 << (order as i8 + 1)))
    }

    /// The orders that an operator accepts.
    fn of(operator: &str) -> Option<Self> {
        Some(Self::new(match operator {
            "_<_" => Ordering::is_lt,
            "_<=_" => Ordering::is_le,
            "_>_" => Ordering::is_gt,
            "_>=_" => Ordering::is_ge,
            _ => return None,
        }))
    }

    #[inline]
    fn accept(self, order: Ordering) -> bool {
        self.0 >> (order as i8 + 1) & 1 == 1
    }
}

impl Quick {
    /// The tests of an expression, if it consists of such.
    pub(super) fn new(root: &Node) -> Option<Self> {
        let mut builder = Builder { fields: Vec::new() };
        let root = builder.test(root)?;
        Some(Self {
            root,
            fields: builder.fields,
        })
    }

    /// Result and cost; `None` when the steps must be evaluated.
    #[inline]
    pub(crate) fn evaluate(&self, fields: &impl Fields, limit: u64) -> Option<(bool, u64)> {
        let mut cost = 0;
        let result = self.root.evaluate(fields, &mut cost)?;
        (cost <= limit).then_some((result, cost))
    }
}

impl Test {
    fn evaluate(&self, fields: &impl Fields, total: &mut u64) -> Option<bool> {
        match self {
            Self::Field { field, cost, check } => {
                *total += cost;
                check.evaluate(*field, fields, total)
            }
            Self::All(tests) => {
                for test in tests {
                    if !test.evaluate(fields, total)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            Self::Any(tests) => {
                for test in tests {
                    if test.evaluate(fields, total)? {
                        return Some(true);
                    }
                }
                Some(false)
            }
            Self::Not(test) => {
                let result = test.evaluate(fields, total)?;
                *total += 1;
                Some(!result)
            }
            Self::Const(value) => Some(*value),
        }
    }
}

impl Check {
    #[inline]
    fn evaluate(&self, field: usize, fields: &impl Fields, total: &mut u64) -> Option<bool> {
        if matches!(self, Self::Present) {
            return Some(fields.has(field));
        }
        Some(match (self, fields.get(field)?) {
            (Self::True, Field::Bool(value)) => value,
            (Self::Bool(constant), Field::Bool(value)) => value == *constant,
            (Self::Int(orders, constant), Field::Int(value)) => orders.accept(value.cmp(constant)),
            (
                Self::Text {
                    text,
                    cost,
                    negated,
                },
                Field::Text(value),
            ) => {
                let equal = value == &**text;
                *total += if equal {
                    *cost
                } else {
                    compare_cost(value.chars().count()).min(*cost)
                };
                equal != *negated
            }
            (Self::Among(texts), Field::Text(value)) => texts.iter().any(|text| **text == *value),
            (Self::Matches(matches), Field::Text(value)) => {
                let (regex, cost) = &**matches;
                *total += match cost {
                    Some(cost) => regex_text(value.chars().count() as u64) * cost,
                    None => 1,
                };
                regex.is_match(value)
            }
            (Self::Quantity(orders, constant), Field::Quantity(value)) => {
                orders.accept(value.cmp(constant))
            }
            (Self::Version(orders, constant), Field::Version(value)) => {
                orders.accept(value.cmp(constant))
            }
            _ => return None,
        })
    }
}

struct Builder {
    fields: Vec<FieldPath>,
}

impl Builder {
    fn test(&mut self, node: &Node) -> Option<Test> {
        Some(match node {
            Node::Const(Value::Bool(value)) => Test::Const(*value),
            Node::And(terms) => Test::All(self.terms(terms)?),
            Node::Or(terms) => Test::Any(self.terms(terms)?),
            Node::Path(path) if path.test_only => {
                let keys = keys(path)?;
                let cost = keys.len() as u64 * SELECT;
                self.field(path, keys, Use::Has, cost, Check::Present)?
            }
            Node::Path(path) => self.value(path, 0, Check::True)?,
            Node::EqualText(parts) => self.text(&parts.0, &parts.1.text, parts.1.cost, false)?,
            Node::Equal(sides) => self.equality(sides, false)?,
            Node::NotEqual(sides) => self.equality(sides, true)?,
            Node::InSet(parts) => {
                let texts: Option<Box<[Arc<str>]>> =
                    parts.1.iter().map(|v| v.as_str().map(Arc::from)).collect();
                self.value(path_of(&parts.0)?, 0, Check::Among(texts?))?
            }
            Node::Matches(parts) => {
                let check = Check::Matches(Box::new((parts.1.clone(), parts.2)));
                self.value(path_of(&parts.0)?, 0, check)?
            }
            Node::Call(call) => self.call(call)?,
            _ => return None,
        })
    }

    /// The terms of a logical operator, with those of the same operator inside.
    fn terms(&mut self, terms: &[Node; 2]) -> Option<Box<[Test]>> {
        terms.iter().map(|term| self.test(term)).collect()
    }

    fn text(&mut self, node: &Node, text: &str, cost: u64, negated: bool) -> Option<Test> {
        let check = Check::Text {
            text: text.into(),
            cost,
            negated,
        };
        self.value(path_of(node)?, 0, check)
    }

    fn equality(&mut self, sides: &[Node; 2], negated: bool) -> Option<Test> {
        let orders = Orders::new(|order| order.is_eq() != negated);
        let one = compare_cost(1);
        match sides {
            [Node::Path(path), Node::Const(constant)]
            | [Node::Const(constant), Node::Path(path)] => match constant {
                Value::Bool(value) => self.value(path, one, Check::Bool(*value != negated)),
                Value::Int(value) => self.value(path, one, Check::Int(orders, *value)),
                Value::String(text) => {
                    let cost = compare_cost(text.chars().count());
                    self.text(
                        &sides[usize::from(matches!(sides[0], Node::Const(_)))],
                        text,
                        cost,
                        negated,
                    )
                }
                _ => None,
            },
            [Node::Call(call), Node::Const(Value::Int(number))] => {
                self.compared(call, one, |order| (order as i64 == *number) != negated)
            }
            _ => None,
        }
    }

    fn call(&mut self, call: &Call) -> Option<Test> {
        if call.rule != Rule::One {
            return None;
        }
        match (&*call.name, &call.args[..]) {
            ("!_", [arg]) => Some(Test::Not(Box::new(self.test(arg)?))),
            ("@in", [Node::Const(Value::String(key)), Node::Path(path)]) if !path.test_only => {
                let mut keys = keys(path)?;
                let cost = (keys.len() as u64 + 1) * SELECT + 1;
                keys.push(Arc::from(&**key));
                self.field(path, keys, Use::In, cost, Check::Present)
            }
            ("isGreaterThan", _) => self.compared(call, 0, Ordering::is_gt),
            ("isLessThan", _) => self.compared(call, 0, Ordering::is_lt),
            (operator, [Node::Path(path), Node::Const(Value::Int(constant))]) => {
                let orders = Orders::of(operator)?;
                self.value(path, 1, Check::Int(orders, *constant))
            }
            (operator, [Node::Call(inner), Node::Const(Value::Int(number))])
                if *inner.name == *"compareTo" =>
            {
                let orders = Orders::of(operator)?;
                self.compared(inner, 1, |order| orders.accept((order as i64).cmp(number)))
            }
            _ => None,
        }
    }

    /// `field.compareTo(constant)` and similar: the accepted orders.
    fn compared(
        &mut self,
        call: &Call,
        cost: u64,
        accept: impl Fn(Ordering) -> bool,
    ) -> Option<Test> {
        let known = matches!(&*call.name, "compareTo" | "isGreaterThan" | "isLessThan");
        let [Node::Path(path), Node::Folded(constant, made)] = &call.args[..] else {
            return None;
        };
        if !known || call.rule != Rule::One {
            return None;
        }
        let orders = Orders::new(accept);
        let check = match constant {
            Value::Quantity(quantity) => {
                Check::Quantity(orders, Box::new(Quantity::clone(quantity)))
            }
            Value::Version(version) => Check::Version(orders, Box::new(Version::clone(version))),
            _ => return None,
        };
        self.value(path, made + 1 + cost, check)
    }

    /// A test of a value, with its additional cost.
    fn value(&mut self, path: &Path, cost: u64, check: Check) -> Option<Test> {
        let keys = keys(path).filter(|_| !path.test_only)?;
        let cost = (keys.len() as u64 + 1) * SELECT + cost;
        self.field(path, keys, Use::Value, cost, check)
    }

    fn field(
        &mut self,
        path: &Path,
        keys: Vec<Arc<str>>,
        usage: Use,
        cost: u64,
        check: Check,
    ) -> Option<Test> {
        let Root::Variable(variable) = path.root else {
            return None;
        };
        let wanted = FieldPath {
            variable,
            keys,
            usage,
        };
        let known = self.fields.iter().position(|field| *field == wanted);
        let field = known.unwrap_or_else(|| {
            self.fields.push(wanted);
            self.fields.len() - 1
        });
        Some(Test::Field { field, cost, check })
    }
}

fn path_of(node: &Node) -> Option<&Path> {
    match node {
        Node::Path(path) => Some(path),
        _ => None,
    }
}

/// The keys of a path that has only constant ones.
fn keys(path: &Path) -> Option<Vec<Arc<str>>> {
    let steps = path.steps.iter().map(|step| match step {
        Step::Key(key, false) => Some(key.text().clone()),
        _ => None,
    });
    steps
        .collect::<Option<Vec<_>>>()
        .filter(|keys| !keys.is_empty())
}
