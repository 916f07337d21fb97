//! The heads of requests and answers between a client and an extension API server.

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, SET_COOKIE, STRICT_TRANSPORT_SECURITY,
    UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::auth::credential;
use crate::config::{RequestHeaders, is_identity};
use crate::identity::User;
use crate::kubelet::copy_headers;

const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
const REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const REMOTE_EXTRA: &str = "x-remote-extra-";
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What a key of an extra attribute cannot have as a part of a header's name.
const IN_NAME: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'%')
    .add(b'(')
    .add(b')')
    .add(b',')
    .add(b'/')
    .add(b':')
    .add(b';')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?')
    .add(b'@')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'{')
    .add(b'}');

/// The headers that `Connection` names belong to that connection.
fn of_connection(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONNECTION).iter();
    // Bytes that are no text are part of no header's name, and hide none.
    let names = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    names
        .map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase())
        .collect()
}

/// Whether a client wants to go on with another protocol.
pub(super) fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE) && of_connection(headers).iter().any(|it| it == "upgrade")
}

/// The headers of a client's request that the service gets: none that belong to the connection or are credentials, and none
/// that could name another user.
pub(super) fn to_service(
    client: &HeaderMap,
    configured: Option<&RequestHeaders>,
    upgrade: bool,
) -> HeaderMap {
    let mut plain = client.clone();
    // A token in a subprotocol of a WebSocket.
    credential::forget(&mut plain);
    let dropped = of_connection(&plain);
    let mut headers = HeaderMap::new();
    copy_headers(&plain, &mut headers);
    for name in plain.keys() {
        let own = name.as_str().replace('_', "-");
        if dropped.iter().any(|it| it == name.as_str())
            || is_identity(name, configured)
            || own.starts_with("impersonate-")
            || own == "authorization"
            || [HOST, CONTENT_LENGTH, COOKIE, EXPECT, UPGRADE].contains(name)
            || own == "proxy-connection"
        {
            headers.remove(name);
        }
    }
    if let (true, Some(protocol)) = (upgrade, plain.get(UPGRADE)) {
        headers.insert(UPGRADE, protocol.clone());
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    headers
}

/// Adds the address of the client to those that proxies have seen before.
pub(super) fn forwarded_for(headers: &mut HeaderMap, client: std::net::IpAddr) {
    let known = headers.get_all(FORWARDED_FOR).iter();
    let mut all: Vec<String> = known
        .filter_map(|value| value.to_str().ok().map(str::to_owned))
        .collect();
    all.push(client.to_canonical().to_string());
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// Whether the server with this name has sent the request on before.
pub(super) fn has_passed(headers: &HeaderMap, own: &str) -> bool {
    let values = headers.get_all(VIA).iter();
    let mut text = values.filter_map(|value| value.to_str().ok());
    text.any(|text| text.split([',', ' ']).any(|word| word == own))
}

/// Notes that the server with this name sends the request on.
pub(super) fn pass(headers: &mut HeaderMap, own: &str) {
    if let Ok(value) = HeaderValue::from_str(&format!("1.1 {own}")) {
        headers.append(VIA, value);
    }
}

/// Names the user of a request. What was there under these names is replaced.
///
/// # Errors
/// The part of the identity that cannot be in a header. Without it the user would be another one.
pub(super) fn name_user(headers: &mut HeaderMap, user: &User) -> Result<(), &'static str> {
    let value = |text: &str, part| HeaderValue::from_bytes(text.as_bytes()).map_err(|_| part);
    headers.insert(REMOTE_USER, value(&user.name, "name")?);
    if !user.uid.is_empty() {
        headers.insert(REMOTE_UID, value(&user.uid, "uid")?);
    }
    for group in &user.groups {
        headers.append(REMOTE_GROUP, value(group, "group")?);
    }
    for (key, values) in &user.extra {
        let key = utf8_percent_encode(key, IN_NAME);
        let name = HeaderName::try_from(format!("{REMOTE_EXTRA}{key}"));
        let name = name.map_err(|_| "extra attribute")?;
        for text in values {
            headers.append(name.clone(), value(text, "extra attribute")?);
        }
    }
    Ok(())
}

/// The headers of an answer that the client gets.
pub(super) fn to_client(service: &HeaderMap, upgrade: bool) -> HeaderMap {
    let dropped = of_connection(service);
    let mut headers = HeaderMap::new();
    copy_headers(service, &mut headers);
    for name in service.keys() {
        // What this server says about itself and the request, and cookies, which a page on its port may have.
        let own = [SET_COOKIE, STRICT_TRANSPORT_SECURITY].contains(name)
            || name == "audit-id"
            || name.as_str().starts_with("x-kubernetes-pf-");
        if own || name == UPGRADE || dropped.iter().any(|it| it == name.as_str()) {
            headers.remove(name);
        }
    }
    if let (true, Some(protocol)) = (upgrade, service.get(UPGRADE)) {
        headers.insert(UPGRADE, protocol.clone());
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = list.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, value);
        }
        map
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Whatever a client sends, the service must not take it for another user.
    #[test]
    fn credentials_and_identities_of_a_client_do_not_reach_the_service() {
        let client = map(&[
            ("accept", "application/json"),
            ("authorization", "Bearer t"),
            ("cookie", "session=1"),
            ("x-remote-user", "admin"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("x_remote_user", "admin"),
            ("x-login", "admin"),
            ("impersonate-user", "admin"),
            ("impersonate_user", "admin"),
            ("connection", "close, X-Secret"),
            ("x-secret", "1"),
            ("keep-alive", "1"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("content-length", "5"),
            ("expect", "100-continue"),
            ("proxy-authorization", "Basic eA=="),
            ("proxy-connection", "close"),
        ]);
        let configured = RequestHeaders {
            ca: String::new(),
            allowed_names: Vec::new(),
            username: vec![HeaderName::from_static("x-login")],
            uid: Vec::new(),
            group: Vec::new(),
            extra_prefixes: Vec::new(),
        };
        let mut sent = to_service(&client, Some(&configured), false);
        assert_eq!(names(&sent), ["accept"]);
        let mut user = User::new("system:serviceaccount:a:b", ["team"]);
        user.extra.insert(
            "example.org/key".to_owned(),
            vec!["1".to_owned(), "2".to_owned()],
        );
        sent.append(REMOTE_USER, HeaderValue::from_static("left over"));
        name_user(&mut sent, &user).unwrap();
        let all = |name: &str| -> Vec<&str> {
            sent.get_all(name)
                .iter()
                .map(|it| it.to_str().unwrap())
                .collect()
        };
        assert_eq!(all("x-remote-user"), [user.name.as_str()]);
        assert_eq!(all("x-remote-group"), ["team", "system:authenticated"]);
        assert_eq!(all("x-remote-extra-example.org%2fkey"), ["1", "2"]);
        assert_eq!(all("x-remote-uid"), [""; 0]);
    }

    #[test]
    fn an_identity_that_no_header_can_hold_is_refused() {
        for (name, group) in [("a\nb", "g"), ("a", "g\r\nx-remote-group: system:masters")] {
            let user = User::new(name, [group]);
            assert!(name_user(&mut HeaderMap::new(), &user).is_err());
        }
        let mut user = User::new("jörg", ["größe"]);
        user.extra
            .insert("a b\r\n".to_owned(), vec!["1".to_owned()]);
        let mut headers = HeaderMap::new();
        name_user(&mut headers, &user).unwrap();
        assert_eq!(headers[REMOTE_USER].as_bytes(), "jörg".as_bytes());
        assert!(headers.contains_key("x-remote-extra-a%20b%0d%0a"));
    }

    #[test]
    fn an_upgrade_is_asked_for_by_both_headers() {
        let upgrade = map(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "SPDY/3.1"),
        ]);
        assert!(wants_upgrade(&upgrade));
        assert_eq!(
            names(&to_service(&upgrade, None, true)),
            ["connection", "upgrade"]
        );
        assert!(!wants_upgrade(&map(&[("upgrade", "SPDY/3.1")])));
        assert!(!wants_upgrade(&map(&[("connection", "upgrade")])));
    }

    #[test]
    fn a_server_knows_its_own_requests() {
        let mut headers = map(&[("via", "1.0 fred, 1.1 p.example.net")]);
        assert!(!has_passed(&headers, "allot-1"));
        pass(&mut headers, "allot-1");
        assert!(has_passed(&headers, "allot-1"));
        assert!(!has_passed(&headers, "allot-10"));
    }

    #[test]
    fn answers_lose_what_belongs_to_the_connection_and_to_the_server() {
        let service = map(&[
            ("content-type", "application/json"),
            ("content-length", "2"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("set-cookie", "a=b"),
            ("audit-id", "1"),
            ("x-kubernetes-pf-flowschema-uid", "1"),
            ("strict-transport-security", "max-age=1"),
            ("warning", "299 - \"old\""),
        ]);
        assert_eq!(
            names(&to_client(&service, false)),
            ["content-length", "content-type", "warning"]
        );
    }

    #[test]
    fn addresses_of_clients_add_up() {
        let mut headers = map(&[("x-forwarded-for", "192.0.2.1")]);
        forwarded_for(&mut headers, "::ffff:10.0.0.7".parse().unwrap());
        assert_eq!(headers[FORWARDED_FOR], "192.0.2.1, 10.0.0.7");
    }
}
