//! The fuzz targets of parsers: input from clients, nodes, drivers and files. Must neither panic nor take long for any
//! input.

use std::sync::OnceLock;

use allot_apimachinery::fields::FieldSelector;
use allot_apimachinery::labels::{Labels, Selector};
use allot_apiserver::auth::Signer;
use allot_apiserver::config::AccountTokens;
use allot_apiserver::request::{Query, RequestInfo, parse_duration};

/// Method, path and query of a request, each on a line. What a request is about depends on the decoded path alone, or
/// two spellings of a path would be judged differently.
pub fn request(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.split('\n');
    let (method, path) = (
        lines.next().unwrap_or_default(),
        lines.next().unwrap_or_default(),
    );
    let query = Query::parse(lines.next());
    let Ok(method) = http::Method::from_bytes(method.as_bytes()) else {
        return;
    };
    let info = RequestInfo::parse(&method, path, &query);
    let encoded: String = info
        .path
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    assert_eq!(
        RequestInfo::parse(&method, &encoded, &query),
        info,
        "{path}"
    );
    for (key, value) in query.pairs() {
        assert!(query.get(key).is_some());
        let _ = (query.flag(key), parse_duration(value));
    }
}

/// Label and field selectors: their printed form parses as the same selector.
pub fn selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(selector) = Selector::parse(text) {
        let printed = selector.to_string();
        assert_eq!(
            Selector::parse(&printed).ok().as_ref(),
            Some(&selector),
            "{text} printed as {printed}"
        );
        let _ = selector.matches(&Labels::new());
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        let _ = selector.matches(|_| Some("x"));
        let _ = selector.exact("metadata.name");
    }
}

/// Headers that hold credentials.
pub fn credentials(data: &[u8]) {
    allot_apiserver::fuzzing::credentials(data);
}

/// Tokens of service accounts: none that this server has not signed is valid.
pub fn token(data: &[u8]) {
    static SIGNER: OnceLock<Signer> = OnceLock::new();
    let signer = SIGNER.get_or_init(|| Signer::new(&AccountTokens::default()).expect("a signer"));
    if let Ok(text) = std::str::from_utf8(data) {
        allot_apiserver::fuzzing::token(signer, text);
    }
}

/// Certificates and requests for them.
pub fn certificate(data: &[u8]) {
    allot_apiserver::fuzzing::certificate(data);
}

/// Bodies in protobuf.
pub fn protobuf(data: &[u8]) {
    allot_apiserver::fuzzing::protobuf(data);
}

/// Bodies in YAML.
pub fn yaml(data: &[u8]) {
    allot_apiserver::fuzzing::yaml(data);
}

/// A patch and its target, as two JSON documents on a line each: as JSON patch, merge patch and strategic merge patch
/// of a pod.
pub fn patch(data: &[u8]) {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let read = |part: &[u8]| serde_json::from_slice::<serde_json::Value>(part);
    let (Ok(patch), Ok(document)) = (read(&data[..end]), read(&data[end + 1..])) else {
        return;
    };
    if let Ok(operations) = allot_schema::json_patch::Patch::from_json(&patch) {
        let _ = operations.apply(&mut document.clone());
    }
    let mut merged = document.clone();
    allot_schema::json_patch::merge(&mut merged, &patch);
    let once = merged.clone();
    allot_schema::json_patch::merge(&mut merged, &patch);
    assert_eq!(
        merged, once,
        "a merge patch does something else the second time"
    );
    if let Some(pod) = allot_schema::types::lookup("", "v1", "Pod") {
        let _ = allot_schema::strategic::patch(&document, &patch, pod);
    }
}

/// Header blocks of gRPC, as drivers send them: two on one connection.
pub fn hpack(data: &[u8]) {
    const MOST: usize = 16 << 10;
    let mut decoder = allot_protos::hpack::Decoder::new(MOST);
    for block in data.split(|byte| *byte == 0xff).take(4) {
        match decoder.decode(block) {
            Ok(fields) => {
                let size: usize = fields
                    .iter()
                    .map(|field| field.name.len() + field.value.len())
                    .sum();
                assert!(size <= MOST, "{size} bytes of headers");
            }
            Err(_) => return,
        }
    }
}

