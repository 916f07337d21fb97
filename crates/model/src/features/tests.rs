use super::*;

fn text(release: u8, flag: &str) -> String {
    Features::of(Release::new(release))
        .set(flag)
        .unwrap_err()
        .to_string()
}

#[test]
fn defaults_follow_the_release() {
    let on = |release, feature| Features::of(Release::new(release)).enabled(feature);
    assert!(!on(26, Feature::DynamicResourceAllocation));
    assert!(!on(32, Feature::DynamicResourceAllocation));
    assert!(on(34, Feature::DynamicResourceAllocation));
    assert!(!on(35, Feature::DRADeviceTaints));
    assert!(on(36, Feature::DRADeviceTaints));
    assert!(!on(36, Feature::DRADeviceTaintRules));
    assert!(on(33, Feature::DRAResourceClaimDeviceStatus));
}

#[test]
fn defaults_are_consistent_in_every_release() {
    // 1.33 turned device status on while dynamic resource allocation was off; it does not depend on it.
    for release in Release::all() {
        let features = Features::of(release);
        assert_eq!(features.broken_dependencies(), [], "{release}");
    }
}

#[test]
fn errors_have_upstreams_texts() {
    let cases = [
        (36, "Nope=true", "unrecognized feature gate: Nope"),
        (
            36,
            "DRADeviceTaints",
            "missing bool value for DRADeviceTaints",
        ),
        (
            36,
            "DRADeviceTaints=maybe",
            "invalid value of DRADeviceTaints=maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax",
        ),
        (
            36,
            "DRAAdminAccess=false",
            "cannot set feature gate DRAAdminAccess to false, feature is locked to true",
        ),
        (
            31,
            "DRAAdminAccess=true",
            "cannot set feature gate DRAAdminAccess to true, feature is PreAlpha at emulated version 1.31, min compatibility version 1.30",
        ),
        (
            32,
            "DRAControlPlaneController=true",
            "unrecognized feature gate: DRAControlPlaneController",
        ),
        (
            36,
            "DRADeviceTaints=false,DRADeviceTaintRules=true",
            "DRADeviceTaintRules is enabled, but depends on features that are disabled: [DRADeviceTaints]",
        ),
        (
            36,
            "DRAAdminAccess=false,DynamicResourceAllocation=false",
            "[cannot set feature gate DRAAdminAccess to false, feature is locked to true, cannot set feature gate DynamicResourceAllocation to false, feature is locked to true]",
        ),
    ];
    for (release, flag, expected) in cases {
        assert_eq!(text(release, flag), expected, "{flag}");
    }
}

/// As kube-apiserver, which may be started together with an extension that has gates of its own.
#[test]
fn gates_can_name_their_component() {
    let mut features = Features::default();
    features
        .set("kube:DRADeviceTaintRules=true,:DRAListTypeAttributes=true, kube: ImageVolume =true")
        .unwrap();
    assert!(features.enabled(Feature::DRADeviceTaintRules));
    assert!(features.enabled(Feature::DRAListTypeAttributes));
    assert_eq!(
        text(36, "wardle:BanFlunder=true"),
        "component not registered: wardle"
    );
    assert_eq!(
        text(36, "kube:Nope=true"),
        "unrecognized feature gate: Nope"
    );
}

#[test]
fn a_failed_setting_changes_nothing() {
    let mut features = Features::default();
    features
        .set("DRADeviceTaintRules=true,Nope=true")
        .unwrap_err();
    assert_eq!(features, Features::default());
}

#[test]
fn whole_stages_can_be_switched() {
    let mut features = Features::default();
    features
        .set("DRAListTypeAttributes=false,AllAlpha=true,DRADeviceTaintRules=true")
        .unwrap();
    assert!(features.enabled(Feature::DRANodeAllocatableResources));
    assert!(!features.enabled(Feature::DRAListTypeAttributes));
    let mut old = Features::of(Release::new(31));
    old.set("DynamicResourceAllocation=true, DRAControlPlaneController=1")
        .unwrap();
    assert!(old.enabled(Feature::DRAControlPlaneController));
}

#[test]
fn releases_parse() {
    assert_eq!("1.30".parse(), Ok(Release::new(30)));
    assert_eq!("v1.36.2".parse(), Ok(Release::DEFAULT));
    assert_eq!("1.37".parse(), Ok(Release::NEWEST));
    assert_eq!(
        "1.25".parse::<Release>().unwrap_err().to_string(),
        "emulation version 1.25 is not between [1.26, 1.37]"
    );
    assert_eq!(
        "1.x".parse::<Release>().unwrap_err().to_string(),
        "illegal version string \"1.x\""
    );
}

#[test]
fn help_lists_alpha_and_beta() {
    let help = Features::default().help();
    assert!(help.contains(&"DRADeviceTaintRules=true|false (BETA - default=false)".to_owned()));
    assert!(
        !help
            .iter()
            .any(|line| line.starts_with("DRAPrioritizedList"))
    );
}
