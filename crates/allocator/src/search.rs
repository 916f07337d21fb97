//! The search: depth first over claims, requests and devices, the first solution wins.
//!
//! The order is a contract, because drivers name devices accordingly: optimisations may only skip parts of the tree that
//! contain no solution.

use crate::attempt::Attempt;
use crate::claims::{MAX_RESULTS, Mode};
use crate::observer::{Observer, Proof, Rejection};
use crate::outcome::{Error, Limits};
use crate::pool::ViewState;

mod bits;
mod prune;

use prune::{Pruner, Survey};

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The picks of the attempt are the solution.
    Solution,
    Nothing,
    /// The budget was used up before the answer was known.
    GaveUp,
    /// The caller interrupted the search.
    Interrupted,
}

/// The position of the search: the next decision.
#[derive(Debug, Clone, Copy)]
struct Position {
    claim: u32,
    request: u32,
    /// Which alternative of a list is being tried.
    alternative: Option<u32>,
    /// How many devices the alternative has so far.
    taken: i64,
    /// The first device to check.
    start: Cursor,
}

impl Position {
    fn start_of(claim: u32, request: u32) -> Self {
        let start = Cursor { part: 0, index: 0 };
        Self {
            claim,
            request,
            alternative: None,
            taken: 0,
            start,
        }
    }
}

/// The position of a device: the pool part, and the index in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    part: u32,
    index: u32,
}

impl Cursor {
    fn behind(self) -> Self {
        Self {
            index: self.index + 1,
            ..self
        }
    }
}

/// A decision that backtracking may revise.
#[derive(Debug, Clone, Copy)]
struct Choice {
    position: Position,
    kind: Kind,
    /// Offset of the devices that failed here in `Search::failed`.
    failed: usize,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A device for an exact count; the cursor is at the device that is picked.
    Device(Cursor),
    /// The next device of "all", for which there is no other choice.
    All,
    /// An alternative of a list, and why those before it failed.
    List { failure: Failure },
}

/// Why a part of the tree contains no solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    Nothing,
    /// The devices of a claim would be more than a claim can have. That depends only on which
    /// alternatives of lists were chosen.
    TooMany {
        claim: u32,
    },
    /// The devices of a class would be more than may be allocated. That depends only on which
    /// alternatives of lists were chosen, in all claims.
    OverBudget,
}

impl Failure {
    /// The reason why a list fails, if one of its alternatives failed for this reason and another one for the other.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => Self::Nothing,
            (Self::OverBudget, _) | (_, Self::OverBudget) => Self::OverBudget,
            (too_many, Self::TooMany { .. }) => too_many,
        }
    }
}

enum Step {
    Solution,
    Next(Position),
    Failed(Failure),
}

/// How much may be skipped, by what the search knows about the problem.
enum Difficulty {
    /// No dead end so far.
    Easy,
    /// Nothing may be skipped.
    OrderSensitive,
    Hard(Box<Pruner>),
}

/// The state of a search.
pub(crate) struct Search<'s, 'a, O> {
    attempt: &'s mut Attempt<'a, O>,
    choices: Vec<Choice>,
    /// Devices that failed, by the number that equal devices share ([`Pruner::twin`]); for all decisions one after the other.
    failed: Vec<u32>,
    difficulty: Difficulty,
    steps: u64,
    limits: &'s Limits<'s>,
}

