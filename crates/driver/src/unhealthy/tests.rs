use std::time::Duration;

use super::*;

fn report(device: &str, health: Health) -> DeviceHealth {
    DeviceHealth {
        pool: "node-0".into(),
        device: device.into(),
        health,
        ..DeviceHealth::default()
    }
}

fn devices(count: usize) -> Resources {
    let devices = (0..count).map(|index| Device {
        name: format!("led-{index}"),
        ..Device::default()
    });
    Resources::pool("node-0", Pool::new(devices))
}

/// The names of the devices with the taint, and the sizes of the slices.
fn tainted(resources: &Resources) -> (Vec<String>, Vec<usize>) {
    let slices = &resources.pools["node-0"].slices;
    let devices = slices.iter().flat_map(|slice| &slice.devices);
    let has = |device: &&Device| {
        let mut taints = device.taints.iter().flatten();
        taints.any(|it| it.key == "leds.example.com/unhealthy" && it.effect == "NoSchedule")
    };
    (
        devices.filter(has).map(|it| it.name.clone()).collect(),
        slices.iter().map(|slice| slice.devices.len()).collect(),
    )
}

fn tainting() -> Tainting {
    Tainting::new("leds.example.com", "NoSchedule".into()).expect("an effect")
}

#[test]
fn only_unhealthy_devices_are_tainted() {
    let health = [
        report("led-0", Health::Healthy),
        report("led-1", Health::Unhealthy),
        report("led-2", Health::Unknown),
        report("led-9", Health::Unhealthy),
    ];
    let once = tainting().apply(&devices(3), &health);
    assert_eq!(tainted(&once), (vec!["led-1".to_owned()], vec![3]));
    // A taint of the driver's own stays, and none is there twice.
    assert_eq!(tainting().apply(&once, &health), once);
    assert_eq!(tainting().apply(&devices(3), &[]), devices(3));
}

/// The first unhealthy device made the API server reject the slices.
#[test]
fn regression_an_unknown_effect_is_refused_at_the_start() {
    for effect in ["noschedule", "PreferNoSchedule", ""] {
        let error = Tainting::new("leds.example.com", effect.into()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("no effect; there are NoExecute, "),
            "{error}"
        );
    }
    for effect in TAINT_EFFECTS {
        assert!(Tainting::new("leds.example.com", effect.into()).is_ok());
    }
}

/// A slice with more than 64 devices, one of them with a taint, is refused by the API server.
#[test]
fn full_slices_are_split() {
    let health = [report("led-127", Health::Unhealthy)];
    let published = tainting().apply(&devices(200), &health);
    assert_eq!(
        tainted(&published),
        (vec!["led-127".to_owned()], vec![64, 64, 72])
    );
}

#[tokio::test]
async fn what_is_published_follows_health_and_devices() {
    let (desired, wanted) = watch::channel(None);
    let (health, reported) = watch::channel(vec![report("led-0", Health::Healthy)]);
    let (publish, mut published) = watch::channel(None);
    let task = tokio::spawn(tainting().keep(wanted, reported, publish));
    let mut until = async |expected: &[&str], sizes: &[usize]| {
        let wait = published.wait_for(|resources: &Desired| {
            let found = resources.as_ref().map(|resources| tainted(resources));
            found.is_some_and(|(names, found)| names == expected && found == sizes)
        });
        let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
        waited.expect("in time").expect("published");
    };
    desired.send_replace(Some(Arc::new(devices(2))));
    until(&[], &[2]).await;
    health.send_replace(vec![report("led-1", Health::Unhealthy)]);
    until(&["led-1"], &[2]).await;
    desired.send_replace(Some(Arc::new(devices(3))));
    until(&["led-1"], &[3]).await;
    health.send_replace(vec![report("led-1", Health::Healthy)]);
    until(&[], &[3]).await;
    // A driver that no longer watches its devices.
    health.send_replace(vec![report("led-2", Health::Unhealthy)]);
    until(&["led-2"], &[3]).await;
    drop(health);
    desired.send_replace(Some(Arc::new(devices(4))));
    until(&["led-2"], &[4]).await;
    drop(desired);
    tokio::time::timeout(Duration::from_secs(60), task)
        .await
        .expect("in time")
        .expect("ended");
}
