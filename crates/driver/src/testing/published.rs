//! Whether slices are all that their pools have.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{ResourcePool, ResourceSlice};

/// Checks that there are slices, and that those of each pool are of one generation and as many as they say.
///
/// # Errors
/// What is missing.
pub(super) fn complete(slices: &[ResourceSlice]) -> Result<(), String> {
    if slices.is_empty() {
        return Err("there is no ResourceSlice".to_owned());
    }
    let mut pools: BTreeMap<&str, Vec<&ResourcePool>> = BTreeMap::new();
    for slice in slices {
        let pool = &slice.spec.pool;
        pools.entry(&pool.name).or_default().push(pool);
    }
    for (name, slices) in pools {
        let count = i64::try_from(slices.len()).unwrap_or(i64::MAX);
        let generation = slices[0].generation;
        let differs = |slice: &&&ResourcePool| {
            slice.generation != generation || slice.resource_slice_count != count
        };
        if let Some(slice) = slices.iter().find(differs) {
            return Err(format!(
                "pool {name:?} has {count} slices, the first of generation {generation}, one of generation {} with {} slices",
                slice.generation, slice.resource_slice_count
            ));
        }
    }
    Ok(())
}
