//! Named formats as values; the library defines the available formats.

/// A named format.
#[derive(Debug)]
pub struct Format {
    /// The name by which `format.named` finds it.
    pub name: &'static str,
    pub(crate) key: &'static str,
    pub(crate) check: fn(&str) -> Vec<String>,
    /// Length of a regular expression that would do the same; the cost of a check follows from it.
    pub(crate) regex_size: u64,
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
