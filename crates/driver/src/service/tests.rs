//! State of drivers over failures and restarts.

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex as Lock;
use serde_json::{Value, json};

use super::*;
use crate::Prepared;
use crate::prepared::Boot;

const DRIVER: &str = "vf.example.com";

/// Prepares by making a virtual function: its number is the state.
#[derive(Default)]
struct Functions<const VERSION: u32> {
    /// What was called, with what was known then.
    calls: Lock<Vec<String>>,
    /// `prepare` fails after it has saved its state.
    broken: AtomicBool,
}

impl<const VERSION: u32> Functions<VERSION> {
    fn called(&self, call: String) {
        self.calls.lock().push(call);
    }
}

impl<const VERSION: u32> Driver for Functions<VERSION> {
    const STATE_VERSION: u32 = VERSION;

    async fn prepare(&self, claim: &Claim) -> Result<Prepared, Failure> {
        let before = claim.saved_state::<Value>().await?;
        self.called(format!("prepare, saved {}", before.unwrap_or_default()));
        tracing::info!("making 3");
        claim.save_state(&json!("making 3")).await?;
        if self.broken.load(Ordering::Relaxed) {
            return Err("the card is busy".into());
        }
        let devices = claim.results(DRIVER).map(PreparedDevice::from_result);
        devices.collect::<Prepared>().with_state(&json!({"vf": 3}))
    }

    async fn unprepare(&self, claim: &PreparedClaim) -> Result<(), Failure> {
        let devices: Vec<_> = claim.devices().iter().map(PreparedDevice::device).collect();
        let state = match claim.state::<Value>() {
            Ok(state) => state.unwrap_or_default().to_string(),
            Err(error) => error.to_string(),
        };
        tracing::info!("freeing it");
        let complete = claim.is_complete();
        self.called(format!(
            "unprepare {devices:?}, state {state}, complete {complete}"
        ));
        Ok(())
    }

    async fn restore(&self, claims: &[PreparedClaim], boot: Boot) -> Result<(), Failure> {
        let claims: Vec<_> = claims.iter().map(ToString::to_string).collect();
        self.called(format!("restore {claims:?} {boot:?}"));
        Ok(())
    }

    fn migrate_state(&self, version: u32, state: Value) -> Result<Value, Failure> {
        match version {
            1 => Ok(json!({"function": state["vf"]})),
            _ => Err("unknown".into()),
        }
    }

    fn handle_error(&self, error: &BackgroundError) {
        self.called(error.to_string());
    }
}

fn claim() -> ClaimRef {
    ClaimRef {
        namespace: "default".into(),
        name: "claim".into(),
        uid: "u".into(),
    }
}

/// A process of the driver with the checkpoint of `directory`, and an API server with one claim.
async fn start<const VERSION: u32>(directory: &Path) -> Core<Functions<VERSION>> {
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": "claim", "uid": "u"},
        "status": {"reservedFor": [{"resource": "pods", "name": "pod-7", "uid": "p"}], "allocation": {"devices": {"results": [
            {"request": "vf", "driver": DRIVER, "pool": "node-0", "device": "vf-3"},
        ]}}},
    });
    let server = tower::service_fn(move |_| {
        let body = kube::client::Body::from(object.to_string().into_bytes());
        async { Ok::<_, Infallible>(http::Response::new(body)) }
    });
    let path = directory.join("checkpoint.json");
    let core = Core {
        driver_name: DRIVER.to_owned(),
        driver: Functions::<VERSION>::default(),
        api: Arc::new(ResourceApi::new(kube::Client::new(server, "default"))),
        cdi: None,
        metadata: None,
        serialization: Serialization::Process(Mutex::new(())),
        checkpoint: Arc::new(Mutex::new(Checkpoint::open(Some(path.clone())).unwrap())),
        checkpoint_path: Some(path),
        metrics: Arc::default(),
    };
    core.restore_claims().await.unwrap();
    core
}

