use super::*;

fn check(method: &str, target: &str, want: &str) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let info = RequestInfo::parse(&method.parse().unwrap(), path, &Query::parse(Some(query)));
    let got = if info.is_resource {
        format!(
            "{} {}/{} ns={} {}/{}/{} {}",
            info.verb,
            info.group,
            info.version,
            info.namespace,
            info.resource,
            info.name,
            info.subresource,
            info.rest.join("/")
        )
    } else {
        format!("{} path", info.verb)
    };
    assert_eq!(got.trim_end(), want, "{method} {target}");
}

#[test]
fn paths_are_taken_apart() {
    check("GET", "/api/v1/pods", "list /v1 ns= pods//");
    check(
        "GET",
        "/api/v1/namespaces/a/pods?watch=true",
        "watch /v1 ns=a pods//",
    );
    check(
        "GET",
        "/api/v1/namespaces/a/pods?watch=0",
        "list /v1 ns=a pods//",
    );
    check(
        "GET",
        "/api/v1/namespaces/a/pods/p/log",
        "get /v1 ns=a pods/p/log",
    );
    check(
        "DELETE",
        "/apis/apps/v1/namespaces/a/deployments",
        "deletecollection apps/v1 ns=a deployments//",
    );
    check(
        "PATCH",
        "/apis/apps/v1/namespaces/a/deployments/d/scale",
        "patch apps/v1 ns=a deployments/d/scale",
    );
    check(
        "GET",
        "/api/v1/nodes/n/proxy/pods/x",
        "get /v1 ns= nodes/n/proxy pods/x",
    );
}

#[test]
fn namespaces_are_resources_too() {
    check("GET", "/api/v1/namespaces", "list /v1 ns= namespaces//");
    check("GET", "/api/v1/namespaces/a", "get /v1 ns=a namespaces/a/");
    check(
        "PUT",
        "/api/v1/namespaces/a/finalize",
        "update /v1 ns=a namespaces/a/finalize",
    );
    check(
        "PATCH",
        "/api/v1/namespaces/a/status",
        "patch /v1 ns=a namespaces/a/status",
    );
}

#[test]
fn old_watch_paths() {
    check(
        "GET",
        "/api/v1/watch/namespaces/a/pods",
        "watch /v1 ns=a pods//",
    );
    check(
        "GET",
        "/api/v1/watch/namespaces/a/pods/p",
        "watch /v1 ns=a pods/p/",
    );
}

/// What follows the subresource of a namespace is no resource in it, whatever it is called.
#[test]
fn subresources_of_namespaces_stay_those() {
    for (path, want) in [
        (
            "/api/v1/namespaces/a/status/b",
            "get /v1 ns=a namespaces/a/status b",
        ),
        (
            "/api/v1/namespaces/a/finalize/b/c",
            "get /v1 ns=a namespaces/a/finalize b/c",
        ),
    ] {
        check("GET", path, want);
    }
}

#[test]
fn old_proxy_paths_have_no_subresource() {
    check(
        "GET",
        "/api/v1/proxy/nodes/n/a/b",
        "proxy /v1 ns= nodes/n/ a/b",
    );
    check(
        "DELETE",
        "/api/v1/proxy/namespaces/a/pods/p",
        "proxy /v1 ns=a pods/p/",
    );
}

#[test]
fn a_path_can_end_before_its_resource() {
    for (path, is_cut) in [
        ("/api/v1/watch", true),
        ("/api/v1/proxy/", true),
        ("/apis/apps/v1/watch", true),
        ("/api/v1/watch/pods", false),
        ("/api/v1/pods/watch", false),
        ("/api/watch", false),
    ] {
        let info = RequestInfo::parse(&Method::GET, path, &Query::parse(None));
        assert_eq!(info.is_cut, is_cut, "{path}");
    }
}

#[test]
fn paths_without_a_resource_have_a_verb_and_no_resource() {
    check("GET", "/healthz", "get path");
    check("GET", "/apis/apps/v1", "get path");
    check("GET", "/", "get path");
}

#[test]
fn durations_are_parsed_as_go_does() {
    for good in ["0", "1s", "-1s", "1m30s", "1.5h", "100ms", "+3us"] {
        assert_eq!(parse_duration(good).map(|_| ()), Ok(()), "{good}");
    }
    for (bad, why) in [
        ("bad", "time: invalid duration \"bad\""),
        ("", "time: invalid duration \"\""),
        ("10", "time: missing unit in duration \"10\""),
        ("10x", "time: unknown unit \"x\" in duration \"10x\""),
        ("1..5s", "time: invalid duration \"1..5s\""),
    ] {
        assert_eq!(parse_duration(bad).unwrap_err().to_string(), why);
    }
}

#[test]
fn escaped_slashes_and_empty_parts_are_parts() {
    let of = |path: &str| RequestInfo::parse(&Method::GET, path, &Query::default());
    let escaped = of("/apis/g/v1/namespaces/n/things/a%2Fb");
    assert_eq!(
        (escaped.name.as_str(), escaped.subresource.as_str()),
        ("a", "b")
    );
    let empty = of("/apis/g/v1/namespaces/n/things//a");
    assert_eq!((empty.name.as_str(), empty.subresource.as_str()), ("", "a"));
}
