//! Writing traces that a seed draws.

use std::path::Path;

use allot_simulate::trace::generate;
use anyhow::Context as _;

use super::bench::Size;

/// Writes `pods.csv` and `nodes.csv`.
pub fn write(folder: &Path, seed: u64, size: &Size) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let (pods, nodes) = (
        size.bench_pods.unwrap_or(2000),
        size.bench_nodes.unwrap_or(40),
    );
    for (name, text) in [
        ("pods.csv", generate::pods(seed, pods)),
        ("nodes.csv", generate::nodes(seed, nodes)),
    ] {
        let file = folder.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
