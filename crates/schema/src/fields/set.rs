//! The set itself and its algebra.

use super::PathElement;

/// A set of field paths.
///
/// The elements of each level are kept sorted: sets are built once from sorted objects, walked together, and rarely
/// changed afterwards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    pub(super) nodes: Vec<(PathElement, Member)>,
}

/// What a set says about one element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// The element itself is in the set.
    pub(crate) here: bool,
    /// What is in the set below it.
    pub(crate) below: Set,
}

impl Member {
    pub(crate) fn is_empty(&self) -> bool {
        !self.here && self.below.is_empty()
    }

    fn union(&self, other: &Self) -> Self {
        Self {
            here: self.here || other.here,
            below: self.below.union(&other.below),
        }
    }
}

impl Set {
    /// The set of these paths; each is a list of field names.
    pub fn of_fields<'a>(paths: impl IntoIterator<Item = &'a [&'a str]>) -> Self {
        let mut set = Self::default();
        for path in paths {
            let elements: Vec<PathElement> = path
                .iter()
                .map(|name| PathElement::Field((*name).into()))
                .collect();
            set.insert(&elements);
        }
        set
    }

    /// The set of these elements, which may come in any order but only once each.
    pub(crate) fn of_members(mut nodes: Vec<(PathElement, Member)>) -> Self {
        nodes.retain(|(_, member)| !member.is_empty());
        if !nodes.is_sorted_by(|a, b| a.0 < b.0) {
            nodes.sort_by(|a, b| a.0.cmp(&b.0));
        }
        Self { nodes }
    }

    /// Nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|(known, _)| known.cmp(element))
    }

    fn get(&self, element: &PathElement) -> Option<&Member> {
        self.find(element).ok().map(|at| &self.nodes[at].1)
    }

    /// Adds a path; the empty path is no path.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let at = self.find(first).unwrap_or_else(|at| {
            self.nodes.insert(at, (first.clone(), Member::default()));
            at
        });
        let member = &mut self.nodes[at].1;
        if rest.is_empty() {
            member.here = true;
        } else {
            member.below.insert(rest);
        }
    }

    /// The path itself is in the set.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        let Some((first, rest)) = path.split_first() else {
            return false;
        };
        self.get(first).is_some_and(|member| {
            if rest.is_empty() {
                member.here
            } else {
                member.below.contains(rest)
            }
        })
    }

    /// The element itself is in the set.
    pub fn has_member(&self, element: &PathElement) -> bool {
        self.get(element).is_some_and(|member| member.here)
    }

    /// What the set holds below an element.
    pub fn below(&self, element: &PathElement) -> Option<&Set> {
        self.get(element)
            .map(|member| &member.below)
            .filter(|set| !set.is_empty())
    }

    /// The elements at the top, with whether each is a member itself and what is below it.
    pub fn elements(&self) -> impl Iterator<Item = (&PathElement, bool, &Set)> {
        self.nodes
            .iter()
            .map(|(element, member)| (element, member.here, &member.below))
    }

    /// Each element of this set with what another set, which is sorted the same way, says about it.
    fn beside<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = (&'a PathElement, &'a Member, Option<&'a Member>)> {
        let mut theirs = other.nodes.iter().peekable();
        self.nodes.iter().map(move |(element, member)| {
            while theirs.next_if(|(other, _)| other < element).is_some() {}
            let found = theirs.next_if(|(other, _)| other == element);
            (element, member, found.map(|(_, member)| member))
        })
    }

    fn filter(
        &self,
        other: &Self,
        keep: impl Fn(&Member, Option<&Member>) -> Option<Member>,
    ) -> Self {
        let nodes = self.beside(other).filter_map(|(element, mine, theirs)| {
            let kept = keep(mine, theirs).filter(|kept| !kept.is_empty())?;
            Some((element.clone(), kept))
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    /// The paths of both.
    pub fn union(&self, other: &Self) -> Self {
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let (mut mine, mut theirs) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (mine.peek(), theirs.peek()) {
                (Some((a, _)), Some((b, _))) => a.cmp(b),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => return Self { nodes },
            };
            let next = match order {
                std::cmp::Ordering::Less => mine.next().cloned(),
                std::cmp::Ordering::Greater => theirs.next().cloned(),
                std::cmp::Ordering::Equal => mine
                    .next()
                    .zip(theirs.next())
                    .map(|((element, a), (_, b))| (element.clone(), a.union(b))),
            };
            nodes.extend(next);
        }
    }

    /// The paths that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        self.filter(other, |mine, theirs| {
            let theirs = theirs?;
            Some(Member {
                here: mine.here && theirs.here,
                below: mine.below.intersection(&theirs.below),
            })
        })
    }

    /// Some path is in both.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.beside(other).any(|(_, mine, theirs)| {
            theirs.is_some_and(|theirs| {
                (mine.here && theirs.here) || mine.below.overlaps(&theirs.below)
            })
        })
    }

    /// The paths that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        self.filter(other, |mine, theirs| {
            let Some(theirs) = theirs else {
                return Some(mine.clone());
            };
            Some(Member {
                here: mine.here && !theirs.here,
                below: mine.below.difference(&theirs.below),
            })
        })
    }

    /// The paths of which neither they nor anything above them is in `other`.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.filter(other, |mine, theirs| match theirs {
            Some(theirs) if theirs.here => None,
            Some(theirs) => Some(Member {
                here: mine.here,
                below: mine.below.recursive_difference(&theirs.below),
            }),
            None => Some(mine.clone()),
        })
    }

    /// The set with a member for each element that has something below it and that `named` says is a declared field.
    pub(crate) fn map_members(&self, named: &mut dyn FnMut(&[PathElement]) -> bool) -> Self {
        fn walk(
            set: &Set,
            path: &mut Vec<PathElement>,
            named: &mut dyn FnMut(&[PathElement]) -> bool,
        ) -> Set {
            let mut nodes = Vec::with_capacity(set.nodes.len());
            for (element, member) in &set.nodes {
                path.push(element.clone());
                let here = member.here || (!member.below.is_empty() && named(path));
                let below = walk(&member.below, path, named);
                nodes.push((element.clone(), Member { here, below }));
                path.pop();
            }
            Set { nodes }
        }
        walk(self, &mut Vec::new(), named)
    }

    /// All paths in order.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        fn walk(set: &Set, path: &mut Vec<PathElement>, out: &mut Vec<Vec<PathElement>>) {
            // Members come before what is below any element, as upstream lists them.
            for (element, member) in &set.nodes {
                if member.here {
                    path.push(element.clone());
                    out.push(path.clone());
                    path.pop();
                }
            }
            for (element, member) in &set.nodes {
                path.push(element.clone());
                walk(&member.below, path, out);
                path.pop();
            }
        }
        let mut out = Vec::new();
        walk(self, &mut Vec::new(), &mut out);
        out
    }
}
