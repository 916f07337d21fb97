//! The pools of an attempt: those that its node sees.

use crate::cluster::Cluster;
use crate::node::Node;
use crate::outcome::Error;
use crate::pool::{Pool, PoolInfo, ViewError, ViewRef};

/// A pool in an attempt, or a part of it.
pub(crate) struct PoolPart<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) view: ViewRef<'a>,
    /// The number of the first device; devices of an attempt are numbered over all pools in the order of trying.
    pub(crate) first: u32,
    /// Offset of the pool's counters in `Scratch::counters`.
    pub(crate) first_counter: usize,
    /// A counter was below zero before, or the remaining amount is unknown: no device that consumes counters can be
    /// used.
    pub(super) overdrawn: bool,
    /// The part whose counters are used instead of its own, when upstream's bugs are reproduced: it identifies counters
    /// by the name of the pool, regardless of the driver.
    pub(super) counters_of: Option<u32>,
}

impl<'a> PoolPart<'a> {
    pub(crate) fn info(&self) -> &'a PoolInfo {
        &self.pool.info
    }

    pub(crate) fn len(&self) -> u32 {
        self.view.slots.len() as u32
    }
}

/// The pools that a node sees, in the order in which they are tried.
///
/// # Errors
/// A slice has a node selector that cannot be compiled; that is fatal, as in upstream.
pub(crate) fn pools_of<'a>(cluster: &'a Cluster, node: &Node) -> Result<Vec<PoolPart<'a>>, Error> {
    let mut parts = Vec::with_capacity(4);
    let mut binding = Vec::new();
    let gathered: Result<(), ViewError> = cluster.each_pool(node, |pool| {
        if let Some(view) = pool.info.view(node)? {
            let list = if view.binding {
                &mut binding
            } else {
                &mut parts
            };
            list.push(PoolPart {
                pool,
                view,
                first: 0,
                first_counter: 0,
                overdrawn: false,
                counters_of: None,
            });
        }
        Ok(())
    });
    gathered.map_err(|error| Error::fatal(format!("gather pool information: {error}")))?;
    parts.append(&mut binding);
    Ok(parts)
}
