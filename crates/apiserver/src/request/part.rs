//! The part of an object that an endpoint writes.

/// Which part of an object an update may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status.
    Main,
    /// Only the status.
    Status,
    /// Another subresource that has made the change itself.
    Sub,
    /// Namespace finalizers.
    Finalize,
    /// The ephemeral containers of a pod.
    EphemeralContainers,
    /// The resources of a pod's containers.
    Resize,
    /// The approval of a certificate request.
    Approval,
}
