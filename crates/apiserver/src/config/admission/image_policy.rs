//! Configuration of ImagePolicyWebhook: the server that reviews the images of pods.

use std::path::Path;
use std::time::Duration;

use allot_apimachinery::go_duration::go_duration;
use serde::Deserialize;

use crate::config::Kubeconfig;
use crate::config::decode::Document;

/// The error of a plugin without configuration.
pub(super) const NONE: &str = "no config specified";
/// The value of a time that means none.
const NO_TIME: i64 = -1;
const SECOND: Duration = Duration::from_secs(1);
const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);

/// The server that reviews images, and the decision when it does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePolicy {
    /// Where it is, and how the API server proves itself to it.
    pub kubeconfig: Kubeconfig,
    /// How long the answer that images are allowed is kept.
    pub allow_ttl: Duration,
    /// How long the answer that they are not is kept.
    pub deny_ttl: Duration,
    /// The wait before the second call after a failure that may be over soon.
    pub retry_backoff: Duration,
    /// Whether pods are allowed without an answer.
    pub default_allow: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Written {
    image_policy: Option<WrittenPolicy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenPolicy {
    kube_config_file: Option<String>,
    #[serde(rename = "allowTTL")]
    allow_ttl: Option<i64>,
    #[serde(rename = "denyTTL")]
    deny_ttl: Option<i64>,
    retry_backoff: Option<i64>,
    default_allow: Option<bool>,
}

/// A time in a file: its unit, bounds and default.
struct Time {
    unit: Duration,
    least: Duration,
    most: Duration,
    usual: Duration,
}

const BACKOFF: Time = Time {
    unit: Duration::from_millis(1),
    least: Duration::from_nanos(1),
    most: Duration::from_secs(5 * 60),
    usual: Duration::from_millis(500),
};
const ALLOW: Time = Time {
    unit: SECOND,
    least: SECOND,
    most: HALF_AN_HOUR,
    usual: Duration::from_secs(5 * 60),
};
const DENY: Time = Time {
    usual: Duration::from_secs(30),
    ..ALLOW
};

impl Time {
    fn read(&self, written: Option<i64>) -> Result<Duration, String> {
        let number = match written.unwrap_or_default() {
            NO_TIME => return Ok(Duration::ZERO),
            0 => return Ok(self.usual),
            number => number,
        };
        let unit = i64::try_from(self.unit.as_nanos()).unwrap_or(i64::MAX);
        let nanos = number.saturating_mul(unit);
        let time = Duration::from_nanos(nanos.unsigned_abs());
        if nanos < 0 || time < self.least || time > self.most {
            let [least, most, time] = [self.least, self.most, time].map(go_duration);
            let sign = if nanos < 0 { "-" } else { "" };
            return Err(format!(
                "valid value is between {least} and {most}, got {sign}{time}"
            ));
        }
        Ok(time)
    }
}

/// Reads a file without version. The kubeconfig that it names is relative to the directory of the process, as upstream.
pub(super) fn read(document: Document) -> Result<ImagePolicy, String> {
    let written: Option<Written> =
        serde_json::from_value(document.value).map_err(|error| error.to_string())?;
    let written = written.unwrap_or_default().image_policy.unwrap_or_default();
    let retry_backoff = BACKOFF.read(written.retry_backoff)?;
    let allow_ttl = ALLOW.read(written.allow_ttl)?;
    let deny_ttl = DENY.read(written.deny_ttl)?;
    let file = written.kube_config_file.unwrap_or_default();
    if file.is_empty() {
        return Err("invalid configuration: no configuration has been provided".to_owned());
    }
    Ok(ImagePolicy {
        kubeconfig: Kubeconfig::read(Path::new(&file))?,
        allow_ttl,
        deny_ttl,
        retry_backoff,
        default_allow: written.default_allow.unwrap_or_default(),
    })
}
