//! Connections of plugins, well-behaved and hostile ones.

use allot_protos::nri::{
    ConfigureRequest, ConfigureResponse, ContainerAdjustment, CreateContainerRequest,
    CreateContainerResponse, Empty, Event, KeyValue, RegisterPluginRequest, StateChangeEvent,
    SynchronizeRequest, SynchronizeResponse, ValidateContainerAdjustmentRequest,
    ValidateContainerAdjustmentResponse,
};
use allot_protos::ttrpc::{Request, Response, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::connection::{UNIMPLEMENTED, refuse};
use super::frames::{Message, PLUGIN, REQUEST as CALL, RESPONSE, RUNTIME, Reader, encode};
use super::*;
use crate::runtime::Simulated;
use crate::spec::Owner;

mod hostile;
mod joins;

/// A node without containers of its own.
struct Node {
    directory: tempfile::TempDir,
    nri: Arc<Nri>,
    _serving: tokio::task::JoinHandle<()>,
}

impl Node {
    async fn new() -> Self {
        Self::with(Arc::new(Simulated::default())).await
    }

    async fn with(runtime: DynRuntime) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let nowhere = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            let error = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            Err::<http::Response<kube::client::Body>, _>(error)
        });
        let client = kube::Client::new(nowhere, "default");
        let nri = Arc::new(Nri {
            config: Config::new("n", directory.path()),
            runtime,
            recorder: Recorder::new(client, "n".to_owned()),
            shutdown: CancellationToken::new(),
            plugins: tokio::sync::Mutex::default(),
            known: Mutex::default(),
            plugin_sync: Arc::default(),
            adopted: SetOnce::new_with(Some(())),
            places: Arc::new(Semaphore::new(MOST_PLUGINS)),
        });
        let listener = Listener::bind(&directory.path().join("run/nri.sock")).await;
        let listener = listener.expect("a socket");
        let serving = tokio::spawn(Arc::clone(&nri).serve(listener));
        Self {
            directory,
            nri,
            _serving: serving,
        }
    }

    async fn connect(&self) -> UnixStream {
        let path = self.directory.path().join("run/nri.sock");
        UnixStream::connect(path).await.expect("a connection")
    }

    /// A pod that plugins are notified of.
    async fn pod(&self, uid: &str) -> Result<(), String> {
        self.nri.run_pod(describe::sandbox_of(&owner(uid))).await
    }

    /// Waits until so many plugins have joined.
    async fn until_joined(&self, count: usize) {
        allot_testing::wait::until("plugins join", || async {
            match self.nri.turn().await.len() {
                found if found == count => Ok(()),
                found => Err(found),
            }
        })
        .await;
    }
}

fn owner(uid: &str) -> Owner {
    Owner {
        pod_uid: uid.to_owned(),
        pod_namespace: "ns".to_owned(),
        pod_name: "p".to_owned(),
        container: "c".to_owned(),
        attempt: 0,
    }
}

fn container(uid: &str, id: &str) -> ContainerSpec {
    ContainerSpec {
        id: id.to_owned(),
        owner: owner(uid),
        ..ContainerSpec::default()
    }
}

/// A plugin of these tests.
struct Fake {
    reader: Reader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// The methods that were called.
    called: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    async fn say(&mut self, conversation: u32, call: u32, kind: u8, content: Vec<u8>) {
        let message = Message {
            call,
            kind,
            content,
        };
        let frames = encode(conversation, &message);
        self.writer.write_all(&frames).await.expect("written");
    }

    /// Calls the agent.
    async fn call(&mut self, call: u32, method: &str, payload: Vec<u8>) {
        let request = Request {
            service: RUNTIME_SERVICE.to_owned(),
            method: method.to_owned(),
            payload,
            ..Request::default()
        };
        self.say(RUNTIME, call, CALL, request.encode_to_vec()).await;
    }

    /// The next call of the agent; `None` at the end.
    async fn next(&mut self) -> Option<(u32, String, Vec<u8>)> {
        loop {
            let (conversation, message) = self.reader.next().await.ok()??;
            if conversation == PLUGIN && message.kind == CALL {
                let request = Request::decode(&*message.content).expect("a request");
                assert_eq!(request.service, PLUGIN_SERVICE);
                self.called.lock().push(request.method.clone());
                return Some((message.call, request.method, request.payload));
            }
        }
    }

    async fn answer(&mut self, call: u32, answer: Result<Vec<u8>, Status>) {
        let response = match answer {
            Ok(payload) => Response {
                payload,
                status: None,
            },
            Err(status) => Response {
                payload: Vec::new(),
                status: Some(status),
            },
        };
        self.say(PLUGIN, call, RESPONSE, response.encode_to_vec())
            .await;
    }

