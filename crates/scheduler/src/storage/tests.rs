use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn claim(at: usize) -> (Key, Uid) {
    (Key::new("ns", &format!("c{at}")), format!("u{at}").into())
}

/// A volume for one of two claims, by UID or by name only, or for none.
fn volume(class: u8, reference: u8) -> Volume {
    let claim = (reference > 0).then(|| {
        let (key, uid) = claim(usize::from(reference % 2));
        let uid = match reference > 2 {
            true => uid,
            false => "".into(),
        };
        ClaimRef { key, uid }
    });
    Volume {
        claim,
        class: class.to_string(),
        ..Volume::default()
    }
}

proptest! {
    /// Volumes for claims and free ones are found as if all were looked at.
    #[test]
    fn volumes_are_found(
        changes in proptest::collection::vec((0u8..6, 0usize..5, 0u8..2, 0u8..5), 0..40),
    ) {
        let mut storage = Storage::default();
        let mut all: BTreeMap<String, Volume> = BTreeMap::new();
        for (what, name, class, reference) in changes {
            let name = format!("v{name}");
            let pod = Uid::from(format!("p{reference}"));
            match what {
                0 => storage.forget(&pod),
                1 => {
                    let (key, uid) = claim(usize::from(class));
                    storage.assume_volume(&pod, &name, ClaimRef { key, uid });
                }
                2 => {
                    let before = storage.volumes.remove(&name);
                    prop_assert_eq!(before.as_deref().cloned(), all.remove(&name));
                }
                _ => {
                    let volume = volume(class, reference);
                    let before = storage.volumes.insert(name.clone(), volume.clone());
                    prop_assert_eq!(before.as_deref().cloned(), all.insert(name, volume));
                }
            }
            let held = |(name, volume): &(&String, &Volume)| storage.holder(name, volume).cloned();
            for at in 0..2 {
                let (key, uid) = claim(at);
                let own = all.iter().filter(|v| held(v).is_some_and(|h| h.is(&key, &uid)));
                let expected: Vec<_> = own.map(|(n, v)| (n.as_str(), v)).collect();
                prop_assert_eq!(storage.own(&key, &uid), expected);
                let class = at.to_string();
                let free = all.iter().filter(|v| v.1.class == class && held(v).is_none());
                let expected: Vec<_> = free.map(|(n, v)| (n.as_str(), v)).collect();
                prop_assert_eq!(storage.free(&class).collect::<Vec<_>>(), expected);
            }
        }
        let listed: Volumes = all.clone().into_iter().collect();
        for (name, volume) in &all {
            prop_assert_eq!(listed.get(name), Some(volume));
        }
    }

    /// What is attached to a node is found as if all attachments were looked at.
    #[test]
    fn attachments_are_found(
        changes in proptest::collection::vec((0u8..3, 0u8..5, 0u8..2, 0u8..3), 0..40),
    ) {
        let mut attachments = Attachments::default();
        let mut all = BTreeMap::new();
        for (what, name, node, volume) in changes {
            let name = name.to_string();
            if what == 0 {
                prop_assert_eq!(attachments.remove(&name), all.remove(&name));
            } else {
                let attachment = Attachment {
                    node: node.to_string(),
                    volume: volume.to_string(),
                };
                let before = attachments.insert(name.clone(), attachment.clone());
                prop_assert_eq!(before, all.insert(name, attachment));
            }
            for node in ["0", "1"] {
                let here = all.values().filter(|a| a.node == node);
                let expected: BTreeSet<_> = here.map(|a| &a.volume).collect();
                let found: BTreeSet<_> = attachments.on(node).iter().collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
