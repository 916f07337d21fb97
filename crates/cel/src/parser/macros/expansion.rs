//! What macros expand to: nodes of the syntax tree at the position of the call.

use std::sync::Arc;

use super::{Expanded, Refusal};
use crate::ast::{ACCUMULATOR, Comprehension, Entry, Expr, ExprKind, Id, Literal, UNUSED_VAR};
use crate::parser::Parser;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantifier {
    All,
    Exists,
    ExistsOne,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Transform {
    List,
    Map,
    Entries,
}

/// Creates nodes at the position of the macro.
pub(super) struct Maker<'p, 'a> {
    pub(super) parser: &'p mut Parser<'a>,
    pub(super) id: Id,
}

impl Maker<'_, '_> {
    pub(super) fn node(&mut self, kind: ExprKind) -> Expr {
        let offset = self.parser.positions.get(self.id);
        Expr {
            id: self.parser.positions.next(offset),
            kind,
        }
    }

    pub(super) fn literal(&mut self, literal: Literal) -> Expr {
        self.node(ExprKind::Literal(literal))
    }

    pub(super) fn ident(&mut self, name: &str) -> Expr {
        self.node(ExprKind::Ident(name.into()))
    }

    pub(super) fn accu(&mut self) -> Expr {
        self.ident(ACCUMULATOR)
    }

    pub(super) fn list(&mut self, elements: Vec<Expr>) -> Expr {
        self.node(ExprKind::List {
            elements,
            optional: Vec::new(),
        })
    }

    pub(super) fn call(&mut self, function: &str, args: Vec<Expr>) -> Expr {
        self.node(ExprKind::Call {
            function: function.into(),
            target: None,
            args,
        })
    }

    pub(super) fn member(&mut self, function: &str, target: Expr) -> Expr {
        self.node(ExprKind::Call {
            function: function.into(),
            target: Some(Box::new(target)),
            args: Vec::new(),
        })
    }

    /// `filter ? step : accumulator`.
    pub(super) fn filtered(&mut self, filter: Option<Expr>, step: Expr) -> Expr {
        match filter {
            Some(filter) => {
                let accu = self.accu();
                self.call("_?_:_", vec![filter, step, accu])
            }
            None => step,
        }
    }

    pub(super) fn quantifier(
        &mut self,
        kind: Quantifier,
        range: Expr,
        mut args: Vec<Expr>,
    ) -> Expanded {
        let (var, var2) = if args.len() == 3 {
            two_vars(&args)?
        } else {
            (one_var(&args[0], SIMPLE)?, None)
        };
        let predicate = args.remove(args.len() - 1);
        let accu = self.accu();
        let (init, condition, step, result) = match kind {
            Quantifier::All => {
                let init = self.literal(Literal::Bool(true));
                let condition = self.call("@not_strictly_false", vec![accu]);
                let left = self.accu();
                let step = self.call("_&&_", vec![left, predicate]);
                (init, condition, step, self.accu())
            }
            Quantifier::Exists => {
                let init = self.literal(Literal::Bool(false));
                let not = self.call("!_", vec![accu]);
                let condition = self.call("@not_strictly_false", vec![not]);
                let left = self.accu();
                let step = self.call("_||_", vec![left, predicate]);
                (init, condition, step, self.accu())
            }
            Quantifier::ExistsOne => {
                let init = self.literal(Literal::Int(0));
                let condition = self.literal(Literal::Bool(true));
                let one = self.literal(Literal::Int(1));
                let next = self.call("_+_", vec![accu, one]);
                let step = self.filtered(Some(predicate), next);
                let (count, one) = (self.accu(), self.literal(Literal::Int(1)));
                (init, condition, step, self.call("_==_", vec![count, one]))
            }
        };
        Ok(comprehension(Comprehension {
            range,
            var,
            var2,
            accu: ACCUMULATOR.into(),
            init,
            condition,
            step,
            result,
        }))
    }

    pub(super) fn map(&mut self, range: Expr, mut args: Vec<Expr>) -> Expanded {
        let var = one_var(&args[0], IDENTIFIER)?;
        let value = args.remove(args.len() - 1);
        let filter = (args.len() == 2).then(|| args.remove(1));
        Ok(self.collect(range, var, None, filter, value))
    }

    pub(super) fn filter(&mut self, range: Expr, mut args: Vec<Expr>) -> Expanded {
        let var = one_var(&args[0], IDENTIFIER)?;
        let filter = args.remove(1);
        Ok(self.collect(range, var, None, Some(filter), args.remove(0)))
    }

    /// A loop that adds `value` to a list.
    pub(super) fn collect(
        &mut self,
        range: Expr,
        var: Arc<str>,
        var2: Option<Arc<str>>,
        filter: Option<Expr>,
        value: Expr,
    ) -> ExprKind {
        let init = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(true));
        let accu = self.accu();
        let one = self.list(vec![value]);
        let step = self.call("_+_", vec![accu, one]);
        let step = self.filtered(filter, step);
        let result = self.accu();
        comprehension(Comprehension {
            range,
            var,
            var2,
            accu: ACCUMULATOR.into(),
            init,
            condition,
            step,
            result,
        })
    }

    pub(super) fn transform(
        &mut self,
        kind: Transform,
        range: Expr,
        mut args: Vec<Expr>,
    ) -> Expanded {
        let (var, var2) = two_vars(&args)?;
        let value = args.remove(args.len() - 1);
        let filter = (args.len() == 3).then(|| args.remove(2));
        if kind == Transform::List {
            return Ok(self.collect(range, var, var2, filter, value));
        }
        let init = self.node(ExprKind::Map(Vec::<Entry<Expr>>::new()));
        let condition = self.literal(Literal::Bool(true));
        let accu = self.accu();
        let mut inserted = vec![accu];
        if kind == Transform::Map {
            inserted.push(self.ident(&var));
        }
        inserted.push(value);
        let step = self.call("cel.@mapInsert", inserted);
        let step = self.filtered(filter, step);
        let result = self.accu();
        Ok(comprehension(Comprehension {
            range,
            var,
            var2,
            accu: ACCUMULATOR.into(),
            init,
            condition,
            step,
            result,
        }))
    }

    /// `result` with `var` standing for `value`.
    pub(super) fn binding(&mut self, var: Arc<str>, value: Expr, result: Expr) -> ExprKind {
        let range = self.list(Vec::new());
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(&var);
        comprehension(Comprehension {
            range,
            var: UNUSED_VAR.into(),
            var2: None,
            accu: var,
            init: value,
            condition,
            step,
            result,
        })
    }

    pub(super) fn bind(&mut self, mut args: Vec<Expr>) -> Expanded {
        let var = name(
            &args[0],
            "cel.bind() variable names must be simple identifiers",
        )?;
        let result = args.remove(2);
        Ok(self.binding(var, args.remove(1), result))
    }

    pub(super) fn sort_by(&mut self, target: Expr, mut args: Vec<Expr>) -> Expanded {
        const INPUT: &str = "@__sortBy_input__";
        if matches!(
            target.kind,
            ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct { .. }
        ) {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((target.id, message.into()));
        }
        let var = one_var(&args[0], IDENTIFIER)?;
        let range = self.ident(INPUT);
        let keys = self.collect(range, var, None, None, args.remove(1));
        let keys = self.node(keys);
        let input = self.ident(INPUT);
        let kind = ExprKind::Call {
            function: "@sortByAssociatedKeys".into(),
            target: Some(Box::new(input)),
            args: vec![keys],
        };
        let sorted = self.node(kind);
        Ok(self.binding(INPUT.into(), target, sorted))
    }

    pub(super) fn opt_map(&mut self, target: Expr, mut args: Vec<Expr>, wrap: bool) -> Expanded {
        let message = if wrap {
            "optMap() variable name must be a simple identifier"
        } else {
            "optFlatMap() variable name must be a simple identifier"
        };
        let var = name(&args[0], message)?;
        let copy = self.copy(&target);
        let present = self.member("hasValue", target);
        let value = self.member("value", copy);
        let bound = self.binding(var, value, args.remove(1));
        let mut then = self.node(bound);
        if wrap {
            then = self.call("optional.of", vec![then]);
        }
        let none = self.call("optional.none", Vec::new());
        Ok(ExprKind::Call {
            function: "_?_:_".into(),
            target: None,
            args: vec![present, then, none],
        })
    }

    /// The same expression with new ids.
    pub(super) fn copy(&mut self, expr: &Expr) -> Expr {
        let offset = self.parser.positions.get(expr.id);
        let id = self.parser.positions.next(offset);
        let kind = match &expr.kind {
            ExprKind::Select {
                operand,
                field,
                test_only,
            } => ExprKind::Select {
                operand: Box::new(self.copy(operand)),
                field: field.clone(),
                test_only: *test_only,
            },
            ExprKind::Call {
                function,
                target,
                args,
            } => ExprKind::Call {
                function: function.clone(),
                target: target.as_ref().map(|target| Box::new(self.copy(target))),
                args: args.iter().map(|arg| self.copy(arg)).collect(),
            },
            ExprKind::List { elements, optional } => ExprKind::List {
                elements: elements.iter().map(|element| self.copy(element)).collect(),
                optional: optional.clone(),
            },
            ExprKind::Map(entries) => {
                let copy = |maker: &mut Self, entry: &Entry<Expr>| Entry {
                    id: maker.node(ExprKind::Unspecified).id,
                    key: maker.copy(&entry.key),
                    value: maker.copy(&entry.value),
                    optional: entry.optional,
                };
                ExprKind::Map(entries.iter().map(|entry| copy(self, entry)).collect())
            }
            ExprKind::Struct { type_name, fields } => {
                let copy = |maker: &mut Self, field: &Entry<Arc<str>>| Entry {
                    id: maker.node(ExprKind::Unspecified).id,
                    key: field.key.clone(),
                    value: maker.copy(&field.value),
                    optional: field.optional,
                };
                let fields = fields.iter().map(|field| copy(self, field)).collect();
                ExprKind::Struct {
                    type_name: type_name.clone(),
                    fields,
                }
            }
            ExprKind::Comprehension(c) => comprehension(Comprehension {
                range: self.copy(&c.range),
                var: c.var.clone(),
                var2: c.var2.clone(),
                accu: c.accu.clone(),
                init: self.copy(&c.init),
                condition: self.copy(&c.condition),
                step: self.copy(&c.step),
                result: self.copy(&c.result),
            }),
            kind @ (ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_)) => {
                kind.clone()
            }
        };
        Expr { id, kind }
    }
}

