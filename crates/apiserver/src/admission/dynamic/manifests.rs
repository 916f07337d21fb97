//! Policies and webhooks from files: what an administrator has in the directories of `staticManifestsDir` applies from the
//! first request on, cannot be seen or changed through the API, and also guards the admission configuration in the API.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_apimachinery::field::{Error, ErrorList, Path as Field, aggregate};
use allot_certificates::FollowedDirectory;
use allot_model::features::Feature;
use allot_schema::decode::{Mode, decode_value};
use serde_json::Value;

use super::backend::GROUP;
use crate::admission::plugins::Plugin;
use crate::admission::{Admission, Attributes, Operation};
use crate::object::{items, meta, text};
use crate::registry::Registry;
use crate::{strategy, validate, versions};

/// Names that end so are those of objects in files, which alone have them.
const SUFFIX: &str = ".static.k8s.io";
/// The version of objects in files.
const VERSION: &str = "v1";
/// How deep lists in files may contain lists.
const DEEPEST: usize = 8;

/// Objects of a resource with what changes when they do, as [`Entry::revision`](allot_store::Entry) of those in the store.
pub(super) type Objects = Vec<(Value, u64)>;

/// The objects from files by resource.
pub(super) type Manifests = BTreeMap<&'static str, Objects>;

/// A plugin that reads objects from a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    ValidatingWebhooks,
    MutatingWebhooks,
    ValidatingPolicies,
    MutatingPolicies,
}

impl Source {
    const ALL: [Source; 4] = [
        Source::ValidatingWebhooks,
        Source::MutatingWebhooks,
        Source::ValidatingPolicies,
        Source::MutatingPolicies,
    ];

    fn plugin(self) -> Plugin {
        match self {
            Source::ValidatingWebhooks => Plugin::ValidatingAdmissionWebhook,
            Source::MutatingWebhooks => Plugin::MutatingAdmissionWebhook,
            Source::ValidatingPolicies => Plugin::ValidatingAdmissionPolicy,
            Source::MutatingPolicies => Plugin::MutatingAdmissionPolicy,
        }
    }

    /// The resources that it reads.
    fn plurals(self) -> &'static [&'static str] {
        match self {
            Source::ValidatingWebhooks => &["validatingwebhookconfigurations"],
            Source::MutatingWebhooks => &["mutatingwebhookconfigurations"],
            Source::ValidatingPolicies => &[
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
            ],
            Source::MutatingPolicies => &[
                "mutatingadmissionpolicies",
                "mutatingadmissionpolicybindings",
            ],
        }
    }

    fn directory(self, core: &Admission) -> Option<PathBuf> {
        let options = &core.config.admission;
        match self {
            Source::ValidatingWebhooks => options.validating_webhooks.manifests.clone(),
            Source::MutatingWebhooks => options.mutating_webhooks.manifests.clone(),
            Source::ValidatingPolicies => options.validating_policies.clone(),
            Source::MutatingPolicies => options.mutating_policies.clone(),
        }
    }

    /// Reads the directory, and lets what it has count. As upstream, a directory with the text that is known changes nothing.
    fn load(
        self,
        core: &Admission,
        directory: &Path,
        known: &mut Option<Vec<u8>>,
    ) -> Result<(), String> {
        let files = files(directory)?;
        let content = content(&files);
        if known.as_ref() == Some(&content) {
            return Ok(());
        }
        let read = read(self, &core.registry.load(), &files)?;
        let mut manifests = core.dynamic.manifests.lock();
        let mut is_new = false;
        for plural in self.plurals() {
            let objects = read.get(plural).cloned().unwrap_or_default();
            let before = manifests.insert(*plural, objects);
            is_new |= before.as_ref() != manifests.get(plural);
        }
        drop(manifests);
        if is_new {
            core.dynamic.changed();
        }
        core.manifest_reloads.taken(self.plugin().name(), &content);
        *known = Some(content);
        Ok(())
    }
}

