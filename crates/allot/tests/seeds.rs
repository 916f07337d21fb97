//! What the seed documents show, typed into a shell: one test per numbered item of docs/SEEDS.md.
//!
//! Each drives the real binary with the real kubectl and compares what is printed; ages and random suffixes are masked.
//! Without kubectl the tests say that they were skipped.

#[path = "seeds/components.rs"]
mod components;
#[path = "seeds/harness.rs"]
mod harness;
#[path = "seeds/seed_000.rs"]
mod seed_000;
#[path = "seeds/seed_002.rs"]
mod seed_002;
#[path = "seeds/seed_003.rs"]
mod seed_003;
#[path = "seeds/seed_004.rs"]
mod seed_004;
#[path = "seeds/served.rs"]
mod served;
