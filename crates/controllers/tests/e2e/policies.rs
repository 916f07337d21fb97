//! Quotas, disruption budgets, cron jobs, service accounts, time to live, leader election.

use std::time::Duration;

use allot_controllers::leader::{Elector, NotLeading, Settings};
use allot_controllers::{Config, Error, run};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::harness::{Cluster, name, template};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const PODS: &str = "/api/v1/namespaces/default/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn claim(name: &str, count: i64) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}},
        ]}},
    })
}

#[tokio::test]
async fn a_quota_on_devices_is_kept_and_freed() {
    let cluster = Cluster::start().await;
    let devices = "gpu.deviceclass.resource.k8s.io/devices";
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {devices: "3", "count/resourceclaims.resource.k8s.io": "9"}}});
    cluster.create(CLAIMS, claim("before", 1)).await;
    cluster.create(QUOTAS, quota).await;
    let path = format!("{QUOTAS}/q");
    cluster
        .until(&path, "counted", |q| q["status"]["used"][devices] == "1")
        .await;
    cluster.create(CLAIMS, claim("a", 2)).await;
    let refused = cluster
        .call(http::Method::POST, CLAIMS, Some(&claim("b", 1)))
        .await
        .unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}")
    };
    assert_eq!(status.code, 403);
    assert_eq!(
        status.message,
        format!(
            "resourceclaims.resource.k8s.io \"b\" is forbidden: exceeded quota: q, requested: {devices}=1, used: {devices}=3, limited: {devices}=3"
        )
    );
    cluster.delete(&format!("{CLAIMS}/a")).await;
    cluster
        .until(&path, "freed", |q| q["status"]["used"][devices] == "1")
        .await;
    cluster.create(CLAIMS, claim("b", 2)).await;
    // A creation that fails after it was counted is corrected.
    let _ = cluster
        .call(http::Method::POST, CLAIMS, Some(&claim("b", 0)))
        .await;
    cluster
        .until(&path, "right", |q| {
            q["status"]["used"][devices] == "3"
                && q["status"]["used"]["count/resourceclaims.resource.k8s.io"] == "2"
        })
        .await;
}

#[tokio::test]
async fn a_disruption_budget_knows_its_pods() {
    let cluster = Cluster::start().await;
    let apps = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({"metadata": {"name": "w"}, "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "w"}}, "template": template("w"),
    }});
    cluster.create(apps, set).await;
    for pod in cluster.until_count(PODS, 3).await {
        cluster.run_pod("default", name(&pod)).await;
    }
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "w"}}}});
    cluster.create(budgets, budget).await;
    let budget = cluster
        .until(&format!("{budgets}/b"), "counted", |b| {
            b["status"]["disruptionsAllowed"] == 1
        })
        .await;
    assert_eq!(budget["status"]["expectedPods"], 3);
    assert_eq!(budget["status"]["desiredHealthy"], 2);
}

#[tokio::test]
async fn a_disruption_budget_reads_the_scale_of_its_pods_owners() {
    let cluster = Cluster::start().await;
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "subresources": {"scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                }},
            }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.create(definitions, definition).await;
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let served = |list: &Value| list["kind"] == "WidgetList";
    cluster.until(widgets, "served", served).await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"replicas": 5},
    });
    let widget = cluster.create(widgets, widget).await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let settles = async |app: &str, owner: Value, holds: &dyn Fn(&Value) -> bool| {
        let mut pod = template(app);
        pod["metadata"]["name"] = json!(app);
        pod["metadata"]["ownerReferences"] = owner;
        cluster.create(PODS, pod).await;
        let budget = json!({
            "metadata": {"name": app},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": app}}},
        });
        cluster.create(budgets, budget).await;
        cluster
            .until(&format!("{budgets}/{app}"), "judged", holds)
            .await
    };
    let owner = |version: &str, kind: &str, uid: &Value| json!([{"apiVersion": version, "kind": kind, "name": "w", "uid": uid, "controller": true}]);
    let of_widget = owner("example.com/v1", "Widget", &widget["metadata"]["uid"]);
    settles("sized", of_widget, &|b| b["status"]["expectedPods"] == 5).await;
    let failed = |why: &str| {
        let why = why.to_owned();
        move |b: &Value| {
            let condition = &b["status"]["conditions"][0];
            condition["reason"] == "SyncFailed" && condition["message"] == *why
        }
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = cluster
        .create(maps, json!({"metadata": {"name": "w"}}))
        .await;
    let of_map = owner("v1", "ConfigMap", &map["metadata"]["uid"]);
    let why = "configmaps does not implement the scale subresource";
    settles("unsized", of_map, &failed(why)).await;

    settles("alone", json!([]), &|b| b["status"]["expectedPods"] == 0).await;
    let events = "/api/v1/namespaces/default/events";
    let told = |list: &Value| {
        let mut events = list["items"].as_array().into_iter().flatten();
        events.any(|e| {
            let selector = "(selector: &LabelSelector{MatchLabels:map[string]string{app: alone,},\
                            MatchExpressions:[]LabelSelectorRequirement{},})";
            e["reason"] == "UnmanagedPods" && e["message"].to_string().contains(selector)
        })
    };
    cluster.until(events, "told", told).await;
}

