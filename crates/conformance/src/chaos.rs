//! Chaos: random calls and disturbances, with the rules checked after each.
//!
//! The steps follow from the seed only, so a failure is reproduced by the same seed; only the progress of a call when
//! the driver is killed depends on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};

use crate::fixture::{Fixture, SLICES, complete, text};
use crate::options::Options;
use crate::outcome::{Observed, Stop, ensure, fail};
use crate::report::{Record, Report, Verdict};
use crate::runner::{LINES, StartError, bring_up};
use allot_kubelet::{ClaimRef, Device};

#[cfg(test)]
mod tests;

/// Number of devices that take part; more would only make each check longer.
const DEVICES: usize = 4;
/// The longest time after the start of a call at which the driver is killed, in microseconds.
const DELAY: u64 = 100_000;
/// How long the driver or the API server is away at most, in milliseconds.
const AWAY: u64 = 2_000;
/// How many of the last steps are shown after a failure.
const STEPS: usize = 20;
const RULE: &str = "Whatever is killed, paused, emptied or away in between: prepared claims keep their answer and their CDI \
    devices, unprepared ones leave nothing, slices come back.";
const SOURCE: &str = "KEP-4381: NodePrepareResources and NodeUnprepareResources must be idempotent, also over restarts";
const HINT: &str =
    "the last step before the failure says what was done; the same seed does it again";

/// When chaos ends on its own.
#[derive(Debug, Clone, Copy)]
pub enum Length {
    /// After so many steps: the same run every time.
    Steps(u32),
    /// After so much time.
    Time(Duration),
}

/// One step. Devices are indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Prepare(usize),
    PrepareAgain(usize),
    Unprepare(usize),
    /// The claim is deleted from the API, and unprepared then, as after a forced deletion of its pod.
    Delete(usize),
    KillDuringPrepare(usize, Duration),
    KillDuringUnprepare(usize, Duration),
    Kill,
    Terminate,
    /// SIGSTOP for a while.
    Pause(Duration),
    /// The CDI directory is emptied and the driver killed, and the boot has another ID, as by a reboot.
    Reboot,
    WipeCdi,
    RestartKubelet,
    DeleteSlices,
    ApiServerAway(Duration),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prepare(device) => write!(f, "prepare a claim with device #{device}"),
            Self::PrepareAgain(device) => write!(f, "prepare the claim of device #{device} again"),
            Self::Unprepare(device) => write!(f, "unprepare the claim of device #{device}"),
            Self::Delete(device) => write!(
                f,
                "delete the claim of device #{device} from the API, then unprepare it"
            ),
            Self::KillDuringPrepare(device, delay) => {
                write!(f, "kill -9 {delay:?} into preparing device #{device}")
            }
            Self::KillDuringUnprepare(device, delay) => {
                write!(f, "kill -9 {delay:?} into unpreparing device #{device}")
            }
            Self::Kill => f.write_str("kill -9 and restart"),
            Self::Terminate => f.write_str("SIGTERM and restart"),
            Self::Pause(time) => write!(f, "SIGSTOP for {time:?}"),
            Self::Reboot => {
                f.write_str("kill -9, empty the CDI directory, restart in another boot")
            }
            Self::WipeCdi => {
                f.write_str("empty the CDI directory under the driver, then prepare all again")
            }
            Self::RestartKubelet => f.write_str("restart the kubelet"),
            Self::DeleteSlices => f.write_str("delete all ResourceSlices"),
            Self::ApiServerAway(time) => write!(f, "API server away for {time:?}"),
        }
    }
}

/// Draws the next step: `taken` are the devices with a prepared claim, out of `devices`.
fn draw(random: &mut StdRng, devices: usize, taken: &BTreeSet<usize>) -> Step {
    let free = (0..devices).filter(|device| !taken.contains(device));
    let free = free.choose(random);
    let held = taken.iter().copied().choose(random);
    let delay = Duration::from_micros(random.random_range(0..DELAY));
    let away = Duration::from_millis(random.random_range(0..AWAY));
    // Calls are more frequent than disturbances, so that these meet claims in every state.
    match (random.random_range(0..24), free, held) {
        (0..=5, Some(device), _) => Step::Prepare(device),
        (6..=7, _, Some(device)) => Step::PrepareAgain(device),
        (8..=10, _, Some(device)) => Step::Unprepare(device),
        (11, _, Some(device)) => Step::Delete(device),
        (12..=13, Some(device), _) => Step::KillDuringPrepare(device, delay),
        (14..=15, _, Some(device)) => Step::KillDuringUnprepare(device, delay),
        (16, ..) => Step::Terminate,
        (17, ..) => Step::Pause(away),
        (18, ..) => Step::Reboot,
        (19, ..) => Step::WipeCdi,
        (20, ..) => Step::RestartKubelet,
        (21, ..) => Step::DeleteSlices,
        (22, ..) => Step::ApiServerAway(away),
        _ => Step::Kill,
    }
}

