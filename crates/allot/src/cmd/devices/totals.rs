//! How many devices there are, by class, driver or node; and how many each namespace uses.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::inventory::{Device, State};
use super::largest::Largest;

/// The grouping of the totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Each device class, with the largest request that still fits
    Class,
    /// Each namespace whose claims have devices, and class
    Namespace,
    /// Each driver
    Driver,
    /// Each node
    Node,
}

/// A line of the sums.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", untagged)]
pub enum TotalsLine {
    /// The devices of the group.
    GroupTotals(GroupTotals),
    /// The devices that a namespace holds.
    Usage(Usage),
}

/// The sums of a group.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupTotals {
    /// Name of the class, driver or node.
    pub name: String,
    /// How many devices there are.
    pub devices: usize,
    /// How many are in each state.
    pub states: BTreeMap<State, usize>,
    /// The largest request that still fits, of a class.
    #[serde(flatten)]
    pub largest: Option<Largest>,
}

/// The devices of a class that a namespace holds.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// The namespace of the claims.
    pub namespace: String,
    /// The class of the requests; empty if it is unknown.
    pub class: String,
    /// How many devices they have, or have a part of.
    pub devices: usize,
    /// How many claims there are.
    pub claims: usize,
    /// For how many pods, or groups of pods, they are reserved.
    pub pods: usize,
}

/// Sums up devices. `largest` returns the largest request of a class that still fits.
pub fn sums(
    devices: &[Device],
    by: By,
    largest: impl Fn(&str) -> Option<Largest>,
) -> Vec<TotalsLine> {
    if by == By::Namespace {
        return usage(devices).into_iter().map(TotalsLine::Usage).collect();
    }
    let mut stocks: BTreeMap<&str, BTreeMap<State, usize>> = BTreeMap::new();
    for device in devices {
        let names: Vec<&str> = match by {
            By::Class => device.classes.iter().map(String::as_str).collect(),
            By::Driver => vec![&device.driver],
            By::Node | By::Namespace => vec![&device.node],
        };
        for name in names {
            let states = stocks.entry(name).or_default();
            *states.entry(device.state).or_default() += 1;
        }
    }
    let stock = |(name, states): (&str, BTreeMap<State, usize>)| {
        TotalsLine::GroupTotals(GroupTotals {
            name: name.to_owned(),
            devices: states.values().sum(),
            states,
            largest: largest(name).filter(|_| by == By::Class),
        })
    };
    stocks.into_iter().map(stock).collect()
}

fn usage(devices: &[Device]) -> Vec<Usage> {
    #[derive(Default)]
    struct Seen<'a> {
        devices: usize,
        claims: BTreeSet<&'a str>,
        pods: BTreeSet<&'a str>,
    }
    let mut seen: BTreeMap<(&str, &str), Seen<'_>> = BTreeMap::new();
    for device in devices {
        let mut of_device = BTreeSet::new();
        for holder in device.claims.iter().filter(|holder| !holder.admin) {
            let (namespace, _) = holder.claim.split_once('/').unwrap_or(("", &holder.claim));
            let class = holder.class.as_deref().unwrap_or_default();
            let entry = seen.entry((namespace, class)).or_default();
            // A device that is shared counts once.
            entry.devices += usize::from(of_device.insert((namespace, class)));
            entry.claims.insert(&holder.claim);
            entry
                .pods
                .extend(holder.reserved_for.iter().map(String::as_str));
        }
    }
    let usage = |((namespace, class), seen): ((&str, &str), Seen<'_>)| Usage {
        namespace: namespace.to_owned(),
        class: class.to_owned(),
        devices: seen.devices,
        claims: seen.claims.len(),
        pods: seen.pods.len(),
    };
    seen.into_iter().map(usage).collect()
}

/// The headings and rows of a table.
pub fn table(sums: &[TotalsLine], by: By) -> Vec<Vec<String>> {
    let mut states: BTreeSet<State> = BTreeSet::from([State::Free, State::InUse]);
    for sum in sums {
        if let TotalsLine::GroupTotals(stock) = sum {
            states.extend(stock.states.keys());
        }
    }
    let mut titles: Vec<String> = Vec::new();
    match by {
        By::Namespace => {
            titles.extend(["NAMESPACE", "CLASS", "DEVICES", "CLAIMS", "PODS"].map(str::to_owned))
        }
        _ => {
            let name = match by {
                By::Class => "CLASS",
                By::Driver => "DRIVER",
                By::Node | By::Namespace => "NODE",
            };
            titles.extend([name.to_owned(), "DEVICES".to_owned()]);
            titles.extend(states.iter().map(|s| s.to_string().to_uppercase()));
            if by == By::Class {
                titles.push("LARGEST REQUEST".to_owned());
            }
        }
    }
    let mut rows = vec![titles];
    for sum in sums {
        rows.push(match sum {
            TotalsLine::Usage(usage) => vec![
                usage.namespace.clone(),
                usage.class.clone(),
                usage.devices.to_string(),
                usage.claims.to_string(),
                usage.pods.to_string(),
            ],
            TotalsLine::GroupTotals(stock) => {
                let mut row = vec![stock.name.clone(), stock.devices.to_string()];
                let count = |state| stock.states.get(state).copied().unwrap_or_default();
                row.extend(states.iter().map(|state| count(state).to_string()));
                if by == By::Class {
                    let none = match stock.states.contains_key(&State::Unknown) {
                        true => "unknown",
                        false => "",
                    };
                    let largest = stock.largest.as_ref().map(Largest::words);
                    row.push(largest.unwrap_or_else(|| none.to_owned()));
                }
                row
            }
        });
    }
    rows
}
