//! Volume attachments.

use super::STORAGE;
use crate::registry::{ALL_METADATA, Builtin, Rules, STATUS};
use crate::{table, validate};

pub(super) static VOLUME_ATTACHMENT: Builtin = Builtin {
    kind: "VolumeAttachment",
    plural: "volumeattachments",
    subresources: &[STATUS],
    rules: Rules {
        requires_version: |_| true,
        status_keeps: ALL_METADATA,
        status_ignores_deletion: true,
        validate: |attachment, errors| validate::csi::attachment(attachment, true, errors),
        validate_update: Some(validate::csi::attachment_update),
        validate_status: Some(validate::csi::attachment_update),
        checks_metadata_change: |_| false,
        table: Some((
            "Name|Attacher|PV|Node|Attached:boolean|Age",
            table::storage::volume_attachment,
        )),
        ..STORAGE.rules
    },
    ..STORAGE
};