struct Chaos<'a> {
    fixture: &'a mut Fixture,
    /// CDI devices that exist without any claim.
    before: BTreeSet<String>,
    prepared: BTreeMap<usize, (ClaimRef, BTreeSet<Device>)>,
}

/// Disturbs a driver at random and checks it after every step; the report has one case, `chaos`.
///
/// # Errors
/// When the driver does not start, register and publish devices, or runs already: chaos kills it.
pub async fn chaos(
    options: Options,
    seed: u64,
    length: Length,
    mut progress: impl FnMut(u32, &str),
) -> Result<Report, StartError> {
    let start = Instant::now();
    if !options.is_command() {
        return Err(StartError {
            reason: "chaos kills the driver: the kit must start it".to_owned(),
            output: String::new(),
        });
    }
    let mut fixture = bring_up(&Arc::new(options)).await?;
    let (driver, versions) = (fixture.driver().to_owned(), fixture.versions());
    let mut steps = Vec::new();
    let outcome = disturb(&mut fixture, seed, length, &mut progress, &mut steps).await;
    let (verdict, observed) = match outcome {
        Ok(observed) => (Verdict::Pass, observed),
        Err(Stop::Fail(reason) | Stop::Skip(reason)) => {
            let steps = steps.join("\n  ");
            let observed = format!("seed {seed}: {reason}\nthe last steps:\n  {steps}");
            (Verdict::Fail, observed)
        }
    };
    let failed = verdict == Verdict::Fail;
    let record = Record {
        case: "chaos",
        verdict,
        rule: RULE,
        source: SOURCE,
        observed,
        hint: failed.then_some(HINT),
        output: if failed {
            fixture.output(LINES)
        } else {
            String::new()
        },
        seconds: start.elapsed(),
    };
    fixture.end().await;
    Ok(Report {
        driver,
        versions,
        cases: vec![record],
    })
}

/// Takes steps until the end or the first failure; `steps` are the last ones.
async fn disturb(
    fixture: &mut Fixture,
    seed: u64,
    length: Length,
    progress: &mut impl FnMut(u32, &str),
    steps: &mut Vec<String>,
) -> Observed {
    let devices = fixture.devices().len().min(DEVICES);
    ensure!(
        devices > 0,
        "the driver publishes no device that a claim can have"
    );
    let start = Instant::now();
    let mut random = StdRng::seed_from_u64(seed);
    let mut chaos = Chaos {
        before: fixture.cdi_devices(),
        prepared: BTreeMap::new(),
        fixture,
    };
    let mut count = 0;
    loop {
        let go_on = match length {
            Length::Steps(most) => count < most,
            Length::Time(limit) => start.elapsed() < limit,
        };
        if !go_on {
            break;
        }
        count += 1;
        let step = draw(&mut random, devices, &chaos.taken());
        let line = format!("{count}: {step}");
        progress(count, &line);
        if steps.len() == STEPS {
            steps.remove(0);
        }
        steps.push(line);
        chaos.take(step).await?;
        chaos.check().await?;
    }
    steps.push("the end: unprepare everything".to_owned());
    for device in chaos.taken() {
        chaos.take(Step::Unprepare(device)).await?;
    }
    chaos.check().await?;
    Ok(format!("{count} steps with seed {seed}, every rule kept"))
}

