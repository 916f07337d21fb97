//! Rules for names, label keys and label values, with upstream's texts.
//!
//! Each function returns the errors of the value, empty for a valid one. Upstream counts lengths in bytes but some of
//! its texts say characters; the texts here are those of 1.36.

const LABEL_FMT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FMT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED_FMT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const QUALIFIED_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The alphabet of the random or hashed ends of generated names (`k8s.io/apimachinery/pkg/util/rand`): without vowels, so
/// that no words form, and without characters that are mistaken for others.
pub const GENERATED_NAME_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Longest DNS label.
pub const DNS_LABEL_MAX: usize = 63;
/// Longest DNS subdomain.
pub const DNS_SUBDOMAIN_MAX: usize = 253;
/// Longest label value and longest name part of a label key.
pub const LABEL_VALUE_MAX: usize = 63;

/// A DNS label of RFC 1123 (namespaces, pod host names).
pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut errors = too_long(value, DNS_LABEL_MAX);
    if !is_label(value) {
        errors.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL_FMT,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// A DNS subdomain of RFC 1123 (most object names, label key prefixes).
pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = too_long(value, DNS_SUBDOMAIN_MAX);
    if !is_subdomain(value) {
        errors.push(regex_error(SUBDOMAIN_TEXT, SUBDOMAIN_FMT, &["example.com"]));
    }
    errors
}

/// The same by the rules that upstream declares beside its types, which name the unit of the longest length.
pub fn declared_subdomain(value: &str) -> Vec<String> {
    let mut errors = dns1123_subdomain(value);
    if value.len() > DNS_SUBDOMAIN_MAX {
        errors[0] = format!("must be no more than {DNS_SUBDOMAIN_MAX} bytes");
    }
    errors
}

/// A DNS label by the rules that upstream declares beside its types, as [`declared_subdomain`].
pub fn declared_label(value: &str) -> Vec<String> {
    let mut errors = dns1123_label(value);
    if value.len() > DNS_LABEL_MAX {
        errors[0] = format!("must be no more than {DNS_LABEL_MAX} bytes");
    }
    errors
}

/// A DNS subdomain whose labels may begin with an underscore and have more inside (search paths).
pub fn dns1123_subdomain_with_underscore(value: &str) -> Vec<String> {
    const LABEL: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    const TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character";
    let mut errors = too_long(value, DNS_SUBDOMAIN_MAX);
    let fits = |label: &str| is_label(&label.strip_prefix('_').unwrap_or(label).replace('_', "-"));
    if !value.split('.').all(fits) {
        let pattern = format!("{LABEL}(\\.{LABEL})*");
        errors.push(regex_error(TEXT, &pattern, &["example.com"]));
    }
    errors
}

