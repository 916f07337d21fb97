use super::*;

const OWN: &str = "https://kubernetes.default.svc";

fn of(text: &str) -> Result<AuthenticationFile, String> {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{text}\n"
    );
    read(text.as_bytes(), &[OWN.to_owned()])
}

fn anonymous_of(text: &str) -> Option<Anonymous> {
    of(text).unwrap().anonymous
}

#[test]
fn paths_restrict_anonymous_requests() {
    let paths =
        anonymous_of("anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}]}");
    let paths = paths.unwrap();
    for (path, may) in [
        ("/livez", true),
        ("/readyz", true),
        ("/livez/", false),
        ("/livez/ping", false),
        ("/LIVEZ", false),
        ("", false),
        ("/api", false),
    ] {
        assert_eq!(paths.may_ask(path), may, "{path}");
    }
    let everywhere = anonymous_of("anonymous: {enabled: true}");
    assert_eq!(everywhere, Some(Anonymous::Everywhere));
    assert_eq!(anonymous_of("anonymous: {}"), Some(Anonymous::Nowhere));
    assert_eq!(anonymous_of("jwt: []"), None);
}

#[test]
fn what_would_not_be_followed_is_refused() {
    for (text, error) in [
        (
            "anonymous: {enabled: false, conditions: [{path: /x}]}",
            "invalid authentication configuration: anonymous.conditions",
        ),
        (
            "anonymous: {enabled: true, condition: []}",
            "strict decoding error: ",
        ),
        (
            "anonymous: {enabled: true, conditions: [{path: /x, verb: get}]}",
            "strict decoding error: ",
        ),
        ("oidc: {}", "strict decoding error: "),
        ("jwt: [{issuer: {urls: x}}]", "strict decoding error: "),
    ] {
        let found = of(text).expect_err(text);
        assert!(found.starts_with(error), "{found}");
    }
    assert_eq!(read(b"", &[]).unwrap_err(), "empty config data");
    let other = read(b"apiVersion: v1\nkind: Pod\n", &[]).unwrap_err();
    assert_eq!(other, "no kind \"Pod\" is registered for version \"v1\"");
}

/// An issuer that is valid, with what makes it another.
fn jwt(issuer: &str, rest: &str) -> Result<AuthenticationFile, String> {
    of(&format!("jwt: [{{issuer: {{{issuer}}}, {rest}}}]"))
}

const ISSUER: &str = "url: 'https://a', audiences: [x]";
const MAPPINGS: &str = "claimMappings: {username: {claim: sub, prefix: ''}}";

fn errors(found: Result<AuthenticationFile, String>) -> String {
    let error = found.unwrap_err();
    let error = error.strip_prefix("invalid authentication configuration: ");
    error.unwrap().to_owned()
}

#[test]
fn an_issuer_is_reached_safely_and_is_not_this_server() {
    assert_eq!(jwt(ISSUER, MAPPINGS).unwrap().issuers.len(), 1);
    let at = "jwt[0].issuer";
    for (issuer, expected) in [
        ("audiences: [x]", "url: Required value"),
        (
            "url: 'http://a', audiences: [x]",
            "url: Invalid value: \"http://a\": URL scheme must be https",
        ),
        (
            "url: 'https://u@a', audiences: [x]",
            "url: Invalid value: \"https://u@a\": URL must not contain a username or password",
        ),
        (
            "url: 'https://a?b', audiences: [x]",
            "url: Invalid value: \"https://a?b\": URL must not contain a query",
        ),
        (
            "url: 'https://a#b', audiences: [x]",
            "url: Invalid value: \"https://a#b\": URL must not contain a fragment",
        ),
        (
            "url: 'https://kubernetes.default.svc', audiences: [x]",
            "url: Invalid value: \"https://kubernetes.default.svc\": URL must not overlap with disallowed issuers: [https://kubernetes.default.svc]",
        ),
        (
            "url: 'https://a', discoveryURL: 'https://a/', audiences: [x]",
            "discoveryURL: Invalid value: \"https://a/\": discoveryURL must be different from URL",
        ),
        (
            "url: 'https://a', discoveryURL: 'http://b', audiences: [x]",
            "discoveryURL: Invalid value: \"http://b\": URL scheme must be https",
        ),
        (
            "url: 'https://a'",
            "audiences: Required value: at least one jwt[0].issuer.audiences is required",
        ),
        (
            "url: 'https://a', audiences: ['']",
            "audiences[0]: Required value",
        ),
        (
            "url: 'https://a', audiences: [x, x], audienceMatchPolicy: MatchAny",
            "audiences[1]: Duplicate value: \"x\"",
        ),
        (
            "url: 'https://a', audiences: [x, y]",
            "audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences",
        ),
        (
            "url: 'https://a', audiences: [x], audienceMatchPolicy: All",
            "audienceMatchPolicy: Invalid value: \"All\": audienceMatchPolicy must be empty or MatchAny for single audience",
        ),
        (
            "url: 'https://a', audiences: [x], certificateAuthority: x",
            "certificateAuthority: Invalid value: \"<omitted>\": data does not contain any valid RSA or ECDSA certificates",
        ),
        (
            "url: 'https://a', audiences: [x], egressSelectorType: etcd",
            "egressSelectorType: Invalid value: \"etcd\": egress selector must be either controlplane or cluster",
        ),
        (
            "url: 'https://a', audiences: [x], egressSelectorType: cluster",
            "egressSelectorType: Invalid value: \"cluster\": egress lookup required: this server has no configuration of egress selectors",
        ),
    ] {
        assert_eq!(
            errors(jwt(issuer, MAPPINGS)),
            format!("{at}.{expected}"),
            "{issuer}"
        );
    }
    let one = format!("{{issuer: {{{ISSUER}}}, {MAPPINGS}}}");
    let twice = errors(of(&format!("jwt: [{one}, {one}]")));
    assert_eq!(twice, "jwt[1].issuer.url: Duplicate value: \"https://a\"");
    let many = errors(of(&format!("jwt: [{}]", vec![one; 65].join(","))));
    assert_eq!(many, "jwt: Too many: 65: must have at most 64 items");
}

