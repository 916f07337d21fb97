//! Names that pods give to security modules of the kernel.

use k8s_openapi::api::core::v1::SELinuxOptions;

use super::SecurityError;

/// Checks that a profile of AppArmor is one of the host's. `loaded`: the kernel's list, if it can be read.
///
/// # Errors
/// The kernel has no such profile, or the name means something else to it.
pub(super) fn check_profile(name: &str, loaded: Option<&str>) -> Result<(), SecurityError> {
    // No profile, several at once, and one of another namespace, which are no names in the list.
    let special = name.is_empty()
        || name == "unconfined"
        || name.starts_with(':')
        || name.contains("//&")
        || name.chars().any(|c| c.is_control() || c.is_whitespace());
    // A line is the name and the mode in parentheses.
    let is_listed = |list: &str| {
        let mut lines = list.lines();
        lines.any(|line| {
            line.rsplit_once(" (")
                .is_some_and(|(known, _)| known == name)
        })
    };
    match special || !loaded.is_none_or(is_listed) {
        true => Err(SecurityError::ProfileNotLoaded(name.to_owned())),
        false => Ok(()),
    }
}

/// The SELinux label of a container's processes.
///
/// # Errors
/// A part that is not one: it would be several, or lines of its own.
pub(super) fn selinux(options: &SELinuxOptions) -> Result<String, SecurityError> {
    let part = |field: &'static str, value: &Option<String>, default: &str, others: &str| {
        let value = value
            .as_deref()
            .filter(|it| !it.is_empty())
            .unwrap_or(default);
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c) || others.contains(c);
        let (fits, value) = (value.chars().all(fits), value.to_owned());
        match fits {
            true => Ok(value),
            false => Err(SecurityError::SelinuxOption { field, value }),
        }
    };
    Ok(format!(
        "{}:{}:{}:{}",
        part("user", &options.user, "system_u", "")?,
        part("role", &options.role, "system_r", "")?,
        part("type", &options.type_, "container_t", "")?,
        // With a range and categories.
        part("level", &options.level, "s0", ":,")?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The attack: a profile that is permitted by its type, `Localhost`, and whose name lifts all others.
    #[test]
    fn profiles_are_those_of_the_host() {
        let list = "docker-default (enforce)\n/usr/bin/man (enforce)\nmine (complain)\nunconfined (unconfined)\na b (enforce)\n";
        for name in ["docker-default", "/usr/bin/man", "mine"] {
            assert!(check_profile(name, Some(list)).is_ok(), "{name}");
            assert!(check_profile(name, None).is_ok(), "{name}");
        }
        assert!(check_profile("other", Some(list)).is_err());
        for name in [
            "",
            "unconfined",
            "mine//&unconfined",
            ":ns:mine",
            "a b",
            "mine\nexec unconfined",
            "mine\0",
        ] {
            for list in [Some(list), None] {
                let error = check_profile(name, list).unwrap_err().to_string();
                assert!(
                    error.starts_with("Cannot enforce AppArmor: profile "),
                    "{error}"
                );
            }
        }
    }

    /// The attack: a level, which Pod Security does not look at, with a label of its own.
    #[test]
    fn parts_of_labels_are_parts() {
        let options = |field: &str, value: &str| SELinuxOptions {
            user: (field == "user").then(|| value.to_owned()),
            role: (field == "role").then(|| value.to_owned()),
            type_: (field == "type").then(|| value.to_owned()),
            level: (field == "level").then(|| value.to_owned()),
        };
        let label = |field: &str, value: &str| selinux(&options(field, value));
        let default = "system_u:system_r:container_t:s0";
        assert_eq!(label("", "").unwrap(), default);
        assert_eq!(label("type", "").unwrap(), default);
        let level = "s0-s0:c0,c5";
        assert_eq!(
            label("level", level).unwrap(),
            format!("system_u:system_r:container_t:{level}")
        );
        for (field, value) in [
            ("type", "spc_t:s0"),
            ("user", "u:r:spc_t"),
            ("role", "r t"),
            ("level", "s0\nexec"),
            ("level", "s0\0"),
            ("type", "\u{fc}"),
        ] {
            let error = label(field, value).unwrap_err().to_string();
            assert!(
                error.contains(&format!("seLinuxOptions.{field}")),
                "{error}"
            );
        }
    }
}
