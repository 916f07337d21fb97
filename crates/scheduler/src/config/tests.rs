use super::*;
use crate::plugins::points::ExtensionPoint;
use allot_model::features::Features;

mod args;

const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

fn read(body: &str) -> Result<Config, ConfigError> {
    parse(&format!("{HEAD}{body}"), Features::default())
}

fn check_error(body: &str, expected: &str) {
    match read(body) {
        Ok(_) => panic!("accepted: {body}"),
        Err(error) => assert!(error.to_string().contains(expected), "{error} for {body}"),
    }
}

#[test]
fn empty_file_means_defaults() {
    assert_eq!(read("").expect("valid"), Config::default());
}

#[test]
fn the_file_of_the_conformance_set_up() {
    let config = read(concat!(
        "clientConnection: {qps: 1000, burst: 2000}\n",
        "leaderElection: {leaderElect: false}\n",
        "profiles:\n- schedulerName: default-scheduler\n  pluginConfig:\n",
        "  - name: DynamicResources\n    args:\n      apiVersion: kubescheduler.config.k8s.io/v1\n",
        "      kind: DynamicResourcesArgs\n      filterTimeout: 1m30s\n      bindingTimeout: 10s\n",
    ))
    .expect("valid");
    assert_eq!(config.client_connection.qps, Some(1000.0));
    assert!(!config.leader_election.enabled);
    let args = &config.profiles[0].dynamic_resources;
    assert_eq!(args.binding_timeout, Duration::from_secs(10));
    assert_eq!(args.filter_timeout, Some(Duration::from_secs(90)));
}

#[test]
fn times_of_leader_election_have_to_leave_room_for_one_another() {
    let with = |times: &str| format!("leaderElection: {{{times}}}");
    let wrong = |times: &str, text: &str| {
        check_error(&with(times), &format!("leaderElection.{text}"));
    };
    wrong(
        "leaseDuration: 10s",
        "leaseDuration: Invalid value: 10s: must be greater than `RenewDeadline`",
    );
    wrong(
        "renewDeadline: 2400ms",
        "renewDeadline: Invalid value: 2.4s: must be greater than retryPeriod*JitterFactor",
    );
    wrong(
        "retryPeriod: -1s",
        "retryPeriod: Invalid value: -1s: must be greater than zero",
    );
    wrong(
        "resourceLock: endpoints",
        "resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"",
    );
    let check = |times: &str, lease: u64| {
        let election = read(&with(times)).expect("valid").leader_election;
        assert_eq!(
            election.lease_duration,
            Duration::from_secs(lease),
            "{times}"
        );
        assert_eq!(election.name, "kube-scheduler");
    };
    check("leaseDuration: 11s", 11);
    check("leaseDuration: 0s, resourceName: '', resourceLock: ''", 15);
    // They are not validated without an election.
    check(
        "leaderElect: false, leaseDuration: 1s, resourceLock: endpoints",
        1,
    );
}

#[test]
fn filter_timeout_zero_is_none() {
    let body = "profiles: [{pluginConfig: [{name: DynamicResources, args: {filterTimeout: 0s}}]}]";
    assert_eq!(
        read(body).expect("valid").profiles[0]
            .dynamic_resources
            .filter_timeout,
        None
    );
}

#[test]
fn plugins_are_switched_and_weighed() {
    let body = concat!(
        "profiles:\n- schedulerName: a\n  plugins:\n",
        "    multiPoint: {disabled: [{name: ImageLocality}], enabled: [{name: NodeAffinity, weight: 7}]}\n",
        "    score: {disabled: [{name: TaintToleration}]}\n",
        "    filter: {disabled: [{name: NodePorts}]}\n",
        "    postFilter: {disabled: [{name: '*'}]}\n",
    );
    let profile = &read(body).expect("valid").profiles[0];
    assert_eq!(profile.weight(Plugin::ImageLocality), 0);
    assert_eq!(profile.weight(Plugin::NodeAffinity), 7);
    assert_eq!(profile.weight(Plugin::TaintToleration), 0);
    assert!(profile.filters.contains(Plugin::TaintToleration));
    assert!(!profile.filters.contains(Plugin::NodePorts));
    assert!(profile.post_filters.is_empty());
}

fn check_weight(plugins: &str, plugin: Plugin, expected: i64) {
    let body = format!("profiles: [{{plugins: {plugins}}}]");
    let config = read(&body).unwrap_or_else(|e| panic!("{e} for {body}"));
    assert_eq!(config.profiles[0].weight(plugin), expected, "{body}");
}

#[test]
fn plugins_that_are_enabled_without_a_weight_have_one() {
    check_weight("{}", Plugin::TaintToleration, 3);
    for enabled in [
        "[{name: TaintToleration}]",
        "[{name: TaintToleration, weight: 0}]",
    ] {
        for plugins in [
            format!("{{score: {{enabled: {enabled}}}}}"),
            format!("{{multiPoint: {{enabled: {enabled}}}}}"),
            format!(
                "{{multiPoint: {{disabled: [{{name: TaintToleration}}], enabled: {enabled}}}}}"
            ),
        ] {
            check_weight(&plugins, Plugin::TaintToleration, 1);
            check_weight(&plugins, Plugin::NodeAffinity, 2);
        }
    }
    // What stands at the point itself goes before.
    let both = "{multiPoint: {enabled: [{name: NodeAffinity, weight: 7}]}, score: {enabled: [{name: NodeAffinity}]}}";
    check_weight(both, Plugin::NodeAffinity, 1);
}