#[tokio::test]
async fn a_cron_job_makes_a_job_for_a_time_that_has_come() {
    let cluster = Cluster::start().await;
    let mut pod = template("c");
    pod["spec"]["restartPolicy"] = json!("Never");
    let cron = json!({"metadata": {"name": "c"}, "spec": {
        "schedule": "@every 1s",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"template": pod}},
    }});
    let crons = "/apis/batch/v1/namespaces/default/cronjobs";
    cluster.create(crons, cron).await;
    let jobs = cluster.until_count(JOBS, 1).await;
    assert_eq!(jobs[0]["metadata"]["ownerReferences"][0]["kind"], "CronJob");
    let cron = cluster
        .until(&format!("{crons}/c"), "active", |c| {
            c["status"]["active"].is_array()
        })
        .await;
    assert!(cron["status"]["lastScheduleTime"].is_string());
    let waits =
        "Not starting job because prior execution is running and concurrency policy is Forbid";
    cluster
        .until("/api/v1/namespaces/default/events", waits, |list| {
            let mut events = list["items"].as_array().into_iter().flatten();
            events.any(|event| event["message"] == waits)
        })
        .await;
    assert_eq!(
        cluster.list(JOBS).await.len(),
        1,
        "the next one waits for this one"
    );
    let pods = cluster.until_count(PODS, 1).await;
    cluster
        .finish_pod("default", name(&pods[0]), "Succeeded")
        .await;
    let done = format!("Saw completed job: {}, condition: Complete", name(&jobs[0]));
    let mut never = json!({"metadata": {"name": "never"}, "spec": {
        "schedule": "0 0 31 2 *",
        "jobTemplate": {"spec": {"template": template("c")}},
    }});
    never["spec"]["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    cluster.create(crons, never).await;
    let invalid = "invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second";
    for message in [&done, invalid] {
        cluster
            .until("/api/v1/namespaces/default/events", message, |list| {
                let mut events = list["items"].as_array().into_iter().flatten();
                events.any(|event| event["message"] == message)
            })
            .await;
    }
    let status = &cluster.get(&format!("{crons}/c")).await.unwrap()["status"];
    assert!(status["lastSuccessfulTime"].is_string(), "{status}");
}

#[tokio::test]
async fn a_finished_job_is_deleted_after_its_time_to_live() {
    let cluster = Cluster::start().await;
    let mut pod = template("j");
    pod["spec"]["restartPolicy"] = json!("Never");
    let job =
        json!({"metadata": {"name": "j"}, "spec": {"ttlSecondsAfterFinished": 0, "template": pod}});
    cluster.create(JOBS, job).await;
    let pods = cluster.until_count(PODS, 1).await;
    cluster
        .finish_pod("default", name(&pods[0]), "Succeeded")
        .await;
    cluster.until_gone(&format!("{JOBS}/j")).await;
    cluster.until_count(PODS, 0).await;
}

#[tokio::test]
async fn every_namespace_has_its_account_and_certificate() {
    let mut cluster = Cluster::bare().await;
    let mut config = Config::embedded();
    config.root_ca = Some("CERTIFICATE".to_owned());
    cluster.start_controllers(config);
    cluster.namespace("x").await;
    cluster
        .until(
            "/api/v1/namespaces/x/serviceaccounts/default",
            "there",
            |a| !a.is_null(),
        )
        .await;
    let map = "/api/v1/namespaces/x/configmaps/kube-root-ca.crt";
    cluster
        .until(map, "there", |m| m["data"]["ca.crt"] == "CERTIFICATE")
        .await;
    cluster
        .patch(map, json!({"data": {"ca.crt": "wrong", "more": "x"}}))
        .await;
    cluster
        .until(map, "right again", |m| {
            m["data"] == json!({"ca.crt": "CERTIFICATE"})
        })
        .await;
    cluster.delete(map).await;
    cluster.until(map, "back", |m| !m.is_null()).await;
}

/// A machine with other work must not lose the Lease for lack of a renewal, except where a test wants that.
fn election(identity: &str) -> Settings {
    Settings {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(12),
        retry_period: Duration::from_millis(100),
        ..Settings::new("default", "leader", identity)
    }
}

