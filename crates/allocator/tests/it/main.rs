//! Tests of the allocator as its users see it.

mod checker;
mod conflicts;
mod conformance;
mod deltas;
mod features;
mod fuzzing;
mod generate;
mod laws;
mod make;
mod reference;