/// Reads the directories that are configured, and follows them until the server ends. A change that is wrong is logged, and
/// changes nothing.
///
/// # Errors
/// A directory that cannot be read, or has something that is wrong.
pub(crate) fn start<C>(core: &Arc<C>) -> Result<(), String>
where
    C: Deref<Target = Admission> + Send + Sync + 'static,
{
    for source in Source::ALL {
        let Some(directory) = source.directory(core) else {
            continue;
        };
        let name = source.plugin().name();
        let mut known = None;
        source.load(core, &directory, &mut known).map_err(|why| {
            format!("couldn't init admission plugin \"{name}\": failed to load static manifests from {directory:?}: {why}")
        })?;
        let core = core.clone();
        tokio::spawn(async move {
            let mut followed = FollowedDirectory::new(&directory);
            loop {
                tokio::select! {
                    () = core.shutdown.cancelled() => return,
                    () = followed.changed() => {}
                }
                if let Err(why) = source.load(&core, &directory, &mut known) {
                    core.manifest_reloads.refused(name);
                    tracing::error!(plugin = name, %why, "static manifests stay as they were");
                }
            }
        });
    }
    Ok(())
}

/// The error about a name in the API that is reserved for files.
pub(crate) fn reserved_name(
    core: &Admission,
    attributes: &Attributes<'_>,
    name: &str,
) -> ErrorList {
    let mut errors = ErrorList::new();
    let resource = attributes.resource;
    let concerned = attributes.operation == Operation::Create
        && resource.group == GROUP
        && resource.custom.is_none()
        && name.ends_with(SUFFIX);
    let gate = Feature::ManifestBasedAdmissionControlConfig;
    if concerned && core.config.features.enabled(gate) {
        let why = format!(
            "names ending with \"{SUFFIX}\" are reserved for static manifest-based configurations and cannot be managed via the API"
        );
        let path = Field::new("metadata").child("name");
        errors.push(Error::invalid(&path, name, why));
    }
    errors
}

/// The files of a directory with objects and their text, sorted by name.
fn files(directory: &Path) -> Result<Vec<(PathBuf, String)>, String> {
    let unreadable =
        |error: std::io::Error| format!("failed to read manifest directory {directory:?}: {error}");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let extension = path.extension().map(|it| it.to_ascii_lowercase());
        let named =
            extension.is_some_and(|it| ["yaml", "yml", "json"].iter().any(|end| it == *end));
        if named && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    let read = files.into_iter().map(|file| {
        let shown = file.display();
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("failed to read file \"{shown}\": {error}"))?;
        Ok((file, text))
    });
    read.collect()
}

/// What files say, to be compared.
fn content(files: &[(PathBuf, String)]) -> Vec<u8> {
    let texts = files.iter().flat_map(|(file, text)| {
        let length = text.len().to_le_bytes();
        [
            file.as_os_str().as_encoded_bytes(),
            &[0],
            &length,
            text.as_bytes(),
        ]
        .concat()
    });
    texts.collect()
}

/// The objects in files, sorted by name.
fn read(
    source: Source,
    registry: &Registry,
    files: &[(PathBuf, String)],
) -> Result<Manifests, String> {
    let mut reader = Reader {
        source,
        registry,
        names: BTreeSet::new(),
        found: Manifests::new(),
    };
    for (file, content) in files {
        let shown = file.display();
        for document in documents(content) {
            let value =
                serde_saphyr::from_str::<Value>(&document).map_err(|error| error.to_string());
            let added = value.and_then(|value| reader.add(value, &shown.to_string(), 0));
            added.map_err(|why| format!("error loading {shown}: {why}"))?;
        }
    }
    let mut found = reader.found;
    check_bindings(source, &found)?;
    for objects in found.values_mut() {
        objects.sort_by(|(a, _), (b, _)| meta(a, "name").cmp(meta(b, "name")));
    }
    Ok(found)
}

