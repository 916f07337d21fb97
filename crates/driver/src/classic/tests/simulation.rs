//! A controller that is killed again and again while pods and claims come and go.
//!
//! What happens follows from a seed, as far as the scheduling of tasks permits. At the end nothing may be stuck and
//! nothing held: what the hardware has is what claims say. `ALLOT_SIMULATION_SEEDS` asks for more seeds.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::fixture::{Fixture, is_null};

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
    let fixture = Fixture::start(if seed.is_multiple_of(3) { 26 } else { 30 }).await;
    let mut alive = [true; PODS];
    for pod in 0..PODS {
        let (pod, claim) = (format!("p{pod}"), format!("p{pod}-cat"));
        fixture.pod(&pod, &["cat"]).await;
        fixture.claim(&claim, &pod, "WaitForFirstConsumer").await;
        fixture
            .negotiate(&pod, json!({"potentialNodes": ["n1", "n2"]}))
            .await;
    }
    for _ in 0..6 {
        let controller = fixture.killed_at(rng.random_range(0..7), rng.random());
        for _ in 0..rng.random_range(1..5) {
            let at = rng.random_range(0..PODS);
            let (pod, claim) = (format!("p{at}"), format!("p{at}-cat"));
            match rng.random_range(0..4) {
                0 | 1 if alive[at] => {
                    let node = ["n1", "n2"][rng.random_range(0..2)];
                    let select = json!({"spec": {"selectedNode": node}});
                    fixture.patch(fixture.negotiations(), &pod, select).await;
                }
                2 if alive[at] => {
                    // The claim controller, when the pod was deleted; conflicts are retried in a later turn.
                    alive[at] = false;
                    fixture.delete("pods", &pod).await;
                    fixture.try_delete(fixture.negotiations(), &pod).await;
                    fixture.try_delete("resourceclaims", &claim).await;
                }
                3 if alive[at] => {
                    // The scheduler tries another node.
                    fixture.deselect(&pod).await;
                    let none = json!({"status": {"reservedFor": null}});
                    let request = json!({"status": {"deallocationRequested": true}});
                    if fixture
                        .try_patch_status("resourceclaims", &claim, none)
                        .await
                    {
                        fixture
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
    let controller = fixture.controller();
    for (at, alive) in alive.iter().enumerate() {
        let (pod, claim) = (format!("p{at}"), format!("p{at}-cat"));
        if *alive {
            let select = json!({"spec": {"selectedNode": "n1"}});
            fixture.patch(fixture.negotiations(), &pod, select).await;
            let allocated = fixture
                .until_claim(&claim, |claim| {
                    let asked = claim["status"]["deallocationRequested"] == true;
                    !is_null(&claim["status"]["allocation"]) && !asked
                })
                .await;
            let uid = allocated["metadata"]["uid"].as_str().unwrap_or_default();
            assert!(fixture.hardware.has(uid), "seed {seed}: {allocated:#}");
        } else {
            let none = json!({"status": {"reservedFor": null}});
            fixture
                .try_patch_status("resourceclaims", &claim, none)
                .await;
            fixture.until_claim(&claim, is_null).await;
        }
    }
    let expected = alive.iter().filter(|alive| **alive).count();
    assert_eq!(fixture.hardware.count(), expected, "seed {seed}");
    controller.stop().await;
}
