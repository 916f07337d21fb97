//! Amounts of resources by name: sums, maxima, and what is needed of them at once.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::quantity::Quantity;

/// Amounts by the name of the resource, as in `requests` and `limits`.
pub type Amounts = BTreeMap<String, Quantity>;

/// Reads the members of an object; what is no quantity, which decoding refuses, is left out.
pub fn from_json(object: &Value) -> Amounts {
    object
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, amount)| Some((name.clone(), Quantity::from_json(amount).ok()?)))
        .collect()
}

/// The sum of two amounts. Where it has too many digits, it is the greater of the two: it must not be as if there were no
/// second one.
pub fn sum(amount: &Quantity, more: &Quantity) -> Quantity {
    let sum = amount.checked_add(more);
    sum.unwrap_or_else(|| std::cmp::max(more, amount).clone())
}

/// Adds amounts to others. Of a sum that has too many digits, the greater part counts.
pub fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match total.get_mut(name) {
            Some(known) => *known = sum(known, amount),
            None => {
                total.insert(name.clone(), amount.clone());
            }
        }
    }
}

/// Takes the greater amount of each resource.
pub fn raise(total: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if total.get(name).is_none_or(|known| known < amount) {
            total.insert(name.clone(), amount.clone());
        }
    }
}

/// What is needed at once of `together`, which run beside each other, and `before`, which are started before them in this
/// order: one of those ends before the next is started unless it `stays`.
///
/// ```
/// use allot_apimachinery::amounts::{at_once, from_json};
/// use serde_json::json;
///
/// let cpu = |amount: &str| from_json(&json!({"cpu": amount}));
/// let before = [(cpu("1"), true), (cpu("5"), false)];
/// assert_eq!(at_once([cpu("2"), cpu("2")], before), cpu("6"));
/// ```
pub fn at_once(
    together: impl IntoIterator<Item = Amounts>,
    before: impl IntoIterator<Item = (Amounts, bool)>,
) -> Amounts {
    let (mut total, mut staying, mut most) = (Amounts::new(), Amounts::new(), Amounts::new());
    for amounts in together {
        add(&mut total, &amounts);
    }
    for (mut amounts, stays) in before {
        if stays {
            add(&mut total, &amounts);
            add(&mut staying, &amounts);
        } else {
            // Of what it does not name it needs what stays, which the total has already. There may be thousands of
            // containers with resources of their own.
            for (name, amount) in &mut amounts {
                if let Some(more) = staying.get(name) {
                    *amount = sum(amount, more);
                }
            }
            raise(&mut most, &amounts);
        }
    }
    raise(&mut total, &most);
    total
}
