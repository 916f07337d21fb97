//! The test of a driver that docs/drivers.md shows, and that it shows this one.

use allot_driver::k8s_openapi::api::resource::v1::Device;
use allot_driver::{
    Claim, ContainerEdits, Driver, Error, Failure, Plugin, Pool, Prepared, PreparedClaim,
    PreparedDevice, Resources, testing,
};

/// The driver of the crate's documentation.
struct Leds;

impl Driver for Leds {
    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let prepared = |result: &_| {
            let device = PreparedDevice::from_result(result);
            let env = vec![format!("LED={}", device.device())];
            device.edits(ContainerEdits {
                env,
                ..Default::default()
            })
        };
        Ok(claim.results("leds.example.com").map(prepared).collect())
    }

    async fn unprepare(&self, _: &PreparedClaim) -> Result<(), Failure> {
        Ok(())
    }
}

/// What `main` of the driver calls, with what it knows of its node.
async fn start(node: testing::Environment) -> Result<Plugin, Error> {
    let builder = node.builder("leds.example.com", Leds);
    let plugin = builder.cdi_kind("leds.example.com/led").start().await?;
    let devices = ["red", "green"].map(|name| Device {
        name: name.into(),
        ..Default::default()
    });
    plugin.publish(Resources::pool(&node.node_name, Pool::new(devices)))?;
    Ok(plugin)
}

// begin
use allot_driver::testing::{TestClaim, TestError, TestNode};

#[tokio::test]
async fn an_led_is_prepared_and_found_again() -> Result<(), TestError> {
    let mut node = TestNode::start().await?;
    node.run(start).await?;
    let slices = node.published().await?;
    assert_eq!(slices[0].spec.devices.as_ref().map(Vec::len), Some(2));

    let claim = node.prepare(TestClaim::new("red")).await?;
    assert_eq!(claim.env("LED"), Some("red"));
    // The red one is in use.
    assert!(node.prepare(TestClaim::new("red")).await.is_err());

    // After each, what was prepared is prepared again, with the same answer.
    node.restart_driver().await?;
    node.restart_kubelet().await?;
    node.reboot().await?;
    assert_eq!(node.resolve(claim.devices())?, *claim.edits());

    node.unprepare(claim.reference()).await?;
    assert!(node.resolve(claim.devices()).is_err());
    Ok(())
}
// end

#[test]
fn the_page_shows_it() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let page = std::fs::read_to_string(format!("{root}/docs/drivers.md")).unwrap();
    let (_, rest) = include_str!("documented.rs")
        .split_once("\n// begin\n")
        .unwrap();
    let (shown, _) = rest.split_once("// end\n").unwrap();
    assert!(page.contains(shown), "docs/drivers.md lacks:\n{shown}");
}
