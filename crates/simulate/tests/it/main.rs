//! Simulations from outside.

mod behaviour;
mod fixtures;
mod policies;
mod traces;
