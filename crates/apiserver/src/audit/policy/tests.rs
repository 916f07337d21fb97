use http::Method;

use super::*;
use crate::request::Query;

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [quiet]
- level: None
  nonResourceURLs: ['/healthz*', /version]
- level: RequestResponse
  resources:
  - group: ''
    resources: [pods, pods/log]
    resourceNames: [one]
- level: Request
  verbs: [create]
  namespaces: [team]
  omitManagedFields: true
- level: Metadata
  userGroups: [people]
  resources:
  - group: apps
  - group: ''
    resources: ['*/status', 'nodes/*']
  omitStages: [Panic]
";

fn check(policy: &Policy, user: &User, request: &str, level: Level) {
    let (method, path) = request.split_once(' ').unwrap();
    let method: Method = method.parse().unwrap();
    let info = RequestInfo::parse(&method, path, &Query::default());
    assert_eq!(
        policy.rule(&info, user).level,
        level,
        "{} {request}",
        user.name
    );
}

#[test]
fn the_first_rule_that_matches_decides() {
    let policy = Policy::parse(POLICY).unwrap();
    let quiet = User::new("quiet", ["people"]);
    let jane = User::new("jane", ["people"]);
    let other = User::new("other", [] as [&str; 0]);
    for (user, request, level) in [
        (&quiet, "GET /api/v1/namespaces/team/pods/one", Level::None),
        (&jane, "GET /healthz/etcd", Level::None),
        (&jane, "GET /version", Level::None),
        (&jane, "GET /versions", Level::None),
        (
            &jane,
            "GET /api/v1/namespaces/x/pods/one",
            Level::RequestResponse,
        ),
        (
            &jane,
            "GET /api/v1/namespaces/x/pods/one/log",
            Level::RequestResponse,
        ),
        (&jane, "GET /api/v1/namespaces/x/pods/one/exec", Level::None),
        (&jane, "GET /api/v1/namespaces/x/pods/two", Level::None),
        (
            &other,
            "POST /api/v1/namespaces/team/secrets",
            Level::Request,
        ),
        (&other, "POST /api/v1/namespaces/else/secrets", Level::None),
        (&jane, "GET /apis/apps/v1/deployments", Level::Metadata),
        (&other, "GET /apis/apps/v1/deployments", Level::None),
        (
            &jane,
            "PUT /api/v1/namespaces/x/pods/two/status",
            Level::Metadata,
        ),
        (&jane, "GET /api/v1/nodes/n", Level::Metadata),
        (&jane, "GET /api/v1/nodes/n/proxy", Level::Metadata),
    ] {
        check(&policy, user, request, level);
    }
    let info = RequestInfo::parse(&Method::GET, "/apis/apps/v1/deployments", &Query::default());
    let decision = Decision {
        level: Level::Metadata,
        omit: vec![Stage::RequestReceived, Stage::Panic],
        omit_managed_fields: false,
    };
    assert_eq!(policy.rule(&info, &jane), decision);
}

#[test]
fn regression_a_rule_for_all_groups_applies_to_each_group() {
    let policy = Policy::parse(
        "
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: RequestResponse
  resources:
  - group: '*'
    resources: [secrets, deployments, '*/scale']
- level: Metadata
  namespaces: [team]
  resources:
  - group: '*'
",
    )
    .unwrap();
    let jane = User::new("jane", [] as [&str; 0]);
    for (request, level) in [
        ("GET /api/v1/namespaces/x/secrets/a", Level::RequestResponse),
        (
            "POST /apis/apps/v1/namespaces/x/deployments",
            Level::RequestResponse,
        ),
        (
            "PUT /apis/example.com/v1/namespaces/x/things/a/scale",
            Level::RequestResponse,
        ),
        (
            "GET /apis/apps/v1/namespaces/x/deployments/a/status",
            Level::None,
        ),
        ("GET /apis/batch/v1/namespaces/team/jobs", Level::Metadata),
        ("GET /api/v1/namespaces/team/pods", Level::Metadata),
        ("GET /apis/batch/v1/namespaces/x/jobs", Level::None),
        ("GET /version", Level::None),
    ] {
        check(&policy, &jane, request, level);
    }
}

#[test]
fn policies_are_checked() {
    let with = |rules: &str| {
        Policy::parse(&format!(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{rules}]"
        ))
    };
    assert!(with("{level: Metadata}").is_ok());
    let path = "{level: None, nonResourceURLs: [/é, '/é*', '*']}";
    assert!(with(path).is_ok());
    for (rules, why) in [
        ("", "0 rules"),
        ("{level: Everything}", "Everything"),
        ("{level: None, nonsense: true}", "nonsense"),
        (
            "{level: None, nonResourceURLs: [/a], namespaces: [b]}",
            "cannot apply to both",
        ),
        (
            "{level: None, nonResourceURLs: [a]}",
            "must begin with a '/'",
        ),
        (
            "{level: None, nonResourceURLs: ['/a*b']}",
            "must be the final character",
        ),
        (
            "{level: None, nonResourceURLs: ['/**']}",
            "must be the final character",
        ),
        (
            "{level: None, resources: [{group: apps/v1}]}",
            "a lowercase RFC 1123 subdomain",
        ),
        (
            "{level: None, resources: [{group: '*.k8s.io'}]}",
            "a lowercase RFC 1123 subdomain",
        ),
        (
            "{level: None, resources: [{resourceNames: [a]}]}",
            "requires at least one resource",
        ),
    ] {
        let error = with(rules).unwrap_err();
        assert!(error.contains(why), "{rules}: {error}");
    }
    let old = "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]";
    assert!(Policy::parse(old).is_err());
}
