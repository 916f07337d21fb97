//! Limits on the devices of a class, whatever is free.

use allot_allocator::problem::Problem;
use allot_allocator::{Allocator, ClaimShapes, Limits, Outcome, SelectorCache};
use serde_json::{Value, json};

use crate::make::{all, check, claim, device, first_available, problem, request, slice, solve};

/// Eight devices, of which no two are equal.
fn devices() -> Vec<Value> {
    let device = |n: i64| {
        let attributes = json!({"n": {"int": n}});
        device(&format!("d{n}"), json!({"attributes": attributes}))
    };
    vec![slice("p", (0..8).map(device).collect(), json!({}))]
}

fn limited(limit: i64, requests: Vec<Value>) -> Problem {
    let mut made = problem(devices(), vec![claim("c", requests, json!({}))]);
    made.device_limits.insert("any".into(), limit);
    made
}

#[test]
fn no_more_devices_than_the_limit_are_taken() {
    let two = || vec![request("r", 2, json!({}))];
    check(&limited(2, two()), "r=p/d0 r=p/d1");
    check(&limited(1, two()), "nothing");
    check(&limited(-3, two()), "nothing");
    let sum = vec![request("r", 1, json!({})), request("s", 2, json!({}))];
    check(&limited(3, sum.clone()), "r=p/d0 s=p/d1 s=p/d2");
    check(&limited(2, sum), "nothing");
    check(&limited(7, vec![all("r", json!({}))]), "nothing");
}

#[test]
fn an_alternative_over_the_limit_is_skipped() {
    let list = |name| {
        let alternatives = vec![("large", 4, json!({})), ("small", 1, json!({}))];
        first_available(name, alternatives)
    };
    check(&limited(3, vec![list("r")]), "r/small=p/d0");
    // The first list takes what it wants most, and the second one what is left.
    check(
        &limited(5, vec![list("r"), list("s")]),
        "r/large=p/d0 r/large=p/d1 r/large=p/d2 r/large=p/d3 s/small=p/d4",
    );
    // Unless nothing is left for it then.
    check(
        &limited(4, vec![list("r"), list("s")]),
        "r/small=p/d0 s/small=p/d1",
    );
}

#[test]
fn devices_with_admin_access_do_not_count() {
    let admin = request("r", 3, json!({"adminAccess": true}));
    check(&limited(0, vec![admin]), "r=p/d0 r=p/d1 r=p/d2");
}

/// Another choice of devices does not help, and is not tried.
#[test]
fn what_exceeds_a_limit_is_found_out_without_trying_devices() {
    let requests = vec![
        request("r", 4, json!({})),
        first_available("s", vec![("x", 3, json!({})), ("y", 4, json!({}))]),
    ];
    let made = limited(6, requests);
    let few = Limits {
        steps: 20,
        ..Limits::default()
    };
    assert_eq!(solve(&made, &few).0, "nothing");
}

#[test]
fn who_exceeds_what_is_told() {
    let list = first_available("s", vec![("x", 3, json!({})), ("y", 1, json!({}))]);
    let of = |limit| limited(limit, vec![request("r", 2, json!({})), list.clone()]);
    let told = |limit: i64| {
        let claims = of(limit).claims(&SelectorCache::new());
        let told = claims.excesses().into_iter();
        let told = told.map(|e| match e.alternative {
            Some((claim, request)) => format!("{claim} {request}: {} {}", e.class, e.needs),
            None => format!("all: {} {}", e.class, e.needs),
        });
        (told.collect::<Vec<_>>(), claims.exceed())
    };
    assert_eq!(told(2), (vec!["all: any 3".to_owned()], true));
    assert_eq!(told(4), (vec!["default/c s/x: any 5".to_owned()], false));
    assert_eq!(told(5), (vec![], false));
    let claims = of(4).claims(&SelectorCache::new());
    assert_eq!(claims.limited().collect::<Vec<_>>(), [("any", 5)]);
    assert!(!of(5).claims(&SelectorCache::new()).is_limited());
}

/// Answers are cached by what claims ask for, and a limit is a part of that.
#[test]
fn an_answer_is_for_claims_with_the_same_limit() {
    let (selectors, mut shapes) = (SelectorCache::new(), ClaimShapes::default());
    let mut allocator = Allocator::new();
    for limit in [5, 1, 2, 1, 5] {
        let made = limited(limit, vec![request("r", 2, json!({}))]);
        let mut claims = made.claims(&selectors);
        shapes.recognize(&mut claims);
        let (cluster, node) = (made.cluster(), &made.nodes()[0]);
        let outcome = allocator.allocate(&cluster, node, &claims, &Limits::default());
        let fits = matches!(outcome, Outcome::Allocated(_));
        assert_eq!(fits, limit >= 2, "{limit}");
    }
}
