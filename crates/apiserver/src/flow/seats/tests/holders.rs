//! What one busy user, or a few, leave to others.

use super::*;

/// The level that service accounts have among the default ones, with the seats of the default limits.
fn workload(queues: usize) -> LevelSpec {
    LevelSpec {
        queuing: Some(Queuing {
            queues,
            hand: 6.min(queues),
            length: 50,
        }),
        ..spec("a", 245, 0, queues)
    }
}

/// Service account `account` of namespace `namespace`.
fn account(namespace: u64, account: u64) -> Sender {
    let number = namespace * 1_000_003 + account * 7_919;
    Sender {
        flow: number,
        user: number,
        owner: namespace,
    }
}

fn check_starts(fixture: &mut Fixture, sender: Sender, what: &str) {
    let arrival = fixture.arrive_from("a", sender, 1);
    let Arrival::Wait(ticket, _) = arrival else {
        assert!(matches!(arrival, Arrival::Start(_)), "{what}: {arrival:?}");
        return;
    };
    let started = fixture.dispatch();
    assert!(started.contains(&ticket.id()), "{what}: it waits");
}

/// 200 connections of one user, each of which lists a megabyte, had all seats; a GET of another user waited until one
/// of the lists had ended, and they all ended late.
#[test]
fn regression_a_busy_user_leaves_seats_to_others() {
    let mut fixture = Fixture::new(vec![workload(128)]);
    for _ in 0..200 {
        fixture.arrive_from("a", account(1, 1), 10);
    }
    let used = fixture.seats.used;
    assert!((170..=190).contains(&used), "{used} of 245 seats");
    check_starts(&mut fixture, account(2, 1), "another user");
    check_starts(
        &mut fixture,
        account(1, 2),
        "another account in its namespace",
    );
    // It waits for itself only, and has the same seats for as long as it is busy.
    for _ in 0..300 {
        let lists = fixture.running.iter();
        let list = lists.enumerate().find(|(_, (_, it))| it.seats == 10);
        let place = list.map(|(place, _)| place).unwrap();
        fixture.finish(place);
        fixture.arrive_from("a", account(1, 1), 10);
        assert!(fixture.seats.used.abs_diff(used) <= 12);
        check_starts(&mut fixture, account(3, 1), "another user, later");
        let last = fixture.running.len() - 1;
        fixture.finish(last);
    }
}

/// With a single queue all requests wait in the same line.
#[test]
fn regression_a_busy_user_does_not_stand_before_others_in_their_queue() {
    let mut fixture = Fixture::new(vec![workload(1)]);
    for _ in 0..60 {
        fixture.arrive_from("a", account(1, 1), 10);
    }
    assert!(!fixture.waiting.is_empty());
    check_starts(&mut fixture, account(2, 1), "another user");
}

/// A user that may create service accounts has as many as it likes.
#[test]
fn regression_the_accounts_of_a_namespace_leave_seats_to_others() {
    let mut fixture = Fixture::new(vec![workload(128)]);
    for number in 0..2000 {
        fixture.arrive_from("a", account(1, number), 1);
    }
    assert!(fixture.seats.waiting > 1000);
    for number in 0..10 {
        check_starts(&mut fixture, account(2, number), "another namespace");
    }
}

#[test]
fn a_few_busy_users_leave_seats_as_well() {
    for users in 1..=20 {
        let mut fixture = Fixture::new(vec![workload(128)]);
        for _ in 0..100 {
            for number in 0..users {
                fixture.arrive_from("a", account(number, 1), 10);
            }
        }
        let what = format!("{users} busy users");
        check_starts(&mut fixture, account(1000, 1), &what);
    }
}

/// Borrowed seats count: a user that borrows all that others lend leaves some of these.
#[test]
fn a_busy_user_leaves_seats_of_what_it_borrows() {
    let mut fixture = Fixture::new(vec![workload(128), spec("lender", 100, 60, 4)]);
    for _ in 0..200 {
        fixture.arrive_from("a", account(1, 1), 10);
    }
    assert!(fixture.seats.used > 200, "{}", fixture.seats.used);
    check_starts(&mut fixture, account(2, 1), "another user");
    for number in 0..40 {
        assert!(matches!(
            fixture.arrive("lender", number, 1),
            Arrival::Start(_)
        ));
    }
}

#[test]
fn the_smallest_levels_serve_a_single_user() {
    for nominal in 0..4 {
        let mut fixture = Fixture::new(vec![spec("a", nominal, 0, 2)]);
        for _ in 0..20 {
            fixture.arrive("a", 1, 1);
        }
        assert!(!fixture.running.is_empty(), "{nominal} seats");
        while !fixture.running.is_empty() {
            fixture.finish(0);
        }
        assert_eq!(fixture.seats.waiting, 0, "{nominal} seats");
    }
}

proptest! {
    /// Whatever one user does, on as many flows as it likes: another one is dispatched after no completion at all.
    #[test]
    fn one_user_never_keeps_another_waiting(
        nominal in 4..300usize,
        queues in 1..20usize,
        steps in proptest::collection::vec((0..8u64, 1..=10usize, any::<bool>(), any::<usize>()), 1..300),
    ) {
        let mut fixture = Fixture::new(vec![spec("a", nominal, 0, queues)]);
        let widest = fixture.seats.levels.values().map(|level| level.spec.widest()).max();
        for (flow, seats, ends, which) in steps {
            let sender = Sender { flow: flow * 7_919, ..user(1) };
            fixture.arrive_from("a", sender, seats.min(widest.unwrap_or(1)));
            fixture.dispatch();
            if ends && !fixture.running.is_empty() {
                fixture.finish(which % fixture.running.len());
            }
            let arrival = fixture.seats.arrive(fixture.names["a"], user(2), 1, fixture.now);
            let running = match arrival {
                Arrival::Start(running) => running,
                Arrival::Wait(ticket, _) => {
                    let next = fixture.seats.dispatch(fixture.now);
                    prop_assert_eq!(next.map(|(id, _)| id), Some(ticket.id()), "it waits");
                    next.unwrap().1
                }
                Arrival::Refuse(why) => return Err(TestCaseError::fail(why.name())),
            };
            fixture.seats.finish(running, fixture.now);
            fixture.dispatch();
        }
    }

    /// What a user leaves to others is not more than a third, beside room for one request: it can use the rest.
    #[test]
    fn a_lone_user_has_most_of_a_level(nominal in 4..300usize) {
        let mut fixture = Fixture::new(vec![spec("a", nominal, 0, 64)]);
        for _ in 0..nominal {
            fixture.arrive("a", 1, 1);
        }
        let widest = fixture.seats.levels.values().map(|level| level.spec.widest()).max();
        let wanted = (nominal - widest.unwrap_or(1)) * 3 / 4;
        prop_assert!(fixture.seats.used >= wanted, "{} of {}", fixture.seats.used, nominal);
    }
}
