//! Macros: calls that are expanded to a loop, a binding or a presence test.

use std::borrow::Cow;

use super::Parser;
use crate::ast::{Expr, ExprKind, Id};

mod expansion;

use expansion::{Maker, Quantifier, Transform};

/// Why a macro cannot be expanded, and at which argument.
type Refusal = (Id, Cow<'static, str>);
type Expanded = Result<ExprKind, Refusal>;

impl Parser<'_> {
    /// A global call, or the expansion of the macro of that name.
    pub(super) fn call(&mut self, id: Id, function: &str, mut args: Vec<Expr>) -> Expr {
        if function == "has" && args.len() == 1 {
            let arg = args.remove(0);
            let expanded = match arg.kind {
                ExprKind::Select { operand, field, .. } => Ok(ExprKind::Select {
                    operand,
                    field,
                    test_only: true,
                }),
                _ => Err((arg.id, "invalid argument to has() macro".into())),
            };
            return self.expanded(id, expanded);
        }
        Expr {
            id,
            kind: ExprKind::Call {
                function: function.into(),
                target: None,
                args,
            },
        }
    }

    /// A member call, or the expansion of the macro of that name.
    pub(super) fn member_call(
        &mut self,
        id: Id,
        function: &str,
        target: Expr,
        args: Vec<Expr>,
    ) -> Expr {
        let bindings = self.bindings;
        let mut maker = Maker { parser: self, id };
        let expanded = match (function, args.len()) {
            ("all", 2 | 3) => maker.quantifier(Quantifier::All, target, args),
            ("exists", 2 | 3) => maker.quantifier(Quantifier::Exists, target, args),
            ("exists_one", 2 | 3) | ("existsOne", 3) => {
                maker.quantifier(Quantifier::ExistsOne, target, args)
            }
            ("map", 2 | 3) => maker.map(target, args),
            ("filter", 2) => maker.filter(target, args),
            ("transformList", 3 | 4) => maker.transform(Transform::List, target, args),
            ("transformMap", 3 | 4) => maker.transform(Transform::Map, target, args),
            ("transformMapEntry", 3 | 4) => maker.transform(Transform::Entries, target, args),
            ("optMap", 2) => maker.opt_map(target, args, true),
            ("optFlatMap", 2) => maker.opt_map(target, args, false),
            ("sortBy", 2) => maker.sort_by(target, args),
            ("bind", 3)
                if bindings
                    && matches!(&target.kind, ExprKind::Ident(name) if &**name == "cel") =>
            {
                maker.bind(args)
            }
            _ => {
                let target = Some(Box::new(target));
                return Expr {
                    id,
                    kind: ExprKind::Call {
                        function: function.into(),
                        target,
                        args,
                    },
                };
            }
        };
        self.expanded(id, expanded)
    }

    fn expanded(&mut self, id: Id, expanded: Expanded) -> Expr {
        match expanded {
            Ok(kind) => {
                let offset = self.positions.get(id);
                Expr {
                    id: self.positions.next(offset),
                    kind,
                }
            }
            Err((at, message)) => {
                let offset = self.positions.get(at);
                self.error(offset, message);
                Expr {
                    id,
                    kind: ExprKind::Unspecified,
                }
            }
        }
    }
}
