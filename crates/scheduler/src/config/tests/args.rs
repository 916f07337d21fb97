//! Arguments of plugins.

use serde_json::json;

use super::*;
use crate::node::NodeInfo;
use crate::plugins::fit::Strategy;
use crate::plugins::spread::DefaultConstraint;
use crate::status::Code;

fn with_args(plugin: &str, args: &str) -> String {
    format!("profiles: [{{pluginConfig: [{{name: {plugin}, args: {args}}}]}}]")
}

fn check_args(plugin: &str, args: &str, expected: &str) {
    let error = format!("profiles[0].pluginConfig[0].args.{expected}");
    check_error(&with_args(plugin, args), &error);
}

fn profile_with(plugin: &str, args: &str) -> Profile {
    let body = with_args(plugin, args);
    let mut config = read(&body).unwrap_or_else(|e| panic!("{e} for {body}"));
    config.profiles.remove(0)
}

/// They were taken, and had no effect.
#[test]
fn arguments_of_another_plugin_are_refused() {
    let wrong = |plugin: &str, args: &str, text: &str| {
        let error = format!("profiles[0].pluginConfig[0].args: {text}");
        check_error(&with_args(plugin, args), &error);
    };
    wrong(
        "NodeResourcesFit",
        "{kind: InterPodAffinityArgs}",
        "args for plugin NodeResourcesFit were not of type NodeResourcesFitArgs.kubescheduler.config.k8s.io, got InterPodAffinityArgs.kubescheduler.config.k8s.io",
    );
    wrong(
        "VolumeBinding",
        "{apiVersion: foo/v9, kind: Bar, bindTimeoutSeconds: 5}",
        "no kind \"Bar\" is registered for version \"foo/v9\": want VolumeBindingArgs of kubescheduler.config.k8s.io/v1",
    );
    wrong(
        "DynamicResources",
        "{apiVersion: kubescheduler.config.k8s.io/v1beta3}",
        "no kind \"DynamicResourcesArgs\" is registered for version \"kubescheduler.config.k8s.io/v1beta3\"",
    );
    for args in [
        "{kind: NodeResourcesFitArgs}",
        "{apiVersion: kubescheduler.config.k8s.io/v1}",
        "{apiVersion: '', kind: null}",
    ] {
        profile_with("NodeResourcesFit", args);
    }
}

/// Errors named all of the arguments instead of the field.
#[test]
fn values_of_the_wrong_type_are_told_with_their_field() {
    let wrong = |plugin: &str, args: &str, text: &str| check_args(plugin, args, text);
    wrong(
        "DynamicResources",
        "{filterTimeout: 10}",
        "filterTimeout: invalid type: integer `10`, expected a duration with its unit, such as \"10s\"",
    );
    wrong(
        "InterPodAffinity",
        "{hardPodAffinityWeight: '5'}",
        "hardPodAffinityWeight: invalid type: string \"5\", expected a whole number",
    );
    wrong(
        "NodeResourcesFit",
        "{scoringStrategy: {type: LeastAllocated, resources: [{name: cpu}, {name: memory, weight: 1.5}]}}",
        "scoringStrategy.resources[1].weight: invalid type: floating point `1.5`, expected a whole number",
    );
    wrong(
        "VolumeBinding",
        "{kind: 5}",
        "kind: invalid type: integer `5`, expected a string",
    );
    wrong(
        "DynamicResources",
        "{filterTimeOut: 10s}",
        "filterTimeOut: unknown field `filterTimeOut`, expected one of `filterTimeout`, `bindingTimeout`, `placementPolicy`, `placementWeight`",
    );
    check_error(
        &with_args("DynamicResources", "5"),
        "profiles[0].pluginConfig[0].args: invalid type: integer `5`, expected an object",
    );
}

#[test]
fn arguments_of_inter_pod_affinity_are_kept() {
    let args = "{hardPodAffinityWeight: 5, ignorePreferredTermsOfExistingPods: true}";
    let profile = profile_with("InterPodAffinity", args);
    assert_eq!(profile.hard_pod_affinity_weight, 5);
    assert!(profile.ignore_preferred_terms_of_existing_pods);
}

