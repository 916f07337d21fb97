//! The subjects of bindings.

use std::collections::HashSet;

use crate::identity::{SERVICE_ACCOUNT_PREFIX, User};

/// From this number of groups on they are looked up in a set: an access review can name any number of them, and
/// there can be any number of subjects.
const MANY: usize = 16;

/// A user that may be a subject of bindings.
pub(super) struct Member<'a> {
    user: &'a User,
    groups: Option<HashSet<&'a str>>,
}

impl<'a> Member<'a> {
    pub(super) fn of(user: &'a User) -> Self {
        let groups = &user.groups;
        let many = groups.len() >= MANY;
        let groups = many.then(|| groups.iter().map(String::as_str).collect());
        Self { user, groups }
    }

    fn in_group(&self, group: &str) -> bool {
        match &self.groups {
            Some(groups) => groups.contains(group),
            None => self.user.in_group(group),
        }
    }
}

/// The subject of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: String,
}

impl Subject {
    pub(super) fn is(&self, member: &Member<'_>) -> bool {
        let user = member.user;
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => member.in_group(&self.name),
            "ServiceAccount" => user
                .name
                .strip_prefix(SERVICE_ACCOUNT_PREFIX)
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(namespace, name)| {
                    !namespace.is_empty() && namespace == self.namespace && name == self.name
                }),
            _ => false,
        }
    }

    pub(super) fn describe(&self) -> String {
        match self.kind.as_str() {
            "ServiceAccount" => format!("ServiceAccount \"{}/{}\"", self.name, self.namespace),
            kind => format!("{kind} {:?}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_groups_are_found() {
        for number in [1, MANY, 3 * MANY] {
            let user = User {
                groups: (0..number).map(|it| format!("group-{it}")).collect(),
                ..User::default()
            };
            let member = Member::of(&user);
            assert!(member.in_group("group-0") && !member.in_group("group"));
            assert!(member.in_group(&format!("group-{}", number - 1)));
        }
    }
}
