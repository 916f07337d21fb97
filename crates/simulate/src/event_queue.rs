//! What is going to happen, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use allot_scheduler::pod::Uid;

/// Something that happens at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A pod has run for its time.
    Ends(Uid),
    /// A pod that was deleted has stopped.
    Stopped(Uid),
    /// The next pods of the workload arrive.
    Arrival,
    /// The state is measured.
    Sample,
    /// Nothing happens; attempts that were put off go on.
    Resume,
}

/// Events by time; those of one time in the order in which they were planned.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    planned: u64,
}

impl EventQueue {
    pub(crate) fn plan(&mut self, at: Duration, event: Event) {
        self.planned += 1;
        self.heap.push(Reverse((at, self.planned, event)));
    }

    /// When the next event happens.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next event, if its time has come.
    pub(crate) fn due(&mut self, now: Duration) -> Option<Event> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((.., event))| event)
    }

    /// Whether nothing but measuring is planned.
    pub(crate) fn is_over(&self) -> bool {
        self.heap
            .iter()
            .all(|Reverse((.., event))| *event == Event::Sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_planned() {
        let mut agenda = EventQueue::default();
        let second = Duration::from_secs;
        agenda.plan(second(2), Event::Arrival);
        agenda.plan(second(1), Event::Ends("b".into()));
        agenda.plan(second(1), Event::Ends("a".into()));
        assert_eq!(agenda.due(Duration::ZERO), None);
        assert_eq!(agenda.due(second(1)), Some(Event::Ends("b".into())));
        assert_eq!(agenda.due(second(1)), Some(Event::Ends("a".into())));
        assert_eq!(agenda.due(second(1)), None);
        assert_eq!(agenda.next(), Some(second(2)));
        assert!(!agenda.is_over());
    }
}