#[test]
fn mappings_and_rules_are_checked() {
    let email = "claimMappings: {username: {expression: claims.email}";
    for (rest, expected) in [
        (
            "claimMappings: {}",
            "claimMappings.username: Required value: claim or expression is required",
        ),
        (
            "claimMappings: {username: {claim: sub}}",
            "claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing",
        ),
        (
            "claimMappings: {username: {claim: sub, prefix: '', expression: claims.sub}}",
            "claimMappings.username: Invalid value: \"\": claim and expression can't both be set",
        ),
        (
            "claimMappings: {username: {prefix: 'a', expression: claims.sub}}",
            "claimMappings.username.prefix: Invalid value: \"a\": may not be specified when expression is set",
        ),
        (
            "claimMappings: {username: {claim: sub, prefix: ''}, uid: {claim: a, expression: b}}",
            "claimMappings.uid: Invalid value: \"\": claim and expression can't both be set",
        ),
        (
            "claimMappings: {username: {claim: sub, prefix: ''}, extra: [{key: a/B, valueExpression: claims.x}]}",
            "claimMappings.extra[0].key: Invalid value: \"a/B\": must be lowercase",
        ),
        (
            "claimMappings: {username: {claim: sub, prefix: ''}, extra: [{key: b, valueExpression: claims.x}]}",
            "claimMappings.extra[0].key: Invalid value: \"b\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
        (
            "claimMappings: {username: {claim: sub, prefix: ''}, extra: [{key: x.k8s.io/b, valueExpression: claims.x}]}",
            "claimMappings.extra[0].key: Invalid value: \"x.k8s.io/b\": k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use",
        ),
        (
            "claimMappings: {username: {claim: sub, prefix: ''}, extra: [{key: a.io/b}]}",
            "claimMappings.extra[0].valueExpression: Required value",
        ),
        (
            &format!("{email}}}"),
            "claimMappings.username.expression: Invalid value: \"claims.email\": claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression",
        ),
        (
            &format!("{MAPPINGS}, claimValidationRules: [{{}}]"),
            "claimValidationRules[0]: Required value: claim or expression is required",
        ),
        (
            &format!("{MAPPINGS}, claimValidationRules: [{{claim: a, message: b}}]"),
            "claimValidationRules[0].message: Invalid value: \"b\": may not be specified when claim is set",
        ),
        (
            &format!("{MAPPINGS}, claimValidationRules: [{{claim: a}}, {{claim: a}}]"),
            "claimValidationRules[1].claim: Duplicate value: \"a\"",
        ),
        (
            &format!("{MAPPINGS}, claimValidationRules: [{{expression: claims.a}}]"),
            "claimValidationRules[0].expression: Invalid value: \"claims.a\": must evaluate to bool",
        ),
        (
            &format!(
                "{MAPPINGS}, claimValidationRules: [{{expression: 'true', requiredValue: a}}]"
            ),
            "claimValidationRules[0].requiredValue: Invalid value: \"a\": may not be specified when expression is set",
        ),
        (
            &format!("{MAPPINGS}, userValidationRules: [{{}}]"),
            "userValidationRules[0].expression: Required value",
        ),
        (
            &format!(
                "{MAPPINGS}, userValidationRules: [{{expression: 'true'}}, {{expression: 'true'}}]"
            ),
            "userValidationRules[1].expression: Duplicate value: \"true\"",
        ),
    ] {
        assert_eq!(
            errors(jwt(ISSUER, rest)),
            format!("jwt[0].{expected}"),
            "{rest}"
        );
    }
    for (rest, at) in [
        (
            "claimMappings: {username: {expression: 'user.username'}}",
            "claimMappings.username.expression",
        ),
        (
            &format!("{MAPPINGS}, userValidationRules: [{{expression: \"claims.a == 'b'\"}}]"),
            "userValidationRules[0].expression",
        ),
    ] {
        let found = errors(jwt(ISSUER, rest));
        assert!(
            found.starts_with(&format!("jwt[0].{at}: Invalid value: ")),
            "{found}"
        );
        assert!(found.contains("compilation failed: "), "{found}");
    }
    for verified in [
        &format!(
            "{email}}}, claimValidationRules: [{{expression: \"claims.?email_verified.orValue(true) == true\"}}]"
        ),
        &format!(
            "{email}, extra: [{{key: a.io/b, valueExpression: 'string(claims.email_verified)'}}]}}"
        ),
        "claimMappings: {username: {expression: \"claims.email_verified ? claims.email : ''\"}}",
    ] {
        jwt(ISSUER, verified).expect(verified);
    }
}

#[test]
fn the_content_that_changes_leaves_anonymous_requests_alone() {
    let again = |line: &str, first: Option<Anonymous>| {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n{line}\n"
        );
        read_again(text.as_bytes(), &[], first.as_ref()).map(|it| it.len())
    };
    let one = format!("jwt: [{{issuer: {{{ISSUER}}}, {MAPPINGS}}}]");
    assert_eq!(again(&one, None), Ok(1));
    assert_eq!(
        again("anonymous: {enabled: true}", Some(Anonymous::Everywhere)),
        Ok(0)
    );
    let changed = Err("anonymous: Forbidden: changed from initial configuration file".to_owned());
    assert_eq!(again("anonymous: {enabled: true}", None), changed);
    assert_eq!(again("jwt: []", Some(Anonymous::Nowhere)), changed);
}

