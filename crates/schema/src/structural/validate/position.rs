//! Positions in a value, for the texts of errors.

use allot_apimachinery::field::BadValue;
use allot_apimachinery::quote::quote;

use super::outcome::{Budget, Fault, Kind};

/// A place below the one where validation began; put into words only where something is wrong.
pub(super) struct At<'a> {
    above: Option<&'a At<'a>>,
    step: Step<'a>,
    pub(super) budget: &'a Budget,
}

pub(super) enum Step<'a> {
    Start,
    Property(&'a str),
    /// A key that `additionalProperties` covers. Upstream writes a dot before it even at the start.
    Key(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    pub(super) fn start(budget: &'a Budget) -> Self {
        At {
            above: None,
            step: Step::Start,
            budget,
        }
    }

    pub(super) fn below(&'a self, step: Step<'a>) -> At<'a> {
        At {
            above: Some(self),
            step,
            budget: self.budget,
        }
    }

    pub(super) fn is_start(&self) -> bool {
        matches!(self.step, Step::Start)
    }

    fn write(&self, text: &mut String) {
        if let Some(above) = self.above {
            above.write(text);
        }
        match self.step {
            Step::Start => {}
            Step::Property(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Key(name) => {
                text.push('.');
                text.push_str(name);
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }

    /// The place in words; `None` if too much text has been composed already.
    pub(super) fn name(&self) -> Option<String> {
        if self.budget.is_spent() {
            return None;
        }
        let mut text = String::new();
        self.write(&mut text);
        self.budget.spend(&text);
        Some(text)
    }

    /// A fault whose text is `NAME in body TEXT`.
    pub(super) fn fault(&self, kind: Kind, value: impl Into<BadValue>, text: &str) -> Fault {
        let Some(name) = self.name() else {
            return Fault::untold();
        };
        let text = format!("{name} in body {text}");
        self.budget.spend(&text);
        Fault {
            text: text.into(),
            name,
            value: value.into(),
            kind,
        }
    }

    /// A fault of the whole: the text names the place, the field is that where validation began.
    pub(super) fn whole(&self, text: &str) -> Fault {
        match self.name() {
            Some(name) => Fault::of_start(format!("{} {text}", quote(&name))),
            None => Fault::untold(),
        }
    }
}
