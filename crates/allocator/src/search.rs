//! The search: depth first over claims, requests and devices, the first solution wins.
//!
//! The order is a contract (drivers choose names by it), so everything that makes the search faster may only leave out
//! parts of the tree that hold no solution.

use crate::attempt::Attempt;
use crate::claims::{MAX_RESULTS, Mode};
use crate::observer::{Observer, Rejection};
use crate::pool::ViewState;
use crate::{Error, Limits};

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The picks of the attempt are the solution.
    Solution,
    Nothing,
    /// The budget was used up before the answer was known.
    GaveUp,
    /// The caller wanted no answer any more.
    Interrupted,
}

/// Where the search stands: what is to be decided next.
#[derive(Debug, Clone, Copy)]
struct Position {
    claim: u32,
    request: u32,
    /// Which alternative of a list is being tried.
    alternative: Option<u32>,
    /// How many devices the alternative has so far.
    taken: i64,
    /// Where to look for the next one.
    start: Cursor,
}

/// A device position: pool and index in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    part: u32,
    index: u32,
}

/// A decision that can be taken differently.
#[derive(Debug, Clone, Copy)]
struct Choice {
    position: Position,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A device for an exact count; the cursor is at the device that is picked.
    Device(Cursor),
    /// The next device of "all", for which there is no other choice.
    All,
    /// An alternative of a list. `exceeded`: all that failed so far failed because there were too many devices.
    List { exceeded: bool },
}

/// Why a part of the tree holds no solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Nothing,
    /// The devices of a claim would be more than a claim can have. That depends only on which alternatives of lists were chosen.
    TooMany {
        claim: u32,
    },
}

enum Step {
    Solution,
    Next(Position),
    Failed(Failure),
}

pub(crate) struct Search<'s, 'a, O> {
    attempt: &'s mut Attempt<'a, O>,
    choices: Vec<Choice>,
    steps: u64,
    limits: &'s Limits<'s>,
}

impl<'s, 'a, O: Observer> Search<'s, 'a, O> {
    pub(crate) fn new(attempt: &'s mut Attempt<'a, O>, limits: &'s Limits<'s>) -> Self {
        Self {
            attempt,
            choices: Vec::with_capacity(8),
            steps: 0,
            limits,
        }
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) fn run(&mut self) -> Result<Found, Error> {
        let mut next = Position {
            claim: 0,
            request: 0,
            alternative: None,
            taken: 0,
            start: Cursor::default(),
        };
        loop {
            self.steps += 1;
            if self.steps > self.limits.steps {
                return Ok(Found::GaveUp);
            }
            if self.steps.is_multiple_of(256) && self.limits.interrupt.is_some_and(|stop| stop()) {
                return Ok(Found::Interrupted);
            }
            let mut step = self.forward(next)?;
            loop {
                match step {
                    Step::Solution => return Ok(Found::Solution),
                    Step::Next(position) => {
                        next = position;
                        break;
                    }
                    Step::Failed(failure) => {
                        let Some(choice) = self.choices.pop() else {
                            return Ok(Found::Nothing);
                        };
                        step = self.backtrack(choice, failure)?;
                    }
                }
            }
        }
    }