#[tokio::test]
async fn one_process_leads_and_a_released_lease_is_taken_over_at_once() {
    let cluster = Cluster::bare().await;
    let stop = CancellationToken::new();
    let first = Elector::new(cluster.client.clone(), election("a"))
        .acquire(&stop)
        .await
        .unwrap();
    assert!(first.is_valid());
    let other = Elector::new(cluster.client.clone(), election("b"));
    let waiting = tokio::spawn({
        let stop = stop.clone();
        async move { other.acquire(&stop).await }
    });
    let times = |lease: &Value| {
        let lease: Option<Lease> = serde_json::from_value(lease.clone()).ok();
        let spec = lease.and_then(|lease| lease.spec)?;
        Some((spec.acquire_time?.0, spec.renew_time?.0))
    };
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/leader";
    cluster
        .until(path, "held for longer than it is valid", |lease| {
            times(lease).is_some_and(|(acquired, renewed)| {
                renewed.duration_since(acquired) > jiff::SignedDuration::from_secs(15)
            })
        })
        .await;
    assert!(!waiting.is_finished(), "the first one renews");
    assert!(first.is_valid());
    let fenced = first.fence(cluster.client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(fenced);
    maps.list(&Default::default())
        .await
        .expect("the leader may ask");
    first.release().await;
    let second = waiting.await.unwrap().expect("the second one leads");
    assert!(second.is_valid());
    let refused = maps.list(&Default::default()).await.unwrap_err();
    let kube::Error::Service(cause) = refused else {
        panic!("{refused}")
    };
    assert!(cause.is::<NotLeading>(), "{cause}");
}

#[tokio::test]
async fn a_leader_that_slept_does_not_write() {
    let cluster = Cluster::bare().await;
    let stop = CancellationToken::new();
    let short = Settings {
        lease_duration: Duration::from_millis(1000),
        renew_deadline: Duration::from_millis(600),
        ..election("a")
    };
    let leader = Elector::new(cluster.client.clone(), short)
        .acquire(&stop)
        .await
        .unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(leader.fence(cluster.client.clone()));
    // The whole process stands still, renewals included, for longer than the Lease is valid.
    while leader.is_valid() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(maps.list(&Default::default()).await.is_err());
    leader.lost().cancelled().await;
}

#[tokio::test]
async fn controllers_hand_over_when_the_leader_stops() {
    let cluster = Cluster::bare().await;
    let mut tasks = Vec::new();
    for identity in ["a", "b"] {
        let stop = CancellationToken::new();
        let mut config = Config::embedded();
        config.leader_election = Some(election(identity));
        let work = run(cluster.client.clone(), config, stop.clone());
        tasks.push((stop, tokio::spawn(work)));
        // The first one leads before the second one starts.
        let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/leader";
        cluster
            .until(lease, "held by the first", |lease| {
                let holder = lease["spec"]["holderIdentity"].as_str();
                holder.is_some_and(|holder| holder.starts_with('a'))
            })
            .await;
    }
    cluster.namespace("x").await;
    cluster
        .until(
            "/api/v1/namespaces/x/serviceaccounts/default",
            "there",
            |a| !a.is_null(),
        )
        .await;
    let (stop, task) = tasks.remove(0);
    stop.cancel();
    let ended: Result<(), Error> = task.await.unwrap();
    ended.unwrap();
    cluster.namespace("y").await;
    cluster
        .until(
            "/api/v1/namespaces/y/serviceaccounts/default",
            "there",
            |a| !a.is_null(),
        )
        .await;
    tasks.remove(0).0.cancel();
}

#[tokio::test]
async fn a_secret_gets_the_token_it_asks_for_and_goes_with_the_account() {
    let cluster = Cluster::start().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let secret = |name: &str, account: &str| {
        json!({
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}},
            "type": "kubernetes.io/service-account-token",
        })
    };
    let account = json!({"metadata": {"name": "robot"}});
    let account = cluster.create(accounts, account).await;
    cluster.create(secrets, secret("robot", "robot")).await;
    let path = format!("{secrets}/robot");
    let filled = cluster
        .until(&path, "filled", |s| s["data"]["token"].is_string())
        .await;
    assert_eq!(filled["data"]["namespace"], "ZGVmYXVsdA==");
    assert_eq!(
        filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"],
        account["metadata"]["uid"]
    );
    let token = &filled["data"]["token"];
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": decoded(token)},
    });
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let user = &cluster.create(reviews, review).await["status"]["user"]["username"];
    assert_eq!(user, "system:serviceaccount:default:robot");

    // What is taken away comes back; the token stays.
    let change = json!({"data": {"namespace": null}});
    cluster.patch(&path, change).await;
    let mended = cluster
        .until(&path, "mended", |s| s["data"]["namespace"].is_string())
        .await;
    assert_eq!(mended["data"]["token"], *token);

    cluster.create(secrets, secret("stray", "nobody")).await;
    cluster.until_gone(&format!("{secrets}/stray")).await;
    cluster.delete(&format!("{accounts}/robot")).await;
    cluster.until_gone(&path).await;
}

/// The text in a field of a secret.
fn decoded(value: &Value) -> String {
    let bytes: k8s_openapi::ByteString = serde_json::from_value(value.clone()).expect("base64");
    String::from_utf8(bytes.0).expect("text")
}
