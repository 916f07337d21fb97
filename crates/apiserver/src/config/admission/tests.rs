//! Tests of the file with configuration of admission plugins.

use allot_model::features::Feature;

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
    let is_enabled = |name: &str| match name {
        "Mine" => None,
        "EventRateLimit" | "ImagePolicyWebhook" => Some(text.contains(name)),
        "PodTolerationRestriction" => Some(!text.contains("off")),
        _ => Some(true),
    };
    let read = AdmissionOptions::read(Some(&file), is_enabled, &Features::default());
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
    let file = Some(Path::new("/nope/x"));
    let missing = AdmissionOptions::read(file, |_| None, &Features::default()).unwrap_err();
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
        ("{}", "Object 'Kind' is missing in '{}'"),
        ("", "Object 'Kind' is missing in ''"),
        ("kind: Pod", "Object 'apiVersion' is missing in 'kind: Pod'"),
        (
            "kind: AdmissionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nplugins: [{name: a, file: b}]",
            "strict decoding error: unknown field \"plugins[0].file\"",
        ),
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
    for (text, expected) in [
        (
            "defaults:\n  enforced: x\n",
            "strict decoding error: unknown field \"defaults.enforced\"",
        ),
        ("more: x\n", "strict decoding error: unknown field \"more\""),
        (
            "exemptions:\n  users: [x]\n",
            "strict decoding error: unknown field \"exemptions.users\"",
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

/// The configuration of a plugin, in the file.
fn plugin(name: &str, configuration: &str) -> Result<AdmissionOptions, String> {
    read(
        &format!("{HEAD}plugins:\n- name: {name}\n  configuration: {configuration}\n"),
        "",
    )
}

#[test]
fn resources_can_be_limited_where_no_quota_is() {
    let limited = "limitedResources: [{resource: pods, matchContains: [cpu], matchScopes: [{scopeName: PriorityClass, \
                   operator: In, values: [a, b]}]}, {apiGroup: apps, resource: deployments, matchContains: [count]}]";
    for (version, kind) in [
        ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
        ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
        ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
    ] {
        let text = format!("{{apiVersion: {version}, kind: {kind}, {limited}}}");
        let found = plugin("ResourceQuota", &text).unwrap().limited_resources;
        let [pods, deployments] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(pods.match_scopes[0].to_string(), "{PriorityClass In [a b]}");
        assert_eq!(deployments.api_group, "apps");
        assert_eq!(deployments.match_contains, ["count"]);
    }
    let wrong = "couldn't init admission plugin \"ResourceQuota\": ";
    for (text, expected) in [
        (
            "{kind: Configuration}",
            "Object 'apiVersion' is missing in '{\"kind\":\"Configuration\"}'",
        ),
        (
            "{kind: Configuration, apiVersion: apiserver.config.k8s.io/v1}",
            "no kind \"Configuration\" is registered for version \"apiserver.config.k8s.io/v1\"",
        ),
        (
            "{kind: Configuration, apiVersion: resourcequota.admission.k8s.io/v1beta1, limitedResources: [{limit: 1, \
             matchScopes: [{scope: x}]}]}",
            "strict decoding error: unknown field \"limitedResources[0].limit\", unknown field \
             \"limitedResources[0].matchScopes[0].scope\"",
        ),
        (
            "{kind: Configuration, apiVersion: resourcequota.admission.k8s.io/v1beta1, limitedResources: [{}]}",
            "limitedResources[0].resource: Required value",
        ),
    ] {
        let error = plugin("ResourceQuota", text).unwrap_err();
        assert_eq!(error, format!("{wrong}{expected}"));
    }
}

#[test]
fn webhooks_are_called_as_users_of_a_kubeconfig_file() {
    let head = "apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users");
    std::fs::write(&file, "users: [{name: '*', user: {token: t}}]").unwrap();
    let file = file.display();
    let text = format!("{{{head}, kubeConfigFile: {file}}}");
    let read = plugin("MutatingAdmissionWebhook", &text).unwrap();
    assert!(read.mutating_webhooks.credentials.user("h:1").is_some());
    assert!(read.validating_webhooks.credentials.user("h:1").is_none());
    for (more, expected) in [
        (
            "kubeConfigFile: a/b",
            "kubeConfigFile: Invalid value: \"a/b\": must be an absolute file path",
        ),
        (
            "kubeConfigFile: /nope/x",
            "stat /nope/x: no such file or directory",
        ),
        ("file: /x", "strict decoding error: unknown field \"file\""),
    ] {
        let text = format!("{{{head}, {more}}}");
        let error = plugin("ValidatingAdmissionWebhook", &text).unwrap_err();
        let wrong = "couldn't init admission plugin \"ValidatingAdmissionWebhook\": ";
        assert_eq!(error, format!("{wrong}{expected}"));
    }
}

#[test]
fn limits_of_events_are_valid_or_the_server_does_not_start() {
    let head = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration";
    let limits = "limits: [{type: Server, qps: 1, burst: 2, cacheSize: -1}, {type: SourceAndObject, qps: 3, burst: 4}]";
    let read = plugin("EventRateLimit", &format!("{{{head}, {limits}}}")).unwrap();
    let found: Vec<_> = read
        .event_limits
        .iter()
        .map(|it| (it.kind.name(), it.burst))
        .collect();
    assert_eq!(found, [("Server", 2), ("SourceAndObject", 4)]);
    assert_eq!(read.event_limits[1].cache_size, 4096);
    let wrong = "couldn't init admission plugin \"EventRateLimit\": ";
    for (limits, expected) in [
        (
            "limits: []",
            "limits: Invalid value: null: must not be empty",
        ),
        (
            "limits: [{type: User, qps: 0, burst: 1, cacheSize: -1}]",
            "[limits[0].qps: Invalid value: 0: must be positive, limits[0].cacheSize: Invalid value: -1: must not be negative]",
        ),
        (
            "limits: [{type: Pod, qps: 1, burst: 1}]",
            "limits[0].type: Unsupported value: \"Pod\": supported values: ",
        ),
    ] {
        let error = plugin("EventRateLimit", &format!("{{{head}, {limits}}}")).unwrap_err();
        assert!(error.starts_with(&format!("{wrong}{expected}")), "{error}");
    }
    // A plugin that runs has to know its limits.
    let error = read_none(Some(true)).unwrap_err();
    assert!(error.starts_with(wrong), "{error}");
    assert_eq!(read_none(Some(false)).unwrap(), AdmissionOptions::default());
}

fn read_none(events: Option<bool>) -> Result<AdmissionOptions, String> {
    let is_enabled = |name: &str| match name {
        "EventRateLimit" => events,
        "ImagePolicyWebhook" => Some(false),
        _ => Some(true),
    };
    AdmissionOptions::read(None, is_enabled, &Features::default())
}

#[test]
fn directories_of_manifests_are_behind_their_gate() {
    let on = Features::default().with(Feature::ManifestBasedAdmissionControlConfig, true);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (directory, file) = (directory.path().display(), file.display());
    let kind = "ValidatingAdmissionPolicyConfiguration";
    let policies = |manifests: &str, features: &Features| {
        let text = format!(
            "{{apiVersion: apiserver.config.k8s.io/v1, kind: {kind}, staticManifestsDir: {manifests}}}"
        );
        let document = Document::parse(&text).unwrap();
        let mut options = AdmissionOptions::default();
        let taken = options.take("ValidatingAdmissionPolicy", Some(document), features);
        taken.map(|()| options.validating_policies)
    };
    let directory = directory.to_string();
    let found = policies(&directory, &on).unwrap().unwrap();
    assert_eq!(found.display().to_string(), directory);
    for (manifests, features, expected) in [
        (
            directory.as_str(),
            &Features::default(),
            "Forbidden: staticManifestsDir requires the",
        ),
        (
            "a/b",
            &on,
            "Invalid value: \"a/b\": must be an absolute file path",
        ),
        (
            "/nope/x",
            &on,
            "Invalid value: \"/nope/x\": unable to read: ",
        ),
        (&file.to_string(), &on, "must be a directory"),
    ] {
        let error = policies(manifests, features).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn selectors_and_tolerations_are_read() {
    let old = "podNodeSelectorPluginConfig:\n  clusterDefaultNodeSelector: a=b\n  ns: c=d\n";
    // The file of a release before there was a kind for it.
    let selectors = read(old, "").unwrap().node_selectors;
    assert_eq!(selectors["clusterDefaultNodeSelector"], "a=b");
    let named = format!("{HEAD}plugins:\n- name: PodNodeSelector\n  path: ps.yaml\n");
    assert_eq!(read(&named, old).unwrap().node_selectors, selectors);
    let head =
        "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration";
    let text = format!("{{{head}, default: [{{key: a, operator: Exists}}], unknown: 1}}");
    let tolerations = plugin("PodTolerationRestriction", &text)
        .unwrap()
        .tolerations;
    let values = Toleration::values(&tolerations.added);
    assert_eq!(
        values,
        [serde_json::json!({"key": "a", "operator": "Exists"})]
    );
    for (text, expected) in [
        (
            "whitelist: [{operator: Equal}, {key: a, operator: Equal, effect: x}]",
            "invalid config: [podtolerationrestriction.whitelist[0].operator: Invalid value: \"Equal\": operator must be \
             Exists when `key` is empty",
        ),
        // It would be one of everything without its key.
        (
            "whitelist: [{key: 5, operator: Exists}]",
            "invalid type: integer",
        ),
    ] {
        let error = plugin("PodTolerationRestriction", &format!("{{{head}, {text}}}")).unwrap_err();
        let wrong = "couldn't init admission plugin \"PodTolerationRestriction\": ";
        assert!(error.starts_with(&format!("{wrong}{expected}")), "{error}");
    }
    // What is off is not read.
    let off = format!("{HEAD}plugins:\n- name: PodTolerationRestriction\n  path: off.yaml\n");
    assert_eq!(read(&off, "").unwrap(), AdmissionOptions::default());
}

#[test]
fn the_webhook_of_images_has_times_within_bounds() {
    let plugin = |text: &str| {
        let text = format!(
            "{HEAD}plugins:\n- name: ImagePolicyWebhook\n  configuration: {{imagePolicy: {text}}}\n"
        );
        read(&text, "").map(|options| options.image_policy)
    };
    let wrong = "couldn't init admission plugin \"ImagePolicyWebhook\": ";
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("k");
    let text = "clusters: [{name: c, cluster: {server: 'https://h'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n";
    std::fs::write(&kubeconfig, text).unwrap();
    let kubeconfig = kubeconfig.display();
    let times = |text: &str| {
        let policy = plugin(&format!("{{kubeConfigFile: '{kubeconfig}'{text}}}"))?.unwrap();
        let times = [policy.allow_ttl, policy.deny_ttl, policy.retry_backoff];
        Ok::<_, String>((times.map(|it| it.as_millis()), policy.default_allow))
    };
    assert_eq!(times(""), Ok(([300_000, 30_000, 500], false)));
    let all = ", allowTTL: -1, denyTTL: 10, retryBackoff: 7, defaultAllow: true";
    assert_eq!(times(all), Ok(([0, 10_000, 7], true)));
    for (text, expected) in [
        (
            ", allowTTL: 1801",
            "valid value is between 1s and 30m0s, got 30m1s",
        ),
        (
            ", denyTTL: -2",
            "valid value is between 1s and 30m0s, got -2s",
        ),
        (
            ", retryBackoff: 9000000000000000000",
            "valid value is between 1ns and 5m0s, got ",
        ),
    ] {
        let error = times(text).unwrap_err();
        assert!(error.starts_with(&format!("{wrong}{expected}")), "{error}");
    }
    let error = plugin("{}").unwrap_err();
    assert_eq!(
        error,
        format!("{wrong}invalid configuration: no configuration has been provided")
    );
    let none = read(&format!("{HEAD}plugins:\n- name: ImagePolicyWebhook\n"), "");
    assert_eq!(none.unwrap_err(), format!("{wrong}no config specified"));
}
