use super::*;

#[test]
fn schemas_close_over_their_references() {
    for format in [Format::V2, Format::V3] {
        let out = schemas(types::all(), format);
        let text = Value::Object(out.clone()).to_string();
        for part in text.split("\"$ref\":\"").skip(1) {
            let name = part
                .split('"')
                .next()
                .unwrap_or_default()
                .rsplit('/')
                .next()
                .unwrap_or_default();
            assert!(out.contains_key(name), "{name}");
        }
    }
}

#[test]
fn a_claim_is_published_with_its_merge_facts() {
    let id = types::lookup_id("resource.k8s.io", "v1", "ResourceClaim").expect("claims");
    let out = schemas([id], Format::V3);
    let claim = &out["io.k8s.api.resource.v1.ResourceClaim"];
    assert_eq!(claim["required"], json!(["spec"]));
    assert_eq!(
        claim["x-kubernetes-group-version-kind"],
        json!([{"group":"resource.k8s.io","version":"v1","kind":"ResourceClaim"}])
    );
    let reserved = &out["io.k8s.api.resource.v1.ResourceClaimStatus"]["properties"]["reservedFor"];
    assert_eq!(reserved["x-kubernetes-list-map-keys"], json!(["uid"]));
    assert_eq!(reserved["x-kubernetes-patch-merge-key"], "uid");
    assert_eq!(
        out["io.k8s.api.resource.v1.DeviceSubRequest"]["required"],
        json!(["name", "deviceClassName"])
    );
}

#[test]
fn known_values_are_published_of_fields_and_of_elements() {
    for format in [Format::V2, Format::V3] {
        let out = schemas(types::all(), format);
        let values = |name: &str, path: &str| out[name].pointer(path).cloned();
        assert_eq!(
            values(
                "io.k8s.api.core.v1.ContainerPort",
                "/properties/protocol/enum"
            ),
            Some(json!(["SCTP", "TCP", "UDP"]))
        );
        assert_eq!(
            values(
                "io.k8s.api.networking.v1.NetworkPolicySpec",
                "/properties/policyTypes/items/enum"
            ),
            Some(json!(["Egress", "Ingress"]))
        );
        let sizes = "/properties/allocatedResourceStatuses/additionalProperties/enum/0";
        assert_eq!(
            values("io.k8s.api.core.v1.PersistentVolumeClaimStatus", sizes),
            Some(json!("ControllerResizeInProgress"))
        );
        let usages = "/properties/usages/items/enum/1";
        assert_eq!(
            values(
                "io.k8s.api.certificates.v1.CertificateSigningRequestSpec",
                usages
            ),
            Some(json!("cert sign"))
        );
    }
}

#[test]
fn custom_schemas_gain_what_all_objects_have() {
    let schema = json!({"type":"object","properties":{"spec":{"type":"object","nullable":true,"oneOf":[{"required":["a"]}]}}});
    let v2 = custom_schema(&schema, "example.com", "v1", "Gadget", Format::V2);
    assert_eq!(v2["properties"]["spec"], json!({}));
    assert_eq!(
        v2["properties"]["metadata"],
        json!({"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"})
    );
    assert_eq!(
        custom_name("a.example.com", "v1", "Gadget"),
        "com.example.a.v1.Gadget"
    );
}

/// Reads the length-delimited fields of a message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in 0.. {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << (7 * shift);
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        assert_eq!(tag & 7, 2, "the test reads messages and texts only");
        let length = varint(&mut bytes) as usize;
        out.push((tag >> 3, bytes[..length].to_vec()));
        bytes = &bytes[length..];
    }
    out
}

#[test]
fn documents_have_a_protobuf_form() {
    let document = json!({"openapi":"3.0.0","info":{"title":"T","version":"v1"},"components":{"schemas":{"A":{
        "type":"object","properties":{"b":{"$ref":"#/components/schemas/B"}},"x-kubernetes-list-map-keys":["k"]}}}});
    let top = fields(&proto::encode(&document, Format::V3));
    assert_eq!(top[0], (1, b"3.0.0".to_vec()));
    let components = &top
        .iter()
        .find(|(number, _)| *number == 5)
        .expect("components")
        .1;
    let named = fields(&fields(components)[0].1);
    let pair = fields(&named[0].1);
    assert_eq!(pair[0], (1, b"A".to_vec()));
    let schema = fields(&fields(&pair[1].1)[0].1);
    assert!(schema.contains(&(25, b"object".to_vec())));
    let extension = fields(
        &schema
            .iter()
            .find(|(number, _)| *number == 36)
            .expect("an extension")
            .1,
    );
    assert_eq!(extension[0].1, b"x-kubernetes-list-map-keys");
    assert_eq!(fields(&extension[1].1), [(2, b"[\"k\"]\n".to_vec())]);
}

#[test]
fn shared_parameters_have_a_protobuf_form() {
    let limit = json!({"name":"limit","in":"query","type":"integer"});
    let document = json!({
        "paths": {"/a": {"parameters": [{"$ref":"#/parameters/limit-1"}, limit]}},
        "parameters": {"limit-1": limit},
    });
    let top = fields(&proto::encode(&document, Format::V2));
    assert_eq!(top.iter().map(|it| it.0).collect::<Vec<_>>(), [8, 10]);
    let path = fields(&fields(&top[0].1)[0].1);
    let items = fields(&path[1].1);
    assert_eq!(items.iter().map(|it| it.0).collect::<Vec<_>>(), [9, 9]);
    let reference = fields(&items[0].1);
    assert_eq!(reference[0].0, 2);
    assert_eq!(
        fields(&reference[0].1),
        [(1, b"#/parameters/limit-1".to_vec())]
    );
    let own = fields(&items[1].1);
    let named = fields(&fields(&top[1].1)[0].1);
    assert_eq!(named[0], (1, b"limit-1".to_vec()));
    assert_eq!(named[1], (2, own[0].1.clone()));
}

#[test]
fn descriptions_are_of_types_and_fields_that_exist() {
    let structs: Vec<&'static Struct> = types::all().map(StructId::get).collect();
    for (ty, field) in describe::all().filter(|(ty, _)| *ty != "*") {
        let mut named = structs
            .iter()
            .filter(|it| it.simple_name() == ty)
            .peekable();
        assert!(named.peek().is_some(), "there is no type {ty}");
        assert!(
            field.is_empty() || named.any(|it| it.field(field).is_some()),
            "{ty} has no field {field}"
        );
    }
    // Every field of the kinds that this is about is described, in all versions.
    for structure in structs
        .iter()
        .filter(|it| it.name.starts_with("io.k8s.api.resource.v1."))
    {
        for field in &structure.fields {
            let list = structure.simple_name().ends_with("List");
            let text =
                describe::of_field(structure.simple_name(), field.name, structure.gvk.is_some());
            assert!(
                text.is_some() || list,
                "{}.{}",
                structure.simple_name(),
                field.name
            );
        }
    }
}

#[test]
fn descriptions_stand_beside_references_as_each_format_wants_it() {
    let id = types::lookup_id("", "v1", "Pod").expect("pods");
    let spec =
        |format| schemas([id], format)["io.k8s.api.core.v1.Pod"]["properties"]["spec"].clone();
    assert!(spec(Format::V2)["$ref"].is_string() && spec(Format::V2)["description"].is_string());
    let v3 = spec(Format::V3);
    assert!(v3["allOf"][0]["$ref"].is_string() && v3.get("$ref").is_none());
    assert!(v3["description"].is_string());
}
