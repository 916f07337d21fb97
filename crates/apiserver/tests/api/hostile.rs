//! Whatever comes in, a Status goes out.

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use rand::{Rng, SeedableRng};

use crate::send;

#[path = "../../../../fuzz/api.rs"]
mod api;

/// Requests that are changed at random places: the seeds of the fuzz target.
fn seeds() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/api");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    // The order decides what a seed of randomness means.
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

/// What is put in where bytes are not just changed.
const PIECES: [&[u8]; 16] = [
    b"null",
    b"{}",
    b"[]",
    b"\"\"",
    b"-1",
    b"1e999",
    b"99999999999999999999",
    b"0.1",
    b"\xff\xfe",
    b"\0",
    b"\"$patch\":\"delete\",",
    b"/status",
    b"?watch=true",
    b"&limit=-1",
    b"%00",
    b"&dryRun=All",
];

fn mutate(data: &mut Vec<u8>, random: &mut rand::rngs::StdRng) {
    let at = random.random_range(0..data.len());
    match random.random_range(0..6) {
        0 => data[at] = random.random(),
        1 if at > 0 => data.truncate(at),
        2 => data.insert(at, random.random_range(32..127)),
        3 => {
            let end = random.random_range(at..data.len());
            let part = data[at..end].to_vec();
            data.splice(at..at, part);
        }
        4 => drop(data.remove(at)),
        _ => {
            let piece = PIECES[random.random_range(0..PIECES.len())];
            data.splice(at..at, piece.iter().copied());
        }
    }
    if data.is_empty() {
        data.push(b'/');
    }
}

/// Set in the process that runs a test alone.
const ALONE: &str = "ALLOT_TEST_ALONE";

