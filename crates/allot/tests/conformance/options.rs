//! The arguments of a test harness, as far as `cargo test` and users pass them.

/// What to run.
#[derive(Debug, Default)]
pub struct Options {
    /// Only tell the names.
    pub list: bool,
    /// A filter is a whole name.
    pub exact: bool,
    filters: Vec<String>,
    skip: Vec<String>,
    /// Only tests that are ignored, of which there are none.
    ignored: bool,
}

impl Options {
    /// Reads the arguments. Flags that are about the output of Rust's own harness change nothing here.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Self {
        let mut options = Self::default();
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => options.list = true,
                "--exact" => options.exact = true,
                "--ignored" => options.ignored = true,
                "--skip" => options.skip.extend(arguments.next()),
                "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => {
                    arguments.next();
                }
                flag if flag.starts_with('-') => {}
                _ => options.filters.push(argument),
            }
        }
        options
    }

    /// Whether a test is to run.
    pub fn selects(&self, name: &str) -> bool {
        let matches = |filter: &String| {
            if self.exact {
                name == filter
            } else {
                name.contains(filter.as_str())
            }
        };
        !self.ignored
            && (self.filters.is_empty() || self.filters.iter().any(matches))
            && !self.skip.iter().any(matches)
    }
}
