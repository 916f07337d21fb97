//! FlowSchemas and PriorityLevelConfigurations, compiled for requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderValue;
use serde_json::Value;

use super::seats::{LevelId, LevelSpec, Queuing, Seats};
use crate::identity::User;
use crate::object::{meta, strings, text};
use crate::request::RequestInfo;

/// The schema and the level for requests that match no other.
const CATCH_ALL: &str = "catch-all";

/// The method that distinguishes the flows of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distinguisher {
    User,
    Namespace,
}

/// The subject of a rule.
#[derive(Debug, PartialEq, Eq)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

impl Subject {
    fn of(value: &Value) -> Option<Self> {
        let text = |path: &[&str]| text(value, path).to_owned();
        match value["kind"].as_str()? {
            "User" => Some(Subject::User(text(&["user", "name"]))),
            "Group" => Some(Subject::Group(text(&["group", "name"]))),
            "ServiceAccount" => Some(Subject::ServiceAccount {
                namespace: text(&["serviceAccount", "namespace"]),
                name: text(&["serviceAccount", "name"]),
            }),
            _ => None,
        }
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Subject::User(name) => name == "*" || *name == user.name,
            Subject::Group(name) => name == "*" || user.in_group(name),
            Subject::ServiceAccount { namespace, name } => {
                user.service_account().is_some_and(|(in_namespace, named)| {
                    in_namespace == namespace && (name == "*" || named == name)
                })
            }
        }
    }
}

/// The list has the item, or is the wildcard alone.
fn covers(list: &[String], item: &str) -> bool {
    matches!(list, [only] if only == "*") || list.iter().any(|known| known == item)
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    cluster: bool,
    namespaces: Vec<String>,
}

impl ResourceRule {
    fn of(value: &Value) -> Self {
        ResourceRule {
            verbs: strings(&value["verbs"]),
            groups: strings(&value["apiGroups"]),
            resources: strings(&value["resources"]),
            cluster: value["clusterScope"].as_bool().unwrap_or_default(),
            namespaces: strings(&value["namespaces"]),
        }
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        let resource = |known: &String| match known.split_once('/') {
            Some((resource, subresource)) => {
                resource == info.resource && subresource == info.subresource
            }
            None => *known == info.resource && info.subresource.is_empty(),
        };
        covers(&self.verbs, &info.verb)
            && covers(&self.groups, &info.group)
            && (matches!(self.resources.as_slice(), [only] if only == "*")
                || self.resources.iter().any(resource))
            && match info.namespace.as_str() {
                "" => self.cluster,
                namespace => covers(&self.namespaces, namespace),
            }
    }
}

#[derive(Debug)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

impl PathRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let path = |known: &String| {
            if known == "*" || *known == info.path {
                return true;
            }
            let prefix = known.strip_suffix('*').unwrap_or(known);
            let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
            let rest = info.path.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        covers(&self.verbs, &info.verb) && self.paths.iter().any(path)
    }
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

impl Rule {
    fn of(value: &Value) -> Self {
        let list = |key: &str| value[key].as_array().into_iter().flatten();
        Rule {
            subjects: list("subjects").filter_map(Subject::of).collect(),
            resources: list("resourceRules").map(ResourceRule::of).collect(),
            paths: list("nonResourceRules")
                .map(|rule| PathRule {
                    verbs: strings(&rule["verbs"]),
                    paths: strings(&rule["nonResourceURLs"]),
                })
                .collect(),
        }
    }

    fn matches(&self, info: &RequestInfo, user: &User) -> bool {
        self.subjects.iter().any(|subject| subject.is(user))
            && match info.is_resource {
                true => self.resources.iter().any(|rule| rule.matches(info)),
                false => self.paths.iter().any(|rule| rule.matches(info)),
            }
    }
}

/// A FlowSchema.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) name: Arc<str>,
    pub(super) uid: HeaderValue,
    precedence: i64,
    /// Index of the level.
    pub(super) level: usize,
    distinguisher: Option<Distinguisher>,
    rules: Vec<Rule>,
}

impl Schema {
    /// The flow of a request in this schema.
    pub(super) fn flow<'a>(&self, info: &'a RequestInfo, user: &'a User) -> &'a str {
        match self.distinguisher {
            Some(Distinguisher::User) => &user.name,
            Some(Distinguisher::Namespace) => &info.namespace,
            None => "",
        }
    }
}

/// A PriorityLevelConfiguration.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) name: Arc<str>,
    pub(super) uid: HeaderValue,
    pub(super) kind: LevelKind,
    /// Most seats of one request.
    pub(super) most_seats: usize,
}

/// The `type` of a PriorityLevelConfiguration.
#[derive(Debug)]
pub(super) enum LevelKind {
    /// Its requests need seats.
    Limited(LevelId),
    /// Its requests are only counted; the configuration is for metrics.
    Exempt(LevelSpec),
}

/// All of them at one moment.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) schemas: Vec<Schema>,
    pub(super) levels: Vec<Level>,
}