    /// Registers a plugin and answers until it was told all pods. Returns what it was told.
    async fn register(node: &Node, index: &str, events: i32) -> (Self, Vec<SynchronizeRequest>) {
        let (reader, writer) = node.connect().await.into_split();
        let mut this = Self {
            reader: Reader::new(reader),
            writer,
            called: Arc::default(),
        };
        let wanted = RegisterPluginRequest {
            plugin_name: "fake".to_owned(),
            plugin_idx: index.to_owned(),
            nri_version: String::new(),
        };
        this.call(1, "RegisterPlugin", wanted.encode_to_vec()).await;
        let mut told = Vec::new();
        loop {
            let (call, method, payload) = this.next().await.expect("a call");
            if method == "Configure" {
                let request = ConfigureRequest::decode(&*payload).expect("a request");
                assert_eq!(request.request_timeout, 2000);
                let answer = ConfigureResponse { events };
                this.answer(call, Ok(answer.encode_to_vec())).await;
                continue;
            }
            assert_eq!(method, "Synchronize");
            let request = SynchronizeRequest::decode(&*payload).expect("a request");
            let answer = SynchronizeResponse {
                more: request.more,
                ..SynchronizeResponse::default()
            };
            this.answer(call, Ok(answer.encode_to_vec())).await;
            let more = request.more;
            told.push(request);
            if !more {
                return (this, told);
            }
        }
    }

    /// Answers every call, in the background.
    fn serve(
        mut self,
        mut answer: impl FnMut(&str, &[u8]) -> Result<Vec<u8>, Status> + Send + 'static,
    ) -> Arc<Mutex<Vec<String>>> {
        let called = Arc::clone(&self.called);
        tokio::spawn(async move {
            while let Some((call, method, payload)) = self.next().await {
                let answer = answer(&method, &payload);
                self.answer(call, answer).await;
            }
        });
        called
    }
}

/// A plugin that adds a variable with the number of variables that it sees.
fn counts(name: &'static str) -> impl FnMut(&str, &[u8]) -> Result<Vec<u8>, Status> + Send {
    move |method, payload| {
        if method != "CreateContainer" {
            return Ok(Vec::new());
        }
        let request = CreateContainerRequest::decode(payload).expect("a request");
        let seen = request.container.unwrap_or_default().env.len();
        let answer = CreateContainerResponse {
            adjust: Some(ContainerAdjustment {
                env: vec![KeyValue {
                    key: name.to_owned(),
                    value: seen.to_string(),
                }],
                ..ContainerAdjustment::default()
            }),
            ..CreateContainerResponse::default()
        };
        Ok(answer.encode_to_vec())
    }
}

const fn bit(event: Event) -> i32 {
    1 << (event as i32 - 1)
}

#[tokio::test]
async fn plugins_are_told_and_asked_in_the_order_of_their_indexes() {
    let node = Node::new().await;
    node.pod("u1").await.expect("a pod");
    let all = bit(Event::CreateContainer) | bit(Event::StopContainer) | bit(Event::RemoveContainer);
    let (late, told) = Fake::register(&node, "20", all).await;
    assert_eq!(told[0].pods[0].uid, "u1");
    let (early, _) = Fake::register(&node, "05", bit(Event::CreateContainer)).await;
    node.until_joined(2).await;
    let (late, early) = (late.serve(counts("LATE")), early.serve(counts("EARLY")));
    let wanted = node
        .nri
        .create(&container("u1", "c1"))
        .await
        .expect("asked");
    let text = |it: &KeyValue| format!("{}={}", it.key, it.value);
    let env: Vec<String> = wanted.all.env.iter().map(text).collect();
    assert_eq!(env, ["EARLY=0", "LATE=1"]);
    // A pod that is gone: its containers end first, and each event is sent once.
    node.nri.stop_pod("u1").await;
    node.nri.forget_pod("u1").await;
    let of_setup = ["Configure", "Synchronize"];
    let expected = [
        &of_setup[..],
        &["CreateContainer", "StopContainer", "RemoveContainer"],
    ];
    assert_eq!(*late.lock(), expected.concat());
    assert_eq!(
        *early.lock(),
        [&of_setup[..], &["CreateContainer"]].concat()
    );
    assert!(node.nri.pods().is_empty());
}

#[tokio::test]
async fn a_plugin_that_connects_again_is_told_everything_again_in_parts() {
    let node = Node::new().await;
    node.pod("u1").await.expect("a pod");
    let mut large = container("u1", "c1");
    large.env = vec![format!("A={}", "x".repeat(2 << 20))];
    node.nri.create(&large).await.expect("no plugin is asked");
    large.id = "c2".to_owned();
    node.nri.create(&large).await.expect("no plugin is asked");
    for _ in 0..2 {
        let (plugin, told) = Fake::register(&node, "00", 0).await;
        node.until_joined(1).await;
        assert_eq!(told.iter().map(|it| it.pods.len()).sum::<usize>(), 1);
        let ids = told
            .iter()
            .flat_map(|it| &it.containers)
            .map(|it| it.id.as_str());
        assert_eq!(ids.collect::<Vec<_>>(), ["c1", "c2"]);
        assert_eq!(
            told.iter().map(|it| it.more).collect::<Vec<_>>(),
            [true, false]
        );
        drop(plugin);
        node.until_joined(0).await;
    }
    // The next agent knows which pods were told.
    let pods = node.nri.pods();
    std::mem::take(&mut *node.nri.known.lock());
    node.nri.read_records();
    assert_eq!(node.nri.pods(), pods);
}

