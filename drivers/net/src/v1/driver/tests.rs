use super::super::harness::recorded;
use super::*;
use allot_netlink::Link;

fn interfaces(directory: &Path, client: kube::Client) -> Interfaces {
    Interfaces {
        node: "node".to_owned(),
        selection: Selection::default(),
        plans: Plans::new(directory),
        hook: PathBuf::new(),
        pools: Pools::new(client),
        held: Arc::default(),
        status: StatusQueue::default(),
    }
}

/// A claim whose plan and checkpoint were damaged was never unprepared, and its pod stayed.
#[tokio::test]
async fn regression_a_damaged_plan_does_not_keep_a_claim() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
    let client = kube::Client::try_from(config).expect("a client");
    let interfaces = interfaces(directory.path(), client);
    for (uid, text) in [("u1", ""), ("u2", "{\"claim\": {"), ("u3", "\0garbage")] {
        std::fs::write(interfaces.plans.file(uid), text).expect("written");
        assert_eq!(interfaces.recorded(uid).expect("no plan"), None);
        interfaces.plans.begin_release(uid).expect("begun");
        assert_eq!(interfaces.recorded(uid).expect("no plan"), None);
        interfaces.plans.end_release(uid).expect("ended");
    }
    // What cannot be read may be a good one.
    std::fs::create_dir(interfaces.plans.file("u4")).expect("a directory");
    interfaces.recorded("u4").expect_err("unreadable");
    assert!(interfaces.plans.released().is_empty());
}

/// With an API server that did not answer, every release delayed the registration by ten seconds.
#[tokio::test(start_paused = true)]
async fn regression_releases_at_the_start_share_their_time() {
    let directory = tempfile::tempdir().expect("a directory");
    // Connections to it are never accepted.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let url = format!("http://{address}").parse().expect("a URL");
    let client = kube::Client::try_from(kube::Config::new(url)).expect("a client");
    let interfaces = interfaces(directory.path(), client);
    let begun = (0..40).map(|number| {
        let mut interface = recorded(&Link::default(), "macvlan");
        interface.pools.insert("lab".to_owned());
        let uid = format!("u{number}");
        Plan {
            claim: ClaimRef {
                uid,
                ..ClaimRef::default()
            },
            interfaces: vec![interface],
        }
    });
    let begun: Vec<Plan> = begun.collect();
    let start = Instant::now();
    interfaces.complete(begun).await;
    assert_eq!(start.elapsed(), RELEASE);
}
