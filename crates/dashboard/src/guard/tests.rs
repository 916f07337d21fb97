use http::Request;

use super::*;

const HOST_NAME: &str = "127.0.0.1:4000";

fn guard(login: Login) -> Guard {
    Guard::new(
        login,
        vec![HOST_NAME.to_owned(), "localhost:4000".to_owned()],
        "/",
    )
}

/// A request line, and headers one a line.
fn head(line: &str, headers: &str) -> Parts {
    let (method, uri) = line.split_once(' ').expect("a method and a target");
    let mut request = Request::builder().method(method).uri(uri);
    for header in headers.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (name, value) = header.split_once(": ").expect("a name and a value");
        request = request.header(name, value);
    }
    request.body(()).expect("a request").into_parts().0
}

/// The result of the checks; `BASE`, `SESSION` and `TOKEN` are replaced by their values.
fn check(guard: &Guard, line: &str, headers: &str) -> Result<Pass, Refusal> {
    let fill = |text: &str| {
        text.replace("BASE", &guard.base)
            .replace("SESSION", &guard.session)
            .replace("TOKEN", &guard.token)
    };
    guard.check(&head(&fill(line), &fill(headers)))
}

const GOOD: &str = "host: 127.0.0.1:4000\ncookie: allot-dashboard=SESSION";

#[track_caller]
fn refuses(login: Login, line: &str, headers: &str, expected: Refusal) {
    let found = check(&guard(login), line, headers);
    assert_eq!(found.expect_err("refused"), expected, "{line}\n{headers}");
}

#[test]
fn the_link_is_exchanged_for_a_cookie() {
    let guard = guard(Login::Link);
    let found = check(&guard, "GET /?token=TOKEN", "host: 127.0.0.1:4000");
    let Ok(Pass::Enter { cookie, to }) = found else {
        panic!("{found:?}");
    };
    assert_eq!(to, guard.base);
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(cookie.contains(&format!("Path={to}")), "{cookie}");
    assert!(!cookie.contains(&guard.token), "the link is not the cookie");
    let found = check(&guard, "GET BASE", GOOD);
    assert!(matches!(found, Ok(Pass::File(path)) if path.is_empty()));
    let found = check(&guard, "GET BASEapi/list?kind=slices", GOOD);
    assert!(matches!(found, Ok(Pass::Data { path, bearer: None }) if path == "list"));
}

#[test]
fn every_start_has_its_own_secrets() {
    let (one, other) = (guard(Login::Link), guard(Login::Link));
    for (a, b) in [
        (&one.token, &other.token),
        (&one.session, &other.session),
        (&one.base, &other.base),
        (&one.token, &one.session),
    ] {
        assert_ne!(a, b);
        assert!(a.len() >= 16);
    }
}

#[test]
fn foreign_names_are_refused() {
    let cookie = "cookie: allot-dashboard=SESSION";
    for host in [
        "",
        "host: evil.example.com",
        "host: evil.example.com:4000",
        "host: 127.0.0.1",
        "host: 127.0.0.1:4001",
        "host: 127.0.0.1:4000.evil.example.com",
        "host: localhost:4000@evil.example.com",
        "host: 127.0.0.1:4000\nhost: evil.example.com",
    ] {
        for login in [Login::Link, Login::Token] {
            let headers = format!("{host}\n{cookie}");
            refuses(login, "GET BASE", &headers, Refusal::Host);
            refuses(login, "GET /?token=TOKEN", &headers, Refusal::Host);
        }
    }
    // A proxy's form of the request line.
    refuses(
        Login::Link,
        "GET http://evil.example.com/",
        GOOD,
        Refusal::Host,
    );
}

#[test]
fn names_are_compared_without_case() {
    let found = check(
        &guard(Login::Link),
        "GET BASE",
        "host: LocalHost:4000\ncookie: allot-dashboard=SESSION",
    );
    assert!(found.is_ok());
}

#[test]
fn other_sites_are_refused() {
    for header in [
        "origin: https://evil.example.com",
        "origin: null",
        "origin: http://127.0.0.1:4001",
        "origin: http://localhost:4000.evil.example.com",
        "origin: http://127.0.0.1:4000\norigin: http://evil.example.com",
        "sec-fetch-site: cross-site",
        "sec-fetch-site: same-site",
        // Frames, images and scripts of other pages.
        "sec-fetch-site: cross-site\nsec-fetch-mode: navigate\nsec-fetch-dest: iframe",
        "sec-fetch-site: cross-site\nsec-fetch-mode: no-cors\nsec-fetch-dest: script",
    ] {
        for line in ["GET BASE", "GET BASEapi/list", "GET BASEapp.js"] {
            refuses(
                Login::Link,
                line,
                &format!("{GOOD}\n{header}"),
                Refusal::Origin,
            );
        }
    }
    // The name is right, and the origin is another name of the same server.
    let headers = format!("{GOOD}\norigin: http://localhost:4000");
    refuses(Login::Link, "GET BASEapi/list", &headers, Refusal::Origin);
}

#[test]
fn a_link_in_another_program_may_be_followed() {
    let headers = format!(
        "{GOOD}\nsec-fetch-site: cross-site\nsec-fetch-mode: navigate\nsec-fetch-dest: document"
    );
    let guard = guard(Login::Link);
    assert!(check(&guard, "GET /?token=TOKEN", &headers).is_ok());
}