async fn prepare<D: Driver>(core: &Core<D>) -> Result<Vec<dra_v1::Device>, String> {
    let mut answers = core.prepare_all(vec![claim()]).await.unwrap();
    answers.remove(0).1.map_err(|error| error.to_string())
}

/// Checks what the driver was called with since the last time.
#[track_caller]
fn check<const VERSION: u32>(core: &Core<Functions<VERSION>>, expected: &[&str]) {
    let calls = std::mem::take(&mut *core.driver.calls.lock());
    assert_eq!(calls, expected);
}

#[tokio::test]
async fn unprepare_gets_what_prepare_returned_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let core = start::<1>(directory.path()).await;
    prepare(&core).await.unwrap();
    check(&core, &["restore [] Unknown", "prepare, saved null"]);

    let core = start::<1>(directory.path()).await;
    prepare(&core).await.unwrap();
    check(&core, &[r#"restore ["default/claim"] Same"#]);
    core.unprepare_all(vec![claim()]).await.unwrap();
    let unprepared = r#"unprepare ["vf-3"], state {"vf":3}, complete true"#;
    check(&core, &[unprepared]);

    // The claim is no longer known: the driver is called anyway.
    core.unprepare_all(vec![claim()]).await.unwrap();
    check(&core, &["unprepare [], state null, complete false"]);
}

#[tokio::test]
async fn what_was_saved_is_there_after_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let core = start::<1>(directory.path()).await;
    core.driver.broken.store(true, Ordering::Relaxed);
    assert_eq!(prepare(&core).await.unwrap_err(), "the card is busy");

    let core = start::<1>(directory.path()).await;
    core.driver.broken.store(true, Ordering::Relaxed);
    prepare(&core).await.unwrap_err();
    let restored = r#"restore ["default/claim"] Same"#;
    check(&core, &[restored, r#"prepare, saved "making 3""#]);
    core.unprepare_all(vec![claim()]).await.unwrap();
    let unprepared = r#"unprepare [], state "making 3", complete false"#;
    check(&core, &[unprepared]);
}

/// What was logged.
#[derive(Clone, Default)]
struct Lines(Arc<Lock<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What a driver logs in a call says which claim and pod it is about.
#[tokio::test]
async fn calls_are_in_spans_that_name_claim_and_pod() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let directory = tempfile::tempdir().unwrap();
    let core = start::<1>(directory.path()).await;
    prepare(&core).await.unwrap();
    core.unprepare_all(vec![claim()]).await.unwrap();
    let text = String::from_utf8(lines.0.lock().clone()).unwrap();
    let prepare = r#"prepare{claim=default/claim uid="u" pod="pod-7"}"#;
    let unprepare = r#"unprepare{claim=default/claim uid="u"}"#;
    for (span, message) in [(prepare, "making"), (unprepare, "freeing")] {
        let line = text.lines().find(|line| line.contains(message));
        assert!(line.is_some_and(|line| line.contains(span)), "{text}");
    }
}

#[tokio::test]
async fn states_are_migrated_or_kept_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    prepare(&start::<1>(directory.path()).await).await.unwrap();
    let restored = r#"restore ["default/claim"] Same"#;

    // A driver that knows the version, twice: the migrated state is on disk.
    for _ in 0..2 {
        let core = start::<2>(directory.path()).await;
        check(&core, &[restored]);
        let checkpoint = core.checkpoint.lock().await;
        let prepared = checkpoint.get("u").unwrap().prepared(2);
        assert_eq!(prepared.state().unwrap(), Some(json!({"function": 3})));
    }

    // One that does not: nothing is lost, and the claim can be unprepared.
    let core = start::<3>(directory.path()).await;
    let error = "claim default/claim: migrate state of version 2: unknown";
    check(&core, &[error, restored]);
    core.unprepare_all(vec![claim()]).await.unwrap();
    let unprepared = r#"unprepare ["vf-3"], state state has version 2, this driver reads version 3, complete true"#;
    check(&core, &[unprepared]);
}
