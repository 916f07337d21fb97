//! One plugin: its registration, its subscriptions, and the calls of its methods.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use allot_protos::nri::{
    ConfigureRequest, ConfigureResponse, Container, ContainerUpdate, Empty, Event, PodSandbox,
    RegisterPluginRequest, StateChangeEvent, SynchronizeRequest, SynchronizeResponse,
};
use parking_lot::Mutex;
use prost::Message as _;

use super::connection::{CallError, Connection, UNIMPLEMENTED};
use super::{REGISTRATION, REQUEST};

/// The version of the interface, whose messages these are.
const VERSION: &str = "v0.12.1";
/// Every event that there is, as a set of bits.
const ALL: i32 = (1 << (Event::Last as i32 - 1)) - 1;
/// Bytes of one message with pods and containers; ttrpc permits a little more.
const CHUNK: usize = 3 << 20;
/// The longest name of a plugin: it is in messages and events.
const LONGEST_NAME: usize = 128;

/// A plugin whose answer cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PluginError {
    /// It subscribes to events that do not exist.
    #[error("it subscribes to unknown events: {0:#x}")]
    Events(i32),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Containers are being started, or another plugin joins.
    #[error("it could not join within {} seconds: containers are being started", super::JOIN.as_secs())]
    Busy,
    /// It takes one message for everything.
    #[error("it does not take pods and containers in several messages")]
    Split,
}

/// A plugin that has registered.
pub(super) struct Plugin {
    /// The index that decides the order.
    pub(super) index: String,
    /// The name without the index.
    pub(super) base: String,
    /// Index and name, as in messages.
    pub(super) name: String,
    events: i32,
    pub(super) connection: Arc<Connection>,
    /// Methods that it does not have: it is told by `StateChange`.
    missing: Mutex<BTreeSet<&'static str>>,
}

/// What a plugin is called by. Only upstream's characters, of which two are the index.
///
/// # Errors
/// The text for the plugin.
pub(super) fn check_name(request: &RegisterPluginRequest) -> Result<(), String> {
    let (name, index) = (&request.plugin_name, &request.plugin_idx);
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"-_.+".contains(&it);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
        return Err("invalid plugin name".to_owned());
    }
    match index.len() == 2 && index.bytes().all(|it| it.is_ascii_digit()) {
        true => Ok(()),
        false => Err("invalid plugin index, must be 2 digits".to_owned()),
    }
}

impl Plugin {
    /// Configures a plugin that has registered.
    ///
    /// # Errors
    /// It cannot be used.
    pub(super) async fn configure(
        connection: Arc<Connection>,
        registered: RegisterPluginRequest,
    ) -> Result<Self, PluginError> {
        let millis = |it: Duration| i64::try_from(it.as_millis()).unwrap_or_default();
        let request = ConfigureRequest {
            config: String::new(),
            runtime_name: "allot".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            registration_timeout: millis(REGISTRATION),
            request_timeout: millis(REQUEST),
            nri_version: VERSION.to_owned(),
        };
        let answer: ConfigureResponse = connection.call("Configure", &request, REQUEST).await?;
        let events = match answer.events {
            0 => ALL,
            events if events & !ALL != 0 => return Err(PluginError::Events(events)),
            events => events,
        };
        Ok(Self {
            name: format!("{}-{}", registered.plugin_idx, registered.plugin_name),
            index: registered.plugin_idx,
            base: registered.plugin_name,
            events,
            connection,
            missing: Mutex::default(),
        })
    }

    /// Whether it subscribes to an event.
    pub(super) fn wants(&self, event: Event) -> bool {
        self.events & (1 << (event as i32 - 1)) != 0
    }

