//! The kit tries drivers that keep to the rules, and drivers of which each breaks one.

#[path = "kit/drivers.rs"]
mod drivers;
#[path = "kit/process.rs"]
mod process;
#[path = "kit/raw.rs"]
mod raw;
#[path = "kit/rolling.rs"]
mod rolling;