/// A DNS label of RFC 1035 (services).
pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut errors = too_long(value, DNS_LABEL_MAX);
    if !is_label(value) || value.starts_with(|c: char| c.is_ascii_digit()) {
        errors.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// A C identifier (attribute and capacity identifiers of devices).
pub fn c_identifier(value: &str) -> Vec<String> {
    let mut bytes = value.bytes();
    let ok = bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if ok {
        return Vec::new();
    }
    vec![regex_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// A label key: `name` or `prefix/name` with a DNS subdomain as prefix.
pub fn qualified_name(value: &str) -> Vec<String> {
    let regex = || {
        regex_error(
            QUALIFIED_TEXT,
            QUALIFIED_FMT,
            &["MyName", "my.name", "123-abc"],
        )
    };
    let parts: Vec<&str> = value.split('/').collect();
    let mut errors = Vec::new();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > DNS_SUBDOMAIN_MAX {
                    errors.push(format!(
                        "prefix part must be no more than {DNS_SUBDOMAIN_MAX} bytes"
                    ));
                }
                if !is_subdomain(prefix) {
                    errors.push(format!(
                        "prefix part {}",
                        regex_error(SUBDOMAIN_TEXT, SUBDOMAIN_FMT, &["example.com"])
                    ));
                }
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                regex()
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_VALUE_MAX {
        errors.push(format!(
            "name part must be no more than {LABEL_VALUE_MAX} bytes"
        ));
    }
    if !is_label_key_name(name) {
        errors.push(format!("name part {}", regex()));
    }
    errors
}

/// A decimal integer of any size in canonical form: `0`, or digits without leading zeros, behind `-` or nothing.
pub fn decimal_integer(value: &str) -> Vec<String> {
    if value.is_empty() {
        return vec!["must be non-empty".to_owned()];
    }
    let digits = value.strip_prefix('-').unwrap_or(value);
    let is_canonical = value == "0"
        || digits.starts_with(|first: char| ('1'..='9').contains(&first))
            && digits.bytes().all(|byte| byte.is_ascii_digit());
    match is_canonical {
        true => Vec::new(),
        false => vec!["must be a valid decimal integer in canonical form".to_owned()],
    }
}

/// A label value: empty, or alphanumeric at both ends.
pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_VALUE_MAX {
        errors.push(format!("must be no more than {LABEL_VALUE_MAX} bytes"));
    }
    if !value.is_empty() && !is_label_key_name(value) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// A name that is valid in a URL path (roles, storage versions).
pub fn path_segment_name(value: &str) -> Vec<String> {
    if value == "." || value == ".." {
        return vec![format!("may not be '{value}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|part| value.contains(**part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(value: &str) -> Vec<String> {
    let mut errors = too_long(value, DNS_SUBDOMAIN_MAX);
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if value.is_empty() || !value.bytes().all(allowed) {
        errors.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    errors.extend(dot_dot(value));
    errors
}

/// Name of an environment variable: printable ASCII without `=`.
pub fn env_var_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.is_empty() {
        errors.push("environment variable name must be non-empty".to_owned());
    }
    if value.chars().any(|c| !matches!(c, ' '..='~') || c == '=') {
        errors.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    errors
}

/// Name of a container port.
pub fn port_name(value: &str) -> Vec<String> {
    let mut errors = too_long(value, 15);
    if value.is_empty()
        || !value
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    {
        errors.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// A port number between 1 and 65535.
pub fn port_number(value: i64) -> Vec<String> {
    if (1..=65535).contains(&value) {
        Vec::new()
    } else {
        vec!["must be between 1 and 65535, inclusive".to_owned()]
    }
}

/// The errors of a condition's `reason`.
pub fn condition_reason(value: &str) -> Vec<String> {
    let bytes = value.as_bytes();
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':');
    let end = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let ok = bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.iter().all(|b| inner(*b))
        && (bytes.len() == 1 || bytes.last().is_some_and(|b| end(*b)));
    if ok {
        return Vec::new();
    }
    vec![regex_error(
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
        &[
            "my_name",
            "MY_NAME",
            "MyName",
            "ReasonA,ReasonB",
            "ReasonA:ReasonB",
        ],
    )]
}

/// The name for validating a `generateName` prefix: a trailing dash is replaced by a valid character.
pub fn mask_trailing_dash(prefix: &str) -> String {
    if prefix.len() > 1 && prefix.ends_with('-') {
        let mut name = prefix[..prefix.len() - 1].to_owned();
        // Upstream drops the last two bytes and appends one; a multi-byte character there stays invalid either way.
        name.pop();
        name.push('a');
        return name;
    }
    prefix.to_owned()
}

fn dot_dot(value: &str) -> Option<String> {
    match value {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if value.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

fn too_long(value: &str, max: usize) -> Vec<String> {
    if value.len() > max {
        vec![format!("must be no more than {max} characters")]
    } else {
        Vec::new()
    }
}

/// Upstream's text of a value that does not match a pattern.
pub fn regex_error(text: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{text} (regex used for validation is '{pattern}')");
    }
    let examples: Vec<_> = examples
        .iter()
        .map(|example| format!("'{example}', "))
        .collect();
    format!(
        "{text} (e.g. {}regex used for validation is '{pattern}')",
        examples.join(" or ")
    )
}

fn is_label(value: &str) -> bool {
    let ends = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = value.as_bytes();
    ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

/// Whether `value` has the form of a DNS subdomain, regardless of its length.
pub fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn is_label_key_name(value: &str) -> bool {
    let bytes = value.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests;