fn check_plugins(plugins: &str, expected: &str) {
    let error = format!("profiles[0].plugins.{expected}");
    check_error(&format!("profiles: [{{plugins: {plugins}}}]"), &error);
}

#[test]
fn plugins_are_named_where_they_take_part_and_once() {
    check_plugins(
        "{filter: {enabled: [{name: ImageLocality}]}}",
        "filter.enabled[0].name: plugin \"ImageLocality\" does not extend FilterPlugin plugin",
    );
    check_plugins(
        "{permit: {enabled: [{name: DefaultBinder}]}}",
        "permit.enabled[0].name: plugin \"DefaultBinder\" does not extend PermitPlugin plugin",
    );
    check_plugins(
        "{score: {enabled: [{name: NodeAffinity}, {name: NodeAffinity, weight: 2}]}}",
        "score.enabled[1].name: plugin \"NodeAffinity\" already registered as \"ScorePlugin\"",
    );
    check_plugins(
        "{multiPoint: {enabled: [{name: NodePorts}, {name: NodePorts}]}, preFilter: {disabled: [{name: '*'}]}}",
        "multiPoint.enabled[1].name: plugin \"NodePorts\" already registered as \"FilterPlugin\"",
    );
    check_plugins(
        "{bind: {disabled: [{name: '*'}]}}",
        "bind: at least one bind plugin is needed for profile with scheduler name \"default-scheduler\"",
    );
    check_plugins(
        "{multiPoint: {disabled: [{name: PrioritySort}]}}",
        "queueSort: only one queue sort plugin required for profile with scheduler name \"default-scheduler\", but got 0",
    );
    // Every plugin may be named where it takes part.
    for point in ExtensionPoint::ALL {
        let field = point.field();
        for plugin in Plugin::ALL.iter().filter(|p| p.extends(*point)) {
            let name = plugin.name();
            let body =
                format!("profiles: [{{plugins: {{{field}: {{enabled: [{{name: {name}}}]}}}}}}]");
            read(&body).unwrap_or_else(|e| panic!("{e} for {body}"));
        }
    }
}

#[test]
fn plugins_have_one_list_of_arguments() {
    check_error(
        "profiles: [{pluginConfig: [{name: VolumeBinding}, {name: VolumeBinding, args: {bindTimeoutSeconds: 1}}]}]",
        "profiles[0].pluginConfig[1]: Duplicate value: \"VolumeBinding\"",
    );
}

#[test]
fn errors_name_the_field() {
    check_error("profils: []", "profils: unknown field `profils`");
    check_error("parallelism: 1\nparallelism: 2", "duplicate");
    check_error(
        "parallelism: many",
        "parallelism: invalid type: string \"many\", expected a whole number",
    );
    check_error(
        "leaderElection: {leaseDuration: 15}",
        "leaderElection.leaseDuration: invalid type: integer `15`, expected a duration",
    );
    check_error(
        "profiles: [{}, {plugins: {score: {enabled: [{name: NodeAffinity, wait: 1}]}}}]",
        "profiles[1].plugins.score.enabled[0].wait: unknown field `wait`, expected `name` or `weight`",
    );
    check_error(
        "profiles: [{schedulerName: a}, {schedulerName: a}]",
        "profiles[1].schedulerName: Duplicate value: \"a\"",
    );
    check_error(
        "profiles: [{plugins: {filter: {enabled: [{name: Foo}]}}}]",
        "profiles[0].plugins.filter.enabled[0].name: plugin \"Foo\" does not exist",
    );
    check_error(
        "profiles: [{plugins: {multiPoint: {enabled: [{name: PodGroupPodsCount}]}}}]",
        "exists in kube-scheduler, but not in allot",
    );
    check_error(
        "profiles: [{pluginConfig: [{name: VolumeBinding, args: {bindTimeoutSeconds: -1}}]}]",
        "profiles[0].pluginConfig[0].args.bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value",
    );
    check_error(
        "profiles: [{pluginConfig: [{name: DynamicResources, args: {bindingTimeout: 500ms}}]}]",
        "profiles[0].pluginConfig[0].args.bindingTimeout: Invalid value: 500ms: must be at least 1 second",
    );
    check_error(
        "profiles: [{pluginConfig: [{name: DynamicResources, args: {filterTimeout: -1s}}]}]",
        "must be zero or positive",
    );
    check_error(
        "profiles: [{pluginConfig: [{name: DynamicResources, args: {timeout: 1s}}]}]",
        "timeout",
    );
    check_error(
        "percentageOfNodesToScore: 101",
        "not in valid range [0-100]",
    );
    check_error(
        "podInitialBackoffSeconds: 20",
        "must be greater than or equal to PodInitialBackoffSeconds",
    );
}

#[test]
fn arguments_of_features_that_are_off_are_refused() {
    let mut features = Features::default();
    features
        .set("DRASchedulerFilterTimeout=false")
        .expect("can be switched");
    let body = format!(
        "{HEAD}profiles: [{{pluginConfig: [{{name: DynamicResources, args: {{filterTimeout: 1s}}}}]}}]"
    );
    let error = parse(&body, features).expect_err("must be refused");
    assert!(
        error
            .to_string()
            .contains("Forbidden: DRASchedulingFilterTimeout feature gate is disabled"),
        "{error}"
    );
}

#[test]
fn other_kinds_are_refused() {
    let pod = "apiVersion: v1\nkind: Pod\nspec: {}\n";
    let error = parse(pod, Features::default()).expect_err("must be refused");
    assert!(matches!(error, ConfigError::Kind(..)), "{error}");
}