impl Rules {
    /// Reads the objects, and gives the levels their parts of `total` seats.
    pub(super) fn new(
        levels: &[Value],
        schemas: &[Value],
        total: usize,
        seats: &mut Seats,
    ) -> Self {
        let (specs, mut exempt) = level_specs(levels, total);
        let most: Vec<(Arc<str>, usize)> = specs
            .iter()
            .map(|spec| (spec.name.clone(), spec.widest()))
            .collect();
        let ids = seats.configure(specs);
        let levels: Vec<Level> = levels
            .iter()
            .filter_map(|level| {
                let name: Arc<str> = meta(level, "name").into();
                let kind = match exempt.remove(&name) {
                    Some(spec) => LevelKind::Exempt(spec),
                    None => LevelKind::Limited(*ids.get(&name)?),
                };
                Some(Level {
                    uid: header(meta(level, "uid")),
                    kind,
                    most_seats: most
                        .iter()
                        .find(|(known, _)| *known == name)
                        .map_or(1, |(_, most)| *most),
                    name,
                })
            })
            .collect();
        let mut schemas: Vec<Schema> = schemas
            .iter()
            .filter_map(|schema| Schema::of(schema, &levels))
            .collect();
        schemas.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        Rules { schemas, levels }
    }

    /// The schema of a request, as its place in the list.
    pub(super) fn find(&self, info: &RequestInfo, user: &User) -> Option<usize> {
        let matches = |schema: &Schema| schema.rules.iter().any(|rule| rule.matches(info, user));
        let schemas = &self.schemas;
        schemas
            .iter()
            .position(matches)
            .or_else(|| schemas.iter().position(|it| &*it.name == CATCH_ALL))
    }
}

impl Schema {
    /// `None` if its level does not exist.
    fn of(value: &Value, levels: &[Level]) -> Option<Self> {
        let spec = &value["spec"];
        let wanted = text(spec, &["priorityLevelConfiguration", "name"]);
        let level = levels.iter().position(|level| *level.name == *wanted)?;
        let rules = spec["rules"].as_array().into_iter().flatten();
        Some(Schema {
            name: meta(value, "name").into(),
            uid: header(meta(value, "uid")),
            // The default of the API.
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            level,
            distinguisher: match text(spec, &["distinguisherMethod", "type"]) {
                "ByUser" => Some(Distinguisher::User),
                "ByNamespace" => Some(Distinguisher::Namespace),
                _ => None,
            },
            rules: rules.map(Rule::of).collect(),
        })
    }
}

fn header(uid: &str) -> HeaderValue {
    HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""))
}

/// The limited levels with their parts of all seats, and those that are exempt, by name.
fn level_specs(levels: &[Value], total: usize) -> (Vec<LevelSpec>, Exempted) {
    let limited = |level: &&Value| level["spec"]["type"] != "Exempt";
    let shares = |level: &Value, kind: &str, default: f64| {
        let shares = &level["spec"][kind]["nominalConcurrencyShares"];
        shares.as_f64().unwrap_or(default).max(0.0)
    };
    // Levels that are exempt have shares, too: what they do not use is for others.
    let sum: f64 = levels
        .iter()
        .map(|level| match limited(&level) {
            true => shares(level, "limited", 30.0),
            false => shares(level, "exempt", 0.0),
        })
        .sum();
    let spec = |level: &Value, kind: &str, default: f64| {
        let limited = &level["spec"][kind];
        let share = shares(level, kind, default) / sum.max(1.0);
        let nominal = (total as f64 * share).ceil() as usize;
        let percent = |value: &Value| {
            let percent = value.as_f64()?.clamp(0.0, 100_000.0);
            Some((nominal as f64 * percent / 100.0).round() as usize)
        };
        let queuing = &limited["limitResponse"]["queuing"];
        let number = |key: &str, default: u64| {
            let number = queuing[key].as_u64().unwrap_or(default);
            usize::try_from(number).unwrap_or(usize::MAX)
        };
        let queues = limited["limitResponse"]["type"] == "Queue";
        LevelSpec {
            name: meta(level, "name").into(),
            nominal,
            lendable: percent(&limited["lendablePercent"])
                .unwrap_or(0)
                .min(nominal),
            borrowable: percent(&limited["borrowingLimitPercent"]).unwrap_or(usize::MAX),
            queuing: queues.then(|| Queuing {
                queues: number("queues", 64).clamp(1, MOST_QUEUES),
                hand: number("handSize", 8),
                length: number("queueLengthLimit", 50),
            }),
        }
    };
    let (limited, exempt): (Vec<&Value>, Vec<&Value>) = levels.iter().partition(limited);
    let limited = limited.into_iter().map(|it| spec(it, "limited", 30.0));
    let exempt = exempt.into_iter().map(|it| {
        let spec = spec(it, "exempt", 0.0);
        (spec.name.clone(), spec)
    });
    (limited.collect(), exempt.collect())
}

type Exempted = BTreeMap<Arc<str>, LevelSpec>;

/// Queues of one level; the API allows more than any server needs.
const MOST_QUEUES: usize = 10_000;
