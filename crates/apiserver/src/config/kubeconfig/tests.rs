use super::*;

fn parse(cluster: &str, user: &str) -> Result<Kubeconfig, String> {
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: u, user: {user}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
    );
    Kubeconfig::parse(&text, Path::new("/etc/hooks"))
}

#[test]
fn files_are_relative_to_the_kubeconfig_and_data_comes_first() {
    let read = parse(
        "{server: 'https://hook:8443/ask?x=1', certificate-authority: ca.crt, tls-server-name: other}",
        "{tokenFile: token}",
    );
    let read = read.unwrap();
    assert_eq!(read.server, "https://hook:8443/ask?x=1");
    assert_eq!(read.trusted, Trusted::File("/etc/hooks/ca.crt".into()));
    assert_eq!(read.server_name.as_deref(), Some("other"));
    assert!(read.credential == Credential::TokenFile("/etc/hooks/token".into()));
    let data = STANDARD.encode("a CA");
    let cluster = format!(
        "{{server: 'http://[::1]/', certificate-authority: ca.crt, certificate-authority-data: {data}}}"
    );
    let read = parse(&cluster, "{username: ann, password: secret}").unwrap();
    assert_eq!(read.trusted, Trusted::Pem(b"a CA".to_vec()));
    assert!(read.credential == Credential::Basic("ann".to_owned(), "secret".to_owned()));
    // Secrets are not for logs.
    assert!(!format!("{read:?}").contains("secret"));
}

#[test]
fn what_cannot_be_followed_is_refused() {
    for (cluster, user, error) in [
        (
            "{}",
            "{}",
            "invalid configuration: no server found for cluster \"c\"",
        ),
        (
            "{server: hook}",
            "{}",
            "invalid configuration: the server of cluster \"c\" must be a URL",
        ),
        (
            "{server: 'ftp://hook/'}",
            "{}",
            "invalid configuration: the server",
        ),
        (
            "{server: 'https://me:secret@hook/'}",
            "{}",
            "invalid configuration: the server",
        ),
        (
            "{server: 'https://h', proxy-url: 'http://p'}",
            "{}",
            "proxy-url is not supported",
        ),
        (
            "{server: 'https://h', certificate-authority-data: '!'}",
            "{}",
            "certificate-authority-data is not base64",
        ),
        (
            "{server: 'https://h', certificate-authority: f, insecure-skip-tls-verify: true}",
            "{}",
            "specifying a root certificates file with the insecure flag",
        ),
        (
            "{server: 'https://h'}",
            "{exec: {command: x}}",
            "exec is not supported",
        ),
        (
            "{server: 'https://h'}",
            "{auth-provider: {name: x}}",
            "auth-provider is not supported",
        ),
        ("{server: 'https://h'}", "{as: root}", "as is not supported"),
        (
            "{server: 'https://h'}",
            "{token: a, username: b}",
            "more than one authentication method found",
        ),
        (
            "{server: 'https://h'}",
            "{client-key-data: eA==}",
            "client-key needs client-certificate",
        ),
        (
            "{server: 'https://h'}",
            "{client-certificate: none}",
            "client-certificate: /etc/hooks/none: ",
        ),
        ("{server: [1]}", "{}", ""),
    ] {
        let found = parse(cluster, user).expect_err(cluster);
        assert!(found.starts_with(error), "{cluster} {user}: {found}");
        assert!(!found.contains("secret"), "{found}");
    }
    for (text, error) in [
        ("", "invalid configuration: it has no current-context"),
        ("current-context: x", "context \"x\" does not exist"),
        (
            "current-context: x\ncontexts: [{name: x}]",
            "cluster \"\" does not exist",
        ),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\nclusters: [{name: c}]",
            "auth info \"u\" does not exist",
        ),
    ] {
        let found = Kubeconfig::parse(text, Path::new("")).expect_err(text);
        assert_eq!(found, error);
    }
}
