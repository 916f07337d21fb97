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
