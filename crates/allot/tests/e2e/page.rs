//! Attacks on the dashboard on the API server's own port, over real sockets.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::harness::{Up, directory};

/// A client with other credentials than those of the kubeconfig.
async fn client(kubeconfig: &Path, auth: AuthInfo) -> Client {
    let file = Kubeconfig::read_from(kubeconfig).expect("kubeconfig");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(file, &options).await;
    let mut config = config.expect("config");
    config.auth_info = auth;
    Client::try_from(config).expect("client")
}

/// The answer to a request line with headers, one a line.
async fn ask(client: &Client, line: &str, headers: &str) -> (StatusCode, HeaderMap, String) {
    let (method, target) = line.split_once(' ').expect("a method and a target");
    let mut request = Request::builder().method(method).uri(target);
    for header in headers.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (name, value) = header.split_once(": ").expect("a name and a value");
        request = request.header(name, value);
    }
    let request = request.body(Body::empty()).expect("a request");
    let answer = client.send(request).await.expect("an answer");
    let (head, body) = answer.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    (head.status, head.headers, text)
}

/// The data of the page that shows whether a reader was let in.
const DATA: &str = "GET /dashboard/api/list?kind=slices";

#[tokio::test(flavor = "multi_thread")]
async fn the_page_on_the_port_of_the_api_uses_the_token_of_the_reader_alone() {
    let data = directory();
    let tokens = data.path().join("tokens.csv");
    std::fs::write(&tokens, "of-a-guest,guest,1\n").expect("written");
    let tokens = format!("--token-auth-file={}", tokens.display());
    let flags = ["--nodes=0", "--no-driver", "--dashboard", &tokens];
    let up = Up::start(data.path(), &flags).await;
    let pki = data.path().join("pki");
    let read = |name: &str| std::fs::read(pki.join(name)).expect("a file of the server");
    let token = String::from_utf8(read("admin.token")).expect("text");
    let bearer = format!("authorization: Bearer {}", token.trim());
    let anonymous = client(&up.kubeconfig, AuthInfo::default()).await;

    // Without credentials there is the page, which has no data in it, and nothing else.
    let (status, headers, page) = ask(&anonymous, "GET /dashboard/", "").await;
    assert_eq!(status, StatusCode::OK, "{page}");
    assert!(page.contains("app.js"), "{page}");
    let header = |name: &str| headers[name].to_str().expect("text").to_owned();
    let policy = header("content-security-policy");
    assert!(policy.contains("default-src 'none'"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
    assert_eq!(header("referrer-policy"), "no-referrer");
    assert_eq!(header("cache-control"), "no-store");
    for name in ["set-cookie", "access-control-allow-origin"] {
        assert!(!headers.contains_key(name), "{name}");
    }
    let (status, headers, _) = ask(&anonymous, "GET /dashboard?token=x", "").await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    assert_eq!(headers["location"], "/dashboard/");
    let (status, ..) = ask(&anonymous, DATA, "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);

    // The token of the reader, in its header only.
    let (status, _, body) = ask(&anonymous, DATA, &bearer).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    for (target, header) in [
        (format!("{DATA}&token={}", token.trim()), ""),
        (DATA.to_owned(), "authorization: Bearer wrong"),
        (DATA.to_owned(), "authorization: Basic YWRtaW46YWRtaW4="),
        (DATA.to_owned(), "cookie: allot-dashboard=x"),
    ] {
        let (status, _, body) = ask(&anonymous, &target, header).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{header}: {body}");
    }

    // A browser sends its certificate with requests of any page: for the API it is the administrator, here nobody.
    let certified = AuthInfo {
        client_certificate_data: Some(STANDARD.encode(read("admin.crt"))),
        client_key_data: Some(STANDARD.encode(read("admin.key")).into()),
        ..AuthInfo::default()
    };
    let certified = client(&up.kubeconfig, certified).await;
    let (status, ..) = ask(&certified, "GET /api/v1/secrets", "").await;
    assert_eq!(status, StatusCode::OK);
    let (status, ..) = ask(&certified, DATA, "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);

    // Pages of other sites, other names of the server (DNS rebinding), writes, and ways out of the folder.
    for (line, header, expected) in [
        (DATA, "origin: https://evil.example.com", 403),
        (DATA, "origin: null", 403),
        (DATA, "sec-fetch-site: cross-site", 403),
        (DATA, "host: evil.example.com", 421),
        ("POST /dashboard/api/filter", "", 403),
        ("POST /dashboard/api/list", "", 405),
        ("DELETE /dashboard/", "", 405),
        ("GET /dashboard/api/list?kind=secrets", "", 400),
        (
            "GET /dashboard/api/list?kind=claims&namespace=..%2Fx",
            "",
            400,
        ),
        ("GET /dashboard/../api/v1/secrets", "", 404),
        ("GET /dashboard/..%2fapi/v1/secrets", "", 404),
        ("GET /dashboard/api/../../api/v1/secrets", "", 404),
        ("GET /dashboard//etc/passwd", "", 404),
        ("GET /dashboards/", "", 404),
    ] {
        let headers = format!("{bearer}\n{header}");
        let (status, _, body) = ask(&anonymous, line, &headers).await;
        assert_eq!(status.as_u16(), expected, "{line} {header}: {body}");
        assert!(!body.contains("\"items\":[{"), "{line}: {body}");
    }

    // What the reader may not do, the page does not do: nor does it act as others for a reader that may.
    let (status, _, body) = ask(&anonymous, DATA, "authorization: Bearer of-a-guest").await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    assert!(body.contains("guest"), "the API server's own words: {body}");
    let (_, _, body) = ask(
        &anonymous,
        DATA,
        &format!("{bearer}\nimpersonate-user: nobody"),
    )
    .await;
    assert!(
        body.contains("items"),
        "the header is not passed on: {body}"
    );
    assert!(up.stop(), "an open page does not hold up the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_page_unless_it_is_asked_for() {
    let up = Up::in_memory_with(&["--nodes=0", "--no-driver"]).await;
    for line in ["GET /dashboard", "GET /dashboard/"] {
        let (status, ..) = ask(&up.client, line, "").await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{line}");
    }
    let anonymous = client(&up.kubeconfig, AuthInfo::default()).await;
    let (status, ..) = ask(&anonymous, "GET /dashboard/", "").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}
