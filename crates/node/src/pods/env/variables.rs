//! The variables of a container while they are collected, and what refers to them.

use std::collections::HashMap;

use super::EnvError;

/// Bytes of all variables, and of all arguments, of a container. No kernel starts a program with more, and a few variables that
/// refer to each other twice would need any amount of memory.
pub(super) const LARGEST: usize = 8 << 20;

/// Variables in the order in which their names appeared first, each with its last value.
#[derive(Debug, Default)]
pub(in crate::pods) struct Variables {
    list: Vec<(String, String)>,
    places: HashMap<String, usize>,
    bytes: usize,
}

/// The bytes that expansions of variables may still produce.
#[derive(Debug)]
pub(in crate::pods) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(LARGEST)
    }
}

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), EnvError> {
        self.0 = self.0.checked_sub(bytes).ok_or(EnvError::TooLarge)?;
        Ok(())
    }
}

impl Variables {
    /// Sets a variable.
    ///
    /// # Errors
    /// All together are too large.
    pub(in crate::pods) fn push(&mut self, name: String, value: String) -> Result<(), EnvError> {
        self.bytes = self.bytes.saturating_add(name.len() + value.len());
        if self.bytes > LARGEST {
            return Err(EnvError::TooLarge);
        }
        match self.places.get(&name) {
            Some(place) => self.list[*place].1 = value,
            None => {
                self.places.insert(name.clone(), self.list.len());
                self.list.push((name, value));
            }
        }
        Ok(())
    }

    /// Sets several variables.
    ///
    /// # Errors
    /// All together are too large.
    pub(in crate::pods) fn extend(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), EnvError> {
        let mut variables = variables.into_iter();
        variables.try_for_each(|(name, value)| self.push(name, value))
    }

    /// All of them.
    pub(in crate::pods) fn iter(&self) -> impl Iterator<Item = &(String, String)> {
        self.list.iter()
    }

    /// As a program gets them: `NAME=value`.
    pub(in crate::pods) fn lines(&self) -> Vec<String> {
        let lines = self.list.iter();
        lines
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    /// Replaces `$(NAME)` by the value of a variable; `$$` is an escaped dollar sign; references to unknown names stay as they
    /// are.
    ///
    /// # Errors
    /// The result is larger than what is left of the budget.
    pub(in crate::pods) fn expand(
        &self,
        text: &str,
        budget: &mut Budget,
    ) -> Result<String, EnvError> {
        self.expand_with(text, budget, |name| Ok(format!("$({name})")))
    }

    /// The same, but references to unknown names are errors.
    ///
    /// # Errors
    /// As [`Variables::expand`], and the kubelet's message about an unknown name.
    pub(in crate::pods) fn expand_known(
        &self,
        text: &str,
        budget: &mut Budget,
    ) -> Result<String, EnvError> {
        self.expand_with(text, budget, |name| {
            Err(EnvError::NoVariable(name.to_owned()))
        })
    }

    fn expand_with(
        &self,
        text: &str,
        budget: &mut Budget,
        unknown: impl Fn(&str) -> Result<String, EnvError>,
    ) -> Result<String, EnvError> {
        budget.take(text.len())?;
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        // Looked for once: no reference ends after the last bracket.
        let last = text.rfind(')');
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            if let Some(tail) = after.strip_prefix('$') {
                out.push('$');
                rest = tail;
                continue;
            }
            let ends = last.is_some_and(|last| last >= text.len() - after.len());
            let name = after.strip_prefix('(').filter(|_| ends);
            match name.and_then(|tail| tail.split_once(')')) {
                Some((name, tail)) => {
                    match self.places.get(name) {
                        Some(place) => {
                            let value = &self.list[*place].1;
                            budget.take(value.len())?;
                            out.push_str(value);
                        }
                        None => out.push_str(&unknown(name)?),
                    }
                    rest = tail;
                }
                None => {
                    out.push('$');
                    rest = after;
                }
            }
        }
        out.push_str(rest);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[(&str, &str)]) -> Variables {
        let mut variables = Variables::default();
        let all = all.iter();
        let owned = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        variables.extend(owned).unwrap();
        variables
    }

    #[test]
    fn references_are_expanded_as_by_a_kubelet() {
        let env = of(&[("A", "1"), ("A", "2")]);
        let check = |text: &str, expected: &str| {
            let expanded = env.expand(text, &mut Budget::default());
            assert_eq!(expanded.unwrap(), expected, "{text}");
        };
        check("$(A)", "2");
        check("x$(A)y$(A)", "x2y2");
        check("$(B)", "$(B)");
        check("$$(A)", "$(A)");
        check("$$$$", "$$");
        check("$(A", "$(A");
        check("$(A)$(A$$", "2$(A$");
        check("$A $", "$A $");
        check("", "");
    }

    #[test]
    fn the_last_value_counts_at_the_first_place() {
        let env = of(&[("B", "1"), ("A", "2"), ("B", "3")]);
        assert_eq!(env.lines(), ["B=3", "A=2"]);
    }

    /// The attack: a pod of two kilobytes whose variables double took all memory of the process.
    #[test]
    fn variables_that_double_are_refused() {
        let mut env = of(&[("A0", "0123456789")]);
        let doubled = (1..60).try_for_each(|number| {
            let before = number - 1;
            let text = format!("$(A{before})$(A{before})");
            let value = env.expand(&text, &mut Budget::default())?;
            env.push(format!("A{number}"), value)
        });
        assert!(matches!(doubled, Err(EnvError::TooLarge)));
        assert!(env.bytes <= 2 * LARGEST);
        let mut budget = Budget::default();
        let (_, large) = env.iter().last().cloned().unwrap();
        let env = of(&[("L", &large)]);
        let many = (0..1000).try_for_each(|_| env.expand("$(L)$(L)", &mut budget).map(drop));
        assert!(many.is_err(), "many arguments share the budget");
    }

    /// The attack: each of many names was compared with all others, and each open bracket with the rest of its text. Both took
    /// minutes, and other pods waited.
    #[test]
    fn many_names_and_open_brackets_cost_a_bounded_amount_of_work() {
        let mut env = Variables::default();
        let mut budget = Budget::default();
        for number in 0..300_000 {
            let value = env.expand("$(A7)", &mut budget).unwrap();
            env.push(format!("A{number}"), value).unwrap();
        }
        assert_eq!(env.lines().len(), 300_000);
        let open = "$(".repeat(3_000_000);
        assert_eq!(env.expand(&open, &mut Budget::default()).unwrap(), open);
    }
}
