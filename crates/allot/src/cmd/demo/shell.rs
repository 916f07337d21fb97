//! The commands of the demo, with the output that kubectl would print.

use std::io::{Write as _, stdout};

use anyhow::Context;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    ApiResource, AttachParams, DynamicObject, GroupVersionKind, LogParams, Patch, PatchParams,
};
use kube::runtime::wait::await_condition;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use serde_json::Value;
use tokio::io::AsyncReadExt;

/// The media type of the tables that kubectl prints.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A user at a terminal.
pub(super) struct Shell {
    client: Client,
}

impl Shell {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// `kubectl get RESOURCE`.
    pub(super) async fn get(&self, resource: &str) -> anyhow::Result<()> {
        writeln!(stdout(), "$ kubectl get {resource}")?;
        let path = match resource {
            "pods" => "/api/v1/namespaces/default/pods".to_owned(),
            "resourceclaims" => {
                "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims".to_owned()
            }
            other => format!("/apis/resource.k8s.io/v1/{other}"),
        };
        let request = http::Request::get(path)
            .header(http::header::ACCEPT, TABLE)
            .body(Vec::new())?;
        let table: Value = self.client.request(request).await?;
        write!(stdout(), "{}", render(&table))?;
        writeln!(stdout())?;
        Ok(())
    }

    /// `kubectl apply -f FILE`.
    pub(super) async fn apply(&self, file: &str, manifest: &str) -> anyhow::Result<()> {
        writeln!(stdout(), "$ kubectl apply -f {file}")?;
        for object in objects(manifest).with_context(|| file.to_owned())? {
            let (api, resource) = self.api(&object).await?;
            let name = object.metadata.name.clone().unwrap_or_default();
            let params = PatchParams::apply("allot-demo");
            api.patch(&name, &params, &Patch::Apply(&object)).await?;
            writeln!(stdout(), "{} created", qualified(&resource, &name))?;
        }
        writeln!(stdout())?;
        Ok(())
    }

    /// `kubectl delete pod NAME`.
    pub(super) async fn delete(&self, pods: &Api<DynamicObject>, name: &str) -> anyhow::Result<()> {
        writeln!(stdout(), "$ kubectl delete pod {name}")?;
        super::delete(pods, name).await?;
        await_condition(pods.clone(), name, |pod: Option<&DynamicObject>| {
            pod.is_none()
        })
        .await?;
        writeln!(stdout(), "pod \"{name}\" deleted\n")?;
        Ok(())
    }

    /// Deletes the objects of a manifest, last object first, without output.
    pub(super) async fn remove(&self, manifest: &str) -> anyhow::Result<()> {
        for object in objects(manifest)?.iter().rev() {
            let (api, _) = self.api(object).await?;
            super::delete(&api, object.metadata.name.as_deref().unwrap_or_default()).await?;
        }
        Ok(())
    }