/// Runs in a process of its own, whose memory no other test uses.
#[test]
fn mutated_requests_get_a_status() {
    if std::env::var_os(ALONE).is_none() {
        let program = std::env::current_exe().unwrap();
        let test = concat!(module_path!(), "::mutated_requests_get_a_status");
        let (_, test) = test.split_once("::").unwrap();
        let output = std::process::Command::new(program)
            .args(["--exact", test, "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}{errors}"
        );
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(send_mutated_requests());
}

async fn send_mutated_requests() {
    let server = Server::in_memory().await.unwrap();
    let seeds = seeds();
    for seed in &seeds {
        assert!(api::request(seed).is_some());
        api::send(&server, seed).await;
    }
    let mut random = rand::rngs::StdRng::seed_from_u64(7);
    let before = resident_kib();
    for round in 0..10_000 {
        let mut data = seeds[round % seeds.len()].clone();
        for _ in 0..random.random_range(1..5) {
            mutate(&mut data, &mut random);
        }
        // Whatever comes is answered at once.
        tokio::time::timeout(
            std::time::Duration::from_secs(20),
            api::send(&server, &data),
        )
        .await
        .unwrap_or_else(|_| panic!("{} hangs", String::from_utf8_lossy(&data)));
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 128 << 10, "grew by {grown} KiB");
}

/// Memory of this process.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

#[tokio::test]
async fn giant_selectors_and_numbers_are_judged_quickly() {
    let server = Server::in_memory().await.unwrap();
    let many: Vec<String> = (0..20_000).map(|i| format!("k{i}=v")).collect();
    let set = format!("k in ({})", vec!["v"; 50_000].join(","));
    let open = "(".repeat(100_000);
    for (selector, want) in [
        (many.join(","), 200),
        (set, 200),
        (format!("k in {open}"), 400),
        ("k=v,".repeat(50_000) + "=", 400),
    ] {
        let path = format!("/api/v1/pods?labelSelector={selector}").replace(' ', "%20");
        // Longer than the type for URIs takes: a client cannot send it either.
        if path.parse::<http::Uri>().is_err() {
            continue;
        }
        let (code, _) = send(&server, User::admin(), "GET", &path, "", b"").await;
        assert_eq!(code, want, "{}", &path[..80]);
    }
    let pods = "/api/v1/namespaces/default/pods";
    let digits = "9".repeat(100_000);
    for number in [
        "1e400",
        "-1e400",
        "1e-400",
        "12345678901234567890123",
        &digits,
        "NaN",
        "0x1",
        "01",
    ] {
        for field in [
            "priority",
            "activeDeadlineSeconds",
            "terminationGracePeriodSeconds",
        ] {
            let body = format!(
                "{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"n\"}},\"spec\":{{\"{field}\":{number}}}}}"
            );
            let (code, status) = send(
                &server,
                User::admin(),
                "POST",
                pods,
                "application/json",
                body.as_bytes(),
            )
            .await;
            assert!((400..500).contains(&code), "{field} {number:.20}: {code}");
            assert_eq!(status["kind"], "Status");
        }
    }
    let quantity = format!(
        "{{\"metadata\":{{\"name\":\"n\"}},\"spec\":{{\"containers\":[{{\"name\":\"c\",\"image\":\"i\",\"resources\":{{\"limits\":{{\"cpu\":\"{digits}\"}}}}}}]}}}}"
    );
    let (code, _) = send(
        &server,
        User::admin(),
        "POST",
        pods,
        "application/json",
        quantity.as_bytes(),
    )
    .await;
    assert!(code == 201 || (400..500).contains(&code), "{code}");
}

#[tokio::test]
async fn deep_and_large_bodies_are_refused() {
    let server = Server::in_memory().await.unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    let deep = format!(
        "{{\"metadata\":{{\"name\":\"d\"}},\"data\":{}1{}}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    assert_eq!(
        send(
            &server,
            User::admin(),
            "POST",
            maps,
            "application/json",
            deep.as_bytes()
        )
        .await
        .0,
        400
    );
    let large = vec![b' '; 4 << 20];
    assert_eq!(
        send(
            &server,
            User::admin(),
            "POST",
            maps,
            "application/json",
            &large
        )
        .await
        .0,
        413
    );
    let (code, _) = send(
        &server,
        User::admin(),
        "POST",
        maps,
        "application/json",
        b"{\"metadata\":{\"name\":\"\xff\"}}",
    )
    .await;
    assert_eq!(code, 400);
    let number = b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"n\"},\"spec\":{\"priority\":1e999}}";
    assert_eq!(
        send(
            &server,
            User::admin(),
            "POST",
            "/api/v1/namespaces/default/pods",
            "application/json",
            number
        )
        .await
        .0,
        400
    );
}

#[tokio::test]
async fn abandoned_watches_cost_nothing_lasting() {
    let server = Server::in_memory().await.unwrap();
    for _ in 0..1000 {
        let request = http::Request::get("/api/v1/configmaps?watch=true")
            .body(http_body_util::Empty::<bytes::Bytes>::new());
        drop(server.handle(request.unwrap(), Some(User::admin())).await);
    }
    let (_, metrics) = send(&server, User::admin(), "GET", "/metrics", "", b"").await;
    assert!(
        metrics
            .as_str()
            .unwrap()
            .contains("apiserver_longrunning_requests 0\n"),
        "{metrics}"
    );
}

/// Quadratic work in the length of a list: a body of less than a megabyte blocked the whole server for minutes.
#[tokio::test]
async fn regression_long_lists_are_answered_in_time() {
    use serde_json::{Value, json};
    const MANY: usize = 20_000;
    let server = Server::in_memory().await.unwrap();
    let send_as = async |method: &str, path: &str, kind: &str, body: Value| {
        let text = body.to_string();
        let user = User::admin();
        let answer = send(&server, user, method, path, kind, text.as_bytes());
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, answer)
            .await
            .expect("an answer")
    };
    let maps = "/api/v1/namespaces/default/configmaps?dryRun=All";
    let pods = "/api/v1/namespaces/default/pods?dryRun=All";
    let json = "application/json";
    let each = |make: &dyn Fn(usize) -> Value| (0..MANY).map(make).collect::<Vec<Value>>();
    let named = |more: Value| {
        let mut metadata = more;
        metadata["name"] = "x".into();
        json!({"metadata": metadata})
    };
    let pod = |key: &str, list: Vec<Value>| {
        let mut pod = json!({
            "metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        pod["spec"][key] = list.into();
        pod
    };
    let unknown: serde_json::Map<String, Value> = (0..MANY)
        .map(|n| (format!("unknown{n}"), json!("")))
        .collect();
    let mut object = named(json!({}));
    object.as_object_mut().unwrap().extend(unknown);
    let (code, refused) = send_as(
        "POST",
        &format!("{maps}&fieldValidation=Strict"),
        json,
        object.clone(),
    )
    .await;
    assert_eq!(code, 400);
    let told = refused["message"]
        .as_str()
        .unwrap()
        .matches("unknown field");
    assert_eq!(told.count(), 100);
    let (code, _) = send_as(
        "POST",
        &format!("{maps}&fieldValidation=Warn"),
        json,
        object,
    )
    .await;
    assert_eq!(code, 201);
    let labels: serde_json::Map<String, Value> =
        (0..MANY).map(|n| (format!("@{n}"), json!(""))).collect();
    let wrong = named(json!({"labels": labels}));
    assert_eq!(send_as("POST", maps, json, wrong).await.0, 422);
    let owner =
        |n: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": n.to_string()});
    let owners = &each(&owner)[..8_000];
    let owned = named(json!({"ownerReferences": owners}));
    assert_eq!(send_as("POST", maps, json, owned).await.0, 201);
    let sources = each(&|n| {
        let path = format!("p{n}");
        json!({"configMap": {"name": "c", "items": [{"key": "k", "path": path}]}})
    });
    let projected = pod(
        "volumes",
        vec![json!({"name": "v", "projected": {"sources": sources}})],
    );
    send_as("POST", pods, json, projected).await;
    let spread = each(&|n| {
        let key = format!("k{n}");
        json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"})
    });
    send_as("POST", pods, json, pod("topologySpreadConstraints", spread)).await;
    let map = "/api/v1/namespaces/default/configmaps";
    assert_eq!(send_as("POST", map, json, named(json!({}))).await.0, 201);
    let finalizers = each(&|n| json!(format!("a.b/f{n}")));
    let patch =
        json!({"metadata": {"finalizers": finalizers, "$setElementOrder/finalizers": finalizers}});
    let kind = "application/strategic-merge-patch+json";
    let path = "/api/v1/namespaces/default/configmaps/x?dryRun=All";
    assert_eq!(send_as("PATCH", path, kind, patch).await.0, 200);
}
