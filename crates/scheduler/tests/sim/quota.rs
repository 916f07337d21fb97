//! The quota of the namespace on allocated devices: whether it is exceeded, and what it leaves.

use std::collections::BTreeMap;

use rand::Rng;
use serde_json::{Value, json};

use super::api::{State, id, results_of};
use super::cluster::SimulatedCluster;
use super::workloads::{EXTENDED, NAMESPACE};

const SUFFIX: &str = ".deviceclass.allot.dev/allocated-devices";
const QUOTA: &str = "team";
/// Classes that the quota is about.
const CLASSES: [&str; 4] = ["device", "share", "partition", "partition2"];

type ByClass<'a> = BTreeMap<&'a str, i64>;

fn limits(s: &State) -> ByClass<'_> {
    let mut limits = ByClass::new();
    let quotas = s.objects.iter().filter(|((c, _), _)| c == "resourcequotas");
    for (_, quota) in quotas {
        for (name, amount) in quota["spec"]["hard"].as_object().into_iter().flatten() {
            let amount = amount.as_str().and_then(|amount| amount.parse().ok());
            if let (Some(class), Some(amount)) = (name.strip_suffix(SUFFIX), amount) {
                limits.insert(class, amount);
            }
        }
    }
    limits
}

/// The class of all requests of a claim: there is one request, without alternatives.
fn class_of(claim: &Value) -> &str {
    let request = &claim["spec"]["devices"]["requests"][0]["exactly"];
    request["deviceClassName"].as_str().unwrap_or_default()
}

fn used(s: &State, counts: impl Fn(&Value) -> bool) -> ByClass<'_> {
    let mut used = ByClass::new();
    let claims = s.objects.iter().filter(|((c, _), _)| c == "resourceclaims");
    for (_, claim) in claims.filter(|(_, claim)| counts(claim)) {
        *used.entry(class_of(claim)).or_default() += results_of(claim).count() as i64;
    }
    used
}

/// The quota that the claims exceed of which `counts` says that they count.
pub fn exceeded(s: &State, counts: impl Fn(&Value) -> bool) -> Option<String> {
    let limits = limits(s);
    if limits.is_empty() {
        return None;
    }
    let used = used(s, counts);
    let over = |(class, used): (&&str, &i64)| {
        let limit = limits.get(class)?;
        (used > limit)
            .then(|| format!("{used} devices of class {class} are allocated, {limit} may be"))
    };
    used.iter().find_map(over)
}

/// Whether the quota leaves what a pod needs beside the claims that it has; `claims` are its claims without devices.
pub fn allows(s: &State, pod: &Value, claims: &[&Value]) -> bool {
    let limits = limits(s);
    if limits.is_empty() {
        return true;
    }
    let mut wanted = used(s, |_| true);
    for claim in claims {
        let count = claim["spec"]["devices"]["requests"][0]["exactly"]["count"].as_i64();
        *wanted.entry(class_of(claim)).or_default() += count.unwrap_or(1);
    }
    let requests = pod["spec"]["containers"][0]["resources"]["requests"].as_object();
    let names = requests.into_iter().flatten().map(|(name, _)| name);
    for class in names.filter_map(|name| name.strip_prefix(EXTENDED)) {
        *wanted.entry(class).or_default() += 1;
    }
    let fits = |(class, limit): (&&str, &i64)| wanted.get(class).is_none_or(|w| w <= limit);
    limits.iter().all(fits)
}

/// Whether the quota limits anything.
pub fn limits_anything(s: &State) -> bool {
    !limits(s).is_empty()
}

impl SimulatedCluster {
    /// An administrator limits what the namespace gets.
    pub fn create_quota(&mut self) {
        let limit = |class: &str, rng: &mut rand::rngs::StdRng| {
            let limit: i64 = rng.random_range(0..5);
            (format!("{class}{SUFFIX}"), json!(limit.to_string()))
        };
        let hard = CLASSES.map(|class| limit(class, &mut self.rng));
        let hard: serde_json::Map<String, Value> = hard.into_iter().collect();
        let meta = json!({"name": QUOTA, "namespace": NAMESPACE});
        let quota = json!({"metadata": meta, "spec": {"hard": hard}});
        self.api.create("resourcequotas", quota).expect("a quota");
    }

    /// And raises the limit of one class.
    pub fn raise_quota(&mut self) {
        let at = id("resourcequotas", NAMESPACE, QUOTA);
        let class = CLASSES[self.rng.random_range(0..CLASSES.len())];
        if let Some(mut quota) = self.api.get(&at) {
            let limit = &mut quota["spec"]["hard"][format!("{class}{SUFFIX}")];
            let before: i64 = limit.as_str().and_then(|l| l.parse().ok()).unwrap_or(0);
            *limit = (before + 1).to_string().into();
            let _ = self.api.put(at, quota);
        }
    }
}
