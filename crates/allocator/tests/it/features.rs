//! One test per behaviour, with readable problems.
