//! What rules may cost by estimate, and what is said where they exceed it.

use allot_apimachinery::field::{Error, ErrorList, Path};

/// The most that one rule may cost by estimate, times how often it can run.
pub(super) const RULE_LIMIT: u64 = 10_000_000;
/// The most that all rules of a version may cost by estimate.
const DEFINITION_LIMIT: u64 = 100_000_000;
/// How many of the rules that cost most are named.
const NAMED: usize = 4;

/// The sum over a definition, with the rules that weigh most.
#[derive(Default)]
pub(super) struct Total {
    sum: u64,
    heaviest: Vec<(u64, Path)>,
}

impl Total {
    pub(super) fn add(&mut self, path: &Path, cost: u64) {
        self.sum = self.sum.saturating_add(cost);
        // What is less than a hundredth of the limit is not worth naming.
        if cost >= DEFINITION_LIMIT / 100 {
            self.heaviest.push((cost, path.clone()));
            self.heaviest
                .sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.heaviest.truncate(NAMED);
        }
    }

    pub(super) fn errors(&self, path: &Path, errors: &mut ErrorList) {
        if self.sum <= DEFINITION_LIMIT {
            return;
        }
        for (_, path) in &self.heaviest {
            let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(Error::forbidden(path, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(Error::forbidden(
            path,
            message(what, self.sum, DEFINITION_LIMIT),
        ));
    }
}

pub(super) fn message(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        // Otherwise it would read as a factor of one.
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
