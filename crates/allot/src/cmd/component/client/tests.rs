use super::*;

#[tokio::test]
async fn an_error_says_why_the_server_cannot_be_reached() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let uri = format!("http://{address}").parse().expect("a URL");
    let client = connect(kube::Config::new(uri), "test", Watches::Apart).expect("a client");
    let error = client
        .apiserver_version()
        .await
        .expect_err("nobody listens");
    assert!(error.to_string().contains("Connection refused"), "{error}");
}

/// Pods waited for a minute and more for a server that answers every third request with 429.
#[tokio::test]
async fn a_busy_server_is_asked_again_soon() {
    use tower::retry::Policy;

    let mut policy = patient().expect("it is valid");
    let mut request = Request::new(Body::empty());
    for attempt in 0..15 {
        let busy = Response::builder().status(429).header("Retry-After", "1");
        let mut answer: Result<_, BoxError> = Ok(busy.body(()).expect("a response"));
        let pause = policy.retry(&mut request, &mut answer);
        let pause = pause.unwrap_or_else(|| panic!("it gave up after {attempt}"));
        let waits = pause.deadline() - Instant::now();
        assert!(waits <= Duration::from_secs(2), "{attempt}: {waits:?}");
    }
}
