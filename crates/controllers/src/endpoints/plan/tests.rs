use super::*;

fn service(spec: Value) -> Service {
    let meta = json!({"name": "s", "namespace": "d", "uid": "s-1", "labels": {"app": "a"}});
    serde_json::from_value(json!({"metadata": meta, "spec": spec})).expect("a service")
}

fn web() -> Service {
    service(
        json!({"selector": {"app": "web"}, "ipFamilies": ["IPv4"], "ports": [{"name": "http", "port": 80, "targetPort": "web"}]}),
    )
}

fn pod(name: &str, ip: &str, ready: bool) -> Arc<Pod> {
    let meta =
        json!({"name": name, "namespace": "d", "uid": name, "labels": {"app": "web", "x": "y"}});
    let ports = json!([{"name": "web", "containerPort": 8080}]);
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "ports": ports}]});
    let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
    let status = json!({"phase": "Running", "podIP": ip, "conditions": [condition]});
    let pod = json!({"metadata": meta, "spec": spec, "status": status});
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn changed(pod: &Pod, change: impl FnOnce(&mut Value)) -> Arc<Pod> {
    let mut value = json!(pod);
    change(&mut value);
    Arc::new(serde_json::from_value(value).expect("a pod"))
}

#[test]
fn a_service_selects_by_all_of_its_labels() {
    let pod = pod("a", "10.0.0.1", true);
    assert!(selects(&web(), &pod));
    assert!(!selects(
        &service(json!({"selector": {"app": "web", "x": "z"}})),
        &pod
    ));
    // Without a selector the endpoints are managed elsewhere.
    assert!(!selects(&service(json!({})), &pod));
    let external = json!({"type": "ExternalName", "selector": {"app": "web"}});
    assert!(!selects(&service(external), &pod));
}

