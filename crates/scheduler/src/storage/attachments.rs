//! VolumeAttachments by name and by node.

use rustc_hash::FxHashMap;

use super::Attachment;

/// The VolumeAttachments: volumes that are being attached, are attached, or are being detached.
#[derive(Debug, Clone, Default)]
pub struct Attachments {
    /// By the name of the VolumeAttachment.
    all: FxHashMap<String, Attachment>,
    /// Names of volumes by node; one that two objects attach there is in it twice.
    by_node: FxHashMap<String, Vec<String>>,
}

impl Attachments {
    /// Adds or replaces an attachment; returns the previous one.
    pub fn insert(&mut self, name: String, attachment: Attachment) -> Option<Attachment> {
        let before = self.remove(&name);
        let here = self.by_node.entry(attachment.node.clone()).or_default();
        here.push(attachment.volume.clone());
        self.all.insert(name, attachment);
        before
    }

    /// Removes an attachment; returns it.
    pub fn remove(&mut self, name: &str) -> Option<Attachment> {
        let attachment = self.all.remove(name)?;
        if let Some(here) = self.by_node.get_mut(&attachment.node) {
            if let Some(at) = here.iter().position(|v| *v == attachment.volume) {
                here.swap_remove(at);
            }
            if here.is_empty() {
                self.by_node.remove(&attachment.node);
            }
        }
        Some(attachment)
    }

    /// Names of the volumes that are attached to a node.
    pub fn on(&self, node: &str) -> &[String] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }
}

impl FromIterator<(String, Attachment)> for Attachments {
    fn from_iter<T: IntoIterator<Item = (String, Attachment)>>(attachments: T) -> Self {
        let mut all = Self::default();
        for (name, attachment) in attachments {
            all.insert(name, attachment);
        }
        all
    }
}
