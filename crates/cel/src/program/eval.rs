//! Evaluation, with upstream's costs counted on the way.
//!
//! An operator or function evaluates all its arguments before it looks at them, so an error in one does not make it
//! cheaper; only functions that upstream calls with a list of arguments stop at the first error.

use std::{borrow::Cow, sync::Arc};

use super::{
    Limits,
    call_cost::regex_text,
    plan::{Call, Choice, Complaint, FindCall, Fold, MapEntry, Node, Path, Root, Step, Text},
};
use crate::{
    cost::{LIST, MAP, PER_CHAR, SELECT, STRUCT, times_factor},
    library::Regex,
    value::{Fault, Key, Map, MapKey, Value},
};

/// Iterations of loops between two questions whether to stop.
const CHECK_INTERVAL: u32 = 100;

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

/// Leaves at once where the evaluation was cancelled; other errors wait.
macro_rules! keep_going {
    ($outcome:expr) => {{
        let outcome = $outcome;
        if matches!(outcome, Err(Fault::Cancelled(_))) {
            return Err(cancelled(outcome));
        }
        outcome
    }};
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
        let cost = match &left {
            Ok(Value::Quantity(_) | Value::Version(_) | Value::Extension(_)) => 1,
            _ => shorter(&left, &right),
        };
        self.spend(cost)?;
        Ok(Value::Bool(left?.equals(&right?)?))
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
    fn message(&mut self, name: &str, values: &'a [Node]) -> Outcome<'a> {
        let mut failed = None;
        for value in values {
            if let Err(fault) = keep_going!(self.eval(value)) {
                failed = Some(fault);
                break;
            }
        }
        self.spend(STRUCT)?;
        Err(failed.unwrap_or_else(|| Fault::new(format!("unknown type '{name}'"))))
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

    #[inline]
    fn path(&mut self, path: &'a Path) -> Outcome<'a> {
        let result = keep_going!(self.resolve(path));
        let is_choice = matches!(path.root, Root::Choice(_));
        match (is_choice, path.test_only) {
            (false, false) => self.spend(SELECT)?,
            (false, true) | (true, false) => {}
            (true, true) => self.spend(SELECT.wrapping_neg())?,
        }
        match result? {
            Value::Optional(value) if path.test_only => Ok(Value::Bool(value.is_some())),
            value => Ok(value),
        }
    }

    /// The value of a path without the cost of reading a variable.
    fn resolve(&mut self, path: &'a Path) -> Outcome<'a> {
        let root = match &path.root {
            Root::Variable(number) => self.variables[*number].borrowed(),
            Root::Local(slot) => self.local(*slot)?,
            Root::Value(node) => self.eval(node)?,
            Root::Choice(choice) => self.choice(choice)?,
        };
        if path.steps.is_empty() {
            return Ok(root);
        }
        let (mut value, mut optional) = match root {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => (Value::clone(&inner), true),
            other => (other, false),
        };
        if path.plain && !optional {
            return self.plain_steps(value, &path.steps);
        }
        let last = path.steps.len() - 1;
        for (i, step) in path.steps.iter().enumerate() {
            let test = path.test_only && i == last;
            let (Step::Key(_, own) | Step::Value(_, own) | Step::Node(_, own)) = step;
            optional |= *own;
            if optional {
                match self.step(&value, step, true)? {
                    Some(next) => {
                        self.spend(SELECT)?;
                        value = if test { Value::Null } else { next };
                    }
                    None => return Ok(Value::Optional(None)),
                }
            } else {
                let next = keep_going!(self.step(&value, step, test));
                self.spend(SELECT)?;
                match next? {
                    next if test => value = Value::Bool(next.is_some()),
                    Some(next) => value = next,
                    // Without a test what is missing is an error.
                    None => return Err(Fault::NoOverload),
                }
            }
        }
        Ok(if optional {
            Value::Optional(Some(Arc::new(value)))
        } else {
            value
        })
    }

    /// Follows keys that must be there.
    fn plain_steps(&mut self, mut value: Value<'a>, steps: &'a [Step]) -> Outcome<'a> {
        for step in steps {
            let Step::Key(key, _) = step else {
                return Err(Fault::NoOverload);
            };
            let found = match &value {
                Value::Map(map) => map.find_key(key.key()),
                _ => None,
            };
            self.spend(SELECT)?;
            match found {
                Some(next) => value = next,
                None => {
                    by_key(&value, key.key(), false)?;
                    return Err(missing_key(key.key().text()));
                }
            }
        }
        Ok(value)
    }

    fn choice(&mut self, choice: &'a Choice) -> Outcome<'a> {
        let branch = match self.eval(&choice.condition)? {
            Value::Bool(true) => &choice.then,
            Value::Bool(false) => &choice.otherwise,
            _ => return Err(Fault::new("no such overload")),
        };
        match branch {
            Node::Path(path) if !path.test_only => self.resolve(path),
            other => self.eval(other),
        }
    }

    /// One step of a path; `None` where `test` is set and it leads nowhere.
    fn step(
        &mut self,
        value: &Value<'a>,
        step: &'a Step,
        test: bool,
    ) -> Result<Option<Value<'a>>, Fault> {
        match step {
            Step::Key(key, _) => by_key(value, key.key(), test),
            Step::Value(index, _) => by_value(value, index, test),
            Step::Node(node, _) => {
                let index = match node {
                    Node::Path(path) => self.resolve(path)?,
                    other => self.eval(other)?,
                };
                match &index {
                    Value::String(text) => by_key(value, Key::new(text), test),
                    Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_) => {
                        by_value(value, &index, test)
                    }
                    other => Err(Fault::new(format!(
                        "invalid qualifier type: {}",
                        other.go_type()
                    ))),
                }
            }
        }
    }

    fn local(&mut self, slot: usize) -> Outcome<'a> {
        match &self.locals[slot] {
            Local::Set(value) => Ok(value.clone()),
            Local::Failed(fault) => Err(fault.clone()),
            Local::Unset => Err(Fault::new("no such attribute(s): unset variable")),
            Local::Lazy(init) => {
                let init = *init;
                let result = keep_going!(self.eval(init));
                self.set(slot, &result);
                result
            }
        }
    }

    fn set(&mut self, slot: usize, result: &Outcome<'a>) {
        self.locals[slot] = match result {
            Ok(value) => Local::Set(value.clone()),
            Err(fault) => Local::Failed(fault.clone()),
        };
    }

    #[inline(never)]
    fn call(&mut self, call: &'a Call) -> Outcome<'a> {
        if let [arg] = &call.args[..] {
            let arg = keep_going!(self.eval(arg));
            if call.lenient {
                self.spend(1)?;
                return Ok(match arg {
                    Ok(value @ Value::Bool(_)) => value,
                    _ => Value::Bool(true),
                });
            }
            return match arg {
                Ok(arg) => self.invoke(call, &[arg]),
                Err(fault) => self.failed(call, &[None], fault),
            };
        }
        if let ([left, right], false) = (&call.args[..], call.stops_early) {
            let left = keep_going!(self.eval(left));
            let right = keep_going!(self.eval(right));
            return match (left, right) {
                (Ok(left), Ok(right)) => self.invoke(call, &[left, right]),
                (Ok(left), Err(fault)) => self.failed(call, &[Some(&left), None], fault),
                (Err(fault), right) => self.failed(call, &[None, right.as_ref().ok()], fault),
            };
        }
        self.call_many(call)
    }

    /// A call that an argument keeps from being made costs what it costs all the same.
    #[cold]
    fn failed(&mut self, call: &Call, args: &[Option<&Value<'a>>], fault: Fault) -> Outcome<'a> {
        let cost = call.rule.cost(args.iter().copied(), None);
        self.spend(cost)?;
        Err(fault)
    }

    #[inline(never)]
    fn call_many(&mut self, call: &'a Call) -> Outcome<'a> {
        let mut values = Vec::with_capacity(call.args.len());
        let last = call.args.len().saturating_sub(1);
        for (i, arg) in call.args.iter().enumerate() {
            match keep_going!(self.eval(arg)) {
                Ok(value) => values.push(value),
                Err(fault) => {
                    if i == last {
                        let args = values.iter().map(Some).chain([None]);
                        let cost = call.rule.cost(args, None);
                        self.spend(cost)?;
                    }
                    return Err(fault);
                }
            }
        }
        self.invoke(call, &values)
    }

    #[inline]
    fn invoke(&mut self, call: &'a Call, args: &[Value<'a>]) -> Outcome<'a> {
        let result = (call.function)(args);
        let cost = call.rule.cost(args.iter().map(Some), result.as_ref().ok());
        self.spend(cost)?;
        result.map_err(|fault| match fault {
            Fault::NoOverload => complain(call, args),
            other => other,
        })
    }

    #[inline(never)]
    fn append(&mut self, slot: usize, list: &'a Node) -> Outcome<'a> {
        let accu = keep_going!(self.local(slot).map(drop));
        self.spend(SELECT)?;
        let list = keep_going!(self.eval(list));
        self.spend(1)?;
        accu?;
        let list = list?;
        match std::mem::replace(&mut self.locals[slot], Local::Unset) {
            Local::Set(value) => value.add(&list),
            _ => Err(Fault::NoOverload),
        }
    }

    #[inline(never)]
    fn insert(&mut self, slot: usize, args: &'a [Node]) -> Outcome<'a> {
        let accu = keep_going!(self.local(slot).map(drop));
        self.spend(SELECT)?;
        let mut values = Vec::with_capacity(args.len());
        let mut failed = accu.err();
        // With three arguments the first error ends the call, with two both are looked at.
        let three = args.len() == 2;
        let mut complete = true;
        for arg in args {
            if failed.is_some() && three {
                complete = false;
                break;
            }
            match keep_going!(self.eval(arg)) {
                Ok(value) => values.push(value),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        if complete {
            self.spend(1)?;
        }
        if let Some(fault) = failed {
            return Err(fault);
        }
        let Local::Set(Value::Map(map)) = std::mem::replace(&mut self.locals[slot], Local::Unset)
        else {
            return Err(Fault::NoOverload);
        };
        crate::library::insert(map, &values)
    }

    #[inline(never)]
    fn list(&mut self, elements: &'a [(Node, bool)]) -> Outcome<'a> {
        let mut values = Vec::with_capacity(elements.len());
        let mut failed = None;
        for (element, optional) in elements {
            match keep_going!(self.eval(element)) {
                Ok(Value::Optional(value)) if *optional => {
                    values.extend(value.map(|value| Value::clone(&value)))
                }
                Ok(value) if *optional => {
                    let text = format!(
                        "cannot initialize optional list element from non-optional value {value}"
                    );
                    failed = Some(Fault::new(text));
                }
                Ok(value) => values.push(value),
                Err(fault) => failed = Some(fault),
            }
            if failed.is_some() {
                break;
            }
        }
        self.spend(LIST)?;
        match failed {
            Some(fault) => Err(fault),
            None => Ok(Value::list(values)),
        }
    }

    #[inline(never)]
    fn map(&mut self, entries: &'a [MapEntry]) -> Outcome<'a> {
        let mut map = std::collections::BTreeMap::new();
        let mut failed = None;
        for entry in entries {
            match keep_going!(self.entry(entry)) {
                Ok((key, Some(value))) => {
                    map.insert(key, value);
                }
                Ok((key, None)) => {
                    map.remove(&key);
                }
                Err(fault) => {
                    failed = Some(fault);
                    break;
                }
            }
        }
        self.spend(MAP)?;
        match failed {
            Some(fault) => Err(fault),
            None => Ok(Value::Map(Map::Shared(Arc::new(map)))),
        }
    }

    fn entry(&mut self, entry: &'a MapEntry) -> Result<(MapKey, Option<Value<'a>>), Fault> {
        let key = self.eval(&entry.key)?;
        let value = self.eval(&entry.value)?;
        let value = match value {
            Value::Optional(value) if entry.optional => value.map(|value| Value::clone(&value)),
            value if entry.optional => {
                let text = format!(
                    "cannot initialize optional entry '{key}' from non-optional value {value}"
                );
                return Err(Fault::new(text));
            }
            value => Some(value),
        };
        let key = MapKey::new(&key)
            .ok_or_else(|| Fault::new(format!("unsupported key type: {}", key.type_name())))?;
        Ok((key, value))
    }

    #[inline(never)]
    fn fold(&mut self, fold: &'a Fold) -> Outcome<'a> {
        let range = self.eval(&fold.range)?;
        self.locals[fold.accu] = Local::Lazy(&fold.init);
        match (&range, fold.var2) {
            (Value::List(list), None) => {
                for element in list.iter() {
                    self.locals[fold.var] = Local::Set(element);
                    if !self.iteration(fold)? {
                        break;
                    }
                }
            }
            (Value::Map(map), None) => {
                for key in map.keys() {
                    self.locals[fold.var] = Local::Set(key);
                    if !self.iteration(fold)? {
                        break;
                    }
                }
            }
            (Value::List(list), Some(var2)) => {
                for (i, element) in list.iter().enumerate() {
                    self.locals[fold.var] = Local::Set(Value::Int(i as i64));
                    self.locals[var2] = Local::Set(element);
                    if !self.iteration(fold)? {
                        break;
                    }
                }
            }
            (Value::Map(map), Some(var2)) => {
                for key in map.keys() {
                    let value = map.find(&key).unwrap_or(Value::Null);
                    self.locals[fold.var] = Local::Set(key);
                    self.locals[var2] = Local::Set(value);
                    if !self.iteration(fold)? {
                        break;
                    }
                }
            }
            (other, None) => {
                return Err(Fault::new(format!(
                    "got '{}', expected iterable type",
                    other.go_type()
                )));
            }
            (other, Some(_)) => {
                return Err(Fault::new(format!(
                    "unsupported comprehension range type: {}",
                    other.go_type()
                )));
            }
        }
        self.eval(&fold.result)
    }

    /// One round of a loop. Says whether the loop goes on.
    fn iteration(&mut self, fold: &'a Fold) -> Result<bool, Fault> {
        if let Ok(Value::Bool(false)) = keep_going!(self.eval(&fold.condition)) {
            return Ok(false);
        }
        let result = keep_going!(self.eval(&fold.step));
        self.locals[fold.accu] = match result {
            Ok(value) => Local::Set(value),
            Err(fault) => Local::Failed(fault),
        };
        self.iterations += 1;
        if self.iterations == CHECK_INTERVAL {
            self.iterations = 0;
            if self
                .limits
                .interrupted
                .is_some_and(|interrupted| interrupted())
            {
                return Err(Fault::Cancelled(Cow::Borrowed("operation interrupted")));
            }
        }
        Ok(true)
    }
}

/// Cost of comparing two values: the shorter one decides.
#[inline]
fn shorter(left: &Outcome<'_>, right: &Outcome<'_>) -> u64 {
    let size = |value: &Outcome<'_>| value.as_ref().map_or(1, |value| value.cost_size(true));
    times_factor(size(left).min(size(right)), PER_CHAR)
}

#[cold]
fn complain(call: &Call, args: &[Value<'_>]) -> Fault {
    let name = &call.name;
    match call.complaint {
        Complaint::Name
            if !args
                .first()
                .is_some_and(|arg| crate::library::has_trait(name, arg)) =>
        {
            Fault::new(format!("no such overload: {name}"))
        }
        Complaint::Plain | Complaint::Name => Fault::new("no such overload"),
        Complaint::Types => {
            let types: Vec<_> = args.iter().map(Value::type_name).collect();
            Fault::new(format!("no such overload: {name}({})", types.join(", ")))
        }
    }
}

#[cold]
fn missing_key(key: impl std::fmt::Display) -> Fault {
    Fault::new(format!("no such key: {key}"))
}

#[inline]
fn by_key<'a>(value: &Value<'a>, key: Key<'_>, test: bool) -> Result<Option<Value<'a>>, Fault> {
    match value {
        Value::Map(map) => match map.find_key(key) {
            None if !test => Err(missing_key(key.text())),
            found => Ok(found),
        },
        Value::List(_) => Err(Fault::new("unsupported index type 'string' in list")),
        _ if test => Ok(None),
        _ => Err(missing_key(key.text())),
    }
}

fn by_value<'a>(
    value: &Value<'a>,
    index: &Value<'_>,
    test: bool,
) -> Result<Option<Value<'a>>, Fault> {
    match value {
        Value::Map(map) => match map.find(index) {
            None if !test => Err(missing_key(index)),
            found => Ok(found),
        },
        Value::List(list) => {
            let found = list_index(index)?.and_then(|position| list.get(position));
            match found {
                None if !test => Err(Fault::new(format!("index out of bounds: {index}"))),
                found => Ok(found),
            }
        }
        _ if test => Ok(None),
        _ => Err(missing_key(index)),
    }
}

/// The position that an index means; `None` below zero.
fn list_index(index: &Value<'_>) -> Result<Option<usize>, Fault> {
    match *index {
        Value::Int(position) => Ok(usize::try_from(position).ok()),
        Value::Uint(position) if i64::try_from(position).is_ok() => {
            Ok(usize::try_from(position).ok())
        }
        Value::Double(position) if position.fract() == 0.0 && position.abs() < 9e15 => {
            Ok((position >= 0.0).then_some(position as usize))
        }
        Value::Uint(_) | Value::Double(_) => Err(Fault::new(format!(
            "unsupported index value {index} in list"
        ))),
        _ => Err(Fault::new(format!(
            "unsupported index type '{}' in list",
            index.type_name()
        ))),
    }
}
