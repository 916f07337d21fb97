use allot_model::limits::ANNOTATIONS;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;

// Requests without a subject, the keys in them, and their signatures of `pod-uid`.
const ED25519: &str = "MH8wMwIBADAAMCowBQYDK2VwAyEA4EUBWKFlvlNNBV0IfbZ9iix1ros/fyUh6ewKmw3u5LGgADAFBgMrZXADQQCnlKmhKUkoGlbef5jQr4RKHFRUELLShle54byTLxFZHkUolF8gnBBUlFUNoiPJI6avoLeenfE2KSP3QkeeKD8M";
const ED25519_KEY: &str = "MCowBQYDK2VwAyEA4EUBWKFlvlNNBV0IfbZ9iix1ros/fyUh6ewKmw3u5LE=";
const ED25519_PROOF: &str =
    "lFq07LK2NsXW+HG+HTx6HeiwPzKRCkJWHFGY39xyimJLTKxR+ebZ5LapfwiMwBsptnrleXet722KdVTcrAaNCg==";
const P256: &str = "MIG6MGICAQAwADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABC4wfwKiCaiOhs+aftI+mr3VjG2QJMMs6R9Tkot1SjnLkRtpqzYtvxZ3ucjWpbs5MYW4QoHy2aNp4vqLEAd5ehmgADAKBggqhkjOPQQDAgNIADBFAiEAlo4e+pzqUpqVzV0XK2Ep/vqrNnClA6kwSbZ14hgmsPACIFpiHdjUazF6qatGOC9IAJ8conPoMMkhRgrlj1VJL2oI";
const P256_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAELjB/AqIJqI6Gz5p+0j6avdWMbZAkwyzpH1OSi3VKOcuRG2mrNi2/Fne5yNaluzkxhbhCgfLZo2ni+osQB3l6GQ==";
const P256_PROOF: &str = "MEUCIBz9EFy7UlWrFKi60OrEe1sDPFe2muf8Q5toGAOZ7Sl8AiEAjwoQDYw6UhmqXETJz5VgV3IOWICuYRGKWycZa/wtz8I=";
const P384: &str = "MIH3MH8CAQAwADB2MBAGByqGSM49AgEGBSuBBAAiA2IABKdra6IX8lnmP/Zx1DiuRoxy6+a5rD4BYzLNgC9KlelxneAxCU+MgGf24ejtOXf6d8XsXqGNiCWK7buVPnB+mbb+rApwUVbvgKopsghFLN0pjBJXdYwrAN2zr5/GaRpQIaAAMAoGCCqGSM49BAMDA2gAMGUCMHoIC0JcCz2gUOYM0XjOO+kmQFX/RYh1YF0RuwzOA/OhVLayeW6ETfXN7UrskA2u3QIxAMRIy/uah2X2KLHuYQIx1MiCJQd9EvUvSuJcj4gqsrHnZhX5TtsCty6NeUHAvYSrIA==";
const P521: &str = "MIIBQjCBpQIBADAAMIGbMBAGByqGSM49AgEGBSuBBAAjA4GGAAQBl0BWApDLl4DSCHa717nXkQ/Qhf5iDX7/MDBst9rzjbiAi4qDfLxqviAyuQzm8ICflUMx6MqNQVtSieNp2ZTQvsIA1MIRE0xVu3VPE2ZzYUjuxf0QUq7hOg8MtBtgT/LySQMyUE8a/05eWJ63nPK8+xB8biNlQ8x2UeLjjnwsjicxF36gADAKBggqhkjOPQQDBAOBiwAwgYcCQgEvHGyxwnrwoF3Z0u8apLs0ppjawi+xSWtkhx06mx8DGiBQBnEIagxdur4p5kbhS5U7L8VMN9dsSqNXUImfNfwp6AJBe3rnVsnC5dYIOolUrYTQk6XldISnpMITSovHj9e/4+Xi4LMMfNRNg2+kjYC/Js+A6REA2mh+9jcEiPXikh1KoUk=";
const RSA_2048: &str = "MIICRTCCAS0CAQAwADCCASIwDQYJKoZIhvcNAQEBBQADggEPADCCAQoCggEBAKaPRGclASbQUTaxF4rcarrIoKzCH+875CHPQTlWnq96MJkBtCDoCpCwoHaS32xzfyZI1hkwWdLzW7VAkyGpvQjeSs93UDInUj10N1em71o4ZP8MgdTwTSK/h/KOa9gJYqsD0wR3pGnSDQDQpxom6SiPRa3Ge2cevF/BLCx8ehEQxZ7Ob5XFyOU/X6in5/f5LUVjQOitX4TWOx44MPCqtPYHRwzxyruhOjXH4h4tk4QKIKXOwbsTiJfXCsuRIRNpzgz2n5kbDm24l1ikSVz4sURzXusrQPfVqCdMLedAYa5h4dxjCvUOpDnECHfgsXZyP4651fqUG1DD1LZekzxu/7sCAwEAAaAAMA0GCSqGSIb3DQEBCwUAA4IBAQCA/3nvBjFAWIl+OW95IQ9QGUP0ZhmI4Q8KDHrKD+w5psNAtg0rOgwP/G+s0wtRHtWihHnIjqSndFDyV5MD3JlF4zOchqYJmH6ygemCY465IvqRdiWV+kJGA8QqC4MGi0+Dr1cBYZTBNTHjHGkBlJll3PSgFvRSsTKt6eD/HvGrObKxf+iyos3BSl6Yz9SeDFExtynVlNbyze+hbKZe0hX/3Lun6mMVZEPo0RXlf2800z5uS38Yv9ZTqyAkf4fWYPD/4zfEP1gN4rmeuL/HhMKy3VPrPc5PD/c0lShEpUqoAUX9vVqwqh0Ni0Q2r/NuF0//xT3mOfLuf1JRMX5RK0Xt";

