//! What a case is: a rule, its source, and its test.

use std::pin::Pin;

use crate::fixture::Fixture;
pub(crate) use crate::outcome::{Observed, Stop, ensure, fail, skip};

type Run = for<'a> fn(&'a mut Fixture) -> Pin<Box<dyn Future<Output = Observed> + Send + 'a>>;

/// A rule for every driver, and its test.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name: subject and what happens.
    pub name: &'static str,
    /// What a driver must do.
    pub rule: &'static str,
    /// The source of the rule.
    pub source: &'static str,
    /// Where to look when it is violated.
    pub hint: &'static str,
    /// Needs the driver's process or its connection to the API server.
    pub(crate) process: bool,
    /// How many devices it needs at least.
    pub(crate) devices: usize,
    pub(crate) run: Run,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

macro_rules! case {
    ($run:path, $name:literal, process: $process:literal, devices: $devices:literal, rule: $rule:literal, source: $source:expr, hint: $hint:literal $(,)?) => {
        $crate::case::Case {
            name: $name,
            rule: $rule,
            source: $source,
            hint: $hint,
            process: $process,
            devices: $devices,
            run: |fixture| Box::pin($run(fixture)),
        }
    };
}
pub(crate) use case;

/// Sources of rules.
pub(crate) mod source {
    pub(crate) const KEP: &str = "KEP-4381, structured parameters";
    pub(crate) const PREPARE: &str = "KEP-4381, NodePrepareResources";
    pub(crate) const UNPREPARE: &str = "KEP-4381, NodeUnprepareResources";
    pub(crate) const PUBLISH: &str = "KEP-4381, publishing node resources";
    pub(crate) const REGISTRATION: &str =
        "kubelet plugin registration, pluginregistration/v1 api.proto";
    pub(crate) const WATCHER: &str = "kubelet, pkg/kubelet/pluginmanager/pluginwatcher/README.md";
    pub(crate) const PROTO: &str = "kubelet DRA gRPC API, dra/v1 api.proto";
    pub(crate) const CDI: &str = "CDI specification";
    pub(crate) const REBOOT: &str = "kubernetes/kubernetes#141433";
    pub(crate) const HEALTH: &str = "KEP-4680, DRAResourceHealth";
}