#[test]
fn endpoints_tell_ready_pods_from_others() {
    let gone = changed(&pod("c", "10.0.0.3", true), |p| {
        p["status"]["phase"] = "Succeeded".into();
    });
    let leaving = changed(&pod("d", "10.0.0.4", true), |p| {
        p["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    });
    let pods = [
        pod("a", "10.0.0.1", true),
        pod("b", "10.0.0.2", false),
        gone,
        leaving,
    ];
    let object = endpoints(&web(), &pods);
    let subset = &object["subsets"][0];
    assert_eq!(subset["addresses"].as_array().map(Vec::len), Some(1));
    assert_eq!(subset["addresses"][0]["ip"], "10.0.0.1");
    assert_eq!(subset["addresses"][0]["nodeName"], "n");
    assert_eq!(subset["notReadyAddresses"][0]["ip"], "10.0.0.2");
    assert_eq!(
        subset["ports"],
        json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
    );
    assert_eq!(object["metadata"]["labels"]["app"], "a");
}

#[test]
fn slices_keep_pods_that_terminate_and_say_so() {
    let leaving = changed(&pod("d", "10.0.0.4", true), |p| {
        p["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    });
    let slices = slices(&web(), &[leaving]);
    assert_eq!(slices.len(), 1);
    let conditions = &slices[0]["endpoints"][0]["conditions"];
    assert_eq!(
        *conditions,
        json!({"ready": false, "serving": true, "terminating": true})
    );
    assert_eq!(slices[0]["metadata"]["labels"][SERVICE_NAME], "s");
    assert_eq!(slices[0]["metadata"]["ownerReferences"][0]["uid"], "s-1");
}

#[test]
fn many_pods_fill_several_slices_and_none_leave_an_empty_one() {
    let pods: Vec<_> = (0..250)
        .map(|i| pod(&format!("p{i}"), &format!("10.0.1.{i}"), true))
        .collect();
    let sizes: Vec<usize> = slices(&web(), &pods)
        .iter()
        .map(|s| s["endpoints"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(sizes, [100, 100, 50]);
    let empty = slices(&web(), &[]);
    assert_eq!(empty.len(), 1);
    assert_eq!(empty[0]["endpoints"], json!([]));
}

#[test]
fn a_port_that_no_container_has_is_left_out() {
    let odd = service(
        json!({"selector": {"app": "web"}, "ports": [{"port": 1, "targetPort": "none"}, {"port": 2}]}),
    );
    let object = endpoints(&odd, &[pod("a", "10.0.0.1", true)]);
    assert_eq!(
        object["subsets"][0]["ports"],
        json!([{"port": 2, "protocol": "TCP"}])
    );
}

/// Ports of sidecars were not found, as those of other init containers are not.
#[test]
fn regression_a_port_may_be_one_of_a_sidecar() {
    let named = |policy: Value| {
        let pod = changed(&pod("a", "10.0.0.1", true), |p| {
            p["spec"]["containers"] = json!([{"name": "c"}]);
            p["spec"]["initContainers"] = json!([{"name": "s", "restartPolicy": policy,
                "ports": [{"name": "web", "containerPort": 9000}]}]);
        });
        endpoints(&web(), &[pod])["subsets"][0]["ports"].clone()
    };
    let port = json!([{"name": "http", "port": 9000, "protocol": "TCP"}]);
    assert_eq!(named(json!("Always")), port);
    assert_ne!(named(Value::Null), port);
}

#[test]
fn unready_addresses_are_published_on_request() {
    let mut all = web();
    if let Some(spec) = &mut all.spec {
        spec.publish_not_ready_addresses = Some(true);
    }
    let pods = [pod("b", "10.0.0.2", false)];
    assert_eq!(
        endpoints(&all, &pods)["subsets"][0]["addresses"][0]["ip"],
        "10.0.0.2"
    );
    assert_eq!(
        slices(&all, &pods)[0]["endpoints"][0]["conditions"]["ready"],
        true
    );
}

#[test]
fn what_the_server_adds_is_no_difference() {
    let wanted = endpoints(&web(), &[]);
    let mut stored = wanted.clone();
    stored["metadata"]["uid"] = "u".into();
    if let Some(map) = stored.as_object_mut() {
        map.remove("subsets");
    }
    assert!(!differs(&stored, &wanted, &["subsets"]));
    let more = endpoints(&web(), &[pod("a", "10.0.0.1", true)]);
    assert!(differs(&stored, &more, &["subsets"]));
}

/// A pod with addresses, of a service with families: which addresses are where.
#[test]
fn endpoints_and_slices_are_of_the_families_of_the_service() {
    let (four, six) = ("10.0.0.1", "2001:db8::1");
    let both = &[four, six][..];
    for (families, address, of_pod, endpoint, expected) in [
        (
            json!(["IPv4"]),
            "10.96.0.9",
            both,
            Some(four),
            vec![("IPv4", Some(four))],
        ),
        (
            json!(["IPv6"]),
            "fd00::9",
            both,
            Some(six),
            vec![("IPv6", Some(six))],
        ),
        (
            json!(["IPv6", "IPv4"]),
            "fd00::9",
            both,
            Some(six),
            vec![("IPv4", Some(four)), ("IPv6", Some(six))],
        ),
        // The slice of a family of which no pod is has no endpoints.
        (
            json!(["IPv4", "IPv6"]),
            "10.96.0.9",
            &[four][..],
            Some(four),
            vec![("IPv4", Some(four)), ("IPv6", None)],
        ),
        (
            json!(["IPv6"]),
            "None",
            &[four][..],
            None,
            vec![("IPv6", None)],
        ),
        // Services from before there were families.
        (
            Value::Null,
            "fd00::9",
            both,
            Some(six),
            vec![("IPv6", Some(six))],
        ),
        (
            Value::Null,
            "None",
            &[six][..],
            Some(six),
            vec![("IPv4", None), ("IPv6", Some(six))],
        ),
    ] {
        let named = format!("{families} {address} {of_pod:?}");
        let service = service(json!({
            "selector": {"app": "web"}, "ports": [{"port": 80}], "clusterIP": address, "ipFamilies": families,
        }));
        let pod = changed(&pod("a", of_pod[0], true), |pod| {
            let ips = of_pod.iter().map(|ip| json!({"ip": ip}));
            pod["status"]["podIPs"] = ips.collect();
        });
        let pods = [pod];
        let object = endpoints(&service, &pods);
        let address = &object["subsets"][0]["addresses"][0]["ip"];
        assert_eq!(address.as_str(), endpoint, "{named}");
        let slices = slices(&service, &pods);
        let mut found: Vec<_> = slices
            .iter()
            .map(|slice| {
                let address = &slice["endpoints"][0]["addresses"][0];
                (
                    slice["addressType"].as_str().unwrap_or_default(),
                    address.as_str(),
                )
            })
            .collect();
        found.sort();
        assert_eq!(found, expected, "{named}");
    }
}
