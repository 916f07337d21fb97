//! The sequential model: a store in which every change has the next revision.

use std::collections::{BTreeMap, HashMap};

/// A version of an object, as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub revision: u64,
    pub value: String,
}

/// What a client asked for. Values of writes are different from one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Create(String, String),
    /// Key, value, and the required revision, if the client sets one.
    Update(String, String, Option<u64>),
    /// Key, and the revision that it must be at.
    Delete(String, u64),
    Get(String),
    List,
}

/// What the client was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Version(Version),
    Deleted,
    Listed(u64, BTreeMap<String, Version>),
    /// There is no such object.
    Absent,
    /// It was not done.
    Refused,
    /// The connection broke: done or not.
    Unknown,
}

/// One request, between two moments of one clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    pub begin: u64,
    pub end: u64,
    pub action: Action,
    pub outcome: Outcome,
}

impl Operation {
    /// The server said that it did what was asked.
    pub fn acknowledged(&self) -> bool {
        matches!(
            self.outcome,
            Outcome::Version(_) | Outcome::Deleted | Outcome::Listed(..)
        )
    }

    /// The newest revision that the answer proves.
    fn proves(&self) -> u64 {
        match &self.outcome {
            Outcome::Version(version) => version.revision,
            Outcome::Listed(revision, _) => *revision,
            _ => 0,
        }
    }
}

/// A change as a watcher got it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub kind: String,
    pub key: String,
    pub revision: u64,
    pub value: String,
}

/// The changes of one key: from which revision on it has which value, or none.
type Line = Vec<(u64, Option<String>)>;

/// The state that the log of changes leads through.
struct Model {
    lines: HashMap<String, Line>,
}

impl Model {
    fn line(&self, key: &str) -> &[(u64, Option<String>)] {
        self.lines.get(key).map_or(&[], Vec::as_slice)
    }

    /// The last change of a key up to a revision.
    fn at(&self, key: &str, revision: u64) -> Option<&(u64, Option<String>)> {
        let line = self.line(key);
        line[..line.partition_point(|(at, _)| *at <= revision)].last()
    }

    /// The revision at which the state of a key that holds at `revision` ends.
    fn until(&self, key: &str, revision: u64) -> u64 {
        let line = self.line(key);
        let next = line.get(line.partition_point(|(at, _)| *at <= revision));
        next.map_or(u64::MAX, |(at, _)| *at)
    }

    fn state(&self, revision: u64) -> BTreeMap<String, Version> {
        let present = |key: &String| {
            let (at, value) = self.at(key, revision)?;
            let value = value.clone()?;
            Some((
                key.clone(),
                Version {
                    revision: *at,
                    value,
                },
            ))
        };
        self.lines.keys().filter_map(present).collect()
    }
}

/// Everything that does not fit. The store was empty at revision `first`, and the logs begin there.
pub fn check(first: u64, operations: &[Operation], logs: &[Vec<Event>]) -> Vec<String> {
    let mut problems = Vec::new();
    let Some(log) = logs.first() else {
        return vec!["nobody watched".to_owned()];
    };
    for (number, other) in logs.iter().enumerate() {
        for pair in other.windows(2) {
            if pair[0].revision >= pair[1].revision {
                problems.push(format!(
                    "watcher {number}: {:?} came before {:?}",
                    pair[0], pair[1]
                ));
            }
        }
        if other != log {
            let at = log.iter().zip(other).position(|(a, b)| a != b);
            let at = at.unwrap_or(log.len().min(other.len()));
            problems.push(format!(
                "watchers differ at event {at}: {:?} and {:?}",
                log.get(at),
                other.get(at)
            ));
        }
    }
    let model = replay(first, log, &mut problems);
    let begins = writes(operations, log, &model, &mut problems);
    reads(operations, &model, &begins, &mut problems);
    problems
}

/// Carries out the log: a key is added where there is none, and changed and deleted where there is one.
fn replay(first: u64, log: &[Event], problems: &mut Vec<String>) -> Model {
    let mut lines: HashMap<String, Line> = HashMap::new();
    for event in log {
        let line = lines.entry(event.key.clone()).or_default();
        let present = line.last().is_some_and(|(_, value)| value.is_some());
        if (event.kind == "ADDED") == present || event.revision <= first {
            problems.push(format!("{event:?} cannot follow {:?}", line.last()));
        }
        let value = (event.kind != "DELETED").then(|| event.value.clone());
        line.push((event.revision, value));
    }
    Model { lines }
}

