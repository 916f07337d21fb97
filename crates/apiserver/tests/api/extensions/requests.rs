//! What an extension gets of a request, and what the client gets of its answer.

use http_body_util::Empty;
use tokio_util::sync::CancellationToken;

use super::*;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Lets a user list things.
async fn permit(server: &Server, user: &str) {
    let rule = json!({"apiGroups": ["ext.example.com"], "resources": ["things"], "verbs": ["list", "watch", "create"]});
    create(
        server,
        ROLES,
        json!({"metadata": {"name": "things"}, "rules": [rule]}),
    )
    .await;
    let binding = json!({
        "metadata": {"name": "things"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "things"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    create(server, BINDINGS, binding).await;
}

/// The attack: a client sends the headers of a front proxy, and an extension takes it for an administrator.
#[tokio::test(flavor = "multi_thread")]
async fn an_extension_is_told_who_the_user_is_and_nothing_a_client_claims() {
    let (server, _backend, extension) = with_extension(|_| None).await;
    let mut jo = User::new("jo", ["team"]);
    jo.uid = "7".to_owned();
    jo.extra
        .insert("example.org/scope".to_owned(), vec!["one".to_owned()]);
    let claims = [
        ("x-remote-user", "admin"),
        ("x-remote-uid", "0"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-example.org%2fscope", "all"),
        ("x-remote-extra-more", "1"),
        ("x_remote_group", "system:masters"),
        ("connection", "x-remote-user, x-remote-group"),
        ("cookie", "session=1"),
        ("authorization", "Basic eA=="),
        ("content-type", "application/json"),
        ("x-plain", "kept"),
    ];
    let path = format!("{THINGS}?labelSelector=a%3Db%26c&limit=1");
    // The front decides, before the extension sees anything.
    let (code, _, body) = send_as(&server, jo.clone(), "GET", &path, &claims).await;
    assert_eq!(code, 403, "{body}");
    assert!(
        body.contains("things.ext.example.com is forbidden"),
        "{body}"
    );
    assert!(extension.take_requests().is_empty());
    permit(&server, "jo").await;
    for method in ["GET", "POST"] {
        let (code, headers, body) = send_as(&server, jo.clone(), method, &path, &claims).await;
        assert_eq!(code, 200, "{body}");
        assert_eq!(headers["content-type"], "application/json");
        let got = extension.take_requests();
        let [got] = &got[..] else { panic!("{got:?}") };
        let target = format!("{THINGS}?labelSelector=a%3Db%26c&limit=1");
        assert_eq!((got.method.as_str(), &got.target), (method, &target));
        assert_eq!(got.client.as_deref(), Some("front-proxy-client"));
        assert_eq!(got.body, if method == "POST" { "{\"a\":1}" } else { "" });
        for (name, expected) in [
            ("x-remote-user", &["jo"][..]),
            ("x-remote-uid", &["7"]),
            ("x-remote-group", &["team", "system:authenticated"]),
            ("x-remote-extra-example.org%2fscope", &["one"]),
            ("x-remote-extra-more", &[]),
            ("x_remote_group", &[]),
            ("cookie", &[]),
            ("authorization", &[]),
            ("connection", &[]),
            ("x-plain", &["kept"]),
            ("host", &["ext.default.svc:443"]),
        ] {
            assert_eq!(got.all(name), expected, "{name}");
        }
    }
    // Impersonation is over when the extension sees the request.
    let as_jo = [("impersonate-user", "jo")];
    let (code, ..) = send_as(&server, User::admin(), "GET", THINGS, &as_jo).await;
    assert_eq!(code, 200);
    let got = extension.take_requests();
    assert_eq!(got[0].all("x-remote-user"), ["jo"]);
    assert_eq!(got[0].all("impersonate-user"), [""; 0]);
    // A path that the extension could read as another one.
    for path in [
        format!("{THINGS}/../../b/things"),
        format!("{THINGS}/%2e%2e/x"),
        format!("{THINGS}//x"),
    ] {
        let (code, _, body) = send_as(&server, User::admin(), "GET", &path, &[]).await;
        assert_eq!(code, 400, "{path}: {body}");
    }
    assert!(extension.take_requests().is_empty());
}

fn odd(path: &str) -> Option<Answer> {
    if path.ends_with("/redirect") {
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = http::StatusCode::FOUND;
        answer
            .headers_mut()
            .insert("location", "https://192.0.2.1/".parse().unwrap());
        return Some(answer);
    }
    if path.ends_with("/headers") {
        let mut answer = with(418, &json!("teapot"));
        for (name, value) in [
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("set-cookie", "a=b"),
            ("warning", "299 - \"careful\""),
        ] {
            answer.headers_mut().insert(name, value.parse().unwrap());
        }
        return Some(answer);
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_come_as_they_are_without_redirects_and_headers_of_the_connection() {
    let (server, _backend, extension) = with_extension(odd).await;
    let path = |name: &str| format!("{THINGS}/{name}");
    let (code, headers, body) =
        send_as(&server, User::admin(), "GET", &path("redirect"), &[]).await;
    let refused = "the backend attempted to redirect this request, which is not permitted";
    assert_eq!((code, body.as_str()), (502, refused));
    assert!(!headers.contains_key("location"));
    let (code, headers, body) = send_as(&server, User::admin(), "GET", &path("headers"), &[]).await;
    assert_eq!((code, body.as_str()), (418, "\"teapot\""));
    assert_eq!(headers["warning"], "299 - \"careful\"");
    for dropped in ["connection", "x-hop", "set-cookie"] {
        assert!(!headers.contains_key(dropped), "{dropped}");
    }
    // The discovery document of the group version is the extension's.
    let (code, document) = admin(&server, "GET", "/apis/ext.example.com/v1", Value::Null).await;
    assert_eq!((code, &document["kind"]), (200, &json!("APIResourceList")));
    assert_eq!(
        extension.take_requests().last().unwrap().target,
        "/apis/ext.example.com/v1"
    );
}

/// The attack: an extension that never answers watches keeps the seats of all who watch it, such as those of the controllers.
#[tokio::test(flavor = "multi_thread")]
async fn regression_watches_of_a_silent_extension_have_no_seats() {
    let says: Responses = |target| {
        let mut silent = with(200, &Value::Null);
        *silent.status_mut() = SILENT.try_into().unwrap();
        target.contains("watch=").then_some(silent)
    };
    let limits = Limits {
        max_requests_inflight: 20,
        max_mutating_requests_inflight: 10,
        ..Limits::default()
    };
    let (server, _backend, extension) = with_extension_and_limits(limits, says).await;
    permit(&server, "jo").await;
    // Twice as many as there are seats.
    const WATCHES: usize = 60;
    let mut watches = tokio::task::JoinSet::new();
    for _ in 0..WATCHES {
        let server = server.clone();
        watches.spawn(async move {
            let path = format!("{THINGS}?watch=true");
            send_as(&server, User::new("jo", ["team"]), "GET", &path, &[]).await
        });
    }
    wait::until("all watches are passed on", || async {
        let got = extension.got.lock();
        let passed = got.iter().filter(|it| it.target.contains("watch="));
        match passed.count() {
            WATCHES => Ok(()),
            count => Err(count),
        }
    })
    .await;
    let (code, _, body) = send_as(&server, User::new("jo", ["team"]), "GET", THINGS, &[]).await;
    assert_eq!(code, 200, "{body}");
}

/// A stream of an extension, as of exec, over sockets from end to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_and_an_extension_can_go_on_with_another_protocol() {
    let (server, _backend, extension) = with_extension(|_| None).await;
    let authority = Authority::generate("test").unwrap();
    let names = ["localhost".to_owned()];
    let identity = authority.server("x", &names, &[]).unwrap();
    let tls = serve::tls(&identity, Some(authority.certificate())).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    tokio::spawn(serve::serve(server, listener, tls, stop));
    let masters = authority.client("root", &["system:masters"]).unwrap();
    let stream = super::fronts::connect(address, &authority, Some(&masters)).await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection.with_upgrades());
    let request = Request::post(format!("{THINGS}/one/exec?command=a"))
        .header("host", "localhost")
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .header("x-remote-user", "somebody-else")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["upgrade"], "SPDY/3.1");
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"ping").await.unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"re: ping");
    let got = extension.take_requests();
    assert_eq!(got[0].all("x-remote-user"), ["root"]);
    assert_eq!(got[0].all("x-forwarded-for"), ["127.0.0.1"]);
}
