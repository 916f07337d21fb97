//! Which plugin has set what: two plugins that set the same are in conflict, unless the second one has removed it before.

use allot_protos::nri::{Field, FieldOwners, OwningPlugins};

/// Two plugins want to set the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("plugins {plugin:?} and {other:?} both tried to set {what}")]
pub(super) struct Conflict {
    plugin: String,
    other: String,
    what: String,
}

/// Removal is marked by this before a name, as upstream does.
const REMOVED: &str = "-";

/// The name of something that is removed; `None` if it is not.
pub(super) fn removed(name: &str) -> Option<&str> {
    name.strip_prefix(REMOVED)
}

/// A name marked for removal.
pub(super) fn mark(name: &str) -> String {
    format!("{REMOVED}{name}")
}

/// The field of a message, as it is called in messages: with the entry if it has several.
pub(super) fn called(field: Field, entry: Option<&str>) -> String {
    match entry {
        Some(entry) => format!("{} {entry:?}", field.as_str_name()),
        None => field.as_str_name().to_owned(),
    }
}

/// The owners of the fields of all containers.
#[derive(Debug, Clone, Default)]
pub(super) struct Owners(pub(super) OwningPlugins);

impl Owners {
    fn of(&mut self, container: &str) -> &mut FieldOwners {
        self.0.owners.entry(container.to_owned()).or_default()
    }

    /// The plugin that owns a field, or an entry of it, as it is recorded.
    fn recorded(&self, container: &str, field: Field, entry: Option<&str>) -> Option<&String> {
        let owners = self.0.owners.get(container)?;
        match entry {
            None => owners.simple.get(&(field as i32)),
            Some(entry) => owners.compound.get(&(field as i32))?.owners.get(entry),
        }
    }

    fn record(&mut self, container: &str, field: Field, entry: Option<&str>, owner: String) {
        let owners = self.of(container);
        match entry {
            None => owners.simple.insert(field as i32, owner),
            Some(entry) => {
                let entries = owners.compound.entry(field as i32).or_default();
                entries.owners.insert(entry.to_owned(), owner)
            }
        };
    }

    /// Makes a plugin the owner.
    ///
    /// # Errors
    /// Another one is, and this one has not removed what that one has set.
    pub(super) fn claim(
        &mut self,
        container: &str,
        field: Field,
        entry: Option<&str>,
        plugin: &str,
    ) -> Result<(), Conflict> {
        if let Some(other) = self.recorded(container, field, entry) {
            let remover = removed(other);
            if remover != Some(plugin) {
                return Err(Conflict {
                    plugin: plugin.to_owned(),
                    other: remover.unwrap_or(other).to_owned(),
                    what: called(field, entry),
                });
            }
        }
        self.record(container, field, entry, plugin.to_owned());
        Ok(())
    }

    /// Records that a plugin has removed what was there.
    pub(super) fn clear(
        &mut self,
        container: &str,
        field: Field,
        entry: Option<&str>,
        plugin: &str,
    ) {
        self.record(container, field, entry, mark(plugin));
    }

    /// Adds a plugin to the owners of a field that several may have.
    pub(super) fn join(&mut self, container: &str, field: Field, plugin: &str) {
        let owner = match self.recorded(container, field, None) {
            Some(others) => format!("{others},{plugin}"),
            None => plugin.to_owned(),
        };
        self.record(container, field, None, owner);
    }

    /// The plugin that has set or removed something; empty if none has.
    pub(super) fn name(&self, container: &str, field: Field, entry: Option<&str>) -> &str {
        let recorded = self.recorded(container, field, entry);
        recorded.map_or("", |owner| removed(owner).unwrap_or(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_plugin_is_refused_unless_it_has_removed_what_the_first_one_set() {
        let mut owners = Owners::default();
        let env = (Field::Env, Some("A"));
        owners.claim("c", env.0, env.1, "00-a").expect("the first");
        let conflict = owners.claim("c", env.0, env.1, "01-b");
        let conflict = conflict.expect_err("a conflict").to_string();
        assert_eq!(
            conflict,
            r#"plugins "01-b" and "00-a" both tried to set Env "A""#
        );
        owners.clear("c", env.0, env.1, "01-b");
        owners.claim("c", env.0, env.1, "01-b").expect("removed");
        assert_eq!(owners.name("c", env.0, env.1), "01-b");
        owners
            .claim("c", env.0, Some("B"), "00-a")
            .expect("another");
        owners.claim("d", env.0, env.1, "00-a").expect("another");
        owners.join("c", Field::OciHooks, "00-a");
        owners.join("c", Field::OciHooks, "01-b");
        assert_eq!(owners.name("c", Field::OciHooks, None), "00-a,01-b");
    }
}
