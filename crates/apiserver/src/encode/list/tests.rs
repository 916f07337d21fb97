//! A list that is made while it is sent is the list that is made at once.

use allot_model::features::Release;
use http_body_util::BodyExt;
use serde_json::json;

use super::*;
use crate::builtin;
use crate::registry::RuntimeConfig;

fn entries(kind: &str, count: usize) -> Vec<Arc<Entry>> {
    let entry = |number: usize| {
        let name = format!("{kind}-{number}");
        let object = json!({
            "metadata": {
                "name": name, "namespace": "default", "resourceVersion": number.to_string(),
                "creationTimestamp": "2024-01-01T00:00:00Z", "uid": "u",
                "labels": {"quoted": "a \"b\" \\ c", "umlaut": "äöü"},
                "annotations": {"lines": "one\n\n  two: [3]\n- four\n", "long": "word ".repeat(40)},
            },
            "data": {"text": "x".repeat(number % 700), "items": "items-", "empty": ""},
        });
        let bytes = serde_json::to_vec(&object).unwrap();
        Arc::new(Entry::new(
            format!("default/{name}").into(),
            number as u64,
            bytes.into(),
        ))
    };
    (1..=count).map(entry).collect()
}

async fn check(group: &str, plural: &str, version: &str, count: usize) {
    let registry = builtin::registry(&RuntimeConfig::default(), Release::NEWEST);
    let resource = registry.get(group, plural).unwrap().clone();
    for encoding in [
        Encoding::Json,
        Encoding::PrettyJson,
        Encoding::Yaml,
        Encoding::Protobuf,
    ] {
        for shape in [
            Shape::Whole,
            Shape::Metadata,
            Shape::MetadataV1beta1,
            Shape::Table,
        ] {
            if encoding == Encoding::Protobuf && shape == Shape::Table {
                continue;
            }
            let make = || Listing {
                resource: resource.clone(),
                version: version.to_owned(),
                media: MediaType { encoding, shape },
                options: table::Options {
                    headers: true,
                    include: table::Include::Metadata,
                },
                meta: json!({"resourceVersion": "7", "continue": "next", "remainingItemCount": 3}),
                entries: entries(plural, count),
            };
            let whole = make().whole().unwrap();
            let streamed = make().stream().await.unwrap();
            assert_eq!(whole.headers(), streamed.headers());
            let mut body = streamed.into_body();
            let mut bytes = Vec::new();
            while let Some(frame) = body.frame().await {
                let data = frame.unwrap().into_data().unwrap();
                // A piece is as long as it should be and what was begun.
                assert!(
                    data.len() < 3 * CHUNK || !make().can_stream(),
                    "{}",
                    data.len()
                );
                bytes.extend_from_slice(&data);
            }
            let whole = whole.into_body().collect().await.unwrap().to_bytes();
            let place = whole.iter().zip(&bytes).position(|(a, b)| a != b);
            assert!(
                whole == bytes,
                "{plural} {encoding:?} {shape:?}: {} and {} bytes, differ at {place:?}: {}",
                whole.len(),
                bytes.len(),
                String::from_utf8_lossy(&bytes[..bytes.len().min(600)]),
            );
        }
    }
}

#[tokio::test]
async fn streams_are_what_is_made_at_once() {
    check("", "configmaps", "v1", 500).await;
    check("apps", "deployments", "v1", 130).await;
    check("resource.k8s.io", "deviceclasses", "v1", 1).await;
}

#[test]
fn small_lists_are_made_at_once() {
    let listing = |count| Listing {
        resource: builtin::registry(&RuntimeConfig::default(), Release::NEWEST)
            .get("", "configmaps")
            .unwrap()
            .clone(),
        version: "v1".to_owned(),
        media: MediaType::JSON,
        options: table::Options {
            headers: true,
            include: table::Include::None,
        },
        meta: json!({}),
        entries: entries("configmaps", count),
    };
    assert!(listing(20).is_small());
    assert!(!listing(1000).is_small());
    // What a list of any size costs is a buffer and pointers.
    assert!(listing(1000).cost() < 1 << 20);
}
