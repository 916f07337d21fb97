//! The cases, by subject.

use crate::case::Case;

mod capacity;
mod cdi;
mod churn;
mod config;
mod crash;
mod full;
mod health;
mod late;
mod metadata;
mod prepare;
mod publishing;
mod registration;
mod sharing;
mod state;
mod status;
mod taints;
mod unprepare;

/// All cases, in the order in which they run.
pub fn cases() -> &'static [Case] {
    static ALL: std::sync::LazyLock<Vec<Case>> = std::sync::LazyLock::new(all);
    &ALL
}

fn all() -> Vec<Case> {
    [
        registration::CASES,
        publishing::CASES,
        taints::CASES,
        prepare::CASES,
        sharing::CASES,
        capacity::CASES,
        config::CASES,
        unprepare::CASES,
        churn::CASES,
        crash::CASES,
        late::CASES,
        cdi::CASES,
        metadata::CASES,
        status::CASES,
        state::CASES,
        full::CASES,
        health::CASES,
    ]
    .concat()
}
