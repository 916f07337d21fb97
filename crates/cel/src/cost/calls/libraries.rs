//! The libraries that Kubernetes adds to CEL.

use super::{Estimate, FORMAT_REGEX, IP_BYTES, equality, literal_int, parsed, replaced};
use crate::{
    ast::{ExprKind, Literal},
    cost::{
        AUTHORIZATION_CHECK, Cost, Estimator, LIST, Node, PER_CHAR, PER_REGEX_CHAR, STRUCT, Size,
    },
    types::Type,
};

impl Estimator<'_> {
    /// Costs of the functions of the Kubernetes libraries.
    pub(super) fn kubernetes(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Node<'_>>,
        args: &[Node<'_>],
    ) -> Option<Estimate> {
        let one = Estimate::cost(Cost::fixed(1));
        let first = args.first().map(|arg| self.node_size(arg));
        Some(match function {
            "check" => Estimate::cost(Cost::fixed(AUTHORIZATION_CHECK)),
            "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace"
            | "name" | "allowed" | "reason" | "error" | "errored" => one,
            "fieldSelector" | "labelSelector" if args.len() == 1 => {
                let length = first?;
                let requirements = length
                    .times_factor(0.5)
                    .times_factor((LIST + STRUCT) as f64);
                Estimate::cost(Cost::fixed(LIST) + length.times_factor(PER_CHAR) + requirements)
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                self.list_walk(target?)
            }
            "url" | "jsonpatch.escapeKey" if args.len() == 1 => {
                Estimate::sized(first?.times_factor(PER_CHAR), first?)
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let size = self.node_size(target?);
                Estimate::sized(size.times_factor(PER_CHAR), size)
            }
            "replace" if args.len() >= 2 => {
                let (text, from, to) = (self.node_size(target?), first?, self.node_size(&args[1]));
                Estimate::sized(text.times_factor(2.0 * PER_CHAR), replaced(text, from, to))
            }
            "split" => {
                let size = self.node_size(target?);
                let limit = args.get(1).and_then(|arg| match &arg.expr?.kind {
                    ExprKind::Literal(Literal::Int(limit)) => Some(*limit as u64),
                    _ => None,
                });
                let parts = Size {
                    min: 0,
                    max: limit.unwrap_or(size.max),
                };
                Estimate::sized(size.times_factor(2.0 * PER_CHAR), parts)
            }
            "join" => self.join(target?, first),
            "find" | "findAll" if !args.is_empty() => {
                let size = self.node_size(target?);
                let text = (size + Size::fixed(1)).times_factor(PER_CHAR);
                let cost = text.times(first?.times_factor(PER_REGEX_CHAR));
                Estimate::sized(
                    cost,
                    Size {
                        min: 0,
                        max: size.max,
                    },
                )
            }
            "ip" if overload == "cidr_ip" => one,
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
            | "isSemver" => Estimate::cost(first?.times_factor(PER_CHAR)),
            "ip.isCanonical" => Estimate::cost(first?.times_factor(2.0 * PER_CHAR)),
            "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast" => one,
            "containsIP" => {
                let own = (IP_BYTES + IP_BYTES).times_factor(PER_CHAR);
                Estimate::cost(own + parsed(overload == "cidr_contains_ip_string", first?))
            }
            "containsCIDR" => {
                let own =
                    (IP_BYTES + IP_BYTES).times_factor(PER_CHAR) + IP_BYTES.times_factor(PER_CHAR);
                let parse = parsed(overload == "cidr_contains_cidr_string", first?);
                Estimate::cost(own + Cost::fixed(1) + parse)
            }
            "validate" => Estimate::cost(
                first?
                    .times_factor(PER_CHAR)
                    .times_factor(FORMAT_REGEX * PER_REGEX_CHAR),
            ),
            "format.named" | "sign" | "asInteger" | "isInteger" | "asApproximateFloat"
            | "isGreaterThan" | "isLessThan" | "compareTo" | "add" | "sub" | "major" | "minor"
            | "patch" | "getScheme" | "getHostname" | "getHost" | "getPort" | "getEscapedPath"
            | "getQuery" => one,
            "includes" => {
                target?;
                Estimate::cost(
                    Size {
                        min: 0,
                        max: crate::library::INCLUDES_MAX as u64,
                    }
                    .as_cost(),
                )
            }
            "_==_" => return equality(args),
            _ => return None,
        })
    }

    /// Costs of the lists and sets libraries, by overload.
    pub(super) fn lists(
        &self,
        overload: &str,
        target: Option<&Node<'_>>,
        args: &[Node<'_>],
    ) -> Option<Estimate> {
        let new_list = |factor: f64, size: Size| {
            Estimate::sized(size.times_factor(factor) + Cost::fixed(1 + LIST), size)
        };
        let sorted = |node: &Node<'_>, key: &str| {
            let size = self.node_size(node);
            let text = if matches!(key, "string" | "bytes") {
                PER_CHAR
            } else {
                0.0
            };
            new_list(2.0 + text, size.times(size))
        };
        Some(match (overload, target, args) {
            ("list_slice", Some(target), [start, end]) => {
                let (start, end) = (
                    literal_int(start, 0),
                    literal_int(end, self.node_size(target).max),
                );
                new_list(1.0, Size::fixed(end.wrapping_sub(start)))
            }
            ("lists_range", None, [count]) => {
                new_list(1.0, Size::fixed(literal_int(count, u64::MAX)))
            }
            ("list_reverse", Some(target), []) => new_list(1.0, self.node_size(target)),
            ("list_flatten", Some(target), []) => new_list(1.0, self.node_size(target)),
            ("list_flatten_int", Some(target), [depth]) => {
                new_list(literal_int(depth, u64::MAX) as f64, self.node_size(target))
            }
            ("list_distinct", Some(target), []) => {
                let size = self.node_size(target);
                new_list(2.0, size.times(size))
            }
            (
                "list_sets_contains_list"
                | "list_sets_intersects_list"
                | "list_sets_equivalent_list",
                _,
                [a, b],
            ) => {
                let factor = if overload == "list_sets_equivalent_list" {
                    2.0
                } else {
                    1.0
                };
                let size = self.node_size(a).times(self.node_size(b));
                Estimate::cost(size.times_factor(factor) + Cost::fixed(1))
            }
            _ => {
                let key = overload.strip_prefix("list_")?;
                if let (Some(key), Some(target), []) = (key.strip_suffix("_sort"), target, args) {
                    return Some(sorted(target, key));
                }
                let (Some(key), [keys]) = (key.strip_suffix("_sortByAssociatedKeys"), args) else {
                    return None;
                };
                sorted(keys, key)
            }
        })
    }

    fn list_walk(&self, target: &Node<'_>) -> Estimate {
        let size = self.node_size(target);
        match Self::elements(target) {
            Some(element) => {
                let mut each = Cost::fixed(1);
                if matches!(element.ty, Type::String | Type::Bytes) {
                    each = each + self.node_size(&element).times_factor(PER_CHAR);
                }
                Estimate::cost(size.times_cost(each))
            }
            None => Estimate::cost(size.times_factor(PER_CHAR)),
        }
    }

    fn join(&self, target: &Node<'_>, separator: Option<Size>) -> Estimate {
        let count = self.node_size(target);
        let mut size = Size::fixed(0);
        if let Some(element) = Self::elements(target) {
            size = count.times(self.node_size(&element));
        }
        if let Some(separator) = separator {
            let gaps = Size {
                min: count.min.saturating_sub(1),
                max: count.max.saturating_sub(1),
            };
            size = size + separator.times(gaps);
        }
        Estimate::sized(size.times_factor(PER_CHAR), size)
    }
}
