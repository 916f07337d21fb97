//! Ends and new beginnings: of the driver, of the kubelet, of the machine.

use super::objects::new_uid;
use super::{PATIENCE, TestError, TestNode};
use crate::boot;

impl TestNode {
    /// Stops the driver in order, and starts it again with the files that it left.
    ///
    /// # Errors
    /// It does not start, or is not registered.
    pub async fn restart_driver(&mut self) -> Result<(), TestError> {
        self.stop_driver().await;
        self.start_driver().await
    }

    /// Restarts the machine: the driver ends, the CDI directory is empty, the boot has another ID, and when the driver runs again
    /// the kubelet prepares every claim that was prepared. Drivers that ask [`crate::boot_id`] themselves see that of the machine.
    ///
    /// # Errors
    /// The driver does not start or is not registered, or a claim is not prepared as before.
    pub async fn reboot(&mut self) -> Result<(), TestError> {
        self.stop_driver().await;
        let files = std::fs::read_dir(&self.environment.cdi_dir);
        for file in files.into_iter().flatten().flatten() {
            let removed = std::fs::remove_file(file.path());
            removed.map_err(|error| TestError::SetUp(error.into()))?;
        }
        boot::simulated::set(self.directory.path(), new_uid());
        self.start_driver().await?;
        self.prepare_all_again().await
    }

    /// Restarts the kubelet: it finds the driver again, and prepares every claim that was prepared.
    ///
    /// # Errors
    /// The driver is not registered, or a claim is not prepared as before.
    pub async fn restart_kubelet(&mut self) -> Result<(), TestError> {
        let before = self.kubelet.registrations();
        self.kubelet.stop().await;
        self.kubelet.start();
        self.registered(before).await?;
        self.prepare_all_again().await
    }

    async fn prepare_all_again(&self) -> Result<(), TestError> {
        let claims = self.prepared.lock().clone();
        for (claim, before) in claims {
            let again = self.prepare_again(&claim).await?;
            if again.devices() != before {
                let text = format!(
                    "claim {claim} was prepared with {before:?}, and then with {:?}",
                    again.devices()
                );
                return Err(TestError::Answer(text));
            }
        }
        Ok(())
    }

    pub(super) async fn start_driver(&mut self) -> Result<(), TestError> {
        let before = self.kubelet.registrations();
        let start = self.start.as_ref().ok_or(TestError::NoDriver)?;
        let plugin = start(self.environment.clone()).await;
        let plugin = plugin.map_err(TestError::Start)?;
        self.driver.clone_from(&plugin.controls.driver_name);
        self.plugin = Some(plugin);
        self.registered(before).await
    }

    pub(super) async fn stop_driver(&mut self) {
        if let Some(plugin) = self.plugin.take() {
            plugin.stop().await;
        }
    }

    async fn registered(&self, before: u64) -> Result<(), TestError> {
        let wait = self.kubelet.registered(Some(&self.driver), before);
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(_) => Ok(()),
            Err(_) => Err(TestError::Timeout {
                what: "registration",
                why: self.kubelet.problems().join("; "),
            }),
        }
    }
}
