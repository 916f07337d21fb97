use super::*;

fn check(headers: &[(&str, &[u8])], expected: Result<Option<&str>, Unusable>) {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        map.append(name, HeaderValue::from_bytes(value).unwrap());
    }
    let found = bearer(&map);
    assert_eq!(
        found,
        expected.map(|it| it.map(str::to_owned)),
        "{headers:?}"
    );
}

#[test]
fn a_bearer_token_is_read_whole_or_refused() {
    check(&[], Ok(None));
    for (value, expected) in [
        (&b"Bearer abc"[..], Ok(Some("abc"))),
        (b"bEaReR abc", Ok(Some("abc"))),
        (b"  Bearer abc  ", Ok(Some("abc"))),
        (b"Bearer abc def", Ok(Some("abc"))),
        (b"Bearer", Ok(None)),
        (b"Bearer  abc", Ok(None)),
        (b"Basic YTpi", Ok(None)),
        ("Bearer josé".as_bytes(), Ok(Some("josé"))),
        (b"Bearer jos\xe9", Err(Unusable)),
        (b"Bearer \xff", Err(Unusable)),
    ] {
        check(&[("authorization", value)], expected);
    }
    let twice: [(&str, &[u8]); 2] = [
        ("authorization", b"Bearer a"),
        ("authorization", b"Bearer b"),
    ];
    check(&twice, Err(Unusable));
}

#[test]
fn a_websocket_may_bring_its_token_as_a_subprotocol() {
    let upgrade: [(&str, &[u8]); 2] = [
        ("connection", b"keep-alive, Upgrade"),
        ("upgrade", b"websocket"),
    ];
    let with = |protocols: &[&'static [u8]]| {
        let mut headers = upgrade.to_vec();
        headers.extend(protocols.iter().map(|it| ("sec-websocket-protocol", *it)));
        headers
    };
    const TOKEN: &[u8] = b"base64url.bearer.authorization.k8s.io.YWJj";
    let channel: &[u8] = b"v5.channel.k8s.io";
    check(&with(&[channel, TOKEN]), Ok(Some("abc")));
    check(
        &with(&[b"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.YWJj"]),
        Ok(Some("abc")),
    );
    check(&with(&[TOKEN]), Err(Unusable));
    check(&with(&[channel, TOKEN, TOKEN]), Err(Unusable));
    check(
        &with(&[channel, b"base64url.bearer.authorization.k8s.io.?"]),
        Err(Unusable),
    );
    check(
        &with(&[channel, b"base64url.bearer.authorization.k8s.io._w"]),
        Err(Unusable),
    );
    check(&with(&[channel]), Ok(None));
    // Without an upgrade the header says nothing.
    check(&[("sec-websocket-protocol", TOKEN)], Ok(None));
}

#[test]
fn a_proven_token_goes_no_further() {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer abc"));
    headers.insert(
        SEC_WEBSOCKET_PROTOCOL,
        HeaderValue::from_static("v5.channel.k8s.io,base64url.bearer.authorization.k8s.io.YWJj"),
    );
    forget(&mut headers);
    assert_eq!(headers.len(), 1);
    assert_eq!(headers[SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io");
}
