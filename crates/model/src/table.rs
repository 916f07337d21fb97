//! Columns and rows of `kubectl get`.

use jiff::Timestamp;
use serde_json::Value;

use crate::kind::Kind;
use crate::shape;
use crate::view::View;

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading of the column.
    pub name: &'static str,
    /// `string` or `integer`.
    pub kind: &'static str,
    /// `name` for the column that identifies the row, "" otherwise.
    pub format: &'static str,
    /// The description of the column.
    pub description: &'static str,
    /// 0 to show it always, more to show it only with `-o wide`.
    pub priority: i32,
}

pub(crate) const fn text(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        description,
        priority: 0,
    }
}

pub(crate) const NAME: Column = Column {
    name: "Name",
    kind: "string",
    format: "name",
    description: "Name of the object.",
    priority: 0,
};
pub(crate) const AGE: Column = text("Age", "Time since the object was created.");

/// The columns of a kind's table.
pub fn columns(kind: Kind) -> &'static [Column] {
    match kind {
        Kind::DeviceClass | Kind::ResourceClaimTemplate => &[NAME, AGE],
        Kind::ResourceClaim => {
            const STATE: Column = text(
                "State",
                "Where the claim stands: pending, allocated, reserved for consumers, deleted.",
            );
            &[NAME, STATE, AGE]
        }
        Kind::ResourceSlice => {
            const NODE: Column = text(
                "Node",
                "Node whose devices these are, empty unless they belong to one node.",
            );
            const DRIVER: Column = text("Driver", "Driver that publishes the devices.");
            const POOL: Column = text("Pool", "Pool that the devices belong to.");
            &[NAME, NODE, DRIVER, POOL, AGE]
        }
        Kind::DeviceTaintRule => {
            const KEY: Column = text("Key", "Key of the taint.");
            const VALUE: Column = text("Value", "Value of the taint.");
            const EFFECT: Column = text(
                "Effect",
                "What the taint does to claims that do not tolerate it.",
            );
            const ADDED: Column = text("TimeAdded", "Time since the taint has this effect.");
            &[NAME, KEY, VALUE, EFFECT, ADDED, AGE]
        }
        Kind::ResourcePoolStatusRequest => {
            const DRIVER: Column = text("Driver", "Driver whose pools are asked for.");
            const TOTAL: Column = text("Total", "Devices in all pools.");
            const AVAILABLE: Column = text("Available", "Devices that can be allocated.");
            const ALLOCATED: Column = text("Allocated", "Devices in use.");
            const UNAVAILABLE: Column = text(
                "Unavailable",
                "Devices that can not be allocated at present.",
            );
            const ERRORS: Column = text("Errors", "Pools whose state could not be determined.");
            const POOLS: Column = Column {
                name: "Pools",
                kind: "integer",
                format: "",
                description: "Pools that match.",
                priority: 0,
            };
            const STATUS: Column = text("Status", "Whether the question has been answered.");
            const COMPLETED: Column = text("Completed", "Time since it has been answered.");
            &[
                NAME,
                DRIVER,
                TOTAL,
                AVAILABLE,
                ALLOCATED,
                UNAVAILABLE,
                ERRORS,
                POOLS,
                STATUS,
                COMPLETED,
            ]
        }
    }
}

/// The cells of an object in hub form, one per column. Ages are relative to `now`.
pub fn row(kind: Kind, value: &Value, now: Timestamp) -> Vec<Value> {
    let metadata = value.at("metadata");
    let spec = value.at("spec");
    let name = metadata.text("name");
    let age = since(metadata.at("creationTimestamp"), now, "<unknown>");
    let texts = |cells: &[&str]| cells.iter().map(|cell| Value::from(*cell)).collect();
    match kind {
        Kind::DeviceClass | Kind::ResourceClaimTemplate => texts(&[name, &age]),
        Kind::ResourceClaim => texts(&[name, &claim_state(value), &age]),
        Kind::ResourceSlice => texts(&[
            name,
            spec.text("nodeName"),
            spec.text("driver"),
            spec.at("pool").text("name"),
            &age,
        ]),
        Kind::DeviceTaintRule => {
            let taint = spec.at("taint");
            let added = since(taint.at("timeAdded"), now, "");
            texts(&[
                name,
                taint.text("key"),
                taint.text("value"),
                taint.text("effect"),
                &added,
                &age,
            ])
        }
        Kind::ResourcePoolStatusRequest => pool_status_row(value, now),
    }
}

