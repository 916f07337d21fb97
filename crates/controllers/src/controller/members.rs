//! Sets of keys, most of which have one element.
//!
//! An index by owner or by name has a set for each object. A hash set of one key takes 130 bytes beside the key, with
//! thousands of objects as much as what is kept of the objects themselves.

use std::sync::Arc;

use rustc_hash::FxHashSet;

/// A key or UID that several maps share.
pub(crate) type SharedKey = Arc<str>;

/// A set of keys that is never empty: what becomes empty is removed by its owner.
pub(crate) enum Members {
    One(SharedKey),
    Many(FxHashSet<SharedKey>),
}

impl Members {
    /// A set of one.
    pub(crate) fn new(key: &SharedKey) -> Self {
        Self::One(key.clone())
    }

    pub(crate) fn add(&mut self, key: &SharedKey) {
        match self {
            Self::One(only) if **only == **key => {}
            Self::One(only) => {
                *self = Self::Many([only.clone(), key.clone()].into_iter().collect())
            }
            Self::Many(keys) => {
                keys.insert(key.clone());
            }
        }
    }

    /// Removes a key. Returns whether nothing is left; the set must then not be used any longer.
    pub(crate) fn remove(&mut self, key: &str) -> bool {
        match self {
            Self::One(only) => **only == *key,
            Self::Many(keys) => {
                keys.remove(key);
                keys.is_empty()
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SharedKey> {
        let (one, many) = match self {
            Self::One(only) => (Some(only), None),
            Self::Many(keys) => (None, Some(keys)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_added_and_removed() {
        let (a, b) = (SharedKey::from("a"), SharedKey::from("b"));
        let listed = |members: &Members| {
            let mut keys: Vec<_> = members.iter().map(|key| key.to_string()).collect();
            keys.sort();
            keys
        };
        let mut members = Members::new(&a);
        members.add(&a);
        assert_eq!(listed(&members), ["a"]);
        assert!(!members.remove("b"));
        members.add(&b);
        members.add(&b);
        assert_eq!(listed(&members), ["a", "b"]);
        assert!(!members.remove("a"));
        assert_eq!(listed(&members), ["b"]);
        assert!(members.remove("b"));
        assert!(Members::new(&a).remove("a"));
    }
}
