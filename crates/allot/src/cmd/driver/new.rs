//! `allot driver new`: writes the project of a new driver.

use std::fs::OpenOptions;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use allot_apimachinery::names;
use anyhow::{Context, bail, ensure};

#[cfg(test)]
mod tests;

/// Flags of `allot driver new`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the crate, the program and the chart, such as led-driver
    name: String,
    /// Name of the driver in ResourceSlices and DeviceClasses; NAME.example.com when absent
    #[arg(long, value_name = "NAME")]
    driver_name: Option<String>,
    /// Directory of the project; default ./NAME. It must be empty or not exist
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// A checkout of allot to take the SDK from; its repository when absent
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

/// The files of a project: their paths, and their text with placeholders.
const FILES: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("new/project/Cargo.toml.in")),
    ("README.md", include_str!("new/project/README.md.in")),
    ("Dockerfile", include_str!("new/project/Dockerfile.in")),
    (".dockerignore", include_str!("new/project/dockerignore.in")),
    (".gitignore", include_str!("new/project/gitignore.in")),
    (
        ".github/workflows/ci.yaml",
        include_str!("new/project/workflows/ci.yaml.in"),
    ),
    ("src/lib.rs", include_str!("new/project/src/lib.rs.in")),
    ("src/main.rs", include_str!("new/project/src/main.rs.in")),
    (
        "src/parameters.rs",
        include_str!("new/project/src/parameters.rs.in"),
    ),
    (
        "tests/conformance.rs",
        include_str!("new/project/tests/conformance.rs.in"),
    ),
    (
        "tests/node.rs",
        include_str!("new/project/tests/node.rs.in"),
    ),
    (
        "tests/other-parameters.yaml",
        include_str!("new/project/tests/other-parameters.yaml.in"),
    ),
    (
        "tests/parameters.yaml",
        include_str!("new/project/tests/parameters.yaml.in"),
    ),
    (
        "examples/pod.yaml",
        include_str!("new/project/examples/pod.yaml.in"),
    ),
    (
        "chart/Chart.yaml",
        include_str!("new/project/chart/Chart.yaml.in"),
    ),
    (
        "chart/values.yaml",
        include_str!("new/project/chart/values.yaml.in"),
    ),
    (
        "chart/templates/daemonset.yaml",
        include_str!("new/project/chart/templates/daemonset.yaml.in"),
    ),
    (
        "chart/templates/deviceclass.yaml",
        include_str!("new/project/chart/templates/deviceclass.yaml.in"),
    ),
    (
        "chart/templates/policy.yaml",
        include_str!("new/project/chart/templates/policy.yaml.in"),
    ),
    (
        "chart/templates/rbac.yaml",
        include_str!("new/project/chart/templates/rbac.yaml.in"),
    ),
];

/// Writes the project and prints the next steps.
pub fn run(args: Args) -> anyhow::Result<()> {
    let project = Project::new(&args)?;
    let directory = args.directory.unwrap_or_else(|| args.name.clone().into());
    project.write(&directory)?;
    let shown = directory.display();
    writeln!(
        stdout(),
        "The driver {} is in {shown:?}.\n\
         Its tests: cd {shown:?} && cargo test    (the program allot must be on the PATH)\n\
         Begin in src/lib.rs; README.md says how to try it in a cluster.",
        project.driver
    )?;
    Ok(())
}

/// The values of the placeholders.
#[derive(Debug)]
struct Project {
    name: String,
    driver: String,
    /// Where cargo takes the SDK from.
    sdk: String,
}