#[test]
fn flags_describe_one_issuer() {
    let flags = IssuerFlags {
        url: "https://a".to_owned(),
        client_id: "x".to_owned(),
        username_claim: "sub".to_owned(),
        ..IssuerFlags::default()
    };
    let prefix = |claim: &str, prefix: &str| {
        let (username_claim, username_prefix) = (claim.to_owned(), prefix.to_owned());
        let issuers = IssuerFlags {
            username_claim,
            username_prefix,
            ..flags.clone()
        };
        match &issuers.issuer(&[]).unwrap()[0].username {
            Mapping::Claim { prefix, .. } => prefix.clone(),
            Mapping::Expression(_) => panic!("an expression"),
        }
    };
    assert_eq!(prefix("sub", ""), "https://a#");
    assert_eq!(prefix("email", ""), "");
    assert_eq!(prefix("sub", "-"), "");
    assert_eq!(prefix("email", "p:"), "p:");
    assert_eq!(flags.clone().issuer(&[]).unwrap()[0].algorithms, ["RS256"]);
    for (algorithm, is_known) in [
        ("ES384", true),
        ("none", false),
        ("HS256", false),
        ("ES512", false),
        ("rs256", false),
    ] {
        let issuer = IssuerFlags {
            algorithms: vec![algorithm.to_owned()],
            ..flags.clone()
        };
        match issuer.issuer(&[]) {
            Ok(_) => assert!(is_known, "{algorithm}"),
            Err(error) => assert_eq!(
                error,
                format!("oidc: unsupported signing alg: \"{algorithm}\"")
            ),
        }
    }
    let own = flags.issuer(&["https://a".to_owned()]).unwrap_err();
    assert!(
        own.contains("URL must not overlap with disallowed issuers: [https://a]"),
        "{own}"
    );
}
