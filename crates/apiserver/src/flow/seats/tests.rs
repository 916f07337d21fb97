use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

mod holders;

fn spec(name: &str, nominal: usize, lendable: usize, queues: usize) -> LevelSpec {
    LevelSpec {
        name: name.into(),
        nominal,
        lendable,
        borrowable: usize::MAX,
        queuing: (queues > 0).then_some(Queuing {
            queues,
            hand: 2.min(queues),
            length: 50,
        }),
    }
}

/// A user with one flow.
fn user(number: u64) -> Sender {
    Sender {
        flow: number,
        user: number,
        owner: number,
    }
}

/// Runs what comes until nothing waits; each request takes `took` seconds.
struct Fixture {
    seats: Seats,
    names: BTreeMap<Arc<str>, LevelId>,
    running: Vec<(u64, Running)>,
    waiting: Vec<Ticket>,
    now: f64,
}

impl Fixture {
    fn new(specs: Vec<LevelSpec>) -> Self {
        let mut seats = Seats::default();
        let names = seats.configure(specs);
        Fixture {
            seats,
            names,
            running: Vec::new(),
            waiting: Vec::new(),
            now: 0.0,
        }
    }

    fn arrive(&mut self, level: &str, number: u64, seats: usize) -> Arrival {
        self.arrive_from(level, user(number), seats)
    }

    fn arrive_from(&mut self, level: &str, sender: Sender, seats: usize) -> Arrival {
        self.now += 1e-4;
        let arrival = self
            .seats
            .arrive(self.names[level], sender, seats, self.now);
        match arrival {
            Arrival::Start(running) => self.running.push((0, running)),
            Arrival::Wait(ticket, _) => self.waiting.push(ticket),
            Arrival::Refuse(_) => {}
        }
        self.check();
        arrival
    }

    fn finish(&mut self, index: usize) -> Vec<u64> {
        self.now += 1e-3;
        let (_, running) = self.running.swap_remove(index);
        self.seats.finish(running, self.now);
        self.dispatch()
    }

    fn dispatch(&mut self) -> Vec<u64> {
        let mut started = Vec::new();
        while let Some((ticket, running)) = self.seats.dispatch(self.now) {
            self.waiting.retain(|known| known.id() != ticket);
            self.running.push((ticket, running));
            started.push(ticket);
            self.check();
        }
        started
    }

    /// Seats are not used twice, and what levels do not lend is there for them.
    fn check(&self) {
        let used: usize = self.running.iter().map(|(_, running)| running.seats).sum();
        assert_eq!(used, self.seats.used);
        // A level without nominal seats takes one more.
        if self
            .seats
            .levels
            .values()
            .all(|level| level.spec.nominal > 0)
        {
            assert!(used + self.seats.kept <= self.seats.total, "{used} seats");
        }
        let levels = || self.seats.levels.values();
        assert_eq!(levels().map(|level| level.used).sum::<usize>(), used);
        let waiting = levels().map(|level| level.waiting).sum::<usize>();
        assert_eq!(waiting, self.seats.waiting);
        assert_eq!(self.seats.waiting, self.waiting.len());
        for level in self.seats.levels.values() {
            let active = level
                .queues
                .iter()
                .filter(|queue| queue.is_active())
                .count();
            assert_eq!(active, level.active_queues);
            assert_eq!(level.holders.sums(), (level.used, level.waiting));
        }
    }
}

#[test]
fn a_level_without_queues_refuses_what_does_not_fit() {
    let mut fixture = Fixture::new(vec![spec("a", 2, 0, 0), spec("b", 2, 0, 0)]);
    assert!(matches!(fixture.arrive("a", 1, 1), Arrival::Start(_)));
    assert!(matches!(fixture.arrive("a", 2, 1), Arrival::Start(_)));
    assert_eq!(
        fixture.arrive("a", 3, 1),
        Arrival::Refuse(Refusal::ConcurrencyLimit)
    );
    assert!(matches!(fixture.arrive("b", 1, 2), Arrival::Start(_)));
}

#[test]
fn a_full_queue_refuses() {
    let mut fixture = Fixture::new(vec![spec("a", 1, 0, 1)]);
    fixture.arrive("a", 1, 1);
    for _ in 0..50 {
        assert!(matches!(fixture.arrive("a", 1, 1), Arrival::Wait(..)));
    }
    assert_eq!(
        fixture.arrive("a", 1, 1),
        Arrival::Refuse(Refusal::QueueFull)
    );
}

#[test]
fn many_flows_do_not_keep_another_waiting() {
    let mut fixture = Fixture::new(vec![spec("a", 2, 0, 64)]);
    // Each of these users is new, so that together they have all seats.
    for number in 0..60 {
        fixture.arrive("a", 7 + 64 * 63 * number, 1);
    }
    let Arrival::Wait(ticket, _) = fixture.arrive("a", 1_234_567, 1) else {
        panic!("the level is full");
    };
    // Each queue of the other flows gets its turn at most once before.
    let mut before = 0;
    while !fixture.finish(0).contains(&ticket.id()) {
        before += 1;
        assert!(before <= 3, "{before} others came first");
    }
}