/// The documents of a file in YAML, without empty ones.
fn documents(content: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in content.lines() {
        let end = line.strip_prefix("---").map(str::trim_start);
        if end.is_some_and(|rest| rest.is_empty() || rest.starts_with('#')) {
            documents.push(String::new());
        } else if let Some(document) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    documents.retain(|document| !document.trim().is_empty());
    documents
}

/// What has been read so far.
struct Reader<'a> {
    source: Source,
    registry: &'a Registry,
    names: BTreeSet<(&'static str, String)>,
    found: Manifests,
}

impl Reader<'_> {
    /// Adds an object, or those of a list.
    fn add(&mut self, value: Value, file: &str, depth: usize) -> Result<(), String> {
        let (version, kind) = (text(&value, &["apiVersion"]), text(&value, &["kind"]));
        let of_group = version == format!("{GROUP}/{VERSION}");
        let item_kind = kind.strip_suffix("List").filter(|_| of_group);
        if (version, kind) == ("v1", "List") || item_kind.is_some() {
            if depth >= DEEPEST {
                return Err("lists are nested too deep".to_owned());
            }
            for item in items(&value["items"]) {
                let mut item = item.clone();
                if let (Some(kind), Some(map)) = (item_kind, item.as_object_mut()) {
                    map.entry("apiVersion").or_insert(version.into());
                    map.entry("kind").or_insert(kind.into());
                }
                self.add(item, file, depth + 1)?;
            }
            return Ok(());
        }
        let resource = self.registry.by_kind(GROUP, kind).filter(|_| of_group);
        let resource = resource
            .ok_or_else(|| format!("no kind \"{kind}\" is registered for version \"{version}\""))?;
        let mut plurals = self.source.plurals().iter();
        let plural = plurals.find(|plural| **plural == resource.plural);
        let plural =
            *plural.ok_or_else(|| format!("unsupported resource type *{VERSION}.{kind}"))?;
        let schema = resource.schema(VERSION).ok_or("it has no schema")?;
        let decoded = decode_value(value.clone(), schema).map_err(|error| error.to_string())?;
        let (mut object, _) = decoded
            .apply(Mode::Strict)
            .map_err(|error| error.to_string())?;
        strategy::default(resource, VERSION, &mut object);
        versions::set_type(&mut object, resource, VERSION);
        let object = versions::to_internal(resource, object).map_err(|error| error.0.message)?;
        let name = meta(&object, "name").to_owned();
        if let Some(why) = aggregate(&validate::create(resource.rules, &object)) {
            return Err(format!("{kind} \"{name}\": {why}"));
        }
        check_name(&name, file)?;
        if !self.names.insert((plural, name.clone())) {
            return Err(format!(
                "duplicate name \"{name}\" found in file \"{file}\""
            ));
        }
        check_object(plural, kind, &object, file)?;
        let mut hasher = DefaultHasher::new();
        object.to_string().hash(&mut hasher);
        // Revisions of the store are far smaller.
        let revision = hasher.finish() | (1 << 63);
        self.found
            .entry(plural)
            .or_default()
            .push((object, revision));
        Ok(())
    }
}

fn check_name(name: &str, file: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("resource in file \"{file}\" must have a name"));
    }
    if !name.ends_with(SUFFIX) {
        return Err(format!(
            "\"{name}\" in file \"{file}\" must have a name ending with \"{SUFFIX}\""
        ));
    }
    Ok(())
}

/// Refuses what depends on objects in the API.
fn check_object(plural: &str, kind: &str, object: &Value, file: &str) -> Result<(), String> {
    let (name, spec) = (meta(object, "name"), &object["spec"]);
    for webhook in items(&object["webhooks"]) {
        let config = &webhook["clientConfig"];
        let wrong = if !config["service"].is_null() {
            "clientConfig.service is not supported for static manifests; use clientConfig.url instead"
        } else if text(config, &["url"]).is_empty() {
            "clientConfig.url is required for static manifests"
        } else {
            continue;
        };
        let webhook = text(webhook, &["name"]);
        return Err(format!(
            "webhook \"{webhook}\" in \"{name}\" (file \"{file}\"): {wrong}"
        ));
    }
    if !spec["paramKind"].is_null() {
        return Err(format!(
            "{kind} \"{name}\": spec.paramKind is not supported for static manifests"
        ));
    }
    if !plural.ends_with("bindings") {
        return Ok(());
    }
    let policy = text(spec, &["policyName"]);
    if policy.is_empty() {
        return Err(format!(
            "binding \"{name}\" must reference a policy (spec.policyName)"
        ));
    }
    if !policy.ends_with(SUFFIX) {
        return Err(format!(
            "binding \"{name}\": spec.policyName \"{policy}\" must end with \"{SUFFIX}\""
        ));
    }
    if !spec["paramRef"].is_null() {
        return Err(format!(
            "binding \"{name}\": spec.paramRef is not supported for static manifests"
        ));
    }
    Ok(())
}

/// The policies of bindings are in files as well.
fn check_bindings(source: Source, found: &Manifests) -> Result<(), String> {
    let [policies, bindings] = source.plurals() else {
        return Ok(());
    };
    let of = |plural: &str| found.get(plural).into_iter().flatten();
    let policies: BTreeSet<&str> = of(policies).map(|(it, _)| meta(it, "name")).collect();
    for (binding, _) in of(bindings) {
        let policy = text(binding, &["spec", "policyName"]);
        if !policies.contains(policy) {
            let name = meta(binding, "name");
            return Err(format!(
                "binding \"{name}\" references policy \"{policy}\" which does not exist in the manifest directory"
            ));
        }
    }
    Ok(())
}