/// Frames of SPDY.
pub fn spdy(data: &[u8]) {
    allot_node::fuzzing::spdy(data);
}

/// Frames of WebSocket, with channels.
pub fn websocket(data: &[u8]) {
    allot_node::fuzzing::websocket(data);
}

/// Answers of drivers by gRPC.
pub fn driver(data: &[u8]) {
    allot_node::fuzzing::driver(data);
}

/// Checkpoints of the node agent.
pub fn checkpoint(data: &[u8]) {
    let Ok(directory) = tempfile::tempdir() else {
        return;
    };
    allot_node::fuzzing::checkpoint(directory.path(), data);
}

/// CDI files, as JSON and as YAML: a valid one can be written and read again.
pub fn cdi(data: &[u8]) {
    let Ok(directory) = tempfile::tempdir() else {
        return;
    };
    for name in ["a.json", "a.yaml"] {
        let path = directory.path().join(name);
        if std::fs::write(&path, data).is_err() {
            return;
        }
        if let Ok(spec) = allot_cdi::Spec::read(&path) {
            let again = directory.path().join("again.json");
            spec.write(&again).expect("what was read can be written");
            allot_cdi::Spec::read(&again).expect("what was written can be read");
        }
    }
    let registry = allot_cdi::Registry::load(&[directory.path()]);
    let _ = registry.resolve(&["vendor.example/class=device"]);
}

/// Records of the store.
pub fn record(data: &[u8]) {
    allot_store::fuzzing::record(data);
}

/// Manifests, as `allot lint -f` and `allot convert -f` take them.
pub fn manifest(data: &[u8]) {
    use allot_model::convert::convert;
    use allot_model::features::Release;
    use allot_model::{Kind, Version};
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(data) else {
        return;
    };
    for minor in [30, 32, 34, 36] {
        let _ = allot_model::lint::lint(
            &document,
            Release::new(minor),
            &[],
            jiff::Timestamp::UNIX_EPOCH,
        );
    }
    let named = document["kind"].as_str().unwrap_or_default();
    for kind in Kind::ALL.into_iter().filter(|kind| kind.name() == named) {
        for from in Version::ALL {
            for to in Version::ALL {
                let _ = convert(kind, from, to, document.clone());
            }
        }
    }
}

/// Layers of images: the input is an archive, compressed or not, and in its first byte how it is unpacked.
pub fn layer(data: &[u8]) {
    use std::sync::atomic::AtomicBool;

    use allot_images::unpack::{Options, Ownership, Unpacker, Whiteouts};
    use allot_images::{Limits, Reference};

    let Some((first, layer)) = data.split_first() else {
        return;
    };
    // The same bytes as a name: an accepted name means the same in its full form.
    if let Some(reference) = std::str::from_utf8(layer)
        .ok()
        .and_then(|text| Reference::parse(text).ok())
    {
        assert_eq!(
            Reference::parse(&reference.to_string()).ok(),
            Some(reference)
        );
    }
    let Ok(directory) = tempfile::tempdir() else {
        return;
    };
    let path = |name: &str| directory.path().join(name);
    for name in ["root", "trash", "outside"] {
        std::fs::create_dir(path(name)).expect("the temporary directory is writable");
    }
    std::fs::write(path("outside/file"), "untouched").expect("the temporary directory is writable");
    let limits = Limits {
        unpacked: 1 << 20,
        entries: 200,
        header: 1 << 16,
        ..Limits::default()
    };
    let options = Options {
        limits,
        ownership: Ownership::Mine,
        whiteouts: if first & 1 == 0 {
            Whiteouts::Overlay
        } else {
            Whiteouts::Apply
        },
    };
    let cancel = AtomicBool::new(false);
    let mut unpacker = Unpacker::new(&path("root"), &path("trash"), options, &cancel)
        .expect("the directories are there");
    let _ = unpacker.layer(layer);
    let names = std::fs::read_dir(directory.path())
        .expect("the directory is there")
        .count();
    assert_eq!(names, 3, "something was made or removed beside the root");
    let outside = std::fs::read_to_string(path("outside/file")).ok();
    assert_eq!(outside.as_deref(), Some("untouched"));
    assert_eq!(
        std::fs::read_dir(path("outside"))
            .expect("the directory is there")
            .count(),
        1
    );
}
