//! Evaluation, with upstream's costs counted on the way.
//!
//! An operator or function evaluates all its arguments before it looks at them, so an error in one does not make it
//! cheaper; only functions that upstream calls with a list of arguments stop at the first error.

use std::borrow::Cow;

use super::{
    Limits,
    call_cost::regex_text,
    plan::{FindCall, Node, Text},
};
use crate::{
    cost::{PER_CHAR, times_factor},
    library::Regex,
    value::{Fault, Value},
};

/// Returns at once if the evaluation was cancelled; other errors wait.
macro_rules! keep_going {
    ($outcome:expr) => {{
        let outcome = $outcome;
        if matches!(outcome, Err(Fault::Cancelled(_))) {
            return Err($crate::program::eval::cancelled(outcome));
        }
        outcome
    }};
}

mod calls;
mod construct;
mod fold;
mod path;

type Outcome<'a> = Result<Value<'a>, Fault>;

pub(super) fn evaluate<'a>(
    root: &'a Node,
    locals: usize,
    variables: &'a [Value<'a>],
    limits: &Limits<'_>,
) -> (Outcome<'a>, u64) {
    if locals == 0 {
        return run(root, &mut [], variables, limits);
    }
    if locals <= 4 {
        return run(root, &mut [const { Local::Unset }; 4], variables, limits);
    }
    let mut on_heap = Vec::new();
    on_heap.resize_with(locals, || Local::Unset);
    run(root, &mut on_heap, variables, limits)
}

fn run<'a>(
    root: &'a Node,
    locals: &mut [Local<'a>],
    variables: &'a [Value<'a>],
    limits: &Limits<'_>,
) -> (Outcome<'a>, u64) {
    let mut evaluator = Evaluator {
        variables,
        locals,
        cost: 0,
        limits,
        iterations: 0,
    };
    let result = evaluator.eval(root);
    (result, evaluator.cost)
}

/// A local variable.
enum Local<'a> {
    Unset,
    /// Not needed so far.
    Lazy(&'a Node),
    Set(Value<'a>),
    Failed(Fault),
}

struct Evaluator<'a, 'e> {
    variables: &'a [Value<'a>],
    locals: &'e mut [Local<'a>],
    cost: u64,
    limits: &'e Limits<'e>,
    iterations: u32,
}

#[cold]
fn cancelled<T>(outcome: Result<T, Fault>) -> Fault {
    outcome.err().unwrap_or(Fault::NoOverload)
}

