//! The life of a container, as plugins are notified of it.

use allot_protos::nri::{
    PostCreateContainerRequest, PostStartContainerRequest, PostUpdateContainerRequest,
    StartContainerRequest, UpdateContainerRequest, UpdateContainerResponse,
};

use super::*;
use crate::spec::Limits;

/// An event of a container that needs no answer, with the request of its method.
macro_rules! told {
    ($event:ident, $request:ident, $pod:expr, $container:expr) => {
        Told {
            event: Event::$event,
            method: stringify!($event),
            request: $request {
                pod: Some($pod.clone()),
                container: Some($container.clone()),
            },
            pod: $pod,
            container: Some($container),
        }
    };
}

impl Nri {
    /// Asks plugins how a container is to be created. Returns what they request together.
    ///
    /// # Errors
    /// A plugin refuses the container, or two contradict each other.
    pub(crate) async fn create(&self, spec: &ContainerSpec) -> Result<Adjustments, String> {
        let plugins = self.turn().await;
        let uid = &spec.owner.pod_uid;
        let pod = self.sandbox(uid);
        let pod = pod.ok_or("NRI plugins were not told about the pod")?;
        let mut container = describe::container(spec);
        let pristine = container.clone();
        let mut entry = KnownContainer {
            container: container.clone(),
            pod: uid.clone(),
            stage: Stage::Created,
            exit: None,
        };
        entry.enter(Stage::Created);
        self.known.lock().containers.insert(spec.id.clone(), entry);
        let mut wanted = Adjustments::default();
        let mut updates = Updates::during_creation(&spec.id);
        let mut evictions = Vec::new();
        for plugin in plugins.iter() {
            let request = CreateContainerRequest {
                pod: Some(pod.clone()),
                container: Some(container.clone()),
            };
            let answer = plugin
                .ask(Event::CreateContainer, "CreateContainer", &request)
                .await;
            let answer: Option<CreateContainerResponse> =
                answer.map_err(|error| of(plugin, &error))?;
            let Some(answer) = answer else { continue };
            let name = &plugin.name;
            let added = wanted.add(&mut container, answer.adjust.unwrap_or_default(), name);
            added.map_err(|error| format!("NRI: {error}"))?;
            let added = updates.add(&answer.update, name);
            added.map_err(|error| format!("NRI: {error}"))?;
            evictions.extend(answer.evict);
        }
        let request = ValidateContainerAdjustmentRequest {
            pod: Some(pod),
            container: Some(pristine),
            adjust: Some(wanted.all.clone()),
            update: updates.all.clone(),
            owners: Some(wanted.owners.0.clone()),
            plugins: instances(&plugins),
        };
        validate(&plugins, &request).await?;
        if let Some(known) = self.known.lock().containers.get_mut(&spec.id) {
            known.container = container;
        }
        self.evict(evictions);
        self.carry_out(updates.all).await;
        Ok(wanted)
    }

    /// Tells plugins that a container has been created, and is going to be started.
    ///
    /// # Errors
    /// A plugin refuses that it starts.
    pub(crate) async fn starting(&self, id: &str) -> Result<(), String> {
        let plugins = self.turn().await;
        let Some((pod, container)) = self.container(id) else {
            return Ok(());
        };
        let (pod, container) = (&pod, &container);
        let created = told!(
            PostCreateContainer,
            PostCreateContainerRequest,
            pod,
            container
        );
        inform(&plugins, &created).await;
        let starts = told!(StartContainer, StartContainerRequest, pod, container);
        for plugin in plugins.iter() {
            plugin
                .tell(&starts)
                .await
                .map_err(|error| of(plugin, &error))?;
        }
        Ok(())
    }

    /// Tells plugins that a container has been started, and at its end that it has ended.
    pub(crate) async fn started(self: &Arc<Self>, running: &Running) {
        let plugins = self.turn().await;
        let pid = self.pid_of(&running.id);
        if let Some(known) = self.known.lock().containers.get_mut(&running.id) {
            known.enter(Stage::Running);
            known.exit = Some(running.exit.clone());
            let started = running.started.as_nanosecond();
            known.container.pid = pid;
            known.container.started_at = i64::try_from(started).unwrap_or_default();
        }
        self.watch(running.id.clone(), running.exit.clone());
        if let Some((pod, container)) = self.container(&running.id) {
            let (pod, container) = (&pod, &container);
            let told = told!(
                PostStartContainer,
                PostStartContainerRequest,
                pod,
                container
            );
            inform(&plugins, &told).await;
        }
    }

    /// Tells plugins that a container has ended, as soon as it has.
    pub(in crate::nri) fn watch(
        self: &Arc<Self>,
        id: String,
        mut exit: watch::Receiver<Option<Exit>>,
    ) {
        let nri = Arc::clone(self);
        tokio::spawn(async move {
            tokio::select! {
                _ = runtime::ended(&mut exit) => {}
                () = nri.shutdown.cancelled() => return,
            }
            let plugins = nri.turn().await;
            nri.stop_container(&plugins, &id).await;
        });
    }

    /// Tells plugins that a container is removed, in the background.
    pub(crate) fn removed(self: &Arc<Self>, id: &str) {
        if !self.known.lock().containers.contains_key(id) {
            return;
        }
        let (nri, id) = (Arc::clone(self), id.to_owned());
        tokio::spawn(async move {
            let plugins = nri.turn().await;
            nri.remove_container(&plugins, &id).await;
        });
    }

