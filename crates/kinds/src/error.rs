//! Errors as clients see them: a boxed Kubernetes `Status`.

use allot_apimachinery::Status;
use allot_apimachinery::status::{Cause, Details};
use allot_store::Error as StoreError;

/// A failed request; turned into a response in one place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ApiError(pub Box<Status>);

/// Shorthand of this crate.
pub type Result<T, E = ApiError> = std::result::Result<T, E>;

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        ApiError(Box::new(status))
    }
}

impl ApiError {
    /// HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// The response 400 with reason `BadRequest`.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Status::bad_request(message).into()
    }

    /// 500 without a reason: upstream's answer where an error has no API form.
    pub fn unknown(message: impl Into<String>) -> Self {
        Status::failure(500, "", message).into()
    }

    /// 404 for a path that does not exist.
    pub fn no_such_path() -> Self {
        Status::no_resource().into()
    }

    /// 405 for a path that exists.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Status::failure(405, "MethodNotAllowed", message);
        status.details = Some(Box::default());
        status.into()
    }

    /// 504 for a revision that does not exist yet.
    pub fn future_version(requested: u64, current: u64) -> Self {
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        let mut status = Status::failure(504, "Timeout", message);
        let cause = Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        status.details = Some(Box::new(Details {
            causes: vec![cause],
            retry_after_seconds: 1,
            ..Details::default()
        }));
        status.into()
    }
}

/// The store's errors, if no handler has mapped them.
impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Future { requested, current } => {
                ApiError::future_version(requested, current)
            }
            StoreError::Expired { requested, oldest } => {
                Status::expired(format!("too old resource version: {requested} ({oldest})")).into()
            }
            other => Status::internal(&other.to_string()).into(),
        }
    }
}
