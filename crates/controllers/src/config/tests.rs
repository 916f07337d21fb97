use super::*;

fn selected(config: Config, names: &str) -> Result<Vec<&'static str>, UnknownController> {
    let names: Vec<String> = names.split(',').map(str::to_owned).collect();
    let config = config.select(&names)?;
    Ok(config
        .controllers
        .into_iter()
        .map(Controller::name)
        .collect())
}

#[test]
fn star_keeps_the_defaults_and_minus_removes() {
    let found = selected(Config::external(), "*,-slice-liveness,job").unwrap();
    assert_eq!(
        found,
        [
            "resourceclaim-controller",
            "device-taint-eviction-controller",
            "resourcepoolstatusrequest-controller",
            "job-controller"
        ]
    );
}

#[test]
fn without_star_only_the_named_run() {
    assert_eq!(
        selected(Config::embedded(), "namespace").unwrap(),
        ["namespace-controller"]
    );
    assert_eq!(
        selected(Config::external(), "all").unwrap().len(),
        Controller::ALL.len()
    );
}

#[test]
fn unknown_names_are_refused() {
    let error = selected(Config::embedded(), "*,-nope").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("unknown controller \"nope\"; known are resourceclaim-controller")
    );
}
