//! From a checked tree to steps.

use std::sync::Arc;

use super::{call_cost::Rule, constant};
use crate::{
    ast::{Comprehension, Expr, ExprKind},
    checker::{Facts, Reference},
    library::{self, Regex},
    types::Type,
    value::{Fault, Key, List, Map, MapKey, Value},
};

/// Implementation of a function.
pub(crate) type Function = for<'a> fn(&[Value<'a>]) -> Result<Value<'a>, Fault>;

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
}

/// A step.
#[derive(Debug)]
pub(super) enum Node {
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
    /// Messages cannot be made; evaluating one says so.
    Struct(Arc<str>, Vec<Node>),
    Fold(Box<Fold>),
    OptionalOr(Box<[Node; 2]>),
    OptionalOrValue(Box<[Node; 2]>),
}

/// A constant string that is compared with.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) text: Arc<str>,
    /// Cost of a comparison with a string that is not shorter.
    pub(super) cost: u64,
    pub(super) on_the_left: bool,
}

impl Text {
    fn new(text: &str, on_the_left: bool) -> Self {
        Self {
            text: text.into(),
            cost: compare_cost(text.chars().count()),
            on_the_left,
        }
    }

    /// Cost of a comparison with this string.
    pub(super) fn cost_beside(&self, other: &str) -> u64 {
        compare_cost(other.chars().count()).min(self.cost)
    }
}

fn compare_cost(length: usize) -> u64 {
    crate::cost::times_factor(length as u64, crate::cost::PER_CHAR)
}

#[derive(Debug)]
pub(super) struct MapEntry {
    pub(super) key: Node,
    pub(super) value: Node,
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) struct FindCall {
    pub(super) text: Node,
    pub(super) regex: Regex,
    pub(super) regex_cost: u64,
    /// Find all matches, at most so many.
    pub(super) all: bool,
    pub(super) limit: Option<Node>,
}

#[derive(Debug)]
pub(super) struct Path {
    pub(super) root: Root,
    pub(super) steps: Vec<Step>,
    /// Only whether the last step leads somewhere.
    pub(super) test_only: bool,
    /// All steps are constant keys that must be there.
    pub(super) plain: bool,
}

#[derive(Debug)]
pub(super) enum Root {
    Variable(usize),
    Local(usize),
    Value(Node),
    Choice(Box<Choice>),
}

/// `condition ? then : otherwise`. Reading a branch that is a path does not cost what reading a variable costs.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) condition: Node,
    pub(super) then: Node,
    pub(super) otherwise: Node,
}

#[derive(Debug)]
pub(super) enum Step {
    Key(KeyBuf, bool),
    Value(Value<'static>, bool),
    Node(Node, bool),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) name: Arc<str>,
    pub(super) function: Function,
    pub(super) args: Vec<Node>,
    pub(super) rule: Rule,
    /// The arguments after one that fails are not evaluated, and then the call costs nothing.
    pub(super) stops_early: bool,
    /// How a call with unsuitable arguments is reported.
    pub(super) complaint: Complaint,
    /// Gets errors as arguments.
    pub(super) lenient: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Complaint {
    /// `no such overload`.
    Plain,
    /// `no such overload: name`, where the first argument does not have the trait.
    Name,
    /// `no such overload: name(types)`.
    Types,
}

#[derive(Debug)]
pub(super) struct Fold {
    pub(super) range: Node,
    pub(super) var: usize,
    pub(super) var2: Option<usize>,
    pub(super) accu: usize,
    pub(super) init: Node,
    pub(super) condition: Node,
    pub(super) step: Node,
    pub(super) result: Node,
}

/// The steps of an expression and how many local variables they use.
pub(super) fn plan(
    expr: &Expr,
    facts: &Facts,
    variables: &[Arc<str>],
) -> Result<(Node, usize), String> {
    let mut planner = Planner {
        facts,
        variables,
        scopes: Vec::new(),
        locals: 0,
    };
    let root = planner.node(expr)?;
    Ok((root, planner.locals))
}

struct Planner<'a> {
    facts: &'a Facts,
    variables: &'a [Arc<str>],
    scopes: Vec<(Arc<str>, usize)>,
    locals: usize,
}

type Planned<T> = Result<T, String>;