fn texts(errors: &ErrorList) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn created(change: &Value) -> Vec<String> {
    let mut spec = json!({
        "signerName": "example.com/signer", "podName": "p", "podUID": "pod-uid", "serviceAccountName": "a",
        "serviceAccountUID": "u", "nodeName": "n", "nodeUID": "u", "maxExpirationSeconds": 86400,
        "stubPKCS10Request": ED25519,
    });
    for (key, value) in change.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let mut errors = ErrorList::new();
    validate_create(&json!({"spec": spec}), &mut errors);
    texts(&errors)
}

#[test]
fn the_owner_of_the_key_has_signed_the_request() {
    let pair = |key: &str, proof: &str| json!({"stubPKCS10Request": null, "pkixPublicKey": key, "proofOfPossession": proof});
    for change in [
        json!({}),
        json!({"stubPKCS10Request": P256}),
        json!({"stubPKCS10Request": P384}),
        json!({"stubPKCS10Request": P521}),
        pair(ED25519_KEY, ED25519_PROOF),
        pair(P256_KEY, P256_PROOF),
    ] {
        assert_eq!(created(&change), [""; 0], "{change}");
    }
    let mut forged = STANDARD.decode(ED25519).unwrap();
    *forged.last_mut().unwrap() ^= 1;
    let mut longer = STANDARD.decode(ED25519).unwrap();
    longer.push(0);
    let both = json!({"pkixPublicKey": ED25519_KEY, "proofOfPossession": ED25519_PROOF});
    let one = "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
    let proof =
        "spec.proofOfPossession: Invalid value: could not verify proof-of-possession signature";
    let stub = |text: &str| format!("spec.stubPKCS10Request: Invalid value: {text}");
    for (change, expected) in [
        (json!({"stubPKCS10Request": STANDARD.encode(forged)}), stub("invalid signature")),
        (json!({"stubPKCS10Request": STANDARD.encode(longer)}), stub("must be a valid PKCS#10 CSR")),
        (json!({"stubPKCS10Request": "AAAA"}), stub("must be a valid PKCS#10 CSR")),
        (
            json!({"stubPKCS10Request": RSA_2048}),
            stub("\"2048-bit modulus\": RSA keys must have modulus size 3072 or 4096"),
        ),
        (
            json!({"stubPKCS10Request": STANDARD.encode([0_u8; MAX_KEY + 1])}),
            format!("spec.stubPKCS10Request: Too long: may not be more than {MAX_KEY} bytes"),
        ),
        (pair(ED25519_KEY, P256_PROOF), proof.to_owned()),
        (pair(P256_KEY, ED25519_PROOF), proof.to_owned()),
        (
            pair("AQI=", P256_PROOF),
            "spec.pkixPublicKey: Invalid value: []byte{0x1, 0x2}: must be a valid PKIX-serialized public key".to_owned(),
        ),
        (both, one.to_owned()),
        (json!({"stubPKCS10Request": null}), one.to_owned()),
        (json!({"stubPKCS10Request": null, "pkixPublicKey": ED25519_KEY}), one.to_owned()),
    ] {
        assert_eq!(created(&change), [expected]);
    }
    // A proof is for one pod.
    let mut other = pair(ED25519_KEY, ED25519_PROOF);
    other["podUID"] = "other-uid".into();
    assert_eq!(created(&other), [proof]);
}

