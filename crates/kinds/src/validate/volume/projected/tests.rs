//! Trust bundles and pod certificates in projected volumes, with upstream's texts.

use serde_json::json;

use super::*;

fn wrong(sources: Value) -> Vec<String> {
    let mut errors = ErrorList::new();
    let volume = json!({"sources": sources});
    check(&volume, &Path::new("p"), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn trust_bundles_are_those_of_a_name_or_of_a_signer() {
    let bundle = |fields: Value| json!([{"clusterTrustBundle": fields}]);
    for fields in [
        json!({"name": "plain", "path": "ca.pem"}),
        json!({"name": "example.com:ca:one", "path": "a/ca.pem"}),
        json!({"signerName": "example.com/ca", "path": "ca.pem"}),
        json!({"signerName": "example.com/ca", "labelSelector": {}, "path": "ca.pem", "optional": true}),
    ] {
        assert_eq!(wrong(bundle(fields.clone())), [""; 0], "{fields}");
    }
    let at = "p.sources[0].clusterTrustBundle";
    for (fields, expected) in [
        (
            json!({"path": "x"}),
            vec![": Required value: either name or signerName must be specified"],
        ),
        (
            json!({"name": "a", "signerName": "a.b/c", "path": "x"}),
            vec![
                ": Invalid value: {\"Name\":\"a\",\"SignerName\":\"a.b/c\",\"LabelSelector\":null,\"Optional\":null,\"Path\":\"x\"}: only one of name and signerName may be used",
            ],
        ),
        (
            json!({"name": "a.b:c:", "path": "x"}),
            vec![
                ".name: Invalid value: \"a.b:c:\": not a valid clustertrustbundlename: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ],
        ),
        (
            json!({"name": "a", "labelSelector": {"matchLabels": {"a": "b"}}, "path": "x"}),
            vec![
                ".labelSelector: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: labelSelector must be unset if name is specified",
            ],
        ),
        (
            json!({"signerName": "", "path": "x"}),
            vec![
                ".signerName: Required value: must be a valid signer name",
                ".signerName: Required value",
            ],
        ),
        (
            json!({"signerName": "a.b/c", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "x"}]}, "path": "x"}),
            vec![
                ".labelSelector.matchExpressions[0].operator: Invalid value: \"x\": not a valid selector operator",
            ],
        ),
        (json!({"name": "a"}), vec![".path: Required value"]),
        (
            json!({"name": "a", "path": "../../etc/x"}),
            vec![".path: Invalid value: \"../../etc/x\": must not contain '..'"],
        ),
        (
            json!({"name": "a", "path": "/etc/x"}),
            vec![".path: Invalid value: \"/etc/x\": must be a relative path"],
        ),
        (
            json!({"name": "a", "path": "..data"}),
            vec![".path: Invalid value: \"..data\": must not start with '..'"],
        ),
    ] {
        let expected: Vec<String> = expected.iter().map(|it| format!("{at}{it}")).collect();
        assert_eq!(wrong(bundle(fields.clone())), expected, "{fields}");
    }
}

#[test]
fn pod_certificates_are_for_a_signer_with_a_key_and_a_path() {
    let with = |change: Value| {
        let mut fields =
            json!({"signerName": "example.com/ca", "keyType": "ED25519", "keyPath": "key"});
        let Value::Object(change) = change else {
            panic!("no object")
        };
        change
            .into_iter()
            .for_each(|(key, value)| fields[key] = value);
        json!([{"podCertificate": fields}])
    };
    for change in [
        json!({}),
        json!({"keyType": "RSA4096", "maxExpirationSeconds": 91 * 24 * 60 * 60}),
        json!({"keyType": "ECDSAP521", "certificateChainPath": "chain", "credentialBundlePath": "a/both"}),
        json!({"userAnnotations": {"Example.com/Any": "more than \u{fc}"}}),
    ] {
        assert_eq!(wrong(with(change.clone())), [""; 0], "{change}");
    }
    let at = "p.sources[0].podCertificate";
    for (change, expected) in [
        (json!({"signerName": ""}), ".signerName: Required value"),
        (
            json!({"signerName": "ca"}),
            ".signerName: Invalid value: \"ca\": must be a fully qualified domain and path of the form 'example.com/signer-name'",
        ),
        (
            json!({"keyType": "RSA2048"}),
            ".keyType: Unsupported value: \"RSA2048\": supported values: \"RSA3072\", \"RSA4096\", \"ECDSAP256\", \"ECDSAP384\", \"ECDSAP521\", \"ED25519\"",
        ),
        (
            json!({"maxExpirationSeconds": 3599}),
            ".maxExpirationSeconds: Invalid value: 3599: if provided, maxExpirationSeconds must be >= 3600",
        ),
        (
            json!({"maxExpirationSeconds": 91 * 24 * 60 * 60 + 1}),
            ".maxExpirationSeconds: Invalid value: 7862401: if provided, maxExpirationSeconds must be <= 7862400",
        ),
        (
            json!({"signerName": "kubernetes.io/ca", "maxExpirationSeconds": 86401}),
            ".maxExpirationSeconds: Invalid value: 86401: if provided, maxExpirationSeconds must be <= 86400",
        ),
        (
            json!({"keyPath": ""}),
            ": Required value: specify at least one of credentialBundlePath, keyPath, and certificateChainPath",
        ),
        (
            json!({"keyPath": "a/../../b"}),
            ".keyPath: Invalid value: \"a/../../b\": must not contain '..'",
        ),
        (
            json!({"certificateChainPath": "/etc/passwd"}),
            ".certificateChainPath: Invalid value: \"/etc/passwd\": must be a relative path",
        ),
        (
            json!({"credentialBundlePath": "..data/x"}),
            ".credentialBundlePath: Invalid value: \"..data/x\": must not start with '..'",
        ),
        (
            json!({"userAnnotations": {"plain": "x"}}),
            ".userAnnotations: Invalid value: \"plain\": must be a domain-prefixed key (such as \"acme.io/foo\")",
        ),
        (
            json!({"userAnnotations": {"a.b/c": "x".repeat(256 * 1024)}}),
            ".userAnnotations: Too long: may not be more than 262144 bytes",
        ),
    ] {
        assert_eq!(wrong(with(change)), [format!("{at}{expected}")]);
    }
}

/// The attack: a source whose file takes the place of another one's.
#[test]
fn no_file_has_two_sources() {
    let certificate = |keys: &[&str], place: &str| {
        let mut fields = json!({"signerName": "example.com/ca", "keyType": "ED25519"});
        keys.iter().for_each(|key| fields[*key] = json!(place));
        json!({"podCertificate": fields})
    };
    let secret = json!({"secret": {"name": "s", "items": [{"key": "k", "path": "x"}]}});
    let bundle = json!({"clusterTrustBundle": {"name": "b", "path": "x"}});
    let expected = "p: Invalid value: \"x\": conflicting duplicate paths".to_owned();
    for sources in [
        json!([secret, bundle]),
        json!([secret, certificate(&["keyPath"], "x")]),
        json!([bundle, certificate(&["certificateChainPath"], "x")]),
        json!([certificate(&["keyPath", "credentialBundlePath"], "x")]),
    ] {
        assert_eq!(
            wrong(sources.clone()),
            std::slice::from_ref(&expected),
            "{sources}"
        );
    }
    let both = json!([{"clusterTrustBundle": {"name": "b", "path": "x"}, "podCertificate": certificate(&["keyPath"], "y")["podCertificate"]}]);
    assert_eq!(
        wrong(both),
        ["p.sources[0]: Forbidden: may not specify more than 1 volume type per source"]
    );
}
