//! A request that does the work of two verbs takes the rights to both.

use allot_apiserver::{Config, Server};
use allot_model::features::{Features, Release};
use serde_json::{Value, json};

use super::kit::{RBAC, allow, check};
use crate::{admin, with_config};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

fn map(name: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"k": "v"}})
}

fn lease(name: &str) -> Value {
    json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": name}})
}

#[tokio::test]
async fn what_is_not_there_is_created_by_those_who_may_create() {
    let server = Server::in_memory().await.unwrap();
    let patcher = allow(
        &server,
        "patcher",
        "get patch update|- coordination.k8s.io|configmaps leases",
    )
    .await;
    let named = allow(
        &server,
        "named",
        "patch|-|configmaps; create|-|configmaps|mine",
    )
    .await;
    let creator = allow(
        &server,
        "creator",
        "patch create update|- coordination.k8s.io|configmaps leases",
    )
    .await;
    let refused = |user: &str, plural: &str, group: &str, name: &str| {
        let resource = match group {
            "" => plural.to_owned(),
            group => format!("{plural}.{group}"),
        };
        format!(
            "403 {resource} {name:?} is forbidden: User {user:?} cannot create resource {plural:?} in API group \
             {group:?} in the namespace \"default\""
        )
    };
    let maps = refused("patcher", "configmaps", "", "m");
    for query in [
        "fieldManager=x",
        "fieldManager=x&force=true",
        "fieldManager=x&dryRun=All",
    ] {
        let apply = &format!("PATCH {MAPS}/m?{query}");
        check(&server, &patcher, apply, &map("m"), &maps).await;
    }
    let leases = refused("patcher", "leases", "coordination.k8s.io", "l");
    for query in ["", "?dryRun=All"] {
        check(
            &server,
            &patcher,
            &format!("PUT {LEASES}/l{query}"),
            &lease("l"),
            &leases,
        )
        .await;
    }
    // What is wrong with the object is told first, as it is by upstream.
    let mut wrong = map("m");
    wrong["data"] = json!({"a b": "v"});
    check(
        &server,
        &patcher,
        &format!("PATCH {MAPS}/m?fieldManager=x"),
        &wrong,
        "422",
    )
    .await;
    // A merge patch creates nothing.
    check(
        &server,
        &patcher,
        &format!("PATCH {MAPS}/m"),
        &map("m"),
        "404",
    )
    .await;
    check(
        &server,
        &named,
        &format!("PATCH {MAPS}/mine?fieldManager=x"),
        &map("mine"),
        "201",
    )
    .await;
    let other = refused("named", "configmaps", "", "m");
    check(
        &server,
        &named,
        &format!("PATCH {MAPS}/m?fieldManager=x"),
        &map("m"),
        &other,
    )
    .await;
    check(
        &server,
        &creator,
        &format!("PATCH {MAPS}/m?fieldManager=x"),
        &map("m"),
        "201",
    )
    .await;
    check(
        &server,
        &creator,
        &format!("PUT {LEASES}/l"),
        &lease("l"),
        "201",
    )
    .await;
    // Existing objects are changed by users with permission to update them.
    let mut changed = map("m");
    changed["data"]["k"] = "w".into();
    check(
        &server,
        &patcher,
        &format!("PATCH {MAPS}/m?fieldManager=x&force=true"),
        &changed,
        "200",
    )
    .await;
    let named_lease = json!({"metadata": {"labels": {"a": "b"}}});
    check(
        &server,
        &patcher,
        &format!("PATCH {LEASES}/l"),
        &named_lease,
        "200",
    )
    .await;
}

#[tokio::test]
async fn roles_are_created_by_put_under_the_same_rules() {
    let server = Server::in_memory().await.unwrap();
    let role = super::kit::cluster_role("r", "get|-|pods");
    let eve = allow(
        &server,
        "eve",
        "update patch|rbac.authorization.k8s.io|clusterroles; get|-|pods",
    )
    .await;
    let refused = "403 clusterroles.rbac.authorization.k8s.io \"r\" is forbidden: User \"eve\" cannot create resource";
    check(
        &server,
        &eve,
        &format!("PUT {RBAC}/clusterroles/r"),
        &role,
        refused,
    )
    .await;
    check(
        &server,
        &eve,
        &format!("PATCH {RBAC}/clusterroles/r?fieldManager=m"),
        &role,
        refused,
    )
    .await;
}

async fn server_of(release: u8) -> Server {
    let config = Config {
        features: Features::of(Release::new(release)),
        disabled_admission: vec!["ServiceAccount".to_owned()],
        ..Config::default()
    };
    with_config(config).await
}

#[tokio::test]
async fn a_stream_that_begins_with_get_takes_the_right_to_create_it() {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    for release in [34, 35, 36] {
        let server = server_of(release).await;
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let (code, body) = admin(&server, "POST", PODS, pod).await;
        assert_eq!(code, 201, "{body}");
        let all = "pods/exec pods/attach pods/portforward";
        let reader = allow(&server, "reader", &format!("get|-|{all}")).await;
        let both = allow(&server, "both", &format!("get create|-|{all}")).await;
        let poster = allow(&server, "poster", &format!("create|-|{all}")).await;
        let logs = allow(&server, "logs", "get|-|pods/log").await;
        // No node exists to stream to: a request that passes authorization gets that error.
        let through = "400 pod p does not have a host assigned";
        for stream in [
            "exec?command=x&stdout=true",
            "attach?stdout=true",
            "portforward?ports=80",
        ] {
            let get = &format!("GET {PODS}/p/{stream}");
            let expected = match release {
                34 => through,
                _ => "403 pods \"p\" is forbidden: ",
            };
            check(&server, &reader, get, &Value::Null, expected).await;
            check(&server, &both, get, &Value::Null, through).await;
            check(
                &server,
                &poster,
                &format!("POST {PODS}/p/{stream}"),
                &Value::Null,
                through,
            )
            .await;
        }
        check(
            &server,
            &logs,
            &format!("GET {PODS}/p/log"),
            &Value::Null,
            "204",
        )
        .await;
    }
}