#[test]
fn arguments_of_preemption_are_kept_and_checked() {
    let check = |args: &str, percentage: u32, absolute: u32| {
        let profile = profile_with("DefaultPreemption", args);
        assert_eq!(profile.min_candidate_nodes_percentage, percentage, "{args}");
        assert_eq!(profile.min_candidate_nodes_absolute, absolute, "{args}");
    };
    check("{}", 10, 100);
    check("{minCandidateNodesPercentage: 100}", 100, 100);
    check(
        "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 7}",
        0,
        7,
    );
    let wrong = |args: &str, text: &str| check_args("DefaultPreemption", args, text);
    wrong(
        "{minCandidateNodesPercentage: 101}",
        "minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
    );
    wrong(
        "{minCandidateNodesAbsolute: -1}",
        "minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
    );
    wrong(
        "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
        "minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute",
    );
}

#[test]
fn resources_have_weights_from_one_to_a_hundred() {
    let strategy = |resources: &str| {
        format!("{{scoringStrategy: {{type: MostAllocated, resources: {resources}}}}}")
    };
    let resources = "[{name: cpu, weight: 0}, {name: memory}, {name: x.example/gpu, weight: 100}]";
    let profile = profile_with("NodeResourcesFit", &strategy(resources));
    let weights: Vec<i64> = profile.fit.resources.iter().map(|(_, w)| *w).collect();
    assert_eq!(weights, [1, 1, 100]);
    assert_eq!(profile.fit.strategy, Strategy::MostAllocated);
    for weight in [-1, 101] {
        let resources = format!("[{{name: cpu, weight: {weight}}}]");
        let text = format!(
            "scoringStrategy.resources[0].weight: Invalid value: {weight}: resource weight of cpu not in valid range (0, 100]"
        );
        check_args("NodeResourcesFit", &strategy(&resources), &text);
    }
}

#[test]
fn balance_knows_no_weights() {
    let args = "{resources: [{name: cpu, weight: 0}, {name: x.example/gpu}]}";
    let profile = profile_with("NodeResourcesBalancedAllocation", args);
    let names: Vec<&str> = profile.balanced.iter().map(|(n, _)| &**n).collect();
    assert_eq!(names, ["cpu", "x.example/gpu"]);
    let wrong = |args: &str, text: &str| check_args("NodeResourcesBalancedAllocation", args, text);
    wrong(
        "{resources: [{name: cpu, weight: 2}]}",
        "resources[0].weight: Invalid value: 2: must be 1",
    );
    wrong(
        "{resources: [{name: cpu}, {name: cpu}]}",
        "resources[1].name: Duplicate value: \"cpu\"",
    );
}

#[test]
fn names_of_ignored_resources_are_checked() {
    let wrong = |args: &str, text: &str| check_args("NodeResourcesFit", args, text);
    wrong(
        "{ignoredResources: [x.example/gpu, '-']}",
        "ignoredResources[1]: Invalid value: \"-\": name part must consist of",
    );
    wrong(
        "{ignoredResourceGroups: [x.example/gpu]}",
        "ignoredResourceGroups[0]: Invalid value: \"x.example/gpu\": resource group name can't contain '/'",
    );
    wrong(
        "{ignoredResourceGroups: ['']}",
        "ignoredResourceGroups[0]: Invalid value: \"\": name part must be non-empty",
    );
}

#[test]
fn scoring_strategies_are_checked() {
    let wrong = |strategy: &str, text: &str| {
        let args = format!("{{scoringStrategy: {strategy}}}");
        check_args(
            "NodeResourcesFit",
            &args,
            &format!("scoringStrategy.{text}"),
        );
    };
    wrong(
        "{resources: [{name: cpu}]}",
        "type: Unsupported value: \"\": supported values: \"LeastAllocated\", \"MostAllocated\", \"RequestedToCapacityRatio\"",
    );
    wrong(
        "{type: RequestedToCapacityRatio}",
        "requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio",
    );
    wrong(
        "{type: LeastAllocated, requestedToCapacityRatio: {shape: []}}",
        "requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio",
    );
}

