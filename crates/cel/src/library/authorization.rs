//! The authorization library: `authorizer.group('').resource('pods').check('create').allowed()`.

use std::borrow::Cow;

use allot_apimachinery::names;

use super::{Args, Outcome, text};
use crate::{
    authorization::{Access, Check, Decision, Stage},
    library::Function,
    value::{Extension, Fault, Value},
};

/// Ends an evaluation that needs an answer first; it is never visible to users.
const UNANSWERED: Fault =
    Fault::Cancelled(Cow::Borrowed("authorization check is not answered yet"));

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "path" => path,
        "group" => group,
        "serviceAccount" => service_account,
        "resource" => resource,
        "subresource" => |args| part(args, |check| &mut check.subresource),
        "namespace" => |args| part(args, |check| &mut check.namespace),
        "name" => |args| part(args, |check| &mut check.name),
        "fieldSelector" => |args| part(args, |check| &mut check.fields),
        "labelSelector" => |args| part(args, |check| &mut check.labels),
        "check" => check,
        "allowed" => |args| Ok(Value::Bool(decision(args)?.allowed)),
        "reason" => |args| Ok(Value::string(decision(args)?.reason.as_str())),
        "error" => |args| Ok(Value::string(decision(args)?.error.as_str())),
        "errored" => |args| Ok(Value::Bool(!decision(args)?.error.is_empty())),
        _ => return None,
    })
}

/// The receiver, if it is at the stage that the function needs.
fn access<'v>(args: Args<'v, '_>, stage: &Stage) -> Result<&'v Access, Fault> {
    match args.first() {
        Some(Value::Extension(extension)) => match &**extension {
            Extension::Access(access) if access.stage == *stage => Ok(access),
            _ => Err(Fault::NoOverload),
        },
        _ => Err(Fault::NoOverload),
    }
}

fn argument<'v>(args: Args<'v, '_>, index: usize) -> Result<&'v str, Fault> {
    text(args.get(index).ok_or(Fault::NoOverload)?)
}

fn path<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let (access, path) = (access(args, &Stage::Authorizer)?, argument(args, 1)?);
    if path.trim().is_empty() {
        return Err(Fault::new("path must not be empty"));
    }
    Ok(access.then(Stage::Path, |check| path.clone_into(&mut check.path)))
}

fn group<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let (access, group) = (access(args, &Stage::Authorizer)?, argument(args, 1)?);
    Ok(access.then(Stage::Group, |check| group.clone_into(&mut check.group)))
}

fn service_account<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let access = access(args, &Stage::Authorizer)?;
    let (namespace, name) = (argument(args, 1)?, argument(args, 2)?);
    if !names::dns1123_subdomain(name).is_empty() {
        return Err(Fault::new("Invalid service account name"));
    }
    if !names::dns1123_label(namespace).is_empty() {
        return Err(Fault::new("Invalid service account namespace"));
    }
    Ok(access.then(Stage::Authorizer, |check| {
        check.account = Some((namespace.to_owned(), name.to_owned()));
    }))
}

fn resource<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let (access, resource) = (access(args, &Stage::Group)?, argument(args, 1)?);
    if resource.trim().is_empty() {
        return Err(Fault::new("resource must not be empty"));
    }
    Ok(access.then(Stage::Resource, |check| {
        resource.clone_into(&mut check.resource);
    }))
}

/// Adds a part of a resource.
fn part<'a>(args: Args<'_, 'a>, place: fn(&mut Check) -> &mut String) -> Outcome<'a> {
    let (access, text) = (access(args, &Stage::Resource)?, argument(args, 1)?);
    Ok(access.then(Stage::Resource, |check| text.clone_into(place(check))))
}

fn check<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let access = access(args, &Stage::Resource).or_else(|_| access(args, &Stage::Path))?;
    access.decide(argument(args, 1)?).ok_or(UNANSWERED)
}

fn decision<'v>(args: Args<'v, '_>) -> Result<&'v Decision, Fault> {
    let Some(Value::Extension(extension)) = args.first() else {
        return Err(Fault::NoOverload);
    };
    match &**extension {
        Extension::Access(access) => match &access.stage {
            Stage::Decision(decision) => Ok(decision),
            _ => Err(Fault::NoOverload),
        },
        _ => Err(Fault::NoOverload),
    }
}
