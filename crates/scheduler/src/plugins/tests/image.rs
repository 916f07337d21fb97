//! Images that nodes have.

use rustc_hash::FxHashMap;

use super::*;
use crate::plugins::image::ImageLocality;

/// Checks the score of the only node, which has an image of 500 MiB and one of 200 MiB.
fn check_images(spec: Value, expected: i64) {
    let mib = |n: i64| n * 1024 * 1024;
    let value = json!({"metadata": {"name": "n"}, "status": {"images": [
        {"names": ["x.example/large:latest"], "sizeBytes": mib(500)},
        {"names": ["x.example/small:1"], "sizeBytes": mib(200)},
    ]}});
    let mut node = NodeInfo::new("n".into());
    node.set_node(Arc::new(serde_json::from_value(value).expect("fixture")));
    let spread: FxHashMap<String, usize> = node.images.keys().map(|i| (i.clone(), 1)).collect();
    let images = ImageLocality::new(&pod("p", json!({}), spec.clone()));
    assert_eq!(images.score(&node, &spread, 1), expected, "{spec}");
}

#[test]
fn images_of_containers_and_volumes_count() {
    let container = |image: &str| json!([{"name": "c", "image": image}]);
    let volume = |image: &str| json!([{"name": "v", "image": {"reference": image}}]);
    check_images(json!({"containers": container("x.example/other")}), 0);
    check_images(json!({"containers": container("x.example/large")}), 48);
    let with =
        |image: &str| json!({"containers": container("x.example/large"), "volumes": volume(image)});
    check_images(with("x.example/other"), 48);
    check_images(with("x.example/small:1"), 69);
    let both = json!({"containers": container("x.example/large"), "initContainers": container("x.example/small:1")});
    check_images(both, 34);
    check_images(
        json!({"containers": [], "volumes": volume("x.example/large")}),
        0,
    );
}
