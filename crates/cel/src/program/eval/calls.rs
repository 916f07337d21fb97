//! Calls of functions.

use super::{Evaluator, Outcome};
use crate::{
    program::plan::{Call, Complaint},
    value::{Fault, Value},
};

impl<'a> Evaluator<'a, '_> {
    #[inline(never)]
    pub(super) fn call(&mut self, call: &'a Call) -> Outcome<'a> {
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

    /// A call that fails because of an argument is still charged.
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
