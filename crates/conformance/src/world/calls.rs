//! Calls of the driver with the answers that a kubelet insists on.

use std::time::Duration;

use super::World;
use crate::case::{Stop, ensure, fail};
use crate::kubelet::{Answers, ClaimRef, Device, Version};

impl World {
    /// Prepares claims in one call; what a kubelet would refuse about the answer is an error of the call.
    pub(crate) async fn prepare_all(
        &self,
        claims: &[ClaimRef],
    ) -> Result<Answers<Vec<Device>>, Stop> {
        let plugin = self.plugin()?;
        Ok(plugin.prepare(plugin.version(), claims, self.limit()).await)
    }

    /// Prepares a claim, which has to succeed.
    pub(crate) async fn prepare(&self, claim: &ClaimRef) -> Result<Vec<Device>, Stop> {
        self.prepare_by(self.version(), claim).await
    }

    pub(crate) async fn prepare_by(
        &self,
        version: Version,
        claim: &ClaimRef,
    ) -> Result<Vec<Device>, Stop> {
        let plugin = self.plugin()?;
        let mut answers = match plugin
            .prepare(version, std::slice::from_ref(claim), self.limit())
            .await
        {
            Ok(answers) => answers,
            Err(error) => return fail(format!("NodePrepareResources: {error}")),
        };
        let Some(outcome) = answers.remove(&claim.uid) else {
            return fail("NodePrepareResources answered without the claim that it was asked for");
        };
        ensure!(
            answers.is_empty(),
            "NodePrepareResources answered for claims that it was not asked for"
        );
        outcome.or_else(|error| fail(format!("NodePrepareResources: {error}")))
    }

    /// Tries to prepare a claim: its devices, or the error of the call or the claim.
    pub(crate) async fn try_prepare(
        &self,
        claim: &ClaimRef,
    ) -> Result<Result<Vec<Device>, String>, Stop> {
        Ok(match self.prepare_all(std::slice::from_ref(claim)).await? {
            Ok(mut answers) => match answers.remove(&claim.uid) {
                Some(outcome) => outcome,
                None => Err("the claim was left out of the answer".to_owned()),
            },
            Err(error) => Err(error),
        })
    }

    /// Prepares a claim, which must fail; returns the error.
    pub(crate) async fn refused(&self, claim: &ClaimRef) -> Result<String, Stop> {
        match self.try_prepare(claim).await? {
            Ok(devices) => fail(format!(
                "NodePrepareResources succeeded with {}",
                devices_of(&devices)
            )),
            Err(error) if error.contains("no answer within") => {
                fail(format!("instead of refusing it: {error}"))
            }
            Err(error) => Ok(error),
        }
    }

    /// Begins to prepare a claim, kills the driver after `delay`, and starts it again.
    pub(crate) async fn kill_during_prepare(
        &mut self,
        claim: &ClaimRef,
        delay: Duration,
    ) -> Result<(), Stop> {
        let (plugin, claim, limit) = (self.plugin()?, claim.clone(), self.limit());
        let call = async move { plugin.prepare(plugin.version(), &[claim], limit).await };
        self.kill_during(call, delay).await
    }

    /// Begins to unprepare a claim, kills the driver after `delay`, and starts it again.
    pub(crate) async fn kill_during_unprepare(
        &mut self,
        claim: &ClaimRef,
        delay: Duration,
    ) -> Result<(), Stop> {
        let (plugin, claim, limit) = (self.plugin()?, claim.clone(), self.limit());
        let call = async move { plugin.unprepare(plugin.version(), &[claim], limit).await };
        self.kill_during(call, delay).await
    }

    async fn kill_during<T: Send + 'static>(
        &mut self,
        call: impl Future<Output = T> + Send + 'static,
        delay: Duration,
    ) -> Result<(), Stop> {
        let call = tokio::spawn(call);
        tokio::time::sleep(delay).await;
        self.restart().await?;
        call.abort();
        Ok(())
    }

    /// Unprepares a claim, which has to succeed.
    pub(crate) async fn unprepare(&self, claim: &ClaimRef) -> Result<(), Stop> {
        self.unprepare_by(self.version(), claim).await
    }

    pub(crate) async fn unprepare_by(
        &self,
        version: Version,
        claim: &ClaimRef,
    ) -> Result<(), Stop> {
        let plugin = self.plugin()?;
        let answers = plugin
            .unprepare(version, std::slice::from_ref(claim), self.limit())
            .await;
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(error) => return fail(format!("NodeUnprepareResources: {error}")),
        };
        match answers.remove(&claim.uid) {
            None => fail("NodeUnprepareResources answered without the claim that it was asked for"),
            Some(Err(error)) => fail(format!("NodeUnprepareResources: {error}")),
            Some(Ok(())) => Ok(()),
        }
    }
}

/// Devices as a text.
pub(crate) fn devices_of(devices: &[Device]) -> String {
    let names: Vec<&str> = devices
        .iter()
        .map(|device| device.device.as_str())
        .collect();
    match names.is_empty() {
        true => "no device".to_owned(),
        false => format!("devices {}", names.join(", ")),
    }
}
