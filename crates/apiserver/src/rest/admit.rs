//! What admission sees of a request.

use serde_json::Value;

use crate::admission::{self, Attributes, ObjectForm, Operation, Owners, SentRequest};
use crate::context::Call;
use crate::error::Result;
use crate::object::meta;
use crate::request::DeleteOptions;

impl Call<'_> {
    /// The request as policies and webhooks see it.
    pub(super) fn asked<'a>(
        &'a self,
        delete: Option<&'a DeleteOptions>,
        owners: Owners<'a>,
    ) -> SentRequest<'a> {
        let shown = match self.request.info.subresource.as_str() {
            "scale" => ObjectForm::Scale,
            _ => ObjectForm::Object,
        };
        SentRequest {
            request: self.request,
            resource: &self.resource,
            version: &self.version,
            conversions: &self.conversions,
            shown,
            delete,
            owners,
        }
    }

    /// Runs policies and webhooks on the body of a subresource that is not part of its object.
    ///
    /// # Errors
    /// The first rejection.
    pub(super) async fn admit_sent(&self, operation: Operation, sent: &mut Value) -> Result<()> {
        let asked = SentRequest {
            shown: ObjectForm::Sent,
            ..self.asked(None, Owners::default())
        };
        let name = match self.name() {
            "" => meta(sent, "name").to_owned(),
            named => named.to_owned(),
        };
        let attributes = Attributes {
            operation,
            resource: &self.resource,
            subresource: &self.request.info.subresource,
            namespace: self.namespace(),
            name: &name,
            user: &self.request.user,
            old: None,
            dry_run: self.dry_run,
            asked: Some(asked),
        };
        if operation == Operation::Create {
            self.provide_namespace(&name).await?;
        }
        admission::admit_sent(self.core, &attributes, sent).await
    }

    /// Leaves one of each owner reference, with a warning. What was created or replaced is looked at before mutating
    /// admission and after it, what was patched after it.
    pub(super) fn single_owners(&self, object: &mut Value, admitted: bool) {
        if let Some(warning) = crate::warnings::repeated_owners(object, admitted) {
            self.request.warnings.add(warning);
        }
    }
}
