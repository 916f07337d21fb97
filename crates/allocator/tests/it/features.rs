//! One test per behaviour, with readable problems.

mod budgets;
mod capacity;
mod constraints;
mod counts;
mod explain;
mod memory;
mod partitions;
mod pools;
mod results;
mod sharing;
mod taints;