impl<'a> Evaluator<'a, '_> {
    #[inline]
    fn spend(&mut self, cost: u64) -> Result<(), Fault> {
        self.cost = self.cost.wrapping_add(cost);
        if self.cost > self.limits.cost {
            return Err(Fault::Cancelled(Cow::Borrowed(
                "operation cancelled: actual cost limit exceeded",
            )));
        }
        Ok(())
    }

    fn eval(&mut self, node: &'a Node) -> Outcome<'a> {
        match node {
            Node::Const(value) => Ok(value.borrowed()),
            Node::Folded(value, cost) => {
                self.spend(*cost)?;
                Ok(value.borrowed())
            }
            Node::Path(path) => self.path(path),
            Node::And(terms) => self.logical(terms, false),
            Node::Or(terms) => self.logical(terms, true),
            Node::Equal(sides) => self.equal(sides),
            Node::EqualText(parts) => self.equal_text(&parts.0, &parts.1),
            Node::NotEqual(sides) => self.not_equal(sides),
            Node::InSet(parts) => {
                let value = self.eval(&parts.0)?;
                Ok(Value::Bool(parts.1.iter().any(|known| value.is(known))))
            }
            Node::Call(call) => self.call(call),
            Node::Append(parts) => self.append(parts.0, &parts.1),
            Node::Insert(parts) => self.insert(parts.0, &parts.1),
            Node::Matches(parts) => self.matches(&parts.0, &parts.1, parts.2),
            Node::Find(call) => self.find(call),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Struct(name, values) => self.message(name, values),
            Node::Fold(fold) => self.fold(fold),
            Node::OptionalOr(sides) => self.optional_or(sides, false),
            Node::OptionalOrValue(sides) => self.optional_or(sides, true),
        }
    }

    #[inline(never)]
    fn equal(&mut self, sides: &'a [Node; 2]) -> Outcome<'a> {
        let (left, right) = self.sides(sides)?;
        self.equal_values(left, right)
    }

    #[inline]
    fn equal_values(&mut self, left: Outcome<'a>, right: Outcome<'a>) -> Outcome<'a> {
        let cost = match &left {
            Ok(Value::Quantity(_) | Value::Version(_) | Value::Extension(_)) => 1,
            _ => shorter(&left, &right),
        };
        self.spend(cost)?;
        Ok(Value::Bool(left?.equals(&right?)?))
    }

    /// Comparison with a constant string, whose length is known.
    #[inline(never)]
    fn equal_text(&mut self, node: &'a Node, text: &'a Text) -> Outcome<'a> {
        let value = keep_going!(self.eval(node));
        if let Ok(Value::String(value)) = &value {
            let equal = **value == *text.text;
            let cost = if equal {
                text.cost
            } else {
                text.cost_beside(value)
            };
            self.spend(cost)?;
            return Ok(Value::Bool(equal));
        }
        let constant = Ok(Value::str(&text.text));
        let (left, right) = if text.on_the_left {
            (constant, value)
        } else {
            (value, constant)
        };
        self.equal_values(left, right)
    }

    #[inline(never)]
    fn not_equal(&mut self, sides: &'a [Node; 2]) -> Outcome<'a> {
        let (left, right) = self.sides(sides)?;
        self.spend(shorter(&left, &right))?;
        Ok(Value::Bool(!left?.is(&right?)))
    }

    #[inline(never)]
    fn matches(&mut self, text: &'a Node, regex: &'a Regex, cost: Option<u64>) -> Outcome<'a> {
        let text = self.eval(text)?;
        self.spend(cost.map_or(1, |cost| regex_text(text.cost_size(true)) * cost))?;
        match text.as_str() {
            Some(text) => Ok(Value::Bool(regex.is_match(text))),
            None => Err(Fault::NoOverload),
        }
    }

    #[inline(never)]
    fn find(&mut self, call: &'a FindCall) -> Outcome<'a> {
        let text = self.eval(&call.text)?;
        let limit = call.limit.as_ref().map(|limit| self.eval(limit));
        let limit = keep_going!(limit.transpose());
        self.spend(regex_text(text.cost_size(false)) * call.regex_cost)?;
        let limit = match limit? {
            None => -1,
            Some(Value::Int(limit)) => limit,
            Some(_) => return Err(Fault::NoOverload),
        };
        let text = text.as_str().ok_or(Fault::NoOverload)?;
        Ok(if call.all {
            call.regex.find_all(text, limit)
        } else {
            call.regex.find(text)
        })
    }

    #[inline(never)]
    fn optional_or(&mut self, sides: &'a [Node; 2], unwrap: bool) -> Outcome<'a> {
        match self.eval(&sides[0])? {
            Value::Optional(None) => self.eval(&sides[1]),
            Value::Optional(Some(inner)) if unwrap => Ok(Value::clone(&inner)),
            other => Ok(other),
        }
    }

    /// Both sides of an operator; an error in the left one does not keep the right one from being evaluated.
    #[inline]
    fn sides(&mut self, sides: &'a [Node; 2]) -> Result<(Outcome<'a>, Outcome<'a>), Fault> {
        let left = keep_going!(self.eval(&sides[0]));
        let right = keep_going!(self.eval(&sides[1]));
        Ok((left, right))
    }

    /// `&&` and `||`: the first term that decides wins, even over an error before it.
    fn logical(&mut self, terms: &'a [Node; 2], decisive: bool) -> Outcome<'a> {
        let mut failed = None;
        for term in terms {
            match keep_going!(self.eval(term)) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(Fault::new("no such overload"))),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        match failed {
            Some(fault) => Err(fault),
            None => Ok(Value::Bool(!decisive)),
        }
    }
}

/// Cost of comparing two values: the shorter one decides.
#[inline]
fn shorter(left: &Outcome<'_>, right: &Outcome<'_>) -> u64 {
    let size = |value: &Outcome<'_>| value.as_ref().map_or(1, |value| value.cost_size(true));
    times_factor(size(left).min(size(right)), PER_CHAR)
}