    /// Asks plugins about other limits of a running container. Returns the limits that it is to get.
    ///
    /// # Errors
    /// A plugin refuses, or requests what cannot be done.
    pub(crate) async fn update(&self, id: &str, limits: Limits) -> Result<Limits, String> {
        let plugins = self.turn().await;
        let Some((pod, container)) = self.container(id) else {
            return Ok(limits);
        };
        let current = resources::described(&limits);
        let mut updates = Updates::of(id, current.clone());
        let mut evictions = Vec::new();
        for plugin in plugins.iter() {
            let request = UpdateContainerRequest {
                pod: Some(pod.clone()),
                container: Some(container.clone()),
                linux_resources: updates.all.first().map(resources_of),
            };
            let answer = plugin
                .ask(Event::UpdateContainer, "UpdateContainer", &request)
                .await;
            let answer: Option<UpdateContainerResponse> =
                answer.map_err(|error| of(plugin, &error))?;
            let Some(answer) = answer else { continue };
            let added = updates.add(&answer.update, &plugin.name);
            added.map_err(|error| format!("NRI: {error}"))?;
            evictions.extend(answer.evict);
        }
        let mut all = updates.all.into_iter();
        let own = all.next().map(|own| resources_of(&own)).unwrap_or_default();
        let mut wanted = limits;
        if own != current {
            let enforced = self.runtime.enforces_limits();
            let set = resources::limits(&own, enforced, &mut wanted);
            set.map_err(|it| {
                let what = super::super::owners::called(it.field, it.entry.as_deref());
                format!("NRI plugins require {what}: {}", it.reason)
            })?;
        }
        self.evict(evictions);
        self.carry_out(all.collect()).await;
        Ok(wanted)
    }

    /// Tells plugins that a container has other limits.
    pub(crate) async fn updated(&self, id: &str, limits: &Limits) {
        let plugins = self.turn().await;
        self.changed(id, &resources::described(limits));
        if let Some((pod, container)) = self.container(id) {
            let (pod, container) = (&pod, &container);
            let told = told!(
                PostUpdateContainer,
                PostUpdateContainerRequest,
                pod,
                container
            );
            inform(&plugins, &told).await;
        }
    }

    /// Tells plugins that a container has ended, unless they were told. They can update others.
    pub(super) async fn stop_container(&self, plugins: &Plugins, id: &str) {
        {
            let mut known = self.known.lock();
            let known = known.containers.get_mut(id);
            let Some(known) = known.filter(|it| it.stage != Stage::Stopped) else {
                return;
            };
            known.enter(Stage::Stopped);
            let exit = known.exit.as_ref().and_then(|exit| exit.borrow().clone());
            if let Some(exit) = exit {
                let finished = exit.finished.as_nanosecond();
                known.container.exit_code = exit.code;
                known.container.finished_at = i64::try_from(finished).unwrap_or_default();
            }
        }
        let Some((pod, container)) = self.container(id) else {
            return;
        };
        let request = StopContainerRequest {
            pod: Some(pod),
            container: Some(container),
        };
        let mut updates = Updates::default();
        for plugin in plugins {
            let answer = plugin
                .ask(Event::StopContainer, "StopContainer", &request)
                .await;
            let answer: Result<Option<StopContainerResponse>, _> = answer;
            let added = match answer {
                Ok(Some(answer)) => updates.add(&answer.update, &plugin.name),
                Ok(None) => Ok(()),
                Err(error) => {
                    tracing::warn!(plugin = plugin.name, %error, "an NRI plugin reports an error");
                    Ok(())
                }
            };
            if let Err(error) = added {
                tracing::warn!(plugin = plugin.name, %error, "an NRI plugin is contradicted");
            }
        }
        self.carry_out(updates.all).await;
    }

    /// Tells plugins that a container is gone, unless they were told.
    pub(super) async fn remove_container(&self, plugins: &Plugins, id: &str) {
        self.stop_container(plugins, id).await;
        let known = self.container(id);
        self.known.lock().containers.remove(id);
        if let Some((pod, container)) = known {
            let (pod, container) = (&pod, &container);
            let told = told!(RemoveContainer, RemoveContainerRequest, pod, container);
            inform(plugins, &told).await;
        }
    }
}

fn instances(plugins: &Plugins) -> Vec<PluginInstance> {
    let all = plugins.iter().map(|plugin| PluginInstance {
        name: plugin.base.clone(),
        index: plugin.index.clone(),
    });
    all.collect()
}

/// Asks the plugins that check what others request, all at the same time.
async fn validate(
    plugins: &Plugins,
    request: &ValidateContainerAdjustmentRequest,
) -> Result<(), String> {
    let event = Event::ValidateContainerAdjustment;
    let validators = plugins
        .iter()
        .filter(|it| it.wants(event) && !it.connection.is_closed());
    let checks = validators.map(|plugin| async move {
        let answer = plugin
            .ask(event, "ValidateContainerAdjustment", request)
            .await;
        let answer: Result<Option<ValidateContainerAdjustmentResponse>, _> = answer;
        match answer {
            Ok(Some(answer)) if answer.reject => Err(of(
                plugin,
                &format_args!("it rejects the adjustment: {}", answer.reason),
            )),
            Ok(Some(_)) => Ok(()),
            // Nothing is permitted that was not checked.
            Ok(None) => Err(of(plugin, &"it has not checked the adjustment")),
            Err(error) => Err(of(plugin, &error)),
        }
    });
    join_all(checks).await.into_iter().collect()
}