#[test]
fn seats_are_lent_and_come_back() {
    let mut fixture = Fixture::new(vec![spec("lender", 10, 5, 4), spec("borrower", 2, 0, 4)]);
    for flow in 0..20 {
        fixture.arrive("borrower", flow, 1);
    }
    // Its own two and the five that are lent.
    assert_eq!(fixture.running.len(), 7);
    for flow in 0..10 {
        fixture.arrive("lender", flow, 1);
    }
    assert_eq!(fixture.running.len(), 12);
    // The owner gets freed seats until it has all of its nominal ones.
    for _ in 0..5 {
        let borrowed = fixture.names["borrower"];
        let index = fixture
            .running
            .iter()
            .position(|(_, it)| it.level == borrowed);
        fixture.finish(index.unwrap());
    }
    let used = |name: &str| fixture.seats.levels[&fixture.names[name]].used;
    assert_eq!((used("lender"), used("borrower")), (10, 2));
}

#[test]
fn a_level_that_is_gone_is_worked_off() {
    let mut fixture = Fixture::new(vec![spec("a", 1, 0, 4), spec("b", 1, 0, 4)]);
    fixture.arrive("a", 1, 1);
    fixture.arrive("a", 1, 1);
    fixture.names = fixture.seats.configure(vec![spec("b", 1, 0, 4)]);
    assert_eq!(fixture.finish(0).len(), 1);
    fixture.finish(0);
    assert_eq!(fixture.seats.levels.len(), 1);
}

#[test]
fn a_hand_has_different_queues() {
    let level = Level::new(spec("a", 1, 0, 8));
    let mut seen = std::collections::BTreeSet::new();
    for flow in 0..10_000 {
        seen.insert(level.deal(level.spec.queuing.unwrap(), flow));
    }
    assert_eq!(seen.len(), 8);
}

#[derive(Debug, Clone)]
enum Step {
    Arrive(bool, u64, usize),
    Finish(usize),
    Cancel(usize),
    Configure(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<bool>(), 0..6u64, 1..4usize).prop_map(|(a, f, s)| Step::Arrive(a, f * 7919, s)),
        3 => any::<usize>().prop_map(Step::Finish),
        1 => any::<usize>().prop_map(Step::Cancel),
    ]
}

fn configure() -> impl Strategy<Value = Step> {
    (1..9usize, 0..9usize).prop_map(|(nominal, lent)| Step::Configure(nominal, lent.min(nominal)))
}

fn level_name(first: bool) -> &'static str {
    if first { "a" } else { "b" }
}

proptest! {
    /// Whatever comes: seats are never used twice, and all that waits is started once what runs ends.
    #[test]
    fn seats_hold_and_nothing_starves(steps in proptest::collection::vec(step(), 1..200)) {
        let mut fixture = Fixture::new(vec![spec("a", 5, 3, 4), spec("b", 4, 1, 4)]);
        for step in steps {
            match step {
                Step::Arrive(first, flow, seats) => {
                    fixture.arrive(level_name(first), flow, seats);
                }
                Step::Finish(index) if !fixture.running.is_empty() => {
                    fixture.finish(index % fixture.running.len());
                }
                Step::Cancel(index) if !fixture.waiting.is_empty() => {
                    let ticket = fixture.waiting.swap_remove(index % fixture.waiting.len());
                    prop_assert!(fixture.seats.cancel(ticket, fixture.now));
                    prop_assert!(!fixture.seats.cancel(ticket, fixture.now));
                    fixture.dispatch();
                }
                _ => {}
            }
            fixture.check();
        }
        while !fixture.running.is_empty() {
            fixture.finish(0);
        }
        prop_assert_eq!(fixture.waiting.len(), 0);
    }

    /// A new configuration loses nothing.
    #[test]
    fn configurations_change_under_load(steps in proptest::collection::vec(
        prop_oneof![5 => step(), 1 => configure()], 1..100)) {
        let mut fixture = Fixture::new(vec![spec("a", 5, 3, 4), spec("b", 4, 1, 4)]);
        for step in steps {
            match step {
                Step::Arrive(first, flow, seats) => {
                    let arrival = fixture.seats.arrive(fixture.names[level_name(first)], user(flow), seats, fixture.now);
                    match arrival {
                        Arrival::Start(running) => fixture.running.push((0, running)),
                        Arrival::Wait(ticket, _) => fixture.waiting.push(ticket),
                        Arrival::Refuse(_) => {}
                    }
                }
                Step::Finish(index) if !fixture.running.is_empty() => {
                    let (_, running) = fixture.running.swap_remove(index % fixture.running.len());
                    fixture.seats.finish(running, fixture.now);
                }
                Step::Configure(nominal, lendable) => {
                    fixture.names = fixture.seats.configure(vec![spec("a", nominal, lendable, 6), spec("b", 2, 0, 2)]);
                }
                _ => {}
            }
            while let Some((ticket, running)) = fixture.seats.dispatch(fixture.now) {
                fixture.waiting.retain(|known| known.id() != ticket);
                fixture.running.push((ticket, running));
            }
        }
        while let Some((_, running)) = fixture.running.pop() {
            fixture.seats.finish(running, fixture.now);
            while let Some((ticket, running)) = fixture.seats.dispatch(fixture.now) {
                fixture.waiting.retain(|known| known.id() != ticket);
                fixture.running.push((ticket, running));
            }
        }
        prop_assert_eq!(fixture.waiting.len(), 0);
        prop_assert_eq!(fixture.seats.used, 0);
    }
}