impl Planner<'_> {
    fn node(&mut self, expr: &Expr) -> Planned<Node> {
        Ok(match &expr.kind {
            ExprKind::Unspecified => Node::Const(Value::Null),
            ExprKind::Literal(literal) => Node::Const(constant(literal)),
            ExprKind::Ident(name) => self.ident(expr, name)?,
            ExprKind::Select {
                operand,
                field,
                test_only,
            } => {
                let operand = self.node(operand)?;
                let mut path = into_path(operand);
                path.steps.push(Step::Key(KeyBuf::new(field), false));
                path.test_only |= *test_only;
                path.plain &= !*test_only;
                Node::Path(path)
            }
            ExprKind::Call {
                function,
                target,
                args,
            } => self.call(expr, function, target.as_deref(), args)?,
            ExprKind::List { elements, optional } => {
                let mut nodes = Vec::with_capacity(elements.len());
                for (i, element) in elements.iter().enumerate() {
                    nodes.push((self.node(element)?, optional.contains(&i)));
                }
                fold_list(nodes)
            }
            ExprKind::Map(entries) => {
                let mut nodes = Vec::with_capacity(entries.len());
                for entry in entries {
                    let (key, value) = (self.node(&entry.key)?, self.node(&entry.value)?);
                    nodes.push(MapEntry {
                        key,
                        value,
                        optional: entry.optional,
                    });
                }
                fold_map(nodes)
            }
            ExprKind::Struct { type_name, fields } => {
                let values = fields
                    .iter()
                    .map(|field| self.node(&field.value))
                    .collect::<Planned<_>>()?;
                Node::Struct(type_name.clone(), values)
            }
            ExprKind::Comprehension(comprehension) => self.fold(comprehension)?,
        })
    }

    fn ident(&mut self, expr: &Expr, name: &Arc<str>) -> Planned<Node> {
        if let Some((_, slot)) = self.scopes.iter().rev().find(|(known, _)| known == name) {
            return Ok(path(Root::Local(*slot)));
        }
        if let Some(number) = self.variables.iter().position(|known| known == name) {
            return Ok(path(Root::Variable(number)));
        }
        match (self.facts.type_of(expr.id), self.facts.reference(expr.id)) {
            (Type::Type(Some(inner)), Some(Reference::Ident(_))) => match &**inner {
                Type::Object(name) => Err(format!("reference to undefined type: {name}")),
                _ => Ok(Node::Const(Value::Type(inner.clone()))),
            },
            _ => Err(format!("no such attribute(s): {name}")),
        }
    }

    fn fold(&mut self, c: &Comprehension) -> Planned<Node> {
        let range = self.node(&c.range)?;
        let init = self.node(&c.init)?;
        let accu = self.push(&c.accu);
        let var = self.push(&c.var);
        let var2 = c.var2.as_ref().map(|name| self.push(name));
        let condition = self.node(&c.condition)?;
        let step = self.node(&c.step)?;
        self.scopes
            .truncate(self.scopes.len() - if var2.is_some() { 2 } else { 1 });
        let result = self.node(&c.result)?;
        self.scopes.pop();
        let step = in_place(step, accu);
        Ok(Node::Fold(Box::new(Fold {
            range,
            var,
            var2,
            accu,
            init,
            condition,
            step,
            result,
        })))
    }

    fn push(&mut self, name: &Arc<str>) -> usize {
        self.scopes.push((name.clone(), self.locals));
        self.locals += 1;
        self.locals - 1
    }

    fn call(
        &mut self,
        expr: &Expr,
        function: &Arc<str>,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Planned<Node> {
        let mut nodes = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            nodes.push(self.node(arg)?);
        }
        let overloads = self.facts.overloads(expr.id);
        let overload = match overloads {
            [overload] => &**overload,
            _ => "",
        };
        let optional = &**function == "_?._" || &**function == "_[?_]";
        let two = |nodes: Vec<Node>| -> Planned<Box<[Node; 2]>> {
            nodes
                .try_into()
                .map(Box::new)
                .map_err(|_| format!("no such overload: {function}"))
        };
        Ok(match (&**function, nodes.len()) {
            ("_&&_", 2) => Node::And(two(nodes)?),
            ("_||_", 2) => Node::Or(two(nodes)?),
            ("_==_", 2) => equality(*two(nodes)?),
            ("_!=_", 2) => Node::NotEqual(two(nodes)?),
            ("or", 2) if overload.is_empty() || overload == "optional_or_optional" => {
                Node::OptionalOr(two(nodes)?)
            }
            ("orValue", 2) if overload.is_empty() || overload == "optional_orValue_value" => {
                Node::OptionalOrValue(two(nodes)?)
            }
            ("_?_:_", 3) => {
                let mut nodes = nodes.into_iter();
                let mut next = || nodes.next().unwrap_or(Node::Const(Value::Null));
                let choice = Choice {
                    condition: next(),
                    then: next(),
                    otherwise: next(),
                };
                path(Root::Choice(Box::new(choice)))
            }
            ("_[_]" | "_?._" | "_[?_]", 2) => {
                let [operand, index] = *two(nodes)?;
                let mut path = into_path(operand);
                path.steps.push(match index {
                    Node::Const(value) => key_step(value, optional)?,
                    node => Step::Node(node, optional),
                });
                path.plain &= matches!(path.steps.last(), Some(Step::Key(_, false)));
                Node::Path(path)
            }
            _ => self.function(function, overload, nodes)?,
        })
    }

    fn function(&mut self, name: &Arc<str>, overload: &str, args: Vec<Node>) -> Planned<Node> {
        let rule = Rule::of(name, overload);
        if matches!(&**name, "matches" | "find" | "findAll")
            && let Some(Node::Const(Value::String(pattern))) = args.get(1)
        {
            let regex =
                Regex::new(pattern).map_err(|error| format!("error parsing regexp: {error}"))?;
            let cost = super::call_cost::regex(pattern.chars().count() as u64);
            // The global form has no cost of its own.
            let cost = if overload == "matches" {
                None
            } else {
                Some(cost)
            };
            return Ok(regex_call(name, args, regex, cost));
        }
        if &**name == "@in"
            && overload == "in_list"
            && let Some(Node::Const(Value::List(list))) = args.get(1)
        {
            if list.is_empty() {
                return Ok(Node::Const(Value::Bool(false)));
            }
            if list.iter().all(|value| is_hashable(&value)) {
                let values = list.iter().collect();
                let mut args = args;
                return Ok(Node::InSet(Box::new((args.swap_remove(0), values))));
            }
        }
        let function = library::function(name, args.len())
            .ok_or_else(|| format!("no such overload: {name}"))?;
        if let Some(node) = precompute(name, function, &args, rule)? {
            return Ok(node);
        }
        let singleton = library::is_singleton(name);
        let complaint = match &**name {
            "contains" | "startsWith" | "endsWith" => Complaint::Plain,
            _ if singleton => Complaint::Name,
            _ => Complaint::Types,
        };
        let stops_early = args.len() > 2
            || &**name == "format"
            || (args.len() == 2 && overload.is_empty() && !singleton);
        let lenient = &**name == "@not_strictly_false";
        let call = Call {
            name: name.clone(),
            function,
            args,
            rule,
            stops_early,
            complaint,
            lenient,
        };
        Ok(Node::Call(Box::new(call)))
    }
}