#[tokio::test]
async fn a_plugin_that_does_not_answer_is_closed_and_containers_go_on() {
    let node = Node::new().await;
    node.pod("u1").await.expect("a pod");
    let (mut silent, _) = Fake::register(&node, "00", 0).await;
    node.until_joined(1).await;
    let (other, _) = Fake::register(&node, "01", 0).await;
    node.until_joined(2).await;
    let mut counts = counts("OTHER");
    // The check of the adjustment has its own answer.
    other.serve(move |method, payload| match method {
        "ValidateContainerAdjustment" => Ok(Vec::new()),
        _ => counts(method, payload),
    });
    let started = tokio::time::Instant::now();
    let wanted = node.nri.create(&container("u1", "c1")).await;
    assert_eq!(wanted.expect("the others are asked").all.env.len(), 1);
    assert!(started.elapsed() < 3 * REQUEST);
    node.until_joined(1).await;
    while silent.next().await.is_some() {}
}

/// Its socket stayed open until the next event: it connected again too late to adjust the container of that event.
#[tokio::test]
async fn regression_a_plugin_that_is_closed_learns_it_before_the_next_event() {
    let node = Node::new().await;
    let (mut plugin, _) = Fake::register(&node, "00", 0).await;
    node.until_joined(1).await;
    // Neither a call nor an answer.
    plugin.say(RUNTIME, 3, 77, Vec::new()).await;
    let ended = tokio::time::timeout(allot_testing::wait::PATIENCE, plugin.next()).await;
    assert!(ended.expect("the end in time").is_none());
}

#[tokio::test]
async fn refusals_are_in_the_words_of_the_plugin_and_its_name() {
    let node = Node::new().await;
    node.pod("u1").await.expect("a pod");
    let (plugin, _) = Fake::register(&node, "07", 0).await;
    node.until_joined(1).await;
    let called = plugin.serve(|method, payload| match method {
        "CreateContainer" => Ok(Vec::new()),
        "ValidateContainerAdjustment" => {
            let request = ValidateContainerAdjustmentRequest::decode(payload);
            let plugins = request.expect("a request").plugins;
            assert_eq!(
                (plugins[0].name.as_str(), plugins[0].index.as_str()),
                ("fake", "07")
            );
            let answer = ValidateContainerAdjustmentResponse {
                reject: true,
                reason: "not that".to_owned(),
            };
            Ok(answer.encode_to_vec())
        }
        "StopPodSandbox" | "RemovePodSandbox" => Ok(Vec::new()),
        _ => Err(refuse(2, "no room")),
    });
    let refused = node
        .nri
        .create(&container("u1", "c1"))
        .await
        .expect_err("refused");
    assert_eq!(
        refused,
        r#"NRI plugin "07-fake": it rejects the adjustment: not that"#
    );
    let refused = node.pod("u2").await.expect_err("refused");
    assert_eq!(refused, r#"NRI plugin "07-fake": no room"#);
    let all = called.lock().clone();
    let expected = ["RunPodSandbox", "StopPodSandbox", "RemovePodSandbox"];
    assert_eq!(all[all.len() - 3..], expected);
    assert_eq!(node.nri.pods(), ["u1"]);
}

#[tokio::test]
async fn plugins_of_older_versions_have_one_method_for_events() {
    let node = Node::new().await;
    let (plugin, _) = Fake::register(&node, "00", bit(Event::RunPodSandbox)).await;
    node.until_joined(1).await;
    let called = plugin.serve(|method, payload| match method {
        "StateChange" => {
            let change = StateChangeEvent::decode(payload).expect("a request");
            assert_eq!(change.event, Event::RunPodSandbox as i32);
            assert!(change.pod.is_some() && change.container.is_none());
            Ok(Empty::default().encode_to_vec())
        }
        _ => Err(refuse(UNIMPLEMENTED, "unknown method")),
    });
    node.pod("u1").await.expect("told");
    node.pod("u2").await.expect("told");
    let expected = ["RunPodSandbox", "StateChange", "StateChange"];
    assert_eq!(called.lock()[2..], expected);
}

#[test]
fn other_runtimes_have_no_socket() {
    for (runtime, nodes, expected) in [
        (RuntimeKind::Cri, 1, "a socket of its own"),
        (RuntimeKind::Simulated, 1, "no containers"),
        (RuntimeKind::Auto, 2, "for one node"),
    ] {
        let error = check_nri(runtime, nodes).expect_err("refused").to_string();
        assert!(
            error.starts_with("--nri-socket: ") && error.contains(expected),
            "{error}"
        );
    }
    assert!(check_nri(RuntimeKind::Process, 1).is_ok());
}
