//! Equality, order and arithmetic.

use std::{borrow::Cow, cmp::Ordering};

use super::{Extension, Handle, List, Value};

/// Why there is no value.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// A function does not take such arguments.
    NoOverload,
    /// Any other evaluation error; logical operators may absorb it.
    Error(Cow<'static, str>),
    /// The evaluation was cancelled; no operator absorbs that.
    Cancelled(Cow<'static, str>),
}

impl Fault {
    pub(crate) fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self::Error(message.into())
    }
}

type Outcome<T> = Result<T, Fault>;

const INT_OVERFLOW: Fault = Fault::Error(Cow::Borrowed("integer overflow"));
const UINT_OVERFLOW: Fault = Fault::Error(Cow::Borrowed("unsigned integer overflow"));
const DURATION_OVERFLOW: Fault = Fault::Error(Cow::Borrowed("duration overflow"));
const TIMESTAMP_OVERFLOW: Fault = Fault::Error(Cow::Borrowed("timestamp overflow"));
const NAN: Fault = Fault::Error(Cow::Borrowed("NaN values cannot be ordered"));

impl<'a> Value<'a> {
    /// Whether the values are equal; values of different kinds are not, except numbers. The types of the Kubernetes
    /// libraries refuse to be compared with others.
    pub(crate) fn equals(&self, other: &Self) -> Outcome<bool> {
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Null, _) | (_, Self::Null) => false,
            (Self::String(a), Self::String(b)) => **a == **b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (
                Self::Uint(_) | Self::Int(_) | Self::Double(_),
                Self::Uint(_) | Self::Int(_) | Self::Double(_),
            ) => numbers(self, other) == Some(Ordering::Equal),
            (Self::Bytes(a), Self::Bytes(b)) => **a == **b,
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => same_type(a, b),
            (Self::Quantity(a), Self::Quantity(b)) => **a == **b,
            (Self::Version(a), Self::Version(b)) => **a == **b,
            // Values of the authorizer equal nothing, not even themselves.
            (Self::Extension(a), _) if matches!(**a, Extension::Access(_)) => {
                return Err(Fault::NoOverload);
            }
            (Self::Extension(a), Self::Extension(b))
                if std::mem::discriminant(&**a) == std::mem::discriminant(&**b) =>
            {
                a == b
            }
            (Self::Quantity(_) | Self::Version(_) | Self::Extension(_), _) => {
                return Err(Fault::new("no such overload"));
            }
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => return a.equals(b),
                _ => false,
            },
            (Self::List(a), Self::List(b)) => {
                // As upstream: elements that refuse to be compared count as equal.
                a.len() == b.len()
                    && a.iter()
                        .zip(b.iter())
                        .all(|(a, b)| !matches!(a.equals(&b), Ok(false)))
            }
            (Self::Map(a), Self::Map(b)) => {
                a.object_name() == b.object_name()
                    && a.len() == b.len()
                    && a.keys().iter().all(|key| match (a.find(key), b.find(key)) {
                        (Some(a), Some(b)) => !matches!(a.equals(&b), Ok(false)),
                        _ => false,
                    })
            }
            _ => false,
        })
    }

    /// Whether the values are equal, if they are comparable.
    pub(crate) fn is(&self, other: &Self) -> bool {
        matches!(self.equals(other), Ok(true))
    }

    /// The order of the values.
    pub(crate) fn compare(&self, other: &Self) -> Outcome<Ordering> {
        Ok(match (self, other) {
            (
                Self::Uint(_) | Self::Int(_) | Self::Double(_),
                Self::Uint(_) | Self::Int(_) | Self::Double(_),
            ) => {
                return numbers(self, other).ok_or(NAN);
            }
            (Self::String(a), Self::String(b)) => (**a).cmp(&**b),
            (Self::Bytes(a), Self::Bytes(b)) => (**a).cmp(&**b),
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Duration(a), Self::Duration(b)) => a.cmp(b),
            (Self::Timestamp(a), Self::Timestamp(b)) => a.total().cmp(&b.total()),
            _ => return Err(Fault::new("no such overload")),
        })
    }

    /// Whether values of this kind have an order.
    pub(crate) fn is_comparable(&self) -> bool {
        matches!(
            self,
            Self::Uint(_)
                | Self::Int(_)
                | Self::Double(_)
                | Self::String(_)
                | Self::Bytes(_)
                | Self::Bool(_)
                | Self::Duration(_)
                | Self::Timestamp(_)
        )
    }

    /// `self + other`.
    pub(crate) fn add(self, other: &Self) -> Outcome<Self> {
        Ok(match (self, other) {
            (Self::Int(a), Self::Int(b)) => Self::Int(a.checked_add(*b).ok_or(INT_OVERFLOW)?),
            (Self::Uint(a), Self::Uint(b)) => Self::Uint(a.checked_add(*b).ok_or(UINT_OVERFLOW)?),
            (Self::Double(a), Self::Double(b)) => Self::Double(a + b),
            (Self::String(a), Self::String(b)) => Self::string([&*a, &**b].concat()),
            (Self::Bytes(a), Self::Bytes(b)) => {
                Self::Bytes(Handle::Shared([&*a, &**b].concat().into()))
            }
            (Self::Duration(a), Self::Duration(b)) => {
                Self::Duration(a.checked_add(*b).ok_or(DURATION_OVERFLOW)?)
            }
            (Self::Timestamp(a), Self::Duration(b)) => {
                Self::Timestamp(a.plus(i128::from(*b)).ok_or(TIMESTAMP_OVERFLOW)?)
            }
            (Self::Duration(a), Self::Timestamp(b)) => {
                Self::Timestamp(b.plus(i128::from(a)).ok_or(TIMESTAMP_OVERFLOW)?)
            }
            (Self::List(mut a), Self::List(b)) => {
                if a.is_empty() {
                    return Ok(Self::List(b.clone()));
                }
                if let List::Shared(values) = &mut a
                    && let Some(values) = std::sync::Arc::get_mut(values)
                {
                    values.extend(b.iter());
                    return Ok(Self::List(a));
                }
                Self::list(a.iter().chain(b.iter()).collect())
            }
            _ => return Err(Fault::NoOverload),
        })
    }

    /// `self - other`.
    pub(crate) fn subtract(&self, other: &Self) -> Outcome<Self> {
        Ok(match (self, other) {
            (Self::Int(a), Self::Int(b)) => Self::Int(a.checked_sub(*b).ok_or(INT_OVERFLOW)?),
            (Self::Uint(a), Self::Uint(b)) => Self::Uint(a.checked_sub(*b).ok_or(UINT_OVERFLOW)?),
            (Self::Double(a), Self::Double(b)) => Self::Double(a - b),
            (Self::Duration(a), Self::Duration(b)) => {
                Self::Duration(a.checked_sub(*b).ok_or(DURATION_OVERFLOW)?)
            }
            (Self::Timestamp(a), Self::Duration(b)) => {
                Self::Timestamp(a.plus(-i128::from(*b)).ok_or(TIMESTAMP_OVERFLOW)?)
            }
            (Self::Timestamp(a), Self::Timestamp(b)) => Self::Duration(
                i64::try_from(a.total() - b.total()).map_err(|_| TIMESTAMP_OVERFLOW)?,
            ),
            _ => return Err(Fault::NoOverload),
        })
    }

    /// `self * other`.
    pub(crate) fn multiply(&self, other: &Self) -> Outcome<Self> {
        Ok(match (self, other) {
            (Self::Int(a), Self::Int(b)) => Self::Int(a.checked_mul(*b).ok_or(INT_OVERFLOW)?),
            (Self::Uint(a), Self::Uint(b)) => Self::Uint(a.checked_mul(*b).ok_or(UINT_OVERFLOW)?),
            (Self::Double(a), Self::Double(b)) => Self::Double(a * b),
            _ => return Err(Fault::NoOverload),
        })
    }

    /// `self / other`.
    pub(crate) fn divide(&self, other: &Self) -> Outcome<Self> {
        const ZERO: Fault = Fault::Error(Cow::Borrowed("division by zero"));
        Ok(match (self, other) {
            (Self::Int(_), Self::Int(0)) | (Self::Uint(_), Self::Uint(0)) => return Err(ZERO),
            (Self::Int(a), Self::Int(b)) => Self::Int(a.checked_div(*b).ok_or(INT_OVERFLOW)?),
            (Self::Uint(a), Self::Uint(b)) => Self::Uint(a / b),
            (Self::Double(a), Self::Double(b)) => Self::Double(a / b),
            _ => return Err(Fault::NoOverload),
        })
    }

    /// `self % other`.
    pub(crate) fn modulo(&self, other: &Self) -> Outcome<Self> {
        const ZERO: Fault = Fault::Error(Cow::Borrowed("modulus by zero"));
        Ok(match (self, other) {
            (Self::Int(_), Self::Int(0)) | (Self::Uint(_), Self::Uint(0)) => return Err(ZERO),
            (Self::Int(a), Self::Int(b)) => Self::Int(a.checked_rem(*b).ok_or(INT_OVERFLOW)?),
            (Self::Uint(a), Self::Uint(b)) => Self::Uint(a % b),
            _ => return Err(Fault::NoOverload),
        })
    }

    /// `-self`.
    pub(crate) fn negate(&self) -> Outcome<Self> {
        Ok(match self {
            Self::Int(value) => Self::Int(value.checked_neg().ok_or(INT_OVERFLOW)?),
            Self::Double(value) => Self::Double(-value),
            Self::Duration(value) => Self::Duration(value.checked_neg().ok_or(DURATION_OVERFLOW)?),
            _ => return Err(Fault::NoOverload),
        })
    }
}

/// Types are equal by name; parameters do not count.
fn same_type(a: &crate::types::Type, b: &crate::types::Type) -> bool {
    use crate::types::Type;
    match (a, b) {
        (Type::List(_), Type::List(_))
        | (Type::Map(..), Type::Map(..))
        | (Type::Type(_), Type::Type(_)) => true,
        (Type::Opaque(a, _), Type::Opaque(b, _)) => a == b,
        _ => a == b,
    }
}

/// The order of two numbers of any types; `None` if one is NaN.
fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Int(a), Value::Double(b)) => {
            if *b < i64::MIN as f64 {
                Some(Ordering::Greater)
            } else if *b > i64::MAX as f64 {
                Some(Ordering::Less)
            } else {
                (*a as f64).partial_cmp(b)
            }
        }
        (Value::Uint(a), Value::Double(b)) => {
            if *b < 0.0 {
                Some(Ordering::Greater)
            } else if *b > u64::MAX as f64 {
                Some(Ordering::Less)
            } else {
                (*a as f64).partial_cmp(b)
            }
        }
        (Value::Double(_), _) => numbers(b, a).map(Ordering::reverse),
        _ => None,
    }
}