fn regex_call(name: &str, args: Vec<Node>, regex: Regex, regex_cost: Option<u64>) -> Node {
    let mut args = args.into_iter();
    let text = args.next().unwrap_or(Node::Const(Value::Null));
    if name == "matches" {
        return Node::Matches(Box::new((text, regex, regex_cost)));
    }
    let limit = args.nth(1);
    let regex_cost = regex_cost.unwrap_or(1);
    Node::Find(Box::new(FindCall {
        text,
        regex,
        regex_cost,
        all: name == "findAll",
        limit,
    }))
}

/// Results of calls with constant arguments. Conversions to the built-in types become constants that cost nothing (and
/// must not fail); parsing of library types still costs what it costs.
fn precompute(name: &str, function: Function, args: &[Node], rule: Rule) -> Planned<Option<Node>> {
    let constants: Option<Vec<Value<'static>>> = args
        .iter()
        .map(|arg| match arg {
            Node::Const(value) => Some(value.clone()),
            _ => None,
        })
        .collect();
    let Some(values) = constants else {
        return Ok(None);
    };
    let free = matches!(
        name,
        "bool"
            | "bytes"
            | "double"
            | "duration"
            | "dyn"
            | "int"
            | "string"
            | "timestamp"
            | "type"
            | "uint"
    );
    let parsed = matches!(
        name,
        "quantity" | "semver" | "ip" | "cidr" | "url" | "isQuantity" | "isSemver"
    );
    if !(free && values.len() == 1 || parsed) {
        return Ok(None);
    }
    let result = match function(&values) {
        Ok(result) => result,
        Err(Fault::Error(text)) if free => return Err(text.into_owned()),
        Err(_) => return Ok(None),
    };
    if free {
        return Ok(Some(Node::Const(result)));
    }
    let cost = rule.cost(values.iter().map(Some), Some(&result));
    Ok(Some(Node::Folded(result, cost)))
}