#[test]
fn shapes_are_checked() {
    let with = |shape: &str| {
        format!(
            "{{scoringStrategy: {{type: RequestedToCapacityRatio, requestedToCapacityRatio: {{shape: {shape}}}}}}}"
        )
    };
    let shape = "[{utilization: 0, score: 10}, {utilization: 100, score: 0}]";
    let profile = profile_with("NodeResourcesFit", &with(shape));
    let expected = Strategy::RequestedToCapacityRatio(vec![(0, 10), (100, 0)]);
    assert_eq!(profile.fit.strategy, expected);
    let wrong = |shape: &str, text: &str| {
        let text = format!("scoringStrategy.requestedToCapacityRatio.shape{text}");
        check_args("NodeResourcesFit", &with(shape), &text);
    };
    wrong(
        "[]",
        ": Required value: at least one point must be specified",
    );
    wrong(
        "[{utilization: 5, score: 1}, {utilization: 5, score: 2}]",
        "[1].utilization: Invalid value: 5: values must be sorted in increasing order",
    );
    wrong(
        "[{utilization: 0, score: 1}, {utilization: 101, score: 2}]",
        "[1].utilization: Invalid value: 101: not in valid range [0, 100]",
    );
    wrong(
        "[{utilization: 0, score: 11}]",
        "[0].score: Invalid value: 11: not in valid range [0, 10]",
    );
}

#[test]
fn constraints_by_default_are_read() {
    let args = concat!(
        "{defaultingType: List, defaultConstraints: [",
        "{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 3, nodeAffinityPolicy: Ignore,",
        " nodeTaintsPolicy: Honor, matchLabelKeys: [a]},",
        "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}",
    );
    let defaults = profile_with("PodTopologySpread", args).spread;
    let constraint = |max_skew, required| DefaultConstraint {
        max_skew,
        key: "zone".to_owned(),
        required,
        min_domains: if required { 3 } else { 1 },
        honor_affinity: !required,
        honor_taints: required,
    };
    assert_eq!(
        defaults.constraints,
        [constraint(2, true), constraint(1, false)]
    );
    assert!(!defaults.system);
    for args in ["{}", "{defaultingType: System}", "{defaultConstraints: []}"] {
        let defaults = profile_with("PodTopologySpread", args).spread;
        assert_eq!(defaults, Defaults::system(), "{args}");
    }
    let none = profile_with("PodTopologySpread", "{defaultingType: List}");
    assert_eq!(none.spread.constraints, []);
}

#[test]
fn constraints_by_default_are_checked() {
    let wrong = |args: &str, text: &str| check_args("PodTopologySpread", args, text);
    let zone = "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}";
    // A list has to be called one.
    for kind in ["", "defaultingType: System, "] {
        wrong(
            &format!("{{{kind}defaultConstraints: [{zone}]}}"),
            "defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty",
        );
    }
    wrong(
        "{defaultingType: Other}",
        "defaultingType: Unsupported value: \"Other\": supported values: \"System\", \"List\"",
    );
    wrong(
        &format!("{{defaultingType: List, defaultConstraints: [{zone}, {zone}]}}"),
        "defaultConstraints[1]: Duplicate value: \"{zone, ScheduleAnyway}\"",
    );
    let wrong = |constraint: &str, text: &str| {
        let args = format!("{{defaultingType: List, defaultConstraints: [{constraint}]}}");
        wrong(&args, &format!("defaultConstraints[0].{text}"));
    };
    wrong(
        "{maxSkew: 0, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}",
        "maxSkew: Invalid value: 0: not in valid range (0, inf)",
    );
    wrong(
        "{maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}",
        "topologyKey: Required value: can not be empty",
    );
    wrong(
        "{maxSkew: 1, topologyKey: 'a b', whenUnsatisfiable: ScheduleAnyway}",
        "topologyKey: Invalid value: \"a b\": name part must consist of",
    );
    wrong(
        "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: Never}",
        "whenUnsatisfiable: Unsupported value: \"Never\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\"",
    );
    wrong(
        "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}",
        "labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod",
    );
    wrong(
        "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, nodeTaintsPolicy: Maybe}",
        "nodeTaintsPolicy: Unsupported value: \"Maybe\": supported values: \"Honor\", \"Ignore\"",
    );
}