impl Project {
    fn new(args: &Args) -> anyhow::Result<Self> {
        let name = args.name.clone();
        let wrong = names::dns1123_label(&name);
        ensure!(wrong.is_empty(), "{name:?}: {}", wrong.join(", "));
        // Also the name of a Rust crate, and a prefix of object names.
        ensure!(
            name.starts_with(|first: char| first.is_ascii_lowercase()) && name.len() <= 40,
            "{name:?}: must begin with a letter and have at most 40 characters"
        );
        ensure!(
            !RESERVED.contains(&name.as_str()),
            "{name:?} means something else to cargo; take another name"
        );
        let driver = args.driver_name.clone();
        let driver = driver.unwrap_or_else(|| format!("{name}.example.com"));
        let mut wrong = names::dns1123_subdomain(&driver);
        if driver.len() > 63 {
            wrong.push("must be no more than 63 characters".to_owned());
        }
        ensure!(
            wrong.is_empty(),
            "--driver-name {driver:?}: {}",
            wrong.join(", ")
        );
        ensure!(
            driver.contains('.'),
            "--driver-name {driver:?}: not a domain name; drivers are named by a domain of their vendor, such as \
             {driver}.example.com"
        );
        // CDI vendors begin with a letter.
        ensure!(
            driver.starts_with(|first: char| first.is_ascii_lowercase()),
            "--driver-name {driver:?}: must begin with a letter"
        );
        let sdk = match &args.sdk {
            Some(checkout) => {
                let sdk = checkout.join("crates/driver");
                let sdk = sdk
                    .canonicalize()
                    .with_context(|| format!("--sdk: {sdk:?} is not there"))?;
                let sdk = sdk.to_str().context("--sdk: the path is not UTF-8")?;
                format!("path = {}", quoted(sdk))
            }
            None => format!("git = {}", quoted(env!("CARGO_PKG_REPOSITORY"))),
        };
        Ok(Self { name, driver, sdk })
    }

    /// A file of the project.
    fn text(&self, template: &str) -> String {
        let module = self.name.replace('-', "_");
        template
            .replace("@CRATE@", &self.name)
            .replace("@DRIVER@", &self.driver)
            .replace("@VARIABLE@", &module.to_uppercase())
            .replace("@MODULE@", &module)
            .replace("@SDK@", &self.dependency(""))
            .replace("@TEST_SDK@", &self.dependency(", features = [\"testing\"]"))
    }

    /// The SDK in Cargo.toml. Each feature has crates of its own to compile.
    fn dependency(&self, features: &str) -> String {
        format!("{{ {}, default-features = false{features} }}", self.sdk)
    }

    /// Writes all files below `directory`. Existing files are not changed.
    fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let mut present = match std::fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                std::fs::create_dir_all(directory).with_context(|| format!("{directory:?}"))?;
                std::fs::read_dir(directory).with_context(|| format!("{directory:?}"))?
            }
            Err(error) => return Err(error).with_context(|| format!("{directory:?}")),
        };
        if present.next().is_some() {
            bail!("{directory:?} is not empty; choose another one with --directory");
        }
        for (path, template) in FILES {
            let path = directory.join(path);
            let write = || {
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)?;
                }
                let mut file = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(&path)?;
                file.write_all(self.text(template).as_bytes())
            };
            write().with_context(|| format!("{path:?}"))?;
        }
        format(directory);
        Ok(())
    }
}

/// Runs rustfmt to break lines, whose lengths depend on the names. Without it the project is the same to the compiler.
fn format(directory: &Path) {
    let sources = FILES.iter().map(|(path, _)| directory.join(path));
    let sources = sources.filter(|path| path.extension().is_some_and(|it| it == "rs"));
    let formatted = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .args(sources)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !formatted.is_ok_and(|status| status.success()) {
        tracing::info!("rustfmt is not there: `cargo fmt` may move lines");
    }
}

/// Names that cargo refuses for a package, or that hide a crate which the project needs.
const RESERVED: &[&str] = &[
    "allot-driver",
    "alloc",
    "build",
    "core",
    "crate",
    "deps",
    "examples",
    "incremental",
    "proc-macro",
    "self",
    "serde",
    "std",
    "super",
    "test",
    "tokio",
];

/// A string of TOML. JSON's escapes are among those of TOML's basic strings.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
