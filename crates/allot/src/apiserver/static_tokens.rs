//! kube-apiserver's file of static tokens.

use std::collections::BTreeMap;
use std::path::Path;

use allot_apiserver::identity::User;
use anyhow::{Context, bail};

/// Reads kube-apiserver's token file.
pub(super) fn read(file: &Path) -> anyhow::Result<BTreeMap<String, User>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut tokens = BTreeMap::new();
    for (number, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let fields = csv_fields(line);
        let [token, name, uid, rest @ ..] = fields.as_slice() else {
            bail!(
                "{} line {}: want token,user,uid[,\"groups\"]",
                file.display(),
                number + 1
            );
        };
        let groups = rest.first().map(String::as_str).unwrap_or_default();
        let mut user = User::new(
            name.as_str(),
            groups.split(',').filter(|group| !group.is_empty()),
        );
        user.uid = uid.clone();
        tokens.insert(token.clone(), user);
    }
    Ok(tokens)
}

/// The fields of a line; double quotes protect commas.
fn csv_fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.trim().chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field).trim().to_owned()),
            c => field.push(c),
        }
    }
    fields.push(field.trim().to_owned());
    fields
}