#[test]
fn affinity_is_added_by_the_profile() {
    let args = concat!(
        "{addedAffinity: {",
        "requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [",
        "{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}]},",
        "preferredDuringSchedulingIgnoredDuringExecution: [",
        "{weight: 5, preference: {matchFields: [{key: metadata.name, operator: In, values: [n1]}]}},",
        "{weight: 7, preference: {matchExpressions: [{key: zone, operator: Exists}]}},",
        "{weight: 0, preference: {matchExpressions: [{key: zone, operator: Exists}]}}]}}",
    );
    let added = profile_with("NodeAffinity", args).added_affinity;
    let check = |name: &str, zone: &str, fits: bool, score: i64| {
        let object = json!({"metadata": {"name": name, "labels": {"zone": zone}}});
        let mut node = NodeInfo::new(name.into());
        node.set_node(Arc::new(serde_json::from_value(object).expect("fixture")));
        let expected = "node(s) didn't match scheduler-enforced node affinity";
        match added.filter(&node) {
            Ok(()) => assert!(fits, "{name} in {zone}"),
            Err(rejection) => {
                assert!(!fits, "{name} in {zone}");
                assert_eq!(rejection.reasons, [expected]);
                assert_eq!(rejection.code, Code::Unresolvable);
            }
        }
        assert_eq!(added.score(&node), score, "{name} in {zone}");
    };
    check("n1", "a", true, 12);
    check("n2", "b", true, 7);
    check("n1", "c", false, 12);
    assert!(added.has_preferences());
    let none = profile_with("NodeAffinity", "{}").added_affinity;
    assert_eq!(none, AddedAffinity::default());
}

#[test]
fn added_affinity_is_checked() {
    let wrong = |expression: &str, text: &str| {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let args =
            format!("{{addedAffinity: {{{required}: {{nodeSelectorTerms: [{expression}]}}}}}}");
        let text = format!("addedAffinity.{required}.nodeSelectorTerms[0].{text}");
        check_args("NodeAffinity", &args, &text);
    };
    wrong(
        "{matchExpressions: [{key: zone, operator: Is, values: [a]}]}",
        "matchExpressions[0].operator: Unsupported value: \"Is\": supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\"",
    );
    wrong(
        "{matchExpressions: [{key: zone, operator: In}]}",
        "matchExpressions[0].values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
    );
    wrong(
        "{matchFields: [{key: metadata.name, operator: Exists}]}",
        "matchFields[0].operator: Unsupported value: \"Exists\": supported values: \"In\", \"NotIn\"",
    );
    wrong(
        "{matchFields: [{key: metadata.name, operator: In, values: [a, b]}]}",
        "matchFields[0].values: Invalid value: [\"a\", \"b\"]: must have one element",
    );
    check_error(
        &with_args("NodeAffinity", "{addedAffinity: {required: {}}}"),
        "required",
    );
}

#[test]
fn a_placement_policy_is_chosen_by_name() {
    use allot_allocator::Policy;
    let of = |args: &str| {
        let args = profile_with("DynamicResources", args).dynamic_resources;
        (args.placement, args.placement_weight)
    };
    assert_eq!(of("{}"), (Policy::FirstFit, 20));
    assert_eq!(
        of("{placementPolicy: Pack, placementWeight: 5}"),
        (Policy::BestFit, 5)
    );
    assert_eq!(
        of("{placementPolicy: LeastFragmentation}").0,
        Policy::LeastFragmentation
    );
    check_args(
        "DynamicResources",
        "{placementPolicy: pack}",
        "placementPolicy: Invalid value: \"pack\": supported values: \"FirstFit\", \"Pack\", \"Spread\", \"LeastFragmentation\"",
    );
    check_args(
        "DynamicResources",
        "{placementWeight: 0}",
        "placementWeight: Invalid value: 0: not in valid range [1, 1000]",
    );
}