fn equality(sides: [Node; 2]) -> Node {
    match sides {
        [node, Node::Const(Value::String(text))] => {
            Node::EqualText(Box::new((node, Text::new(&text, false))))
        }
        [Node::Const(Value::String(text)), node] => {
            Node::EqualText(Box::new((node, Text::new(&text, true))))
        }
        other => Node::Equal(Box::new(other)),
    }
}

/// Values whose membership in a constant list upstream looks up in a hash table.
fn is_hashable(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Null
    )
}

fn key_step(value: Value<'static>, optional: bool) -> Planned<Step> {
    match value {
        Value::String(text) => Ok(Step::Key(KeyBuf::new(&Arc::from(&*text)), optional)),
        Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_) => {
            Ok(Step::Value(value, optional))
        }
        other => Err(format!("invalid qualifier type: {}", other.go_type())),
    }
}

fn path(root: Root) -> Node {
    Node::Path(Box::new(Path {
        root,
        steps: Vec::new(),
        test_only: false,
        plain: true,
    }))
}

/// The path that a step can be added to.
fn into_path(node: Node) -> Box<Path> {
    match node {
        Node::Path(path) if !path.test_only => path,
        other => Box::new(Path {
            root: Root::Value(other),
            steps: Vec::new(),
            test_only: false,
            plain: true,
        }),
    }
}

/// A list of constants is a constant.
fn fold_list(nodes: Vec<(Node, bool)>) -> Node {
    if !nodes
        .iter()
        .all(|(node, optional)| matches!(node, Node::Const(_)) && !optional)
    {
        return Node::List(nodes);
    }
    let values = nodes.into_iter().filter_map(|(node, _)| match node {
        Node::Const(value) => Some(value),
        _ => None,
    });
    Node::Const(Value::List(List::Shared(Arc::new(values.collect()))))
}

/// A map of constants is a constant.
fn fold_map(nodes: Vec<MapEntry>) -> Node {
    let mut map = std::collections::BTreeMap::new();
    for entry in &nodes {
        let (Node::Const(key), Node::Const(value), false) =
            (&entry.key, &entry.value, entry.optional)
        else {
            return Node::Map(nodes);
        };
        let Some(key) = MapKey::new(key) else {
            return Node::Map(nodes);
        };
        map.insert(key, value.clone());
    }
    Node::Const(Value::Map(Map::Shared(Arc::new(map))))
}

/// Makes the step of a loop extend its accumulator in place, where it does nothing else with it.
fn in_place(node: Node, accu: usize) -> Node {
    let is_accu = |node: &Node| {
        matches!(node, Node::Path(path)
            if path.steps.is_empty() && !path.test_only && matches!(path.root, Root::Local(slot) if slot == accu))
    };
    match node {
        Node::Call(mut call)
            if &*call.name == "_+_" && call.args.len() == 2 && is_accu(&call.args[0]) =>
        {
            match call.args.pop() {
                Some(list @ (Node::List(_) | Node::Const(Value::List(_)))) => {
                    Node::Append(Box::new((accu, list)))
                }
                Some(other) => {
                    call.args.push(other);
                    Node::Call(call)
                }
                None => Node::Call(call),
            }
        }
        Node::Call(mut call) if &*call.name == "cel.@mapInsert" && is_accu(&call.args[0]) => {
            call.args.remove(0);
            Node::Insert(Box::new((accu, call.args)))
        }
        Node::Path(mut path) if path.steps.is_empty() => {
            if let Root::Choice(choice) = &mut path.root {
                let then = std::mem::replace(&mut choice.then, Node::Const(Value::Null));
                choice.then = in_place(then, accu);
            }
            Node::Path(path)
        }
        other => other,
    }
}