    /// Tells the plugin all pods and containers, in as many messages as it takes. Returns what it updates.
    ///
    /// # Errors
    /// It cannot be used.
    pub(super) async fn synchronize(
        &self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Result<Vec<ContainerUpdate>, PluginError> {
        let work = async {
            let mut requests = chunks(pods, containers).into_iter().peekable();
            while let Some(mut request) = requests.next() {
                request.more = requests.peek().is_some();
                let answer: SynchronizeResponse = self
                    .connection
                    .call("Synchronize", &request, REQUEST)
                    .await?;
                if !request.more {
                    return Ok(answer.update);
                }
                if !answer.more || !answer.update.is_empty() {
                    return Err(PluginError::Split);
                }
            }
            Ok(Vec::new())
        };
        // As upstream, all messages together have the time of one request.
        match tokio::time::timeout(REQUEST, work).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Late(REQUEST).into()),
        }
    }

    /// Calls a method if the plugin subscribes to its event. A plugin that cannot be used any longer is closed, and has nothing to
    /// say: what it is asked about continues.
    ///
    /// # Errors
    /// The words in which the plugin refuses.
    pub(super) async fn ask<Q: prost::Message, A: prost::Message + Default>(
        &self,
        event: Event,
        method: &'static str,
        request: &Q,
    ) -> Result<Option<A>, CallError> {
        if !self.wants(event) || self.connection.is_closed() {
            return Ok(None);
        }
        match self.connection.call(method, request, REQUEST).await {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.is_fatal() => {
                tracing::warn!(plugin = self.name, method, %error, "an NRI plugin is closed");
                self.connection.close();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Tells the plugin an event that needs no answer. Plugins of older versions have one method for all of them.
    ///
    /// # Errors
    /// The words in which the plugin refuses.
    pub(super) async fn tell<Q: prost::Message>(
        &self,
        told: &Told<'_, Q>,
    ) -> Result<(), CallError> {
        let Told { event, method, .. } = *told;
        if !self.missing.lock().contains(method) {
            let answer = self.ask::<Q, Empty>(event, method, &told.request).await;
            match answer {
                Err(CallError::Refused { code, .. }) if code == UNIMPLEMENTED => {
                    self.missing.lock().insert(method);
                }
                answer => return answer.map(drop),
            }
        }
        let change = StateChangeEvent {
            event: event as i32,
            pod: Some(told.pod.clone()),
            container: told.container.cloned(),
        };
        let answer = self.ask::<_, Empty>(event, "StateChange", &change).await;
        answer.map(drop)
    }
}

/// An event that needs no answer.
pub(super) struct Told<'a, Q> {
    pub(super) event: Event,
    pub(super) method: &'static str,
    pub(super) request: Q,
    pub(super) pod: &'a PodSandbox,
    pub(super) container: Option<&'a Container>,
}

/// Pods and containers in messages that are not too long. There is at least one, also without any of them.
fn chunks(pods: Vec<PodSandbox>, containers: Vec<Container>) -> Vec<SynchronizeRequest> {
    let mut all = vec![SynchronizeRequest::default()];
    let mut size = 0;
    let mut next = |all: &mut Vec<SynchronizeRequest>, length: usize| {
        size += length;
        if size > CHUNK && size != length {
            all.push(SynchronizeRequest::default());
            size = length;
        }
    };
    for pod in pods {
        next(&mut all, pod.encoded_len() + 8);
        if let Some(last) = all.last_mut() {
            last.pods.push(pod);
        }
    }
    for container in containers {
        next(&mut all, container.encoded_len() + 8);
        if let Some(last) = all.last_mut() {
            last.containers.push(container);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_indexes_are_upstreams() {
        let check = |name: &str, index: &str| {
            check_name(&RegisterPluginRequest {
                plugin_name: name.to_owned(),
                plugin_idx: index.to_owned(),
                nri_version: String::new(),
            })
        };
        assert_eq!(check("dra.net-1_a+b", "00"), Ok(()));
        for (name, index) in [
            ("", "00"),
            ("a b", "00"),
            ("a/b", "00"),
            ("a", ""),
            ("a", "1"),
            ("a", "1x"),
            ("a", "100"),
            ("a", "٣"),
        ] {
            assert!(check(name, index).is_err(), "{name:?} {index:?}");
        }
        assert!(check(&"a".repeat(LONGEST_NAME + 1), "00").is_err());
    }

    #[test]
    fn what_is_too_long_for_a_message_is_split() {
        assert_eq!(chunks(Vec::new(), Vec::new()).len(), 1);
        let pod = |length: usize| PodSandbox {
            id: "x".repeat(length),
            ..PodSandbox::default()
        };
        let container = Container {
            args: vec!["y".repeat(1 << 20)],
            ..Container::default()
        };
        let all = chunks(vec![pod(10); 3], vec![container; 5]);
        assert_eq!(all.len(), 3);
        assert!(all.iter().all(|it| it.encoded_len() <= CHUNK));
        assert_eq!(all.iter().map(|it| it.pods.len()).sum::<usize>(), 3);
        assert_eq!(all.iter().map(|it| it.containers.len()).sum::<usize>(), 5);
        // One that is too long by itself does not stop those after it from being counted.
        assert_eq!(chunks(vec![pod(CHUNK + 1), pod(1)], Vec::new()).len(), 2);
    }
}