impl<'s, 'a, O: Observer> Search<'s, 'a, O> {
    pub(crate) fn new(attempt: &'s mut Attempt<'a, O>, limits: &'s Limits<'s>) -> Self {
        // Some of upstream's errors depend on everything that was tried before.
        let errors = attempt.features.upstream_errors
            && (attempt.claims.any_all || attempt.parts.iter().any(|p| p.info().has_counters()));
        let difficulty = if errors {
            Difficulty::OrderSensitive
        } else {
            Difficulty::Easy
        };
        Self {
            attempt,
            choices: Vec::with_capacity(8),
            failed: Vec::new(),
            difficulty,
            steps: 0,
            limits,
        }
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) fn run(&mut self) -> Result<Found, Error> {
        let mut next = Position::start_of(0, 0);
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

    /// Takes the decision at a position, if one is left.
    fn forward(&mut self, at: Position) -> Result<Step, Error> {
        let claims = self.attempt.claims;
        let Some(claim) = claims.claims.get(at.claim as usize) else {
            return Ok(Step::Solution);
        };
        let Some(request) = claim.requests.get(at.request as usize) else {
            return Ok(Step::Next(Position::start_of(at.claim + 1, 0)));
        };
        let id = match at.alternative {
            Some(id) => id,
            None if request.is_list => {
                let alternative = Some(request.alternatives.0);
                let at = Position { alternative, ..at };
                let failure = Failure::TooMany { claim: at.claim };
                self.choose(at, Kind::List { failure });
                return Ok(Step::Next(at));
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
            return Ok(Step::Next(Position::start_of(at.claim, at.request + 1)));
        }
        let picks = self.attempt.picks().iter().rev();
        let picked = picks.take_while(|p| p.claim == at.claim).count() as i64;
        if picked + count - at.taken > MAX_RESULTS {
            return Ok(Step::Failed(Failure::TooMany { claim: at.claim }));
        }
        if at.taken == 0
            && let Some(budget) = claims.alternatives[id as usize].budget
            && count > self.attempt.budget_left(budget)
        {
            self.attempt.observer.proven(Proof::Budget(id));
            return Ok(Step::Failed(Failure::OverBudget));
        }
        let at = Position {
            alternative: Some(id),
            ..at
        };
        if mode == Mode::All {
            let number = self.attempt.all(id)[at.taken as usize];
            let place = self.attempt.place_of(number);
            if !self.attempt.pick(id, &place, true)? {
                return Ok(Step::Failed(Failure::Nothing));
            }
            self.choose(at, Kind::All);
            return Ok(Step::Next(Position {
                taken: at.taken + 1,
                ..at
            }));
        }
        if let Difficulty::Hard(pruner) = &mut self.difficulty
            && pruner.is_infeasible(self.attempt, &at)
        {
            return Ok(Step::Failed(Failure::Nothing));
        }
        self.next_device(at, at.start, self.failed.len())
    }

    fn choose(&mut self, position: Position, kind: Kind) {
        self.choices.push(Choice {
            position,
            kind,
            failed: self.failed.len(),
        });
    }

    /// Takes the first possible device at or behind the cursor. `failed` is the offset of the list
    /// of devices that failed at this position.
    fn next_device(
        &mut self,
        at: Position,
        mut cursor: Cursor,
        failed: usize,
    ) -> Result<Step, Error> {
        let id = at.alternative.unwrap_or_default();
        while let Some(part) = self.attempt.parts.get(cursor.part as usize) {
            if cursor.index >= part.len() || part.view.state != ViewState::Usable {
                cursor = Cursor {
                    part: cursor.part + 1,
                    index: 0,
                };
                continue;
            }
            if self.try_device(id, cursor, failed)? {
                let kind = Kind::Device(cursor);
                self.choices.push(Choice {
                    position: at,
                    kind,
                    failed,
                });
                return Ok(Step::Next(Position {
                    taken: at.taken + 1,
                    start: cursor.behind(),
                    ..at
                }));
            }
            cursor = cursor.behind();
        }
        self.failed.truncate(failed);
        if let Difficulty::Hard(pruner) = &mut self.difficulty {
            pruner.record_dead_end(self.attempt, &at);
        }
        Ok(Step::Failed(Failure::Nothing))
    }

    /// Picks a device if that is possible and not pointless.
    fn try_device(&mut self, id: u32, cursor: Cursor, failed: usize) -> Result<bool, Error> {
        let claims = self.attempt.claims;
        let alternative = &claims.alternatives[id as usize];
        let place = self.attempt.place(cursor.part, cursor.index);
        if let Difficulty::Hard(pruner) = &self.difficulty {
            // With admin access, equal devices can still differ in the other claims that hold them.
            let twin_failed =
                || !alternative.admin && self.failed[failed..].contains(&pruner.twin(place.number));
            if !pruner.allows(id, place.number) || twin_failed() {
                return Ok(false);
            }
        }
        // The order of the checks is upstream's: selectors can fail, and then it matters.
        if self.attempt.in_use(alternative, &place) {
            self.attempt.observer.rejected(id, &place, Rejection::InUse);
            return Ok(false);
        }
        if !self.attempt.selectable(id, &place)? {
            return Ok(false);
        }
        if self.attempt.features.consumable_capacity
            && !self.attempt.capacity_fits(alternative, &place)
        {
            let observer = &mut self.attempt.observer;
            observer.rejected(id, &place, Rejection::Capacity);
            return Ok(false);
        }
        self.attempt.pick(id, &place, false)
    }

    /// Takes a decision back and takes the next one, if there is any.
    fn backtrack(&mut self, choice: Choice, failure: Failure) -> Result<Step, Error> {
        let at = choice.position;
        // Too many devices for one claim are no information about the claims before it.
        let failure = match failure {
            Failure::TooMany { claim } if claim != at.claim => Failure::Nothing,
            failure => failure,
        };
        match choice.kind {
            Kind::Device(cursor) => {
                self.attempt.unpick();
                if failure != Failure::Nothing {
                    // Other devices for the same request do not reduce their number.
                    self.failed.truncate(choice.failed);
                    return Ok(Step::Failed(failure));
                }
                match &self.difficulty {
                    Difficulty::Easy => return Ok(self.enable_pruning()),
                    Difficulty::OrderSensitive => {}
                    Difficulty::Hard(pruner) => {
                        let part = &self.attempt.parts[cursor.part as usize];
                        self.failed.push(pruner.twin(part.first + cursor.index));
                    }
                }
                self.next_device(at, cursor.behind(), choice.failed)
            }
            Kind::All => {
                self.attempt.unpick();
                Ok(Step::Failed(failure))
            }
            Kind::List { failure: before } => {
                let claim = &self.attempt.claims.claims[at.claim as usize];
                let (first, end) = claim.requests[at.request as usize].alternatives;
                let failure = before.and(failure);
                let next = at.alternative.unwrap_or(first) + 1;
                if next >= end {
                    return Ok(Step::Failed(failure));
                }
                let at = Position {
                    alternative: Some(next),
                    ..at
                };
                self.choose(at, Kind::List { failure });
                Ok(Step::Next(at))
            }
        }
    }

    /// Called at the first dead end: analyses the problem, and restarts with the result.
    fn enable_pruning(&mut self) -> Step {
        while !self.attempt.picks().is_empty() {
            self.attempt.unpick();
        }
        self.choices.clear();
        self.difficulty = match Pruner::survey(self.attempt) {
            Survey::Infeasible => return Step::Failed(Failure::Nothing),
            Survey::OrderSensitive => Difficulty::OrderSensitive,
            Survey::Clear(pruner) => Difficulty::Hard(pruner),
        };
        Step::Next(Position::start_of(0, 0))
    }
}
