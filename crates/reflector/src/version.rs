//! The release of an API server.

use kube::Client;
use serde_json::Value;

/// The minor release of the server, or the one that it emulates; [`u32::MAX`] if it does not report one.
///
/// # Errors
/// The server does not answer.
pub async fn server_minor(client: &Client) -> Result<u32, kube::Error> {
    let request = http::Request::get("/version")
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    let version: Value = client.request(request).await?;
    let number = |field: &str| {
        let text = version[field].as_str()?;
        // Some providers append a plus sign.
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        digits.parse().ok()
    };
    let minor = number("emulationMinor").or_else(|| number("minor"));
    Ok(minor.unwrap_or(u32::MAX))
}
