//! Containers where the agent is not root: in a user namespace, and as plain processes where the kernel refuses
//! namespaces.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Api;
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};

use super::harness::{ALLOT, Directory, PATIENCE, Up, directory, example};

/// The user and group "nobody".
const NOBODY: u32 = 65534;

fn works(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// A command that runs a program without root's rights.
fn unprivileged(program: &Path) -> Command {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(program);
    command
}

/// A directory for the unprivileged user, and the binary at a place where that user can run it.
fn prepare() -> (Directory, PathBuf) {
    let scratch = directory();
    // Only root may give it away, and needs to.
    let _ = chown(scratch.path(), Some(NOBODY), Some(NOBODY));
    if works(unprivileged(Path::new(ALLOT)).arg("--version")) {
        return (scratch, ALLOT.into());
    }
    let copy = scratch.path().join("allot");
    std::fs::copy(ALLOT, &copy).expect("copied");
    (scratch, copy)
}

/// The condition that says how far containers are isolated: its status and message.
async fn isolation(up: &Up) -> (String, String) {
    let node = Api::<Node>::all(up.client.clone())
        .get("node-0")
        .await
        .expect("the node");
    let conditions = node.status.and_then(|status| status.conditions);
    let isolation = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "ContainerIsolation")
        .expect("the condition");
    (isolation.status, isolation.message.unwrap_or_default())
}

const PODS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {word: hello}
---
apiVersion: v1
kind: Pod
metadata: {name: looker, labels: {app: looker}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: host
    command: ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"]
    volumeMounts:
    - {name: words, mountPath: /etc/allot-test/words}
    - {name: empty, mountPath: /data}
  volumes:
  - {name: words, configMap: {name: words}}
  - {name: empty, emptyDir: {}}
---
apiVersion: v1
kind: Pod
metadata: {name: somebody}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: host
    command: ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"]
    securityContext: {runAsUser: 1234, runAsGroup: 4321}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_unprivileged_user_s_containers_run_in_user_namespaces() {
    let namespaces = ["-U", "-r", "-m", "-p", "-f", "-i", "-u", "true"];
    if !works(unprivileged(Path::new("unshare")).args(namespaces)) {
        eprintln!("skipped: this machine refuses user namespaces to unprivileged users");
        return;
    }
    let (scratch, program) = prepare();
    let data = scratch.path().join("data");
    let data = data.to_str().expect("UTF-8");
    let up = Up::launch_by(unprivileged(&program), &["--data-dir", data]).await;
    let (status, message) = isolation(&up).await;
    assert_eq!(status, "False");
    assert_eq!(
        message,
        "containers run as the agent's user in a user namespace"
    );

    up.create(&example("example_resourceclaimtemplate.yaml"))
        .await;
    up.create(&example("example_claim_po.yaml")).await;
    up.create(PODS).await;
    for pod in ["example-claim", "looker", "somebody"] {
        up.running(pod).await;
    }
    assert_eq!(up.gpus("example-claim", "ctr").await.len(), 1);
    let check = async |pod: &str, script: &str, expected: &str| {
        let printed = up.exec(pod, "main", &["sh", "-c", script]).await;
        assert_eq!(printed.trim(), expected, "{script}");
    };
    check("looker", "id -u; hostname", "0\nlooker").await;
    check("somebody", "id -u; id -g", "1234\n4321").await;
    check("looker", "cat /etc/allot-test/words/word", "hello").await;
    // The rest of the directory that the volume needed a place in is still there.
    check("looker", "test -r /etc/passwd && echo there", "there").await;
    let own = "echo x > /data/x && echo x > /tmp/allot-rootless-x && mkdir /new && echo written";
    check("looker", own, "written").await;
    assert!(!Path::new("/tmp/allot-rootless-x").exists() && !Path::new("/new").exists());
    check(
        "looker",
        "touch /usr/x 2> /dev/null || echo refused",
        "refused",
    )
    .await;
    // Processes of the host, and the cluster's keys, are out of sight.
    check(
        "looker",
        "cat /proc/1/cmdline | tr '\\0' ' ' | cut -d' ' -f2",
        "node-shim",
    )
    .await;
    check(
        "looker",
        &format!("ls {data}/pki 2> /dev/null || echo hidden"),
        "hidden",
    )
    .await;
    assert!(up.stop());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_namespaces_are_refused_containers_are_plain_processes() {
    // A user namespace in which no further ones can be made stands for such a machine.
    let refuse = "for kind in user mnt pid ipc uts; do echo 0 > /proc/sys/user/max_${kind}_namespaces || exit 1; done";
    let script = format!("{refuse}; exec \"$@\"");
    let wrapper = ["-U", "-r", "sh", "-c", &script, "sh"];
    if !works(Command::new("unshare").args(wrapper).arg("true")) {
        eprintln!("skipped: namespaces cannot be refused for a test on this machine");
        return;
    }
    let scratch = directory();
    let mut command = Command::new("unshare");
    command.args(wrapper).arg(ALLOT);
    let data = scratch.path().to_str().expect("UTF-8");
    let up = Up::launch_by(command, &["--data-dir", data]).await;
    let (status, message) = isolation(&up).await;
    assert_eq!(status, "False");
    assert!(
        message.starts_with("namespaces are not permitted here"),
        "{message}"
    );
    let only = watcher::Config::default().fields("involvedObject.kind=Node,type=Warning");
    let mut events =
        Box::pin(watcher(Api::<Event>::all(up.client.clone()), only).applied_objects());
    let told = async {
        while let Some(event) = events.next().await {
            let text = event.expect("watch").message.unwrap_or_default();
            if text.contains("namespaces are not permitted here") {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, told)
        .await
        .expect("an event says so");

    up.create(&example("example_resourceclaimtemplate.yaml"))
        .await;
    up.create(&example("example_claim_po.yaml")).await;
    up.running("example-claim").await;
    assert_eq!(up.gpus("example-claim", "ctr").await.len(), 1);
    let pods = up.pods();
    pods.delete("example-claim", &Default::default())
        .await
        .expect("deleted");
    let gone = await_condition(pods, "example-claim", |pod: Option<&Pod>| pod.is_none());
    tokio::time::timeout(PATIENCE, gone)
        .await
        .expect("the pod ends")
        .expect("watch");
    assert!(up.stop());
}
