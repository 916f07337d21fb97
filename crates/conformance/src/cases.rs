//! The cases, by subject.

use crate::case::Case;

mod cdi;
mod config;
mod crash;
mod health;
mod late;
mod prepare;
mod publishing;
mod registration;
mod sharing;
mod state;
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
        prepare::CASES,
        sharing::CASES,
        config::CASES,
        unprepare::CASES,
        crash::CASES,
        late::CASES,
        cdi::CASES,
        state::CASES,
        health::CASES,
    ]
    .concat()
}
