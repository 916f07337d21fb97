//! Calls: which overloads of a function take the arguments.

use std::sync::Arc;

use super::{Checker, Reference};
use crate::{
    ast::{Expr, ExprKind, Id},
    env::Overload,
    types::{Type, instantiate},
};

impl Checker<'_> {
    pub(super) fn check_call(&mut self, expr: &mut Expr) {
        let env = self.env;
        let id = expr.id;
        let ExprKind::Call {
            function,
            target,
            args,
        } = &mut expr.kind
        else {
            return;
        };
        if &**function == "_?._"
            && let [operand, field] = &mut args[..]
            && let Some(field) = field.as_string().cloned()
        {
            let ty = self.check_field(id, operand, &field, true);
            let ty = self.unifier.substitute(&ty, false);
            self.set(id, ty);
            self.facts.references.insert(
                id,
                Reference::Overloads(vec!["select_optional_field".into()]),
            );
            return;
        }
        for arg in args.iter_mut() {
            self.check(arg);
        }
        let mut types: Vec<Type> = args.iter().map(|arg| self.get(arg.id)).collect();
        let overloads = match target {
            None => {
                let overloads = env.function(function);
                // A leading dot names the function of the outermost container, which is the only one.
                if let (Some(_), Some(name)) = (overloads, function.strip_prefix('.')) {
                    *function = name.into();
                }
                overloads
            }
            Some(receiver) => {
                let namespaced = receiver
                    .qualified_name()
                    .map(|name| format!("{name}.{function}"));
                if let Some(name) = namespaced
                    && let Some(overloads) = env.function(&name)
                {
                    *function = name.strip_prefix('.').unwrap_or(&name).into();
                    *target = None;
                    Some(overloads)
                } else {
                    self.check(receiver);
                    types.insert(0, self.get(receiver.id));
                    env.function(function)
                }
            }
        };
        let is_member = target.is_some();
        let function = function.clone();
        if matches!(&*function, "_&&_" | "_||_") && !is_member {
            let args: Vec<Id> = args.iter().map(|arg| arg.id).collect();
            let ty = self.check_logical(id, &function, &args, &types);
            self.set(id, ty);
            return;
        }
        let Some(overloads) = overloads else {
            self.set(id, Type::Error);
            self.undeclared(id, &function);
            return;
        };
        let ty = self.resolve_overload(id, &function, overloads, is_member, types);
        self.set(id, ty);
    }

    /// The operands of logical operators are complained about one by one.
    fn check_logical(&mut self, at: Id, function: &str, args: &[Id], types: &[Type]) -> Type {
        let mut result = Type::Bool;
        for (arg, ty) in args.iter().zip(types) {
            if !self.unifier.assign(ty, &Type::Bool) {
                self.mismatch(*arg, &Type::Bool, ty);
                result = Type::Error;
            }
        }
        let overload = if function == "_&&_" {
            "logical_and"
        } else {
            "logical_or"
        };
        self.facts
            .references
            .insert(at, Reference::Overloads(vec![overload.into()]));
        result
    }

    fn resolve_overload(
        &mut self,
        at: Id,
        function: &str,
        overloads: &[Overload],
        is_member: bool,
        types: Vec<Type>,
    ) -> Type {
        let mut result: Option<Type> = None;
        let mut matching = Vec::new();
        for overload in overloads
            .iter()
            .filter(|overload| overload.member == is_member)
        {
            let mut fresh: Vec<(Arc<str>, Type)> = Vec::new();
            let mut replace = |name: &Arc<str>| match fresh.iter().find(|(known, _)| known == name)
            {
                Some((_, ty)) => ty.clone(),
                None => {
                    let ty = self.unifier.fresh();
                    fresh.push((name.clone(), ty.clone()));
                    ty
                }
            };
            let own_result = instantiate(&overload.result, &mut replace);
            let args: Vec<Type> = overload
                .args
                .iter()
                .map(|arg| instantiate(arg, &mut replace))
                .collect();
            if !self.unifier.assign_all(&types, &args) {
                continue;
            }
            matching.push(overload.id.clone());
            let own_result = self.unifier.substitute(&own_result, false);
            match &result {
                None => result = Some(own_result),
                Some(known) if !known.is_dyn() && *known != own_result => result = Some(Type::Dyn),
                Some(_) => {}
            }
        }
        match result {
            Some(ty) => {
                self.facts
                    .references
                    .insert(at, Reference::Overloads(matching));
                ty
            }
            None => {
                let types: Vec<String> = types
                    .iter()
                    .map(|ty| self.unifier.substitute(ty, true).to_string())
                    .collect();
                let applied = match types.split_first() {
                    Some((target, args)) if is_member => format!("{target}.({})", args.join(", ")),
                    _ => format!("({})", types.join(", ")),
                };
                self.error(
                    at,
                    format!("found no matching overload for '{function}' applied to '{applied}'"),
                );
                Type::Error
            }
        }
    }
}
