//! Static costs of calls.

use std::sync::Arc;

use super::{Cost, Entries, Estimator, Node, PER_CHAR, PER_REGEX_CHAR, Size};
use crate::{
    ast::{Expr, ExprKind, Literal},
    types::Type,
};

mod libraries;

/// Longest regular expression behind a named format.
const FORMAT_REGEX: f64 = 128.0;
/// Longest text of a named format.
const FORMAT_SIZE: u64 = 64;
/// Bytes of an IP address.
const IP_BYTES: Size = Size { min: 4, max: 16 };

/// Cost of a call and size of its result.
struct Estimate {
    cost: Cost,
    size: Option<Size>,
}

impl Estimate {
    fn cost(cost: Cost) -> Self {
        Self { cost, size: None }
    }

    fn sized(cost: Cost, size: Size) -> Self {
        Self {
            cost,
            size: Some(size),
        }
    }
}

impl Estimator<'_> {
    pub(super) fn call(
        &mut self,
        expr: &Expr,
        function: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Cost {
        if function == "dyn"
            && let [arg] = args
        {
            let cost = self.cost(arg);
            self.copy_sizes(expr, arg);
            return Cost::fixed(1) + cost;
        }
        let mut arg_costs = Vec::with_capacity(args.len());
        let mut nodes = Vec::with_capacity(args.len());
        for arg in args {
            arg_costs.push(self.cost(arg));
            nodes.push(self.node(arg));
        }
        let overloads: Vec<Arc<str>> = self.facts.overloads(expr.id).to_vec();
        if overloads.is_empty() {
            return Cost::ZERO;
        }
        let mut sum = Cost::ZERO;
        let target = target.map(|target| {
            sum = sum + self.cost(target);
            self.node(target)
        });
        let mut cost = Cost {
            min: u64::MAX,
            max: 0,
        };
        let mut size: Option<Size> = None;
        for overload in &overloads {
            let estimate = self.overload(
                expr,
                function,
                overload,
                target.as_ref(),
                &nodes,
                &arg_costs,
            );
            cost = cost.union(estimate.cost);
            if let Some(own) = estimate.size {
                size = Some(size.map_or(own, |size| size.union(own)));
            }
            let step = match &**overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(step), Some(first)) = (step, args.first()) {
                size = self.entries_of(first).map(|entries| entries.value);
                let mut path = self.path(first);
                path.push(step.into());
                self.paths.insert(expr.id, path);
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        self.set_size(expr.id, size);
        sum + cost
    }

    fn overload(
        &mut self,
        expr: &Expr,
        function: &str,
        overload: &str,
        target: Option<&Node<'_>>,
        args: &[Node<'_>],
        arg_costs: &[Cost],
    ) -> Estimate {
        let sum = arg_costs.iter().fold(Cost::ZERO, |sum, cost| sum + *cost);
        let library = self.lists(overload, target, args);
        if let Some(estimate) =
            library.or_else(|| self.kubernetes(function, overload, target, args))
        {
            return Estimate {
                cost: estimate.cost + sum,
                size: estimate.size,
            };
        }
        let plain = Estimate::cost(Cost::fixed(1) + sum);
        let size = |node: &Node<'_>| node.size.unwrap_or(Size::UNKNOWN);
        match (overload, args) {
            ("logical_and" | "logical_or", _) => {
                let (Some(left), Some(right)) = (arg_costs.first(), arg_costs.get(1)) else {
                    return plain;
                };
                Estimate::cost(Cost {
                    min: left.min,
                    max: (*left + *right).max,
                })
            }
            ("conditional", [_, then, otherwise]) => {
                let result = size(then).union(size(otherwise));
                self.join_entries(expr, then, otherwise);
                Estimate::sized(arg_costs[0] + arg_costs[1].union(arg_costs[2]), result)
            }
            ("add_string" | "add_bytes" | "add_list", [left, right]) => {
                let result = size(left) + size(right);
                self.join_entries(expr, left, right);
                let own = if overload == "add_list" {
                    Cost::fixed(1)
                } else {
                    result.times_factor(PER_CHAR)
                };
                Estimate::sized(own + sum, result)
            }
            ("string_format", _) => match target {
                Some(target) => Estimate::cost(size(target).times_factor(PER_CHAR) + sum),
                None => plain,
            },
            ("string_to_bytes", [arg]) => {
                let own = size(arg);
                let result = Size {
                    min: own.min,
                    max: own.max.wrapping_mul(4),
                };
                Estimate::sized(own.times_factor(PER_CHAR) + sum, result)
            }
            ("bytes_to_string", [arg]) => {
                let own = size(arg);
                Estimate::sized(
                    own.times_factor(PER_CHAR) + sum,
                    Size {
                        min: own.min / 4,
                        max: own.max,
                    },
                )
            }
            ("strings_quote", [arg]) => {
                let own = size(arg);
                let result = Size {
                    min: own.min.wrapping_add(2),
                    max: own.max.wrapping_mul(2).wrapping_add(2),
                };
                Estimate::sized(own.times_factor(PER_CHAR) + sum, result)
            }
            ("starts_with_string" | "ends_with_string", [arg]) => {
                Estimate::cost(size(arg).times_factor(PER_CHAR) + sum)
            }
            ("in_list", [_, list]) => Estimate::cost(size(list).times_factor(1.0) + sum),
            ("matches_string", [pattern]) => match target {
                Some(target) => {
                    let text = (size(target) + Size::fixed(1)).times_factor(PER_CHAR);
                    Estimate::cost(text.times(size(pattern).times_factor(PER_REGEX_CHAR)) + sum)
                }
                None => plain,
            },
            ("contains_string", [part]) => match target {
                Some(target) => {
                    let text = size(target).times_factor(PER_CHAR);
                    Estimate::cost(text.times(size(part).times_factor(PER_CHAR)) + sum)
                }
                None => plain,
            },
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                [left, right],
            ) => {
                let most = size(left).max.min(size(right).max);
                let range = Cost {
                    min: u64::from(most > 0),
                    max: most,
                };
                Estimate::cost(range.times_factor(PER_CHAR) + sum)
            }
            _ => plain,
        }
    }

    /// The entries of a result that is combined from two operands.
    fn join_entries(&mut self, expr: &Expr, left: &Node<'_>, right: &Node<'_>) {
        let entries = |node: &Node<'_>| -> Option<Entries> { self.entries_of(node.expr?) };
        if let (Some(left), Some(right)) = (entries(left), entries(right)) {
            self.entries.insert(expr.id, left.union(right));
        }
    }

    /// Size according to the Kubernetes tables.
    fn node_size(&self, node: &Node<'_>) -> Size {
        let declared = || {
            node.path
                .as_deref()
                .and_then(|path| self.declared_size(path))
        };
        node.size.or_else(declared).unwrap_or(Size::UNKNOWN)
    }

    /// The elements of a list.
    fn elements<'e>(node: &Node<'e>) -> Option<Node<'e>> {
        let ty = match &node.ty {
            Type::List(element) => (**element).clone(),
            Type::Map(key, _) => (**key).clone(),
            Type::Opaque(_, params) => params.first()?.clone(),
            Type::Type(Some(inner)) => (**inner).clone(),
            _ => return None,
        };
        let path = node.path.clone().map(|mut path| {
            path.push("@items".into());
            path
        });
        Some(Node {
            path,
            ty,
            expr: None,
            size: None,
        })
    }
}

