//! The condition `Available`, and discovery.

use std::time::Duration;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_condition_tells_what_is_missing_and_requests_are_unavailable_until_then() {
    let extension = Extension::start(|_| None).await;
    let (server, backend) = server().await;
    let object = apiservice(json!({"caBundle": extension.bundle}));
    create(&server, APISERVICES, object).await;
    let message = wait_for_condition(&server, "False", "ServiceNotFound").await;
    assert_eq!(message, "service/ext in \"default\" is not present");
    let wrong =
        json!({"metadata": {"name": "ext"}, "spec": {"ports": [{"name": "https", "port": 80}]}});
    create(&server, SERVICES, wrong).await;
    let message = wait_for_condition(&server, "False", "ServicePortError").await;
    assert_eq!(
        message,
        "service/ext in \"default\" is not listening on port 443"
    );
    let ports = json!({"spec": {"ports": [{"name": "https", "port": 443}]}});
    let path = format!("{SERVICES}/ext");
    assert_eq!(admin(&server, "PATCH", &path, ports).await.0, 200);
    let message = wait_for_condition(&server, "False", "EndpointsNotFound").await;
    assert_eq!(
        message,
        "cannot find endpointslices for service/ext in \"default\""
    );
    for (name, ready) in [("other", true), ("https", false)] {
        endpoint(&backend, name, extension.port, ready).await;
        let message = wait_for_condition(&server, "False", "MissingEndpoints").await;
        let expected = "endpointslices for service/ext in \"default\" have no addresses with port name \"https\"";
        assert_eq!(message, expected);
    }
    let (code, _, body) = send_as(&server, User::admin(), "GET", THINGS, &[]).await;
    assert_eq!((code, body.as_str()), (503, "service unavailable\n"));
    // Nothing listens there.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    endpoint(&backend, "https", port, true).await;
    let message = wait_for_condition(&server, "False", "FailedDiscoveryCheck").await;
    let url = "https://ext.default.svc:443/apis/ext.example.com/v1";
    assert_eq!(
        message,
        format!(
            "failing or missing response from {url}: Get \"{url}\": dial tcp 127.0.0.1:{port}: connect: connection refused"
        )
    );
    endpoint(&backend, "https", extension.port, true).await;
    let message = wait_for_condition(&server, "True", "Passed").await;
    assert_eq!(message, "all checks passed");
    let (code, ..) = send_as(&server, User::admin(), "GET", THINGS, &[]).await;
    assert_eq!(code, 200);
    // It is asked for whatever it has: some services have their document in one form only, with parameters.
    let path = "/apis/ext.example.com/v1";
    let accepts = |it: &ReceivedRequest| it.target == path && it.headers.get("accept").is_none();
    assert!(extension.got.lock().iter().any(accepts));
    // A certificate of another CA is not trusted, unless the APIService says so.
    let other = Authority::generate("other").unwrap();
    let bundle = json!({"spec": {"caBundle": STANDARD.encode(other.certificate())}});
    let path = format!("{APISERVICES}/{NAME}");
    assert_eq!(admin(&server, "PATCH", &path, bundle).await.0, 200);
    let message = wait_for_condition(&server, "False", "FailedDiscoveryCheck").await;
    assert!(
        message.ends_with("x509: certificate signed by unknown authority"),
        "{message}"
    );
    let trusting = json!({"spec": {"caBundle": null, "insecureSkipTLSVerify": true}});
    assert_eq!(admin(&server, "PATCH", &path, trusting).await.0, 200);
    wait_for_condition(&server, "True", "Passed").await;
    // Without a service the group version is this server's, which has no such one.
    let local = json!({"spec": {"service": null, "insecureSkipTLSVerify": null}});
    assert_eq!(admin(&server, "PATCH", &path, local).await.0, 200);
    wait_for_condition(&server, "True", "Local").await;
    let (code, _, body) = send_as(&server, User::admin(), "GET", THINGS, &[]).await;
    assert_eq!((code, body.as_str()), (404, "404 page not found\n"));
}

