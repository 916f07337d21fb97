//! A controller that is killed again and again while pods and claims come and go.
//!
//! What happens follows from a seed, as far as the scheduling of tasks permits. At the end nothing may be stuck and
//! nothing held: what the hardware has is what claims say. `ALLOT_SIMULATION_SEEDS` asks for more seeds.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::world::{World, is_null};

const SEEDS: u64 = 12;
const PODS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stuck_and_nothing_is_held() {
    let seeds = std::env::var("ALLOT_SIMULATION_SEEDS").ok();
    let seeds = seeds.and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    for seed in 0..seeds {
        run(seed).await;
    }
}

async fn run(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let world = World::start(if seed.is_multiple_of(3) { 26 } else { 30 }).await;
    let mut alive = [true; PODS];
    for pod in 0..PODS {
        let (pod, claim) = (format!("p{pod}"), format!("p{pod}-cat"));
        world.pod(&pod, &["cat"]).await;
        world.claim(&claim, &pod, "WaitForFirstConsumer").await;
        world
            .negotiate(&pod, json!({"potentialNodes": ["n1", "n2"]}))
            .await;
    }
    for _ in 0..6 {
        let controller = world.killed_at(rng.random_range(0..7), rng.random());
        for _ in 0..rng.random_range(1..5) {
            let at = rng.random_range(0..PODS);
            let (pod, claim) = (format!("p{at}"), format!("p{at}-cat"));
            match rng.random_range(0..4) {
                0 | 1 if alive[at] => {
                    let node = ["n1", "n2"][rng.random_range(0..2)];
                    let select = json!({"spec": {"selectedNode": node}});
                    world.patch(world.negotiations(), &pod, select).await;
                }
                2 if alive[at] => {
                    // The claim controller, when the pod was deleted; conflicts are retried in a later turn.
                    alive[at] = false;
                    world.delete("pods", &pod).await;
                    world.try_delete(world.negotiations(), &pod).await;
                    world.try_delete("resourceclaims", &claim).await;
                }
                3 if alive[at] => {
                    // The scheduler tries another node.
                    world.deselect(&pod).await;
                    let none = json!({"status": {"reservedFor": null}});
                    let request = json!({"status": {"deallocationRequested": true}});
                    if world.try_patch_status("resourceclaims", &claim, none).await {
                        world
                            .try_patch_status("resourceclaims", &claim, request)
                            .await;
                    }
                }
                _ => {}
            }
            tokio::time::sleep(std::time::Duration::from_millis(rng.random_range(0..8))).await;
        }
        controller.kill().await;
    }
    let controller = world.controller();
    for (at, alive) in alive.iter().enumerate() {
        let (pod, claim) = (format!("p{at}"), format!("p{at}-cat"));
        if *alive {
            let select = json!({"spec": {"selectedNode": "n1"}});
            world.patch(world.negotiations(), &pod, select).await;
            let allocated = world
                .until_claim(&claim, |claim| {
                    let asked = claim["status"]["deallocationRequested"] == true;
                    !is_null(&claim["status"]["allocation"]) && !asked
                })
                .await;
            let uid = allocated["metadata"]["uid"].as_str().unwrap_or_default();
            assert!(world.hardware.has(uid), "seed {seed}: {allocated:#}");
        } else {
            let none = json!({"status": {"reservedFor": null}});
            world.try_patch_status("resourceclaims", &claim, none).await;
            world.until_claim(&claim, is_null).await;
        }
    }
    let expected = alive.iter().filter(|alive| **alive).count();
    assert_eq!(world.hardware.count(), expected, "seed {seed}");
    controller.stop().await;
}
