//! Errors between a command and an API server, as messages for users.

/// The message of the API server, without the Status that the library's text repeats, or the reason why there was no
/// response; with a remedy if there is only one.
#[must_use]
pub fn failure(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 401 => format!(
            "the API server does not accept the credentials of the kubeconfig, which may have expired or be those of \
             another cluster: {}",
            status.message
        ),
        // The library's own words before the cause say nothing.
        kube::Error::Service(cause) => {
            let cause = cause.to_string();
            let hint = if cause.contains("UnknownIssuer") {
                "; certificate-authority-data of the kubeconfig is missing, or that of another cluster"
            } else if cause.contains("certificate") && cause.to_lowercase().contains("expired") {
                "; the server or its certificate authority needs a new certificate, unless the clock of this machine is wrong"
            } else {
                ""
            };
            format!("the API server does not answer: {cause}{hint}")
        }
        other => allot_reflector::api_message(other),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refused(code: u16, message: &str, reason: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure(message, reason).with_code(code)))
    }

    /// `nodes is forbidden: … (Status { status: Some(Failure), code: 403, message: …`
    #[test]
    fn regression_what_the_server_refuses_is_told_once() {
        let forbidden = refused(403, "nodes is forbidden", "Forbidden");
        let error = anyhow::Error::new(forbidden).context("cannot list nodes");
        let expected = "cannot list nodes: nodes is forbidden";
        assert_eq!(crate::describe(&error), expected);
    }

    #[test]
    fn an_error_that_always_has_the_same_cause_names_it() {
        let text = failure(&refused(401, "Unauthorized", "Unauthorized"));
        assert!(text.contains("may have expired"), "{text}");
        let cause = "https://127.0.0.1:6443: invalid peer certificate: UnknownIssuer";
        let error = kube::Error::Service(cause.into());
        let error = anyhow::Error::new(error);
        let text = crate::describe(&error);
        assert_eq!(text.matches(cause).count(), 1, "{text}");
        assert!(text.contains("certificate-authority-data"), "{text}");
        let cause = "https://127.0.0.1:6443: invalid peer certificate: Expired";
        let text = failure(&kube::Error::Service(cause.into()));
        assert!(
            text.ends_with("unless the clock of this machine is wrong"),
            "{text}"
        );
    }
}
