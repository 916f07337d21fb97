//! Containers that a test starts through the shim, without an agent.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use allot_node::shim::spec::{self, Answer, ContainerSpec, ExecSpec, Exit, Isolation, State};

/// The user that runs the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAs {
    Root,
    Nobody,
    /// A user that no other test uses, for limits that the kernel counts per user. Needs root.
    UnsharedUser,
    /// A further user, for counting processes.
    Counted,
    /// A user that may have only a few processes: [`FEW`]. Needs root.
    FewProcesses,
}

/// Processes that [`RunAs::FewProcesses`] may have.
const FEW: u32 = 48;

impl RunAs {
    /// The ID of the user, if it is not the one that runs the tests.
    fn other(self) -> Option<u32> {
        let id = match self {
            Self::Root => return None,
            Self::Nobody => 65534,
            Self::UnsharedUser => 65533,
            Self::Counted => 65531,
            Self::FewProcesses => 65532,
        };
        rustix::process::geteuid().is_root().then_some(id)
    }
}

/// What the shim's command `probe` reports.
#[derive(serde::Deserialize, Clone, Copy)]
pub struct Machine {
    pub isolation: Isolation,
    pub cgroups: bool,
}

/// The shim in a directory where every user can execute it.
fn helper() -> PathBuf {
    static COPY: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = COPY.get_or_init(|| {
        let directory = open_directory();
        let path = directory.path().join("shim");
        fs::copy(env!("CARGO_BIN_EXE_allot-node-shim"), &path).expect("a copy");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
        (directory, path)
    });
    path.clone()
}

fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
    directory
}

fn command(user: RunAs) -> Command {
    let mut command = without_environment(user);
    // As the agent starts it.
    command.env_clear();
    command
}

fn without_environment(user: RunAs) -> Command {
    program_of(user, &helper())
}

/// A command that runs a program as a user.
pub fn program_of(user: RunAs, program: &Path) -> Command {
    let Some(id) = user.other() else {
        return Command::new(program);
    };
    let mut command = Command::new("/usr/bin/setpriv");
    command.args([
        format!("--reuid={id}"),
        format!("--regid={id}"),
        "--clear-groups".to_owned(),
    ]);
    if user == RunAs::FewProcesses {
        command.args(["prlimit".to_owned(), format!("--nproc={FEW}")]);
    }
    command.arg(program);
    command
}

/// Creates a directory that belongs to the user.
fn own(user: RunAs, path: &Path) {
    fs::create_dir_all(path).expect("a directory");
    if let Some(id) = user.other() {
        chown(path, Some(id), Some(id)).expect("chown");
    }
}

/// The isolation that the machine supports for a user. `None` if it supports none; this prints that the test is skipped.
pub fn machine(user: RunAs) -> Option<Machine> {
    if user != RunAs::Nobody && !rustix::process::geteuid().is_root() {
        eprintln!("skipped: not root");
        return None;
    }
    let directory = open_directory();
    let trial = directory.path().join("probe");
    own(user, &trial);
    let output = command(user)
        .arg("probe")
        .arg(&trial)
        .output()
        .expect("a helper");
    let machine: Machine = serde_json::from_slice(&output.stdout).expect("an answer");
    if machine.isolation == Isolation::None {
        let text = String::from_utf8_lossy(&output.stdout);
        eprintln!("skipped: no containers for {user:?}: {text}");
        return None;
    }
    Some(machine)
}

/// One container.
pub struct Container {
    pub directory: tempfile::TempDir,
    user: RunAs,
    child: Child,
    pub started: Result<State, String>,
}

impl Container {
    /// Starts a shell script in a container; `change` can modify the specification.
    pub fn start(
        user: RunAs,
        machine: Machine,
        script: &str,
        change: impl FnOnce(&mut ContainerSpec),
    ) -> Self {
        let directory = open_directory();
        let own_directory = directory.path().join("c");
        own(user, &own_directory);
        let args = ["sh", "-c", script].map(str::to_owned);
        let mut spec = ContainerSpec {
            id: directory
                .path()
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .replace('.', ""),
            args: args.into(),
            env: vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".into()],
            hostname: "inside".into(),
            log: own_directory.join("logs").join("0.log"),
            isolation: machine.isolation,
            cgroups: machine.cgroups,
            ..ContainerSpec::default()
        };
        // As the agent gives them to containers that ask for nothing.
        spec.security.capabilities = [
            "CHOWN",
            "DAC_OVERRIDE",
            "FOWNER",
            "KILL",
            "SETGID",
            "SETPCAP",
            "SETUID",
        ]
        .map(|name| format!("CAP_{name}"))
        .into();
        change(&mut spec);
        spec::write(&own_directory.join(spec::SPEC), &spec).expect("a specification");
        fs::set_permissions(
            own_directory.join(spec::SPEC),
            fs::Permissions::from_mode(0o644),
        )
        .expect("permissions");
        let mut child = command(user)
            .arg("run")
            .arg(&own_directory)
            .stdout(Stdio::piped())
            // As the agent starts it.
            .stderr(fs::File::create(own_directory.join("shim.log")).expect("a file"))
            .spawn()
            .expect("a helper");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("an output");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("an answer");
        let started = match serde_json::from_str(&line).expect("an answer") {
            Answer::Started(state) => Ok(state),
            Answer::Failed(reason) => Err(reason),
        };
        Self {
            directory,
            user,
            child,
            started,
        }
    }

    /// Waits until the container ends; returns its exit and its output.
    pub fn end(mut self) -> (Exit, String) {
        if let Err(reason) = &self.started {
            panic!("not started: {reason}");
        }
        self.child.wait().expect("a helper");
        let exit = spec::read(&self.path().join(spec::EXIT)).expect("an end");
        (exit, self.log())
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("c")
    }

    pub fn log(&self) -> String {
        let text = fs::read_to_string(self.path().join("logs").join("0.log")).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// Runs a script in the container; returns its output.
    pub fn exec(&self, script: &str) -> String {
        let spec = ExecSpec {
            directory: self.path(),
            args: ["sh", "-c", script].map(str::to_owned).into(),
            tty: false,
        };
        let file = self.path().join("exec.json");
        spec::write(&file, &spec).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("permissions");
        let output = command(self.user)
            .arg("exec")
            .arg(&file)
            .output()
            .expect("a program");
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Checks the output of a script in a container, for root and for an ordinary user if the machine supports it.
#[track_caller]
pub fn check(script: &str, change: impl Fn(&mut ContainerSpec), expected: &str) {
    for user in [RunAs::Root, RunAs::Nobody] {
        let Some(machine) = machine(user) else {
            continue;
        };
        let container = Container::start(user, machine, script, &change);
        let (exit, text) = container.end();
        assert_eq!(text, expected, "{user:?}, exit code {}", exit.code);
    }
}

/// Whether a program of the host is installed; otherwise prints that the test is skipped.
pub fn is_installed(program: &str) -> bool {
    let found = Path::new("/usr/bin").join(program).exists();
    if !found {
        eprintln!("skipped: no {program}");
    }
    found
}
