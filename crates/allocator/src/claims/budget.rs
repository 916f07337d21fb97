//! Budgets: how many devices of a class claims may still get. The scheduler derives them from quotas.

use super::{Alternative, Claims, MAX_RESULTS, Mode, Request};

/// The devices of a class that may still be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) class: smol_str::SmolStr,
    pub(crate) left: i64,
}

/// Requests for more devices of a class than may still be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess<'a> {
    /// The device class.
    pub class: &'a str,
    /// `namespace/name` of the claim and `request/subrequest`, if it is one alternative of a list that can never be
    /// taken; `None` if the claims together request too many whatever alternatives are taken.
    pub alternative: Option<(&'a str, &'a str)>,
    /// How many devices of the class the claims get at least: with this alternative, or in any case.
    pub needs: i64,
}

impl Alternative {
    /// The fewest and the most devices that the alternative gets.
    fn bounds(&self) -> (i64, i64) {
        match self.mode {
            Mode::Exact(count) => (count.max(0), count.max(0)),
            Mode::All => (1, MAX_RESULTS),
            Mode::Unsupported => (0, 0),
        }
    }
}

impl Claims {
    /// Limits how many devices of each class the claims get together; `left` says how many those may be. Devices with
    /// admin access do not count. Alternatives of lists that would exceed the limit are skipped.
    pub fn limit_devices(&mut self, left: &dyn Fn(&str) -> Option<i64>) {
        for id in 0..self.alternatives.len() {
            let Alternative { class, admin, .. } = &self.alternatives[id];
            if *admin {
                continue;
            }
            let known = self.budgets.iter().position(|b| b.class == class.name);
            let budget = known.or_else(|| {
                let left = left(&class.name)?.max(0);
                let class = class.name.clone();
                self.budgets.push(Budget { class, left });
                Some(self.budgets.len() - 1)
            });
            self.alternatives[id].budget = budget.map(|at| at as u32);
        }
        // Drop limits that no choice of alternatives can exceed, so that the claims share the cached answers of unlimited ones.
        let binds = |at: usize| self.most(at as u32) > self.budgets[at].left;
        let binding: Vec<bool> = (0..self.budgets.len()).map(binds).collect();
        let mut places = Vec::with_capacity(binding.len());
        let mut next = 0;
        for binds in &binding {
            places.push(binds.then_some(next));
            next += u32::from(*binds);
        }
        for alternative in &mut self.alternatives {
            alternative.budget = alternative.budget.and_then(|at| places[at as usize]);
        }
        let mut binding = binding.into_iter();
        self.budgets.retain(|_| binding.next().unwrap_or(false));
    }

    /// Whether some choice of alternatives would exceed a limit.
    pub fn is_limited(&self) -> bool {
        !self.budgets.is_empty()
    }

    /// The limited classes, with the most devices that the claims could get of each.
    pub fn limited(&self) -> impl Iterator<Item = (&str, i64)> {
        let budgets = self.budgets.iter().enumerate();
        budgets.map(|(at, budget)| (&*budget.class, self.most(at as u32)))
    }

    /// The requests that exceed a limit whatever is free.
    pub fn excesses(&self) -> Vec<Excess<'_>> {
        let mut found = Vec::new();
        for (at, budget) in self.budgets.iter().enumerate() {
            let at = at as u32;
            let needs = self.fewest(at);
            if needs > budget.left {
                found.push(Excess {
                    class: &budget.class,
                    alternative: None,
                    needs,
                });
                continue;
            }
            for claim in &self.claims {
                for request in claim.requests.iter().filter(|r| r.is_list) {
                    let others = needs - self.fewest_of(request, at);
                    let own = self.alternatives_of(request).iter();
                    for alternative in own.filter(|a| a.budget == Some(at)) {
                        let needs = others + alternative.bounds().0;
                        if needs > budget.left {
                            found.push(Excess {
                                class: &budget.class,
                                alternative: Some((&claim.shown, &alternative.result_name)),
                                needs,
                            });
                        }
                    }
                }
            }
        }
        found
    }

    /// Whether the claims exceed a limit whatever alternatives are taken.
    pub fn exceed(&self) -> bool {
        self.excesses().iter().any(|e| e.alternative.is_none())
    }

    fn all_requests(&self) -> impl Iterator<Item = &Request> {
        self.claims.iter().flat_map(|claim| &claim.requests)
    }

    fn most(&self, budget: u32) -> i64 {
        let of = |request: &Request| {
            let own = self.alternatives_of(request).iter();
            let own = own.filter(|a| a.budget == Some(budget));
            own.map(|a| a.bounds().1).max().unwrap_or(0)
        };
        self.all_requests().map(of).fold(0, i64::saturating_add)
    }

    fn fewest(&self, budget: u32) -> i64 {
        let of = |request| self.fewest_of(request, budget);
        self.all_requests().map(of).fold(0, i64::saturating_add)
    }

    fn fewest_of(&self, request: &Request, budget: u32) -> i64 {
        let own = self.alternatives_of(request).iter();
        let counts = own.map(|a| match a.budget == Some(budget) {
            true => a.bounds().0,
            false => 0,
        });
        counts.min().unwrap_or(0)
    }
}