const SIMPLE: &str = "argument must be a simple name";
const IDENTIFIER: &str = "argument is not an identifier";
const OVERWRITES: &str = "iteration variable overwrites accumulator variable";

fn name(arg: &Expr, message: &'static str) -> Result<Arc<str>, Refusal> {
    match &arg.kind {
        ExprKind::Ident(name) => Ok(name.clone()),
        _ => Err((arg.id, message.into())),
    }
}

fn one_var(arg: &Expr, message: &'static str) -> Result<Arc<str>, Refusal> {
    let name = name(arg, message)?;
    if is_accumulator(&name) {
        Err((arg.id, OVERWRITES.into()))
    } else {
        Ok(name)
    }
}

fn is_accumulator(name: &str) -> bool {
    name == ACCUMULATOR || name == "__result__"
}

fn two_vars(args: &[Expr]) -> Result<(Arc<str>, Option<Arc<str>>), Refusal> {
    let (var, var2) = (name(&args[0], SIMPLE)?, name(&args[1], SIMPLE)?);
    if var == var2 {
        return Err((args[1].id, format!("duplicate variable name: {var}").into()));
    }
    for (name, arg) in [(&var, &args[0]), (&var2, &args[1])] {
        if is_accumulator(name) {
            return Err((arg.id, OVERWRITES.into()));
        }
    }
    Ok((var, Some(var2)))
}

fn comprehension(parts: Comprehension) -> ExprKind {
    ExprKind::Comprehension(Box::new(parts))
}
