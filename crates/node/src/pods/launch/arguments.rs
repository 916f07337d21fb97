//! Program and arguments of a container.

use k8s_openapi::api::core::v1::Container;

use super::super::Node;
use super::super::env::{Budget, EnvError, Variables};
use super::{WaitingReason, config};
use crate::images::Files;

/// `command` and `args` of a container with their variables.
pub(super) fn own_arguments(
    container: &Container,
    env: &Variables,
) -> Result<(Vec<String>, Vec<String>), EnvError> {
    let mut budget = Budget::default();
    let mut expand = |list: &Option<Vec<String>>| -> Result<Vec<String>, EnvError> {
        let list = list.iter().flatten();
        list.map(|arg| env.expand(arg, &mut budget)).collect()
    };
    Ok((expand(&container.command)?, expand(&container.args)?))
}

/// Program and arguments: the container's override the image's. Without an image the pod must have a command.
pub(super) fn arguments(
    node: &Node,
    container: &Container,
    files: &Files,
    env: &Variables,
) -> Result<Vec<String>, WaitingReason> {
    let image = files.config();
    let (command, args) = own_arguments(container, env).map_err(config)?;
    let all = match (command.is_empty(), args.is_empty()) {
        (false, _) => [command, args].concat(),
        (true, false) => [image.entrypoint.clone(), args].concat(),
        (true, true) => [image.entrypoint.clone(), image.cmd.clone()].concat(),
    };
    if node.pretends() {
        return Ok(all);
    }
    let unknown = container.command.as_ref().is_none_or(Vec::is_empty) && files.image.is_none();
    if files.image.is_some() && all.is_empty() {
        return Err(WaitingReason {
            reason: "CreateContainerError",
            message: format!(
                "failed to generate container \"{}\" spec: no command specified",
                container.name
            ),
        });
    }
    if unknown || all.is_empty() {
        return Err(WaitingReason {
            reason: "CreateContainerError",
            message: format!(
                "container {:?} has no command: images are not pulled on this node, so the entrypoint of {:?} is not \
                 known; set command in the pod",
                container.name,
                container.image.as_deref().unwrap_or_default()
            ),
        });
    }
    Ok(all)
}
