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
