//! Tests of the allocator as its users see it.

mod checker;
mod conformance;
mod features;
mod generate;
mod laws;
mod make;
mod reference;
