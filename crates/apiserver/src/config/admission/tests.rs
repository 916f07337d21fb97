//! Tests of the file with configuration of admission plugins.

use super::super::pod_security::{Level, Standard};
use super::*;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
const POD_SECURITY: &str =
    "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n";

/// Reads a configuration with this content and beside it a file `ps.yaml`.
fn read(text: &str, beside: &str) -> Result<AdmissionOptions, String> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ps.yaml"), beside).unwrap();
    let file = directory.path().join("admission.yaml");
    std::fs::write(&file, text).unwrap();
    let read = AdmissionOptions::read(&file, |name| {
        name == "PodSecurity" || name == "ResourceQuota"
    });
    read.map_err(|error| error.replace(&directory.path().display().to_string(), "DIR"))
}

/// The text as the configuration of PodSecurity within the file.
fn inline(text: &str) -> Result<AdmissionOptions, String> {
    let indented: Vec<String> = text.lines().map(|line| format!("    {line}\n")).collect();
    let indented = indented.concat();
    let plugin = format!("{HEAD}plugins:\n- name: PodSecurity\n  configuration:\n{indented}");
    read(&plugin, "")
}

#[test]
fn configuration_is_inline_or_in_a_file_beside() {
    let content = format!(
        "{POD_SECURITY}defaults:\n  enforce: baseline\n  enforce-version: v1.30\n  warn: restricted\nexemptions:\n  \
         usernames: [u]\n  namespaces: [ns]\n  runtimeClasses: [r.s]\n"
    );
    let by_path = read(
        &format!("{HEAD}plugins:\n- name: PodSecurity\n  path: ps.yaml\n"),
        &content,
    )
    .unwrap();
    let found = &by_path.pod_security;
    let standard = |level, minor| Standard { level, minor };
    assert_eq!(found.defaults.enforce, standard(Level::Baseline, Some(30)));
    assert_eq!(found.defaults.warn, standard(Level::Restricted, None));
    assert_eq!(found.defaults.audit, standard(Level::Privileged, None));
    let lists = [&found.users, &found.namespaces, &found.runtime_classes];
    assert_eq!(lists.map(|list| list.join(" ")), ["u", "ns", "r.s"]);
    assert_eq!(inline(&content).unwrap(), by_path);
    // The first entry of a plugin counts, and its own text before a file; what is empty changes nothing.
    let both = format!(
        "{HEAD}plugins:\n- name: PodSecurity\n  path: ps.yaml\n- name: PodSecurity\n  path: missing.yaml\n- name: Mine\n  path: ps.yaml\n"
    );
    assert_eq!(read(&both, &content).unwrap(), by_path);
    for nothing in [
        HEAD.to_owned(),
        format!("{HEAD}plugins:\n- name: PodSecurity\n- name: ResourceQuota\n"),
    ] {
        assert_eq!(read(&nothing, "").unwrap(), AdmissionOptions::default());
    }
    assert_eq!(inline(POD_SECURITY).unwrap(), AdmissionOptions::default());
}

#[test]
fn mistakes_end_the_start_with_their_place() {
    let missing = AdmissionOptions::read(Path::new("/nope/x"), |_| true).unwrap_err();
    let text = "unable to read admission control configuration from \"/nope/x\" [";
    assert!(missing.starts_with(text), "{missing}");
    for (text, expected) in [
        (
            "kind: Pod\napiVersion: v1\n",
            "no kind \"Pod\" is registered for version \"v1\"",
        ),
        (
            "kind: AdmissionConfiguration\napiVersion: apiserver.config.k8s.io/v2\n",
            "no kind \"AdmissionConfiguration\" is registered for version \"apiserver.config.k8s.io/v2\"",
        ),
        ("{}", "no kind \"\" is registered for version \"\""),
    ] {
        assert_eq!(read(text, "").unwrap_err(), expected);
    }
    let wrong = "couldn't init admission plugin \"PodSecurity\": ";
    let path = format!("{HEAD}plugins:\n- name: PodSecurity\n  path: nope.yaml\n");
    let error = read(&path, "").unwrap_err();
    assert!(
        error.starts_with(&format!("{wrong}DIR/nope.yaml: ")),
        "{error}"
    );
    // What would restrict and has no effect here is refused, not skipped.
    let other = format!(
        "{HEAD}plugins:\n- name: ResourceQuota\n  configuration: {{kind: Configuration}}\n"
    );
    assert_eq!(
        read(&other, "").unwrap_err(),
        "couldn't init admission plugin \"ResourceQuota\": it has no configuration in this server"
    );
    for (text, expected) in [
        (
            "defaults:\n  enforced: x\n",
            "strict decoding error: unknown field `enforced`",
        ),
        ("more: x\n", "strict decoding error: unknown field `more`"),
        (
            "exemptions:\n  users: [x]\n",
            "strict decoding error: unknown field `users`",
        ),
        (
            "defaults:\n  enforce: x\n  audit-version: '1.2'\n",
            "[defaults.enforce: Invalid value: \"x\": must be one of privileged, baseline, restricted, \
             defaults.audit-version: Invalid value: \"1.2\": must be \"latest\" or \"v1.x\"]",
        ),
        (
            "exemptions:\n  namespaces: [a, a]\n",
            "exemptions.namespaces[1]: Duplicate value: \"a\"",
        ),
        (
            "exemptions:\n  usernames: ['']\n",
            "exemptions.usernames[0]: Invalid value: \"\": username must not be empty",
        ),
        (
            "exemptions:\n  runtimeClasses: [A]\n",
            "exemptions.runtimeClasses[0]: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
        ),
    ] {
        let error = inline(&format!("{POD_SECURITY}{text}")).unwrap_err();
        assert!(error.starts_with(&format!("{wrong}{expected}")), "{error}");
    }
    let version = POD_SECURITY.replace("/v1\n", "/v2\n");
    let error = inline(&version).unwrap_err();
    assert!(
        error.contains("no kind \"PodSecurityConfiguration\" is registered"),
        "{error}"
    );
}
