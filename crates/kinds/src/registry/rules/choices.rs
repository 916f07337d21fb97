//! What rules choose from.

/// What a create request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Create {
    /// It stores the object.
    Store,
    /// It binds a pod.
    Bind,
    /// It answers with the reviewed object.
    Review(Review),
}

/// What a review asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    /// Whether a user may do something in the namespace of the request.
    LocalSubjectAccess,
    /// Whether the sender may do something.
    SelfSubjectAccess,
    /// All that the sender may do in a namespace.
    SelfSubjectRules,
    /// Whether a user may do something.
    SubjectAccess,
    /// The sender's user.
    SelfSubject,
    /// The user of a token.
    Token,
}

/// Where the requests go that the server passes on from a subresource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connect {
    /// To the kubelet of the node.
    Node,
    /// To the pod, or for its logs and streams to the kubelet of its node.
    Pod,
    /// To an endpoint of the service.
    Service,
}

/// Whether `metadata.generation` counts changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The kind has no generation.
    None,
    /// The generation is 1 in a new object.
    FromCreate,
    /// The generation is absent from a new object, and 1 after the first change.
    FromChange,
}

/// Where the errors of a new object's metadata are among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataErrors {
    /// Before them.
    First,
    /// Before them, with the others about the name after those about the name.
    WithName,
    /// After those about `involvedObject`.
    AfterInvolvedObject,
    /// Only without other errors, and by the rules for all kinds.
    Alone,
}

/// Upstream's message for a field that cannot be selected; it depends on whether a kind registered a conversion of field
/// labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsupportedField {
    /// "… is not a known field selector".
    Unknown,
    /// "field label not supported: …".
    NotSupported,
    /// "field label not supported for GROUP/VERSION, Kind=KIND: …".
    NotSupportedForVersion,
    /// "field label … not supported for KIND".
    NotSupportedForKind,
}
