use allot_driver::ClaimRef;
use allot_driver::classic::{
    AllocationResult, Handle as Told, NodeDriver, ParametersReference, StructuredHandle,
};
use serde_json::{Value, json};

use super::*;
use crate::controller::Resources;
use crate::plugin::{Config, Environment};

fn claim(uid: &str) -> ClaimRef {
    ClaimRef {
        namespace: "default".into(),
        name: "c".into(),
        uid: uid.into(),
    }
}

fn environment(directory: &std::path::Path, instances: usize) -> Environment {
    let mut config = Config::new(DRIVER_NAME, "n1", directory);
    config.instances = instances;
    Environment::new(&config)
}

/// The variables that a claim is prepared to, or the error.
async fn prepare(plugin: &Environment, uid: &str, handle: &Told) -> Result<Value, String> {
    let prepared = plugin.prepare(&claim(uid), handle).await;
    let ids = prepared.map_err(|error| error.to_string())?;
    assert_eq!(ids, [format!("{DRIVER_NAME}/test=claim-{uid}")]);
    Ok(json!(ids))
}

#[tokio::test]
async fn a_claim_becomes_a_cdi_file_of_the_documented_form() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = environment(directory.path(), 0);
    let handle = Told::Opaque(r#"{"EnvVars":{"user_a":"b"},"NodeName":""}"#.into());
    prepare(&plugin, "u1", &handle).await.unwrap();
    // Again, as after a restart of the kubelet.
    prepare(&plugin, "u1", &handle).await.unwrap();
    let file = directory.path().join("cdi/test-driver.cdi.k8s.io-u1.json");
    let content: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let device = json!({"name": "claim-u1", "containerEdits": {"env": ["user_a=b"]}});
    let expected =
        json!({"cdiVersion": "0.3.0", "kind": "test-driver.cdi.k8s.io/test", "devices": [device]});
    assert_eq!(content, expected);
    plugin.unprepare(&claim("u1")).await.unwrap();
    assert!(!file.exists());
    plugin.unprepare(&claim("u1")).await.unwrap();
}

#[tokio::test]
async fn what_the_kubelet_asks_for_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config::new(DRIVER_NAME, "n1", directory.path());
    let plugin = Environment::new(&config);
    for handle in [r#"{"EnvVars":{},"NodeName":""}"#, "cat"] {
        let _ = prepare(&plugin, "u", &Told::Opaque(handle.into())).await;
    }
    plugin.unprepare(&claim("u")).await.unwrap();
    let text = config.operations.encode();
    let counts: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let count = |error: bool, operation: &str| {
        format!("dra_driver_operations_total{{is_error=\"{error}\",operation=\"{operation}\"}} 1")
    };
    let expected = [
        count(false, "prepare"),
        count(true, "prepare"),
        count(false, "unprepare"),
    ];
    assert_eq!(counts, expected);
}

#[tokio::test]
async fn handles_of_others_and_for_others_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = environment(directory.path(), 0);
    let error = prepare(&plugin, "u", &Told::Opaque("cat".into()))
        .await
        .unwrap_err();
    assert!(error.starts_with("unmarshal resource handle: "), "{error}");
    let elsewhere = Told::Opaque(r#"{"EnvVars":{},"NodeName":"n2"}"#.into());
    let error = prepare(&plugin, "u", &elsewhere).await.unwrap_err();
    assert_eq!(
        error,
        "claim was allocated for \"n2\", cannot be prepared on \"n1\""
    );
}

fn structured(instances: &[&str]) -> Told {
    let result = |name: &&str| -> AllocationResult {
        serde_json::from_value(
            json!({"vendorRequestParameters": {"Leg": 4}, "namedResources": {"name": name}}),
        )
        .unwrap()
    };
    Told::Structured(StructuredHandle {
        vendor_class_parameters: json!({"x": "y"}),
        vendor_claim_parameters: json!({"color": "black"}),
        node_name: "n1".into(),
        results: instances.iter().map(result).collect(),
    })
}

