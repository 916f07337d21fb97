//! Checks of a type-checked tree: literals of durations, timestamps and regular expressions, lists and maps of one type,
//! format strings.

use crate::{
    ast::{Ast, Expr, ExprKind, Id, Literal},
    checker::Facts,
    library::{ArgumentError, Clause, Formatter, Regex, format_with},
    source::Issue,
    types::Type,
    value::{Timestamp, parse_duration},
};

pub(crate) fn validate(ast: &Ast, facts: &Facts) -> Vec<Issue> {
    let mut all = Vec::new();
    collect(&ast.expr, false, &mut all);
    let mut validator = Validator {
        ast,
        facts,
        issues: Vec::new(),
    };
    for (expr, _) in &all {
        validator.literal_argument(expr);
    }
    for (expr, in_format) in &all {
        if !in_format {
            validator.homogeneous(expr);
        }
    }
    for (expr, _) in &all {
        validator.format_string(expr);
    }
    validator.issues
}

/// All nodes, with whether they are inside a call of `format`.
fn collect<'e>(expr: &'e Expr, in_format: bool, out: &mut Vec<(&'e Expr, bool)>) {
    out.push((expr, in_format));
    match &expr.kind {
        ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
        ExprKind::Select { operand, .. } => collect(operand, in_format, out),
        ExprKind::Call {
            function,
            target,
            args,
        } => {
            let in_format = in_format || &**function == "format";
            for part in target.as_deref().into_iter().chain(args) {
                collect(part, in_format, out);
            }
        }
        ExprKind::List { elements, .. } => elements
            .iter()
            .for_each(|element| collect(element, in_format, out)),
        ExprKind::Map(entries) => {
            for entry in entries {
                collect(&entry.key, in_format, out);
                collect(&entry.value, in_format, out);
            }
        }
        ExprKind::Struct { fields, .. } => fields
            .iter()
            .for_each(|field| collect(&field.value, in_format, out)),
        ExprKind::Comprehension(c) => {
            for part in [&c.range, &c.init, &c.condition, &c.step, &c.result] {
                collect(part, in_format, out);
            }
        }
    }
}

struct Validator<'a> {
    ast: &'a Ast,
    facts: &'a Facts,
    issues: Vec<Issue>,
}

