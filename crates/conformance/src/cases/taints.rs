//! Taints of published devices.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::case::{Case, Observed, Stop, case, ensure, skip};
use crate::fixture::{Fixture, text};

pub(crate) const CASES: &[Case] = &[
    case!(times, "publish-taint-times", process: true, devices: 1,
    rule: "The time since which a device is tainted stays when the driver is started again: tolerationSeconds count from it.",
    source: "KEP-5055, DeviceTaint.timeAdded",
    hint: "keep timeAdded of the stored taint, or send the time that the driver knows; the API server sets the present one otherwise"),
];

/// Times are in whole seconds.
const SECOND: Duration = Duration::from_millis(1100);

/// The time of each taint, by pool, device, key and effect.
async fn times(w: &mut Fixture) -> Observed {
    let before = taints(w).await?;
    if before.is_empty() {
        return skip("no device has a taint");
    }
    w.kill().await;
    tokio::time::sleep(SECOND).await;
    w.start_again().await?;
    w.published().await?;
    // It may write again after it is registered.
    tokio::time::sleep(w.options().quiet).await;
    let after = taints(w).await?;
    for (taint, time) in &before {
        let now = after.get(taint).cloned().unwrap_or_default();
        ensure!(
            now == *time,
            "taint {} of device {} was added at {time}, and after a restart at {now}",
            taint[2],
            taint[1]
        );
    }
    Ok(format!("{} taints kept their times", before.len()))
}

async fn taints(w: &Fixture) -> Result<BTreeMap<[String; 4], String>, Stop> {
    let mut found = BTreeMap::new();
    for slice in w.slices().await? {
        let pool = text(&slice["spec"]["pool"]["name"]);
        for device in slice["spec"]["devices"].as_array().into_iter().flatten() {
            for taint in device["taints"].as_array().into_iter().flatten() {
                let key = [
                    pool,
                    text(&device["name"]),
                    text(&taint["key"]),
                    text(&taint["effect"]),
                ];
                let time = text(&taint["timeAdded"]);
                found.insert(key.map(str::to_owned), time.to_owned());
            }
        }
    }
    Ok(found)
}
