//! Creates each claim once, even if answers are lost.
//!
//! The API server generates random names. If its answer does not arrive, perhaps because the process died, the name of
//! the claim that it may have created is not known; upstream then creates another one, and the first stays unused as
//! long as its pod exists. Here the name follows from the purpose of the claim: a repeated request is for the same
//! claim.

use allot_apimachinery::names::GENERATED_NAME_ALPHABET;
use allot_reflector::{Readable, Writes};
use kube::{Api, Resource};
use serde_json::{Value, json};

use super::plan::{self, Owner};
use crate::Error;
use crate::controller::api;
use crate::controller::meta;
use crate::workload::fnv;

/// How many names that other claims have are skipped before it is an error.
const MOST_TAKEN: u8 = 8;
/// Characters that are added to the base of a name, as many as the API server adds.
const SUFFIX: usize = 5;

/// The purpose of a claim.
#[derive(Clone, Copy)]
pub(super) struct Purpose<'a> {
    pub(super) owner: Owner<'a>,
    /// The name of the entry in `spec.resourceClaims`.
    pub(super) entry: &'a str,
    /// The claim that it replaces, by name.
    pub(super) before: Option<&'a str>,
}

impl Purpose<'_> {
    /// The end of the name. `taken`: how many names others had.
    fn suffix(&self, taken: u8) -> String {
        let before = self.before.unwrap_or_default();
        let texts = [self.owner.uid, self.entry, before];
        let parts = texts.iter().flat_map(|text| [text.as_bytes(), &[0][..]]);
        let taken = [taken];
        let mut hash = fnv(parts.chain([&taken[..]]));
        let letters = (0..SUFFIX).map(|_| {
            let letter = GENERATED_NAME_ALPHABET[hash as usize % GENERATED_NAME_ALPHABET.len()];
            hash /= GENERATED_NAME_ALPHABET.len() as u32;
            char::from(letter)
        });
        letters.collect()
    }

    /// Whether an existing claim of the name was created by an earlier request.
    fn is_served_by<K: Resource>(&self, claim: &K) -> bool {
        meta::is_controlled_by(claim.meta(), self.owner.uid)
            && plan::is_generated(claim, self.entry)
    }

    /// Creates the claim, or finds the one of an earlier request whose answer was lost.
    pub(super) async fn create<K>(
        &self,
        writes: &Writes,
        claims: &Api<K>,
        mut body: Value,
    ) -> Result<K, Error>
    where
        K: Resource + Readable + Clone + 'static,
    {
        let base = plan::generate_name(self.owner.name, self.entry);
        let mut taken = 0;
        loop {
            let name = format!("{base}{}", self.suffix(taken));
            body["metadata"]["name"] = json!(name);
            match api::create_whole(writes, claims, &body).await {
                Err(error) if error.is_already_exists() && taken < MOST_TAKEN => {
                    let there = api::get(claims, &name).await?;
                    match there.filter(|claim| self.is_served_by(claim)) {
                        Some(claim) => return Ok(claim),
                        None => taken += 1,
                    }
                }
                other => return other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner<'_> = Owner {
        api_version: "v1",
        kind: "Pod",
        namespace: "ns",
        name: "p",
        uid: "pod-1",
    };

    #[test]
    fn a_name_is_the_same_until_the_claim_is_another() {
        let purpose = Purpose {
            owner: OWNER,
            entry: "gpu",
            before: None,
        };
        let name = purpose.suffix(0);
        assert_eq!(name, purpose.suffix(0), "asked again");
        let known = |b: u8| GENERATED_NAME_ALPHABET.contains(&b);
        assert!(name.len() == SUFFIX && name.bytes().all(known), "{name}");
        let owner = Owner {
            uid: "pod-2",
            ..OWNER
        };
        let before = Some("p-gpu-lost1");
        let others = [
            Purpose { owner, ..purpose }.suffix(0),
            Purpose {
                entry: "nic",
                ..purpose
            }
            .suffix(0),
            Purpose { before, ..purpose }.suffix(0),
            purpose.suffix(1),
        ];
        assert!(!others.contains(&name), "{name}: {others:?}");
    }
}