impl Validator<'_> {
    fn error(&mut self, at: Id, message: String) {
        self.issues.push(Issue {
            offset: self.ast.positions.get(at),
            message,
        });
    }

    fn literal_argument(&mut self, expr: &Expr) {
        let ExprKind::Call { function, args, .. } = &expr.kind else {
            return;
        };
        let Some(arg) = args.first() else {
            return;
        };
        let ExprKind::Literal(literal) = &arg.kind else {
            return;
        };
        let ok = match (&**function, literal) {
            ("duration", Literal::String(text)) => parse_duration(text).is_some(),
            ("duration", _) => false,
            ("timestamp", Literal::String(text)) => {
                Timestamp::parse(text).is_some_and(Timestamp::in_range)
            }
            ("timestamp", Literal::Int(seconds)) => Timestamp::from_seconds(*seconds).is_some(),
            ("matches", Literal::String(pattern)) if args.len() == 1 => Regex::new(pattern).is_ok(),
            _ => true,
        };
        if !ok {
            self.error(arg.id, format!("invalid {function} argument"));
        }
    }

    fn mismatch(&mut self, at: Id, expected: &Type, found: &Type) {
        self.error(
            at,
            format!("expected type '{expected}' but found '{found}'"),
        );
    }

    fn homogeneous(&mut self, expr: &Expr) {
        let facts = self.facts;
        match &expr.kind {
            ExprKind::List { elements, optional } => {
                let mut types = elements.iter().enumerate().map(|(i, element)| {
                    let ty = facts.type_of(element.id);
                    (
                        element.id,
                        if optional.contains(&i) {
                            ty.optional_inner().unwrap_or(ty)
                        } else {
                            ty
                        },
                    )
                });
                let Some((_, first)) = types.next() else {
                    return;
                };
                if let Some((id, other)) = types.find(|(_, ty)| *ty != first) {
                    self.mismatch(id, first, other);
                }
            }
            ExprKind::Map(entries) => {
                let value_type = |entry: &crate::ast::Entry<Expr>| {
                    let ty = facts.type_of(entry.value.id);
                    if entry.optional {
                        ty.optional_inner().unwrap_or(ty)
                    } else {
                        ty
                    }
                };
                let Some((first, others)) = entries.split_first() else {
                    return;
                };
                let (keys, values) = (facts.type_of(first.key.id), value_type(first));
                for entry in others {
                    let (key, value) = (facts.type_of(entry.key.id), value_type(entry));
                    if key != keys {
                        self.mismatch(entry.key.id, keys, key);
                    }
                    if value != values {
                        self.mismatch(entry.value.id, values, value);
                    }
                }
            }
            _ => {}
        }
    }

    fn format_string(&mut self, expr: &Expr) {
        let ExprKind::Call {
            function,
            target: Some(target),
            args,
        } = &expr.kind
        else {
            return;
        };
        let (Some(format), [list]) = (target.as_string(), &args[..]) else {
            return;
        };
        let ExprKind::List { elements, .. } = &list.kind else {
            return;
        };
        if &**function != "format" || self.facts.overloads(expr.id) != ["string_format".into()] {
            return;
        }
        let mut checker = FormatChecker {
            elements,
            facts: self.facts,
            used: 0,
            bad: None,
        };
        match format_with(format, &mut checker) {
            Err(error) => {
                let at = checker.bad.unwrap_or(expr.id);
                self.error(at, error.to_string());
            }
            Ok(_) if elements.len() > checker.used => {
                let message = format!(
                    "too many arguments supplied to string.format (expected {}, got {})",
                    checker.used,
                    elements.len()
                );
                self.error(expr.id, message);
            }
            Ok(_) => {}
        }
    }
}

/// Checks the types of the arguments of a format string.
struct FormatChecker<'a> {
    elements: &'a [Expr],
    facts: &'a Facts,
    used: usize,
    bad: Option<Id>,
}

impl FormatChecker<'_> {
    fn suits(&self, expr: &Expr, clause: Clause) -> Result<(), Id> {
        let ty = self.facts.type_of(expr.id);
        let ok = match clause {
            _ if *ty == Type::Dyn => true,
            Clause::String => !matches!(
                ty,
                Type::Opaque(..) | Type::Object(_) | Type::Any | Type::Error
            ),
            Clause::Decimal | Clause::Octal => matches!(ty, Type::Int | Type::Uint),
            Clause::Fixed(_) | Clause::Scientific(_) => matches!(ty, Type::Double | Type::String),
            Clause::Binary => matches!(ty, Type::Int | Type::Uint | Type::Bool),
            Clause::Hex { .. } => matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
        };
        if !ok {
            return Err(expr.id);
        }
        match &expr.kind {
            ExprKind::List { elements, .. } if clause == Clause::String => elements
                .iter()
                .try_for_each(|element| self.suits(element, clause)),
            ExprKind::Map(entries) if clause == Clause::String => {
                entries.iter().try_for_each(|entry| {
                    self.suits(&entry.key, clause)?;
                    self.suits(&entry.value, clause)
                })
            }
            _ => Ok(()),
        }
    }
}

impl Formatter for FormatChecker<'_> {
    fn len(&self) -> usize {
        self.elements.len()
    }

    fn format(&mut self, index: usize, clause: Clause) -> Result<String, ArgumentError> {
        self.used += 1;
        match self.suits(&self.elements[index], clause) {
            Ok(()) => Ok(String::new()),
            Err(id) => {
                self.bad = Some(id);
                Err(ArgumentError::Type {
                    clause,
                    type_name: self.facts.type_of(id).bare_name(),
                })
            }
        }
    }
}