#[tokio::test]
async fn reviews_compare_the_whole_name_of_a_resource() {
    let server = Server::in_memory().await.unwrap();
    allow(&server, "literal", "create|-|pods/exec; get|-|*/scale").await;
    allow(&server, "pods", "create|-|pods").await;
    allow(&server, "all", "*|*|*").await;
    allow(&server, "paths", "get|url|/a/* /b").await;
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for (user, attributes, expected) in [
        (
            "literal",
            json!({"verb": "create", "resource": "pods/exec"}),
            true,
        ),
        (
            "literal",
            json!({"verb": "create", "resource": "pods", "subresource": "exec"}),
            true,
        ),
        (
            "literal",
            json!({"verb": "create", "resource": "pods"}),
            false,
        ),
        (
            "literal",
            json!({"verb": "create", "resource": "pods/exec", "subresource": "x"}),
            false,
        ),
        (
            "literal",
            json!({"verb": "get", "resource": "pods", "subresource": "scale"}),
            true,
        ),
        (
            "literal",
            json!({"verb": "get", "resource": "pods/scale"}),
            false,
        ),
        (
            "pods",
            json!({"verb": "create", "resource": "pods/exec"}),
            false,
        ),
        (
            "pods",
            json!({"verb": "create", "resource": "pods", "subresource": "exec"}),
            false,
        ),
        (
            "all",
            json!({"verb": "create", "resource": "pods/exec"}),
            true,
        ),
        ("all", json!({"verb": "create", "resource": ""}), true),
        ("paths", json!({"verb": "get", "resource": ""}), false),
    ] {
        let review = json!({"spec": {"user": user, "resourceAttributes": attributes}});
        let (code, answer) = admin(&server, "POST", reviews, review).await;
        assert_eq!(
            (code, &answer["status"]["allowed"]),
            (201, &expected.into()),
            "{answer}"
        );
    }
    for (path, expected) in [("/a/b", true), ("/b", true), ("/a", false), ("/b/c", false)] {
        let attributes = json!({"verb": "get", "path": path});
        let review = json!({"spec": {"user": "paths", "nonResourceAttributes": attributes}});
        let (_, answer) = admin(&server, "POST", reviews, review).await;
        assert_eq!(answer["status"]["allowed"], expected, "{answer}");
    }
}

#[tokio::test]
async fn owners_are_set_by_those_who_may_delete_and_finalize() {
    let config = Config {
        enabled_admission: vec!["OwnerReferencesPermissionEnforcement".to_owned()],
        ..Config::default()
    };
    let server = with_config(config).await;
    let plain = Server::in_memory().await.unwrap();
    let owned = |name: &str, block: bool| {
        let mut object = map(name);
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "1", "blockOwnerDeletion": block,
        }]);
        object
    };
    let why = "403 configmaps \"NAME\" is forbidden: ";
    let delete = why.to_owned() + "cannot set an ownerRef on a resource you can't delete: , <nil>";
    let finalize = why.to_owned()
        + "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    for (name, rights, created, blocking, patched) in [
        ("writer", "", "201", &*finalize, &*delete),
        ("deleter", "; delete|-|configmaps", "201", &*finalize, "200"),
        (
            "owner",
            "; delete|-|configmaps; update|apps|replicasets/finalizers",
            "201",
            "201",
            "200",
        ),
        (
            "named",
            "; update|apps|replicasets/finalizers|rs",
            "201",
            "201",
            &*delete,
        ),
        (
            "all",
            "; delete|-|configmaps; update|*|*/finalizers",
            "201",
            "201",
            "200",
        ),
    ] {
        let rights = format!("create patch|-|configmaps{rights}");
        let user = allow(&server, name, &rights).await;
        let expected = |text: &str, of: &str| text.replace("NAME", &format!("{name}-{of}"));
        let posts = &format!("POST {MAPS}");
        let loose = owned(&format!("{name}-loose"), false);
        check(&server, &user, posts, &loose, &expected(created, "loose")).await;
        let tight = owned(&format!("{name}-tight"), true);
        check(&server, &user, posts, &tight, &expected(blocking, "tight")).await;
        let free = map(&format!("{name}-free"));
        check(&server, &user, posts, &free, "201").await;
        let taken = json!({"metadata": {"ownerReferences": owned("x", false)["metadata"]["ownerReferences"]}});
        let patch = &format!("PATCH {MAPS}/{name}-free");
        check(&server, &user, patch, &taken, &expected(patched, "free")).await;
        // Off by default.
        let user = allow(&plain, name, "create|-|configmaps").await;
        check(&plain, &user, posts, &tight, "201").await;
    }
}
