use super::*;

fn check(accept: &str, want: Option<Shape>) {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, accept.parse().unwrap());
    let got = negotiate(&headers, &Query::default(), Offer::Builtin)
        .ok()
        .map(|media| media.shape);
    assert_eq!(got, want, "{accept}");
}

#[test]
fn kubectl_gets_a_table() {
    check(
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        Some(Shape::Table),
    );
}

#[test]
fn unknown_shapes_are_skipped() {
    check(
        "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
        Some(Shape::Whole),
    );
    check("application/json;as=Table;v=v9;g=meta.k8s.io", None);
    check(
        "application/vnd.kubernetes.protobuf, application/json",
        Some(Shape::Whole),
    );
    check("text/html", None);
    check(
        "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
        None,
    );
    check("*/*", Some(Shape::Whole));
}

#[test]
fn nothing_is_a_watch_in_yaml() {
    check("application/yaml;stream=watch", None);
    check("application/json;stream=watch", Some(Shape::Whole));
    check(
        "application/yaml;stream=watch,application/json;q=0.1",
        Some(Shape::Whole),
    );
}

/// Clients of allot say that they have no preference: objects need not be encoded again for them.
#[test]
fn clients_without_a_preference_get_what_is_stored() {
    let encoding = |accept: &str, offer| {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        negotiate(&headers, &Query::default(), offer)
            .unwrap()
            .encoding
    };
    let (go, ours) = (
        "application/vnd.kubernetes.protobuf,application/json",
        "application/vnd.kubernetes.protobuf,application/json;native=1",
    );
    assert_eq!(encoding(go, Offer::Builtin), Encoding::Protobuf);
    assert_eq!(encoding(go, Offer::Custom), Encoding::Json);
    assert_eq!(encoding(ours, Offer::Builtin), Encoding::Json);
    assert_eq!(encoding(ours, Offer::Custom), Encoding::Json);
}
