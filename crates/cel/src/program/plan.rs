//! Compiles a checked syntax tree to the nodes that are evaluated.

use std::{borrow::Cow, sync::Arc};

mod constant;
mod node;

use constant::{fold_list, fold_map, is_hashable, precompute};

use super::{call_cost::Rule, constant};
use crate::{
    ast::{Comprehension, Expr, ExprKind},
    checker::{Facts, Reference},
    library::{self, PatternError, Regex},
    types::Type,
    value::Value,
};

use node::KeyBuf;
pub(super) use node::{
    Call, Choice, Complaint, FindCall, Fold, MapEntry, Node, ObjectField, Path, Root, Step, Text,
    compare_cost,
};

/// Why there is no program for an expression that type-checks; the texts are those of cel-go.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlanError {
    #[error("reference to undefined type: {0}")]
    UndefinedType(Arc<str>),
    #[error("no such attribute(s): {0}")]
    NoAttribute(Arc<str>),
    #[error("no such overload: {0}")]
    NoOverload(Arc<str>),
    #[error("invalid qualifier type: {0}")]
    QualifierType(&'static str),
    #[error("error parsing regexp: {0}")]
    Pattern(PatternError),
    /// A conversion of a constant fails.
    #[error("{0}")]
    Constant(Cow<'static, str>),
}

/// The steps of an expression and how many local variables they use.
pub(super) fn plan(
    expr: &Expr,
    facts: &Facts,
    variables: &[Arc<str>],
) -> Result<(Node, usize), PlanError> {
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

type Planned<T> = Result<T, PlanError>;

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
                let fields = fields.iter().map(|field| {
                    Ok(ObjectField {
                        name: field.key.clone(),
                        value: self.node(&field.value)?,
                        optional: field.optional,
                    })
                });
                let fields = fields.collect::<Planned<_>>()?;
                let name = type_name
                    .strip_prefix('.')
                    .map_or(type_name.clone(), Arc::from);
                Node::Struct(name, fields)
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
                Type::Object(name) => Err(PlanError::UndefinedType(Arc::clone(name))),
                _ => Ok(Node::Const(Value::Type(inner.clone()))),
            },
            _ => Err(PlanError::NoAttribute(Arc::clone(name))),
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
            let two = nodes.try_into().map(Box::new);
            two.map_err(|_| PlanError::NoOverload(Arc::clone(function)))
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
            let regex = Regex::new(pattern).map_err(PlanError::Pattern)?;
            let cost = super::call_cost::regex(pattern.chars().count() as u64);
            // The global form has no separate cost.
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
        let function = library::function(name);
        let function = function.ok_or_else(|| PlanError::NoOverload(Arc::clone(name)))?;
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

fn key_step(value: Value<'static>, optional: bool) -> Planned<Step> {
    match value {
        Value::String(text) => Ok(Step::Key(KeyBuf::new(&Arc::from(&*text)), optional)),
        Value::Int(_) | Value::Uint(_) | Value::Bool(_) | Value::Double(_) => {
            Ok(Step::Value(value, optional))
        }
        other => Err(PlanError::QualifierType(other.go_type())),
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

/// Lets the step of a loop extend its accumulator in place, if it does nothing else with it.
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