    fn forward(&mut self, at: Position) -> Result<Step, Error> {
        let claims = self.attempt.claims;
        let Some(claim) = claims.claims.get(at.claim as usize) else {
            return Ok(Step::Solution);
        };
        let begin = |claim, request| {
            Step::Next(Position {
                claim,
                request,
                alternative: None,
                taken: 0,
                start: Cursor::default(),
            })
        };
        let Some(request) = claim.requests.get(at.request as usize) else {
            return Ok(begin(at.claim + 1, 0));
        };
        let id = match at.alternative {
            Some(id) => id,
            None if request.is_list => {
                self.choices.push(Choice {
                    position: at,
                    kind: Kind::List { exceeded: true },
                });
                return Ok(Step::Next(Position {
                    alternative: Some(request.alternatives.0),
                    ..at
                }));
            }
            None => request.alternatives.0,
        };
        let mode = claims.alternatives[id as usize].mode;
        let count = match mode {
            Mode::Exact(count) => count,
            Mode::All => self.attempt.all(id).len() as i64,
            Mode::Unsupported => 0,
        };
        if mode == Mode::All && count == 0 {
            return Ok(Step::Failed(Failure::Nothing));
        }
        if at.taken >= count {
            return Ok(begin(at.claim, at.request + 1));
        }
        let picked = self
            .attempt
            .picks()
            .iter()
            .rev()
            .take_while(|p| p.claim == at.claim)
            .count() as i64;
        if picked + count - at.taken > MAX_RESULTS {
            return Ok(Step::Failed(Failure::TooMany { claim: at.claim }));
        }
        let at = Position {
            alternative: Some(id),
            ..at
        };
        if mode == Mode::All {
            let place = self
                .attempt
                .place_of(self.attempt.all(id)[at.taken as usize]);
            if !self.attempt.pick(id, &place, true)? {
                return Ok(Step::Failed(Failure::Nothing));
            }
            self.choices.push(Choice {
                position: at,
                kind: Kind::All,
            });
            return Ok(Step::Next(Position {
                taken: at.taken + 1,
                ..at
            }));
        }
        self.next_device(at, at.start)
    }

    /// Takes the first device at or behind the cursor that can be taken.
    fn next_device(&mut self, at: Position, mut cursor: Cursor) -> Result<Step, Error> {
        let id = at.alternative.unwrap_or_default();
        let claims = self.attempt.claims;
        let alternative = &claims.alternatives[id as usize];
        while let Some(part) = self.attempt.parts.get(cursor.part as usize) {
            if cursor.index >= part.len() || part.view.state != ViewState::Usable {
                cursor = Cursor {
                    part: cursor.part + 1,
                    index: 0,
                };
                continue;
            }
            let place = self.attempt.place(cursor.part, cursor.index);
            let picked = if self.attempt.in_use(alternative, &place) {
                self.attempt.observer.rejected(id, &place, Rejection::InUse);
                false
            } else if !self.attempt.selectable(id, &place)? {
                false
            } else if self.attempt.features.consumable_capacity
                && !self.attempt.capacity_fits(alternative, &place)
            {
                self.attempt
                    .observer
                    .rejected(id, &place, Rejection::Capacity);
                false
            } else {
                self.attempt.pick(id, &place, false)?
            };
            let behind = Cursor {
                part: cursor.part,
                index: cursor.index + 1,
            };
            if picked {
                self.choices.push(Choice {
                    position: at,
                    kind: Kind::Device(cursor),
                });
                return Ok(Step::Next(Position {
                    taken: at.taken + 1,
                    start: behind,
                    ..at
                }));
            }
            cursor = behind;
        }
        Ok(Step::Failed(Failure::Nothing))
    }

    /// Takes a decision back and takes the next one, if there is any.
    fn backtrack(&mut self, choice: Choice, failure: Failure) -> Result<Step, Error> {
        let at = choice.position;
        // That a claim gets too many devices says nothing about the claims before it.
        let failure = match failure {
            Failure::TooMany { claim } if claim != at.claim => Failure::Nothing,
            failure => failure,
        };
        match choice.kind {
            Kind::Device(cursor) => {
                self.attempt.unpick();
                if failure != Failure::Nothing {
                    // Other devices for the same request do not make them fewer.
                    return Ok(Step::Failed(failure));
                }
                self.next_device(
                    at,
                    Cursor {
                        index: cursor.index + 1,
                        ..cursor
                    },
                )
            }
            Kind::All => {
                self.attempt.unpick();
                Ok(Step::Failed(failure))
            }
            Kind::List { exceeded } => {
                let exceeded = exceeded && failure != Failure::Nothing;
                let request =
                    &self.attempt.claims.claims[at.claim as usize].requests[at.request as usize];
                let tried = at.alternative.unwrap_or(request.alternatives.0);
                if tried + 1 >= request.alternatives.1 {
                    let too_many = Failure::TooMany { claim: at.claim };
                    return Ok(Step::Failed(if exceeded {
                        too_many
                    } else {
                        Failure::Nothing
                    }));
                }
                let at = Position {
                    alternative: Some(tried + 1),
                    ..at
                };
                self.choices.push(Choice {
                    position: at,
                    kind: Kind::List { exceeded },
                });
                Ok(Step::Next(at))
            }
        }
    }
}