/// The entry of the extension in aggregated discovery, with its position.
async fn aggregated_entry(server: &Server) -> Option<(usize, Value)> {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let (_, _, body) = send_as(server, User::admin(), "GET", "/apis", &[("accept", accept)]).await;
    let document: Value = serde_json::from_str(&body).unwrap();
    let items = document["items"].as_array().unwrap();
    let at = items
        .iter()
        .position(|it| it["metadata"]["name"] == "ext.example.com")?;
    Some((at, items[at]["versions"][0].clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_has_the_groups_of_extensions_also_when_they_do_not_answer() {
    let (server, backend, extension) = with_extension(|_| None).await;
    let (_, version) = aggregated_entry(&server).await.unwrap();
    assert_eq!(version["version"], "v1");
    assert_eq!(version["freshness"], "Current");
    assert_eq!(version["resources"][0]["resource"], "things");
    let (code, group) = admin(&server, "GET", "/apis/ext.example.com", Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(
        group["preferredVersion"]["groupVersion"],
        "ext.example.com/v1"
    );
    let at = |list: &Value, name: &str| {
        let groups = list["groups"].as_array().unwrap();
        groups.iter().position(|it| it["name"] == name).unwrap()
    };
    let (_, list) = admin(&server, "GET", "/apis", Value::Null).await;
    // 2000 is less than that of any built-in group.
    assert_eq!(
        at(&list, "ext.example.com"),
        list["groups"].as_array().unwrap().len() - 1
    );
    assert_eq!(at(&list, "apiregistration.k8s.io"), 0);
    let (_, paths) = admin(&server, "GET", "/", Value::Null).await;
    let paths = paths["paths"].as_array().unwrap();
    assert!(paths.contains(&json!("/apis/ext.example.com/v1")));
    // Before `apps`, and as its only endpoint goes away with what was known.
    let path = format!("{APISERVICES}/{NAME}");
    endpoint(&backend, "https", extension.port, false).await;
    wait_for_condition(&server, "False", "MissingEndpoints").await;
    wait::until("stale", || async {
        let (_, version) = aggregated_entry(&server).await.unwrap();
        match version["freshness"] == "Stale" && version["resources"][0]["resource"] == "things" {
            true => Ok(()),
            false => Err(version),
        }
    })
    .await;
    let first = json!({"spec": {"groupPriorityMinimum": 17_900}});
    assert_eq!(admin(&server, "PATCH", &path, first).await.0, 200);
    wait::until("the priority counts", || async {
        let (_, list) = admin(&server, "GET", "/apis", Value::Null).await;
        match at(&list, "ext.example.com") {
            1 => Ok(()),
            at => Err(at),
        }
    })
    .await;
    assert_eq!(admin(&server, "DELETE", &path, Value::Null).await.0, 200);
    wait::until("it is gone", || async {
        match aggregated_entry(&server).await {
            None => Ok(()),
            Some(found) => Err(found),
        }
    })
    .await;
}

fn hostile(path: &str) -> Option<Answer> {
    let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    (path == "/apis").then(|| {
        let mut answer = with(200, &json!("x".repeat(5 << 20)));
        answer
            .headers_mut()
            .insert("content-type", media.parse().unwrap());
        answer
    })
}

/// What is too large or no document is not used, and the older document takes its place.
#[tokio::test(flavor = "multi_thread")]
async fn documents_without_end_are_not_read() {
    let (server, _backend, _extension) = with_extension(hostile).await;
    wait::until("the older document is read", || async {
        match aggregated_entry(&server).await {
            Some((_, version)) if version == json!({"version": "v1", "freshness": "Current"}) => {
                Ok(())
            }
            other => Err(other),
        }
    })
    .await;
}

/// A service that leads to the server itself: the check of the service sees that, and no request goes around.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_leads_to_the_server_itself_ends() {
    let authority = Authority::generate("test").unwrap();
    let identity = authority
        .server("x", &["ext.default.svc".to_owned()], &[])
        .unwrap();
    let fronts = Authority::generate("fronts").unwrap();
    let (server, backend, address, _stop) =
        super::fronts::start(&identity, &authority, &fronts).await;
    create_service(&server, "ext").await;
    endpoint(&backend, "https", address.port(), true).await;
    let object = apiservice(json!({"caBundle": STANDARD.encode(authority.certificate())}));
    create(&server, APISERVICES, object).await;
    let found = wait_for_condition(&server, "False", "FailedDiscoveryCheck");
    let message = tokio::time::timeout(Duration::from_secs(100), found)
        .await
        .unwrap();
    assert!(message.ends_with(": 508"), "{message}");
    let (code, ..) = send_as(&server, User::admin(), "GET", THINGS, &[]).await;
    assert_eq!(code, 503);
}
