//! Loops: what macros such as `all` and `map` become.

use std::borrow::Cow;

use super::{Evaluator, Local, Outcome};
use crate::{
    cost::SELECT,
    program::plan::{Fold, Node},
    value::{Fault, Value},
};

/// Iterations of loops between two questions whether to stop.
const CHECK_INTERVAL: u32 = 100;

impl<'a> Evaluator<'a, '_> {
    #[inline(never)]
    pub(super) fn fold(&mut self, fold: &'a Fold) -> Outcome<'a> {
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

    /// One iteration of a loop. Returns whether the loop continues.
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
    #[inline(never)]
    pub(super) fn append(&mut self, slot: usize, list: &'a Node) -> Outcome<'a> {
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
    pub(super) fn insert(&mut self, slot: usize, args: &'a [Node]) -> Outcome<'a> {
        let accu = keep_going!(self.local(slot).map(drop));
        self.spend(SELECT)?;
        let mut values = Vec::with_capacity(args.len());
        let mut failed = accu.err();
        // With three arguments the first error ends the call, with two, both are evaluated.
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
}
