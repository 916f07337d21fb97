//! Errors of controllers.

use thiserror::Error as ThisError;

/// An error of a control loop. Workers retry on every error.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The API server refused or could not be reached.
    #[error("{}", allot_reflector::api_message(.0))]
    Api(#[from] kube::Error),
    /// The object is invalid for the controller, for this reason.
    #[error("{0}")]
    Invalid(String),
    /// Another process leads now.
    #[error("leadership lost")]
    LeadershipLost,
}

impl Error {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// The object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Another client changed the object first, or it exists already.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// An object of that name exists already.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.reason == "AlreadyExists")
    }

    /// The API server understood and refuses (403, 422): the same request will not succeed soon.
    pub fn is_refused(&self) -> bool {
        matches!(self.code(), Some(403 | 422))
    }

    /// The API server does not accept the object (422): it will not, as long as the object is as it is.
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }

    /// The namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        match self {
            Self::Api(kube::Error::Api(status)) => status
                .details
                .as_ref()
                .is_some_and(|d| d.causes.iter().any(|c| c.reason == "NamespaceTerminating")),
            _ => false,
        }
    }
}
