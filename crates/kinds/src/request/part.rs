//! The part of an object that an endpoint can update.

/// The part of an object that an update can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything except the status.
    Main,
    /// Only the status.
    Status,
    /// Another subresource, whose handler has already applied the change.
    Sub,
    /// The finalizers in the spec of a namespace.
    Finalize,
    /// The ephemeral containers of a pod.
    EphemeralContainers,
    /// The resources of a pod's containers.
    Resize,
    /// The approval of a certificate request.
    Approval,
}