/// The value of a non-negative integer literal; `otherwise` for other arguments.
fn literal_int(node: &Node<'_>, otherwise: u64) -> u64 {
    match node.expr.map(|expr| &expr.kind) {
        Some(ExprKind::Literal(Literal::Int(value))) => u64::try_from(*value).unwrap_or(0),
        _ => otherwise,
    }
}

/// Cost of parsing a text argument, if the overload has one.
fn parsed(is_text: bool, size: Size) -> Cost {
    if is_text {
        size.times_factor(PER_CHAR)
    } else {
        Cost::ZERO
    }
}

/// Cost of comparing values of the Kubernetes types.
fn equality(args: &[Node<'_>]) -> Option<Estimate> {
    let [left, right] = args else {
        return None;
    };
    if left.ty != right.ty {
        return None;
    }
    let name = match &left.ty {
        Type::Opaque(name, _) | Type::Object(name) => &**name,
        _ => return None,
    };
    match name {
        "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => {
            Some(Estimate::cost(Cost::fixed(1)))
        }
        _ if name.starts_with("kubernetes.authorization.") => Some(Estimate::cost(Cost::fixed(1))),
        "kubernetes.NamedFormat" => Some(Estimate::cost(
            Cost {
                min: 1,
                max: FORMAT_SIZE,
            }
            .times_factor(PER_CHAR),
        )),
        "kubernetes.URL" => {
            let max = right.size.map_or(1, |size| size.max);
            Some(Estimate::cost(Cost { min: 1, max }.times_factor(PER_CHAR)))
        }
        _ => None,
    }
}

/// Size of `text` with `from` replaced by `to`.
fn replaced(text: Size, from: Size, to: Size) -> Size {
    let (mut count, mut kept) = (Size::fixed(0), Size::fixed(0));
    if from.min == 0 {
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if to.max <= from.min {
        kept.max = text.max;
    } else {
        count.max = (text.max as f64 / from.min as f64).ceil() as u64;
    }
    if from.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if from.max <= to.min {
        kept.min = text.min;
    } else {
        count.min = (text.min as f64 / from.max as f64).ceil() as u64;
    }
    count.times(to) + kept
}
