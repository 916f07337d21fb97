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

pub(crate) fn all() -> Vec<Case> {
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