#[tokio::test]
async fn instances_are_given_once() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = environment(directory.path(), 2);
    let known = plugin.resources().unwrap().borrow().clone();
    assert_eq!(
        known.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(),
        ["instance-00", "instance-01"]
    );
    prepare(&plugin, "u1", &structured(&["instance-00"]))
        .await
        .unwrap();
    let file = directory.path().join("cdi/test-driver.cdi.k8s.io-u1.json");
    let content: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let env = &content["devices"][0]["containerEdits"]["env"];
    assert_eq!(*env, json!(["admin_x=y", "user_color=black", "user_leg=4"]));
    // The same claim again is fine, another one is not.
    prepare(&plugin, "u1", &structured(&["instance-00"]))
        .await
        .unwrap();
    let error = prepare(&plugin, "u2", &structured(&["instance-00"]))
        .await
        .unwrap_err();
    assert_eq!(
        error,
        "resource instance \"instance-00\" used more than once"
    );
    let twice = structured(&["instance-01", "instance-01"]);
    let error = prepare(&plugin, "u2", &twice).await.unwrap_err();
    assert_eq!(
        error,
        "resource instance \"instance-01\" used more than once"
    );
    let error = prepare(&plugin, "u2", &structured(&["instance-02"]))
        .await
        .unwrap_err();
    assert_eq!(error, "unknown allocated instance \"instance-02\"");
    plugin.unprepare(&claim("u1")).await.unwrap();
    prepare(&plugin, "u2", &structured(&["instance-00"]))
        .await
        .unwrap();
}

#[test]
fn keys_are_in_lower_case_and_values_as_they_are() {
    let parameters =
        parameters::flat(&json!({"Color": "Black", "size": 3, "tail": true, "nested": {"a": "b"}}));
    let expected = [
        ("user_color", "Black"),
        ("user_size", "3"),
        ("user_tail", "true"),
    ];
    let expected: Variables = expected
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    assert_eq!(variables("user", &parameters), expected);
}

#[test]
fn the_file_of_resources_is_read_strictly() {
    let text = r#"{"NodeLocal": true, "Nodes": ["n1"], "MaxAllocations": 2, "Shareable": true}"#;
    let resources: Resources = serde_json::from_str(text).unwrap();
    assert_eq!((resources.max_allocations, resources.node_local), (2, true));
    assert!(serde_json::from_str::<Resources>(r#"{"maxAllocations": 2}"#).is_err());
}

mod allocation {
    //! Against a real API server in this process.

    use allot_apiserver::Server;
    use allot_apiserver::identity::User;
    use kube::Client;

    use super::*;

    #[tokio::test]
    async fn parameters_come_from_config_maps_and_custom_resources() {
        let server = Server::in_memory().await.unwrap();
        let client = Client::new(server.client_service(User::admin()), "default");
        let reference = |group: &str, kind: &str, name: &str| ParametersReference {
            api_group: group.into(),
            kind: kind.into(),
            name: name.into(),
            namespace: String::new(),
        };
        let read = async |reference: ParametersReference| {
            let found = parameters::read(&client, "claim", &reference, "default").await;
            found.map_err(|error| error.to_string())
        };
        let map: k8s_openapi::api::core::v1::ConfigMap =
            serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"a": "b"}})).unwrap();
        let maps: kube::Api<_> = kube::Api::namespaced(client.clone(), "default");
        maps.create(&Default::default(), &map).await.unwrap();
        let found = read(reference("", "ConfigMap", "m")).await.unwrap();
        assert_eq!(found, Variables::from([("a".to_owned(), "b".to_owned())]));
        assert_eq!(
            read(reference("", "ConfigMap", "other")).await.unwrap_err(),
            "get claim parameters: configmaps \"other\" not found"
        );
        let only = "claim parameters are only supported in APIVersion v1, Kind ConfigMap, got: ";
        assert_eq!(
            read(reference("", "Secret", "s")).await.unwrap_err(),
            format!("{only}Secret s")
        );
        let cat = reference("cats.example.com", "Cat", "s");
        assert_eq!(
            read(cat).await.unwrap_err(),
            format!("{only}Cat.cats.example.com s")
        );
        // A kind of that group, with a flat spec.
        let lease = reference("coordination.k8s.io", "Lease", "l");
        let object: k8s_openapi::api::coordination::v1::Lease = serde_json::from_value(
            json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}),
        )
        .unwrap();
        let leases: kube::Api<_> = kube::Api::namespaced(client.clone(), "default");
        leases.create(&Default::default(), &object).await.unwrap();
        let expected = Variables::from([("holderIdentity".to_owned(), "me".to_owned())]);
        assert_eq!(read(lease).await.unwrap(), expected);
    }
}
