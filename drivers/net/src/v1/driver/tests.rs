use super::super::harness::recorded;
use super::super::netlink::Link;
use super::*;

/// With an API server that did not answer, every release delayed the registration by ten seconds.
#[tokio::test(start_paused = true)]
async fn regression_releases_at_the_start_share_their_time() {
    let directory = tempfile::tempdir().expect("a directory");
    // Connections to it are never accepted.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let url = format!("http://{address}").parse().expect("a URL");
    let client = kube::Client::try_from(kube::Config::new(url)).expect("a client");
    let interfaces = Interfaces {
        node: "node".to_owned(),
        selection: Selection::default(),
        plans: Plans::new(directory.path()),
        hook: PathBuf::new(),
        pools: Pools::new(client),
        held: Arc::default(),
        status: StatusQueue::default(),
    };
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