impl Chaos<'_> {
    fn taken(&self) -> BTreeSet<usize> {
        self.prepared.keys().copied().collect()
    }

    async fn take(&mut self, step: Step) -> Result<(), Stop> {
        match step {
            Step::Prepare(device) => {
                let claim = self.fixture.claim(device).await?;
                let answer = self.fixture.prepare(&claim).await?;
                self.keep(device, claim, answer)
            }
            Step::PrepareAgain(device) => self.prepare_again(device).await,
            Step::Unprepare(device) => {
                let claim = self.forget(device)?;
                self.unprepare(&claim).await
            }
            Step::Delete(device) => {
                let claim = self.forget(device)?;
                self.fixture.delete_claim(&claim).await?;
                self.unprepare(&claim).await
            }
            Step::KillDuringPrepare(device, delay) => {
                let claim = self.fixture.claim(device).await?;
                self.fixture.kill_during_prepare(&claim, delay).await?;
                let answer = self.fixture.prepare(&claim).await?;
                self.keep(device, claim, answer)
            }
            Step::KillDuringUnprepare(device, delay) => {
                let claim = self.forget(device)?;
                self.fixture.kill_during_unprepare(&claim, delay).await?;
                self.unprepare(&claim).await
            }
            Step::Kill => self.fixture.restart().await,
            Step::Terminate => {
                let patience = self.fixture.timeout();
                if let Some(process) = self.fixture.process() {
                    process.terminate(patience).await;
                }
                self.fixture.restart().await
            }
            Step::Pause(time) => {
                if let Some(process) = self.fixture.process() {
                    process.pause(time).await;
                }
                Ok(())
            }
            Step::Reboot => {
                self.fixture.reboot(&[]).await?;
                self.fixture.start_again().await?;
                // The kubelet creates every sandbox again, and prepares its claims before.
                self.prepare_all_again().await
            }
            Step::WipeCdi => {
                self.fixture.wipe_cdi(&[]);
                self.prepare_all_again().await
            }
            Step::RestartKubelet => {
                let before = self.fixture.kubelet.registrations();
                self.fixture.kubelet.stop().await;
                self.fixture.kubelet.start();
                let driver = self.fixture.driver().to_owned();
                self.fixture
                    .registered(Some(&driver), before)
                    .await
                    .map(drop)
            }
            Step::DeleteSlices => {
                for slice in self.fixture.slices().await? {
                    let name = text(&slice["metadata"]["name"]);
                    let deleted = self.fixture.api.delete(&format!("{SLICES}/{name}")).await;
                    deleted.or_else(|error| fail(format!("cannot delete a slice: {error}")))?;
                }
                Ok(())
            }
            Step::ApiServerAway(time) => {
                self.fixture.api.hold();
                tokio::time::sleep(time).await;
                self.fixture.api.release();
                Ok(())
            }
        }
    }

    /// Notes a claim that was prepared.
    fn keep(&mut self, device: usize, claim: ClaimRef, answer: Vec<Device>) -> Result<(), Stop> {
        self.fixture.resolves(&answer)?;
        let answer = answer.into_iter().collect();
        self.prepared.insert(device, (claim, answer));
        Ok(())
    }

    fn forget(&mut self, device: usize) -> Result<ClaimRef, Stop> {
        match self.prepared.remove(&device) {
            Some((claim, _)) => Ok(claim),
            None => fail(format!("no claim has device #{device}")),
        }
    }

    async fn unprepare(&mut self, claim: &ClaimRef) -> Result<(), Stop> {
        self.fixture.unprepare(claim).await?;
        let others = self.prepared.values().flat_map(|(_, devices)| devices);
        let others = others.flat_map(|device| device.cdi.iter().cloned());
        let known: BTreeSet<String> = self.before.iter().cloned().chain(others).collect();
        self.fixture.is_clean(claim, &known)
    }

    async fn prepare_again(&mut self, device: usize) -> Result<(), Stop> {
        let Some((claim, before)) = self.prepared.get(&device) else {
            return Ok(());
        };
        let answer = self.fixture.prepare(claim).await?;
        self.fixture.resolves(&answer)?;
        let after: BTreeSet<Device> = answer.into_iter().collect();
        ensure!(
            *before == after,
            "claim {} with device #{device}: before {before:?}, now {after:?}",
            claim.name
        );
        Ok(())
    }

    async fn prepare_all_again(&mut self) -> Result<(), Stop> {
        for device in self.taken() {
            self.prepare_again(device).await?;
        }
        Ok(())
    }

    /// The invariants after every step: the devices of prepared claims resolve, and the slices exist.
    async fn check(&mut self) -> Result<(), Stop> {
        for (claim, devices) in self.prepared.values() {
            let devices: Vec<Device> = devices.iter().cloned().collect();
            self.fixture.resolves(&devices).or_else(|stop| match stop {
                Stop::Fail(reason) => fail(format!("claim {}: {reason}", claim.name)),
                stop @ Stop::Skip(_) => Err(stop),
            })?;
        }
        let fixture = &*self.fixture;
        fixture
            .until("complete slices in the API", || async move {
                let slices = fixture.slices().await.ok()?;
                complete(&slices).is_ok().then_some(())
            })
            .await
    }
}