/// What was acknowledged happened, what was refused did not, and nothing else did. Answers when the write behind each
/// revision began.
fn writes(
    operations: &[Operation],
    log: &[Event],
    model: &Model,
    problems: &mut Vec<String>,
) -> Vec<(u64, u64)> {
    let mut begins = Vec::new();
    let mut by_value: HashMap<&str, &Event> = HashMap::new();
    let mut deletions: HashMap<(&str, u64), &Event> = HashMap::new();
    for event in log {
        if event.kind == "DELETED" {
            let before = model.at(&event.key, event.revision - 1);
            deletions.insert((&event.key, before.map_or(0, |(at, _)| *at)), event);
        } else if let Some(other) = by_value.insert(&event.value, event) {
            problems.push(format!("{other:?} and {event:?} come from one write"));
        }
    }
    for operation in operations {
        let (event, kind) = match &operation.action {
            Action::Create(_, value) => (by_value.remove(value.as_str()), "ADDED"),
            Action::Update(_, value, _) => (by_value.remove(value.as_str()), "MODIFIED"),
            Action::Delete(key, from) => {
                let event = deletions.get(&(key.as_str(), *from)).copied();
                if operation.outcome == Outcome::Deleted && event.is_none() {
                    problems.push(format!("{operation:?} is in no log"));
                }
                if operation.outcome == Outcome::Deleted {
                    begins.extend(event.map(|event| (operation.begin, event.revision)));
                }
                continue;
            }
            Action::Get(_) | Action::List => continue,
        };
        match (&operation.outcome, event) {
            (Outcome::Unknown, None) | (Outcome::Refused | Outcome::Absent, None) => {}
            (Outcome::Version(version), Some(event)) if event.revision == version.revision => {}
            (Outcome::Unknown, Some(_)) => {}
            (_, event) => problems.push(format!("{operation:?} was seen as {event:?}")),
        }
        let Some(event) = event else { continue };
        begins.push((operation.begin, event.revision));
        if event.kind != kind {
            problems.push(format!("{operation:?} was seen as {event:?}"));
        }
        if let Action::Update(key, _, Some(from)) = &operation.action {
            let before = model.at(key, event.revision - 1).map(|(at, _)| *at);
            if before != Some(*from) {
                problems.push(format!("{operation:?} replaced revision {before:?}"));
            }
        }
    }
    for event in by_value.values() {
        problems.push(format!("nobody wrote {event:?}"));
    }
    begins
}

/// A read shows a state not older than anything that was known before it began, and nothing of what began after it ended.
fn reads(
    operations: &[Operation],
    model: &Model,
    writes: &[(u64, u64)],
    problems: &mut Vec<String>,
) {
    let mut ends: Vec<&Operation> = operations.iter().collect();
    ends.sort_by_key(|operation| operation.end);
    let mut begins: Vec<&Operation> = operations.iter().collect();
    begins.sort_by_key(|operation| operation.begin);
    let (mut ended, mut floor) = (ends.into_iter().peekable(), 0);
    for operation in begins {
        while let Some(earlier) = ended.next_if(|other| other.end < operation.begin) {
            floor = floor.max(earlier.proves());
        }
        let later = writes.iter().filter(|(begin, _)| *begin > operation.end);
        let ceiling = later.map(|(_, at)| *at).min().unwrap_or(u64::MAX);
        let fits = match (&operation.action, &operation.outcome) {
            (Action::Get(key), Outcome::Version(version)) => {
                model.at(key, version.revision)
                    == Some(&(version.revision, Some(version.value.clone())))
                    && model.until(key, version.revision) > floor
                    && version.revision < ceiling
            }
            (Action::Get(key), Outcome::Absent) => absent_between(model.line(key), floor, ceiling),
            (Action::List, Outcome::Listed(revision, items)) => {
                (floor..ceiling).contains(revision) && *items == model.state(*revision)
            }
            _ => true,
        };
        if !fits {
            problems.push(format!(
                "{operation:?} does not fit, {floor} was known before, {ceiling} came after"
            ));
        }
    }
}

/// The key is absent at some revision from `floor` on, before `ceiling`.
fn absent_between(line: &[(u64, Option<String>)], floor: u64, ceiling: u64) -> bool {
    let reached = line.partition_point(|(at, _)| *at <= floor);
    let at_floor = reached.checked_sub(1).and_then(|at| line[at].1.as_ref());
    let mut later = line[reached..].iter().take_while(|(at, _)| *at < ceiling);
    at_floor.is_none() || later.any(|(_, value)| value.is_none())
}
