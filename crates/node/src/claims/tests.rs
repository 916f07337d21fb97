use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::*;

#[test]
fn the_checkpoint_has_the_kubelets_form() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dra_manager_state");
    let mut cache = Cache::open(file.clone()).unwrap();
    let key = ("ns".to_owned(), "claim".to_owned());
    let claim = |uid: &str| FetchedClaim {
        metadata: ObjectMeta {
            uid: Some(uid.into()),
            ..ObjectMeta::default()
        },
        drivers: vec!["d".into()],
        ..FetchedClaim::default()
    };
    let info = cache.get_or_insert(key.clone(), &claim("u1")).unwrap();
    info.pods.insert("p1".into());
    let device = Device {
        pool: "n".into(),
        device: "a".into(),
        requests: vec!["r".into()],
        ..Device::default()
    };
    info.drivers.insert("d".into(), vec![device]);
    cache.save().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let outer: serde_json::Value = serde_json::from_str(&text).unwrap();
    let data = outer["Data"].as_str().unwrap();
    assert_eq!(outer["Checksum"], crc32fast::hash(data.as_bytes()));
    assert_eq!(
        data,
        "{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[\
         {\"ClaimUID\":\"u1\",\"ClaimName\":\"claim\",\"Namespace\":\"ns\",\"PodUIDs\":{\"p1\":{}},\"DriverState\":\
         {\"d\":{\"Devices\":[{\"PoolName\":\"n\",\"DeviceName\":\"a\",\"ShareID\":null,\"RequestNames\":[\"r\"],\
         \"CDIDeviceIDs\":null}]}}}]}"
    );
    // Of an agent that was killed while it wrote.
    let unfinished = directory.path().join(".dra_manager_state.7-1.tmp");
    std::fs::write(&unfinished, "").unwrap();
    let again = Cache::open(file.clone()).unwrap();
    assert_eq!(again.get(&key), cache.get(&key));
    assert!(!unfinished.exists());

    let error = cache.get_or_insert(key, &claim("u2")).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "old ResourceClaim with same name claim and different UID u1 still exists"
        ),
        "{error}"
    );

    assert_eq!((&again.damage, again.incomplete), (&None, false));
}

/// An empty file, as of a full disk, kept the node from starting.
#[test]
fn regression_a_damaged_checkpoint_is_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dra_manager_state");
    let sealed = |data: &str| {
        let checksum = crc32fast::hash(data.as_bytes());
        json!({"Data": data, "Checksum": checksum}).to_string()
    };
    let newer = "{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v9\",\"ClaimInfoStateList\":null}";
    for (text, reason) in [
        (String::new(), "EOF while parsing"),
        (
            sealed("{}").replace(":\"{}", ":\"{ }"),
            "checkpoint is corrupted",
        ),
        (sealed("{}"), "missing field"),
        (sealed(newer), "unknown checkpoint.dra.kubelet.k8s.io/v9"),
    ] {
        std::fs::write(&file, &text).unwrap();
        let cache = Cache::open(file.clone()).unwrap();
        let damage = cache.damage.clone().unwrap();
        assert!(damage.reason.contains(reason), "{damage:?}");
        assert_eq!(std::fs::read_to_string(&damage.path).unwrap(), text);
        assert!(cache.incomplete && !file.exists());
        // Also the next agent does not know what it was about.
        let next = Cache::open(file.clone()).unwrap();
        assert!(next.incomplete && next.damage.is_none());
        std::fs::remove_file(damage.path).unwrap();
        assert!(!Cache::open(file.clone()).unwrap().incomplete);
    }
}

#[test]
fn answers_have_to_fit_the_question() {
    let wanted = vec![ClaimToPrepare {
        namespace: "ns".into(),
        name: "c1".into(),
        uid: "u1".into(),
        ..ClaimToPrepare::default()
    }];
    let check = |answers: Vec<(&str, &str)>| {
        let answers = answers
            .into_iter()
            .map(|(uid, error)| (uid.to_owned(), error.to_owned(), Vec::new()))
            .collect();
        let checked = call::check_answers("NodePrepareResources", &wanted, answers);
        checked.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(check(vec![("u1", "")]), Ok(()));
    assert_eq!(
        check(vec![]),
        Err("NodePrepareResources skipped 1 ResourceClaims".into())
    );
    let expected = "NodePrepareResources failed for ResourceClaim c1: no";
    assert_eq!(check(vec![("u1", "no")]), Err(expected.into()));
    let expected = "NodePrepareResources returned result for unknown claim UID u2";
    assert_eq!(check(vec![("u2", "")]), Err(expected.into()));
}

/// The attack: a driver returns devices, names and errors without end. All of it was kept, compared and reported.
#[test]
fn answers_have_a_bounded_number_of_parts() {
    let wanted = vec![ClaimToPrepare {
        name: "c1".into(),
        uid: "u1".into(),
        ..ClaimToPrepare::default()
    }];
    let check = |uid: &str, error: &str, devices: Vec<Device>| {
        let answer = vec![(uid.to_owned(), error.to_owned(), devices)];
        let checked = call::check_answers("NodePrepareResources", &wanted, answer);
        checked
            .map(|found| found[0].1.len())
            .map_err(|error| error.to_string())
    };
    let devices = |devices: usize, ids: usize| {
        let device = Device {
            cdi_ids: vec!["v.com/c=d".into(); ids],
            requests: vec!["r".into()],
            ..Device::default()
        };
        vec![device; devices]
    };
    assert_eq!(check("u1", "", devices(128, 4)), Ok(128));
    for many in [devices(1, 100_000), devices(10_000, 0)] {
        let error = check("u1", "", many).unwrap_err();
        let expected = "NodePrepareResources returned more than 16384 devices, CDI device IDs and requests, up to ResourceClaim c1";
        assert_eq!(error, expected);
    }
    let long = "x".repeat(1 << 20);
    for (uid, error) in [("u1", long.as_str()), (&long, "")] {
        assert!(check(uid, error, Vec::new()).unwrap_err().len() < 2000);
    }
}