#[test]
fn without_the_secrets_there_is_nothing() {
    let host = "host: 127.0.0.1:4000";
    for target in ["/", "/?token=", "/?token=x", "/?token=SESSION", "/?x=TOKEN"] {
        refuses(Login::Link, &format!("GET {target}"), host, Refusal::Link);
    }
    for cookie in [
        "",
        "cookie: allot-dashboard=",
        "cookie: allot-dashboard=TOKEN",
        "cookie: allot-dashboard=SESSIONx",
        "cookie: xallot-dashboard=SESSION",
        "cookie: allot-dashboard-x=SESSION",
        "authorization: Bearer SESSION",
    ] {
        let headers = format!("{host}\n{cookie}");
        for line in ["GET BASE", "GET BASEapp.js", "GET BASEapi/list"] {
            refuses(Login::Link, line, &headers, Refusal::Link);
        }
    }
    // Without the directory no path exists.
    for path in ["/api/list", "/app.js", "/api/v1/secrets", "//api/list"] {
        refuses(Login::Link, &format!("GET {path}"), GOOD, Refusal::Missing);
    }
}

#[test]
fn nothing_is_written() {
    for method in [
        "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "POST", "TRACE",
    ] {
        for login in [Login::Link, Login::Token] {
            let line = format!("{method} BASEapi/list");
            refuses(login, &line, GOOD, Refusal::Method);
        }
        refuses(
            Login::Link,
            &format!("{method} /?token=TOKEN"),
            GOOD,
            Refusal::Method,
        );
    }
    for header in ["content-length: 1", "transfer-encoding: chunked"] {
        let headers = format!("{GOOD}\n{header}");
        refuses(Login::Link, "GET BASEapi/list", &headers, Refusal::Body);
    }
}

#[test]
fn a_post_names_its_origin() {
    refuses(Login::Link, "POST BASEapi/filter", GOOD, Refusal::Origin);
    let headers = format!("{GOOD}\norigin: http://127.0.0.1:4000");
    let found = check(&guard(Login::Link), "POST BASEapi/filter", &headers);
    assert!(matches!(found, Ok(Pass::Data { .. })), "{found:?}");
}

#[test]
fn tokens_are_passed_on_and_not_made() {
    let host = "host: 127.0.0.1:4000";
    let guard = guard(Login::Token);
    let found = check(
        &guard,
        "GET /api/list",
        &format!("{host}\nauthorization: Bearer abc"),
    );
    let Ok(Pass::Data {
        bearer: Some(bearer),
        ..
    }) = found
    else {
        panic!("{found:?}");
    };
    assert_eq!(bearer, "Bearer abc");
    assert!(bearer.is_sensitive(), "it is not logged");
    assert!(matches!(check(&guard, "GET /", host), Ok(Pass::File(_))));
    let long = format!("authorization: Bearer {}", "x".repeat(LONGEST_TOKEN + 1));
    for header in [
        "",
        "cookie: allot-dashboard=SESSION",
        "authorization: Basic abc",
        "authorization: Bearer ",
        "authorization: bearer",
        "authorization: Bearer a b",
        "authorization: Bearer a\nauthorization: Bearer b",
        &long,
    ] {
        let headers = format!("{host}\n{header}");
        refuses(Login::Token, "GET /api/list", &headers, Refusal::Token);
    }
}

/// A page in a folder of the API server's port.
#[test]
fn a_folder_is_the_whole_page() {
    let host = "host: 127.0.0.1:4000";
    let hosts = vec![HOST_NAME.to_owned()];
    let guard = Guard::new(Login::Token, hosts, "/dashboard/");
    // A token in the address is neither used nor kept.
    for target in ["/dashboard", "/dashboard?token=abc"] {
        let found = check(&guard, &format!("GET {target}"), host);
        assert!(matches!(found, Ok(Pass::Move { to }) if to == "/dashboard/"));
    }
    let found = check(&guard, "POST /dashboard", host);
    assert!(matches!(found, Err(Refusal::Method)), "{found:?}");
    let found = check(&guard, "GET /dashboard/?token=abc", host);
    assert!(matches!(found, Ok(Pass::File(path)) if path.is_empty()));
    let found = check(&guard, "GET /dashboard/api/list?token=abc", host);
    assert!(matches!(found, Err(Refusal::Token)), "{found:?}");
    for path in ["/", "/api/list", "/app.js", "/dashboards/", "//dashboard/"] {
        let found = check(&guard, &format!("GET {path}"), host);
        assert!(matches!(found, Err(Refusal::Missing)), "{path}: {found:?}");
    }
}

#[test]
fn http_2_has_the_name_in_the_request_line() {
    let guard = guard(Login::Token);
    let ask = |target: &str, headers: &str| {
        let mut head = head(&format!("GET {target}"), headers);
        head.version = Version::HTTP_2;
        guard.check(&head)
    };
    let ours = "https://127.0.0.1:4000/";
    assert!(ask(ours, "").is_ok());
    assert!(ask(ours, "host: 127.0.0.1:4000").is_ok());
    assert!(ask(ours, "origin: https://127.0.0.1:4000").is_ok());
    for (target, headers) in [
        ("https://evil.example.com/", ""),
        ("https://evil.example.com:4000/", "host: 127.0.0.1:4000"),
        (ours, "host: evil.example.com"),
        (ours, "host: 127.0.0.1:4000\nhost: 127.0.0.1:4000"),
        ("https://evil@127.0.0.1:4000/", ""),
        ("/", ""),
    ] {
        let found = ask(target, headers);
        assert!(matches!(found, Err(Refusal::Host)), "{target} {headers}");
    }
    let found = ask(ours, "origin: https://evil.example.com");
    assert!(matches!(found, Err(Refusal::Origin)), "{found:?}");
}
