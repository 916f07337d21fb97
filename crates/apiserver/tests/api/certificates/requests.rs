//! Certificate signing requests: the proof of the key, and the decision.

use super::*;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn signing_request(signer: &str, der: &[u8]) -> Value {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|it| std::str::from_utf8(it).unwrap())
        .collect();
    let name = "CERTIFICATE REQUEST";
    let pem = format!(
        "-----BEGIN {name}-----\n{}\n-----END {name}-----\n",
        lines.join("\n")
    );
    json!({
        "metadata": {"name": "r"},
        "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": ["client auth"]},
    })
}

/// Who asks for a certificate of a key has the key. Any key was accepted.
#[tokio::test]
async fn regression_a_certificate_request_is_signed_by_its_key() {
    let server = server(&[]).await;
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
    ] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let request = CertificateParams::default()
            .serialize_request(&key)
            .unwrap();
        let mut der = request.der().to_vec();
        let good = signing_request("example.com/ca", &der);
        create(&server, &format!("{REQUESTS}?dryRun=All"), good).await;
        // The last bytes are those of the signature.
        if let Some(last) = der.last_mut() {
            *last ^= 1;
        }
        let (code, message) = send_as(
            &server,
            &User::admin(),
            "POST",
            REQUESTS,
            &signing_request("example.com/ca", &der),
        )
        .await;
        assert_eq!(code, 422, "{message}");
        let found = message.contains("spec.request: Invalid value")
            && message.ends_with("verification failure");
        assert!(found, "{message}");
    }
}

/// The permission to approve is for a signer: that of the stored request, whatever the change says.
#[tokio::test]
async fn who_approves_for_a_signer_approves_no_other() {
    let server = server(&[]).await;
    let rules = json!([
        {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/ca"],
         "verbs": ["approve", "sign"]},
        {"apiGroups": ["certificates.k8s.io"], "verbs": ["*"],
         "resources": ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"]},
    ]);
    let role = json!({"metadata": {"name": "approver"}, "rules": rules});
    create(&server, &format!("{RBAC}/clusterroles"), role).await;
    bind(&server, "approver", "approver").await;
    let approver = User::new("approver", ["team"]);
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default()
        .serialize_request(&key)
        .unwrap();
    let condition =
        |kind: &str| json!([{"type": kind, "status": "True", "reason": "x", "message": "x"}]);
    let mut asked = signing_request("example.org/other", request.der());
    // A request is not approved by what it says of itself.
    asked["status"] = json!({"conditions": condition("Approved"), "certificate": ""});
    asked["spec"]["username"] = "admin".into();
    asked["spec"]["groups"] = json!(["system:masters"]);
    let (code, made) = send_json(&server, approver.clone(), "POST", REQUESTS, &asked).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["status"], json!({}));
    assert_eq!(made["spec"]["username"], "approver");
    assert_ne!(made["spec"]["groups"], json!(["system:masters"]));
    let mut lies = made.clone();
    lies["spec"]["signerName"] = "example.com/ca".into();
    lies["status"] = json!({"conditions": condition("Approved")});
    let one = format!("{REQUESTS}/r");
    let approval = format!("{one}/approval");
    let status = format!("{one}/status");
    let refused = |verb: &str| {
        format!(
            "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to {verb} requests with signerName \"example.org/other\""
        )
    };
    for (method, body) in [
        ("PUT", lies.clone()),
        (
            "PATCH",
            json!({"spec": {"signerName": "example.com/ca"}, "status": {"conditions": condition("Approved")}}),
        ),
        (
            "PATCH",
            json!({"status": {"conditions": condition("Denied")}}),
        ),
    ] {
        let answer = send_as(&server, &approver, method, &approval, &body).await;
        assert_eq!(answer, (403, refused("approve")), "{body}");
    }
    let mut failed = lies.clone();
    failed["status"] = json!({"conditions": condition("Failed")});
    let answer = send_as(&server, &approver, "PUT", &status, &failed).await;
    assert_eq!(answer, (403, refused("sign")));
    // Nor by the object itself, or by the status.
    let (code, kept) = send_json(&server, approver.clone(), "PUT", &one, &lies).await;
    assert_eq!(code, 200, "{kept}");
    assert_eq!(kept["spec"]["signerName"], "example.org/other");
    assert_eq!(kept["status"], json!({}));
    let body = json!({"status": {"conditions": condition("Approved")}});
    let (code, message) = send_as(&server, &User::admin(), "PATCH", &status, &body).await;
    assert_eq!(code, 422, "{message}");
    let wanted = "updates may not add a condition of type \"Approved\"";
    assert!(message.ends_with(wanted), "{message}");
}
