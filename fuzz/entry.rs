//! The fuzz targets. Must neither panic nor take long for any input.

use allot_allocator::problem::Problem;
use allot_allocator::{Allocator, Limits, Outcome, Policy, SelectorCache};
use allot_apimachinery::quantity::Quantity;
use allot_cel::device::{Device, Options, compile};

/// A problem as JSON: solved under both policies, with explanation, and with and without memory.
pub fn allocator(data: &[u8]) {
    let Ok(problem) = serde_json::from_slice::<Problem>(data) else {
        return;
    };
    let (cluster, claims) = (problem.cluster(), problem.claims(&SelectorCache::new()));
    let limits = Limits {
        steps: 2_000,
        ..Limits::default()
    };
    let mut remembering = Allocator::new();
    for node in problem.nodes().iter().take(3) {
        let shown = |allocator: &mut Allocator| {
            let outcome = allocator.allocate(&cluster, node, &claims, &limits);
            let Outcome::Allocated(found) = outcome else {
                return format!("{outcome:?}");
            };
            format!("{:?}", found.results(&claims, &mut || "share".to_owned()))
        };
        let anew = shown(&mut Allocator::new().without_memory());
        // The second time the answer may be cached.
        assert_eq!(shown(&mut remembering), anew);
        assert_eq!(shown(&mut remembering), anew);
        for policy in [Policy::FirstFit, Policy::BestFit] {
            let mut allocator = Allocator::with_policy(policy);
            if let Outcome::Allocated(found) = allocator.allocate(&cluster, node, &claims, &limits)
            {
                let _ = found.results(&claims, &mut || "share".to_owned());
            }
        }
        let (outcome, explanation) = Allocator::new().explain(&cluster, node, &claims, &limits);
        assert_eq!(explanation.fits, matches!(outcome, Outcome::Allocated(_)));
    }
}

/// A selector, evaluated on a device.
pub fn cel(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let device = Device::from_json(
        "gpu.example.com",
        &serde_json::json!({
            "attributes": {"model": {"string": "a100"}, "numa": {"int": 1}, "version": {"version": "1.2.3"}},
            "capacity": {"memory": {"value": "40Gi"}},
        }),
    );
    if let Ok(selector) = compile(text, &Options::default()) {
        let (_, cost) = selector.matches_with_cost(&device);
        assert!(cost <= 2 * Options::default().cost_limit, "{cost}");
    }
}

/// A quantity: its printed form parses as the same value.
pub fn quantity(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(quantity) = text.parse::<Quantity>() {
        let printed = quantity.to_string();
        assert_eq!(
            printed.parse::<Quantity>().as_ref(),
            Ok(&quantity),
            "{text} printed as {printed}"
        );
        let _ = (
            quantity.value(),
            quantity.milli_value(),
            quantity.nanos(),
            quantity.checked_add(&quantity),
        );
    }
}