    /// `kubectl exec POD -c CONTAINER -- printenv`, the GPUs of it.
    pub(super) async fn gpu_environment(
        &self,
        pod: &str,
        container: &str,
    ) -> anyhow::Result<Vec<String>> {
        writeln!(
            stdout(),
            "$ kubectl exec {pod} -c {container} -- printenv | grep GPU_DEVICE"
        )?;
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let params = AttachParams::default().container(container).stderr(false);
        let mut process = pods.exec(pod, ["printenv"], &params).await?;
        let mut output = String::new();
        let mut answer = process.stdout().context("exec gave no output")?;
        answer.read_to_string(&mut output).await?;
        process.join().await?;
        let lines: Vec<_> = output
            .lines()
            .filter(|line| line.contains("GPU_DEVICE"))
            .collect();
        for line in &lines {
            writeln!(stdout(), "{line}")?;
        }
        writeln!(stdout())?;
        let is_device = |line: &&&str| {
            let number = line
                .split('=')
                .next()
                .and_then(|name| name.strip_prefix("GPU_DEVICE_"));
            number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        Ok(lines
            .iter()
            .filter(is_device)
            .map(ToString::to_string)
            .collect())
    }

    /// `kubectl logs POD`, the lines with `word`; follows until there is one.
    pub(super) async fn logs(&self, pod: &str, word: &str) -> anyhow::Result<()> {
        use futures::{AsyncBufReadExt, TryStreamExt};
        writeln!(stdout(), "$ kubectl logs {pod} | grep {word}")?;
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let params = LogParams {
            follow: true,
            ..LogParams::default()
        };
        let mut lines = pods.log_stream(pod, &params).await?.lines();
        while let Some(line) = lines.try_next().await? {
            if line.contains(word) {
                writeln!(stdout(), "{line}\n")?;
                return Ok(());
            }
        }
        anyhow::bail!("the log has no line with {word}")
    }

    async fn api(
        &self,
        object: &DynamicObject,
    ) -> anyhow::Result<(Api<DynamicObject>, ApiResource)> {
        let types = object.types.as_ref().context("no apiVersion and kind")?;
        let kind = GroupVersionKind::try_from(types)?;
        let (resource, _) = kube::discovery::pinned_kind(&self.client, &kind).await?;
        let api = Api::default_namespaced_with(self.client.clone(), &resource);
        Ok((api, resource))
    }
}

/// The pods of the default namespace.
pub(super) fn pods(client: &Client) -> Api<DynamicObject> {
    Api::default_namespaced_with(client.clone(), &ApiResource::erase::<Pod>(&()))
}

fn runs(pod: &DynamicObject) -> bool {
    pod.data["status"]["phase"] == "Running"
}

/// Waits until a pod runs.
pub(super) async fn until_running(pods: &Api<DynamicObject>, name: &str) -> anyhow::Result<()> {
    await_condition(pods.clone(), name, |pod: Option<&DynamicObject>| {
        pod.is_some_and(runs)
    })
    .await?;
    Ok(())
}

/// Waits until a pod runs whose name begins with `prefix`, and returns the name.
pub(super) async fn running_with_prefix(
    pods: &Api<DynamicObject>,
    prefix: &str,
) -> anyhow::Result<String> {
    let mut events = std::pin::pin!(watcher::watcher(pods.clone(), watcher::Config::default()));
    while let Some(event) = events.try_next().await? {
        let (Event::Apply(pod) | Event::InitApply(pod)) = event else {
            continue;
        };
        let runs = runs(&pod);
        let name = pod.metadata.name.unwrap_or_default();
        if name.starts_with(prefix) && runs {
            return Ok(name);
        }
    }
    anyhow::bail!("the watch ended")
}

/// The objects of a manifest.
fn objects(manifest: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let documents = serde_saphyr::from_multiple::<Value>(manifest)?;
    documents
        .into_iter()
        .filter(|document| !document.is_null())
        .map(|document| Ok(serde_json::from_value(document)?))
        .collect()
}

/// `resourceclaim.resource.k8s.io/name`, as kubectl names an object.
fn qualified(resource: &ApiResource, name: &str) -> String {
    let kind = resource.kind.to_lowercase();
    match resource.group.as_str() {
        "" => format!("{kind}/{name}"),
        group => format!("{kind}.{group}/{name}"),
    }
}

/// A table as kubectl prints it: columns of priority 0, three spaces between them.
fn render(table: &Value) -> String {
    let columns: Vec<_> = table["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let shown: Vec<_> = (0..columns.len())
        .filter(|i| columns[*i]["priority"] == 0)
        .collect();
    let header = shown
        .iter()
        .map(|i| text(&columns[*i]["name"]).to_uppercase())
        .collect();
    let mut lines: Vec<Vec<String>> = vec![header];
    for row in table["rows"].as_array().into_iter().flatten() {
        lines.push(shown.iter().map(|i| text(&row["cells"][*i])).collect());
    }
    if lines.len() == 1 {
        return "No resources found in default namespace.\n".to_owned();
    }
    let widths: Vec<_> = (0..shown.len())
        .map(|i| {
            lines
                .iter()
                .map(|line| line[i].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for line in lines {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        out.push('\n');
    }
    out
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_look_like_kubectl_s() {
        let table = serde_json::json!({
            "columnDefinitions": [
                {"name": "Name", "priority": 0}, {"name": "State", "priority": 0},
                {"name": "Wide", "priority": 1}, {"name": "Age", "priority": 0}],
            "rows": [{"cells": ["a-claim", "pending", "x", "1s"]}, {"cells": ["b", "allocated", "x", "12s"]}]});
        assert_eq!(
            render(&table),
            "NAME      STATE       AGE\na-claim   pending     1s\nb         allocated   12s\n"
        );
    }

    #[test]
    fn every_example_is_read() {
        for example in super::super::EXAMPLES {
            let objects = objects(example.manifest).expect(example.file);
            assert!(objects.len() >= 2, "{}", example.file);
        }
    }
}