/// The `State` column of a claim: `pending`, or those of `deleted`, `allocated` and `reserved` that apply, joined by commas.
pub fn claim_state(claim: &Value) -> String {
    state_of(claim, false)
}

/// [`claim_state`]; `deallocates` for a classic claim, which its driver deallocates once it is deleted.
pub(crate) fn state_of(claim: &Value, deallocates: bool) -> String {
    let status = claim.at("status");
    let deleted = claim.at("metadata").has("deletionTimestamp");
    let mut states = Vec::with_capacity(3);
    if deleted {
        states.push("deleted");
    }
    if !status.has("allocation") {
        if !deleted {
            states.push("pending");
        }
    } else {
        states.push("allocated");
        if !status.list("reservedFor").is_empty() {
            states.push("reserved");
        } else if deallocates && (deleted || status.opt_bool("deallocationRequested") == Some(true))
        {
            states.push("deallocating");
        }
    }
    states.join(",")
}

fn pool_status_row(value: &Value, now: Timestamp) -> Vec<Value> {
    const UNKNOWN: &str = "-";
    let status = value.at("status");
    let pools = status.list("pools");
    let mut counts = [const { String::new() }; 5].map(|_| UNKNOWN.to_owned());
    let mut state = "Pending".to_owned();
    let mut completed = "<none>".to_owned();
    let condition = |kind: &str| {
        status
            .list("conditions")
            .iter()
            .find(|condition| condition.text("type") == kind && condition.text("status") == "True")
    };
    if let Some(condition) = condition("Failed") {
        state = "Failed".to_owned();
        completed = since(condition.at("lastTransitionTime"), now, "<none>");
    } else if let Some(condition) = condition("Complete") {
        state = "Complete".to_owned();
        completed = since(condition.at("lastTransitionTime"), now, "<none>");
        let pool_count = status.int("poolCount");
        if i64::try_from(pools.len()).unwrap_or(i64::MAX) < pool_count {
            state = format!("Complete ({}/{pool_count} pools)", pools.len());
        }
        let sum = |key: &str| {
            pools
                .iter()
                .map(|pool| pool.int(key))
                .fold(0_i64, i64::saturating_add)
                .to_string()
        };
        let errors = pools
            .iter()
            .filter(|pool| pool.has("validationError"))
            .count();
        counts = [
            sum("totalDevices"),
            sum("availableDevices"),
            sum("allocatedDevices"),
            sum("unavailableDevices"),
            errors.to_string(),
        ];
    }
    let mut cells = vec![
        Value::from(value.at("metadata").text("name")),
        Value::from(value.at("spec").text("driver")),
    ];
    cells.extend(counts.into_iter().map(Value::from));
    cells.extend([
        Value::from(status.int("poolCount")),
        Value::from(state),
        Value::from(completed),
    ]);
    cells
}

pub(crate) fn since(time: &Value, now: Timestamp, unset: &str) -> String {
    match time.as_str().map(shape::time) {
        Some(Some(time)) => human_duration(now.duration_since(time).as_secs()),
        // At the end of the range of times.
        Some(None) => "<invalid>".to_owned(),
        None => unset.to_owned(),
    }
}

/// A duration in the two most significant units, the way kubectl prints ages.
pub fn human_duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let pair = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    match seconds {
        // A clock that is a little behind is no reason to show a negative age.
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => pair(seconds / MINUTE, "m", seconds % MINUTE, "s"),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => pair(seconds / HOUR, "h", seconds % HOUR / MINUTE, "m"),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => pair(seconds / DAY, "d", seconds % DAY / HOUR, "h"),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => pair(seconds / YEAR, "y", seconds % YEAR / DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests;
