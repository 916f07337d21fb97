//! The status of the driver's devices in their claims.

use serde_json::{Value, json};

use super::{Entry, NAME, Raw};

impl Raw {
    /// Writes it beside the call: preparing a claim does not wait for that.
    pub(super) fn report(&self, entry: &Entry) {
        let device = |device: &super::Prepared| {
            let mut status = json!({"driver": NAME, "pool": device.pool, "device": device.device, "data": {"ready": true}});
            if let Some(share) = &device.share {
                status["shareID"] = json!(share);
            }
            status
        };
        let devices: Vec<Value> = entry.devices.iter().map(device).collect();
        let path = format!(
            "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}/status",
            entry.namespace, entry.name
        );
        let body = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": entry.name, "uid": entry.uid}, "status": {"devices": devices},
        });
        let request = match self.fault("replaces-status") {
            true => {
                http::Request::patch(path).header("content-type", "application/merge-patch+json")
            }
            false => http::Request::patch(format!("{path}?fieldManager={NAME}&force=true"))
                .header("content-type", "application/apply-patch+yaml"),
        };
        let request = request.body(body.to_string().into_bytes()).unwrap();
        let client = self.client.clone();
        // The claim may be gone by then.
        tokio::spawn(async move { client.request::<Value>(request).await });
    }
}