#[test]
fn fields_are_checked() {
    for (change, expected) in [
        (
            json!({"podUID": ""}),
            "spec.podUID: Invalid value: \"\": must not be empty",
        ),
        (
            json!({"nodeUID": "u".repeat(129)}),
            "spec.nodeUID: Too long: may not be more than 128 bytes",
        ),
        (
            json!({"maxExpirationSeconds": 3599}),
            "spec.maxExpirationSeconds: Invalid value: 3599: must be in the range [3600, 7862400]",
        ),
        (
            json!({"signerName": "kubernetes.io/x", "maxExpirationSeconds": 86401}),
            "spec.maxExpirationSeconds: Invalid value: 86401: must be in the range [3600, 86400]",
        ),
        (
            json!({"maxExpirationSeconds": null}),
            "spec.maxExpirationSeconds: Required value: must be set",
        ),
        (
            json!({"unverifiedUserAnnotations": {"plain": "x"}}),
            "spec.unverifiedUserAnnotations: Invalid value: \"plain\": must be a domain-prefixed key (such as \"acme.io/foo\")",
        ),
        (
            json!({"unverifiedUserAnnotations": {"a.io/b": "x".repeat(ANNOTATIONS)}}),
            "spec.unverifiedUserAnnotations: Too long: may not be more than 262144 bytes",
        ),
    ] {
        assert_eq!(created(&change), [expected]);
    }
    assert_eq!(created(&json!({"podName": "P"})).len(), 1);
    assert_eq!(created(&json!({"signerName": "x"})).len(), 1);
}

#[test]
fn a_status_ends_the_request_once() {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Why", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let denied = json!({"conditions": [condition("Denied", "True")]});
    let failed = json!({"conditions": [condition("Failed", "True")]});
    let check = |status: &Value, old: &Value| {
        let mut errors = ErrorList::new();
        let object =
            |status: &Value| json!({"spec": {"stubPKCS10Request": ED25519}, "status": status});
        validate_status(&object(status), &object(old), &mut errors);
        texts(&errors)
    };
    let none = json!({});
    for (status, old) in [
        (&none, &Value::Null),
        (&denied, &none),
        (&failed, &Value::Null),
        (&denied, &denied),
    ] {
        assert_eq!(check(status, old), [""; 0], "{status} {old}");
    }
    let with = |conditions: Value, chain: &str| json!({"conditions": conditions, "certificateChain": chain});
    let immutable =
        "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed";
    for (status, old, expected) in [
        (failed.clone(), &denied, immutable),
        (none.clone(), &denied, immutable),
        (
            with(json!([condition("Denied", "True")]), "x"),
            &none,
            "status: Invalid value: non-condition status fields must be empty when denying or failing the PodCertificateRequest",
        ),
        (
            with(json!([]), "x"),
            &none,
            "status: Invalid value: status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"",
        ),
        (
            with(json!([condition("Issued", "True")]), ""),
            &none,
            "status.certificateChain: Invalid value: \"\": issued certificate chain must contain at least one certificate",
        ),
        (
            json!({"conditions": [condition("Denied", "False")]}),
            &none,
            "status.conditions.[0].status: Unsupported value: \"False\": supported values: \"True\"",
        ),
        (
            json!({"conditions": [condition("Other", "True")]}),
            &none,
            "status.conditions.[0].type: Unsupported value: \"Other\": supported values: \"Denied\", \"Failed\", \"Issued\"",
        ),
    ] {
        assert_eq!(check(&status, old), [expected], "{status}");
    }
}

/// The attack: a request for the key of another pod, which the node does not have.
#[test]
fn a_signature_of_another_key_is_refused_on_curve_p521() {
    let mut request = STANDARD.decode(P521).unwrap();
    *request.last_mut().unwrap() ^= 1;
    let found = created(&json!({"stubPKCS10Request": STANDARD.encode(request)}));
    assert_eq!(
        found,
        ["spec.stubPKCS10Request: Invalid value: invalid signature"]
    );
}
