//! Packages for users: `cargo xtask image` and `cargo xtask dist`.
//!
//! Both are reproducible from the same source and program: entries are sorted, owners are root, and the only time in
//! them is `SOURCE_DATE_EPOCH`, or else that of the commit. With a key `SHA256SUMS` is signed, and the rest through it;
//! no key is in the checkout.

mod deb;
mod dist;
mod image;
mod libraries;
mod sbom;
mod sign;
#[cfg(test)]
mod tests;
mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

/// Usage of both commands.
pub const OPTIONS: &str = "--out DIR       where the files go; target/image or target/packages
                                  --binary FILE   package this program instead of building one
                                  --target TRIPLE build for this; default: musl where it can be built, else this machine
                                  --sign-key FILE sign the checksums with this OpenSSH key; default: that of $ALLOT_SIGNING_KEY, if set
                                  --name IMAGE    (image) its name, docker.io/library/allot:VERSION";

/// What to package.
struct Options {
    binary: Option<PathBuf>,
    out: Option<PathBuf>,
    target: Option<String>,
    name: Option<String>,
    sign_key: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            binary: None,
            out: None,
            target: None,
            name: None,
            sign_key: std::env::var_os(sign::VARIABLE)
                .filter(|key| !key.is_empty())
                .map(PathBuf::from),
        };
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let mut value = || {
                let value = arguments.next();
                value
                    .cloned()
                    .with_context(|| format!("{flag} takes a value"))
            };
            match flag.as_str() {
                "--binary" => options.binary = Some(value()?.into()),
                "--out" => options.out = Some(value()?.into()),
                "--target" => options.target = Some(value()?),
                "--sign-key" => options.sign_key = Some(value()?.into()),
                "--name" => options.name = Some(value()?),
                other => bail!("unknown option {other}\n  {OPTIONS}"),
            }
        }
        Ok(options)
    }
}

/// A program with its metadata.
pub(crate) struct Subject {
    /// The program itself.
    binary: PathBuf,
    version: String,
    /// The target triple.
    target: String,
    /// Seconds since 1970: the only time in packages.
    time: u64,
    /// The commit.
    revision: String,
    /// The software bill of materials, without what an image adds.
    sbom: serde_json::Value,
}

impl Subject {
    /// Builds the program unless there is one.
    fn prepare(options: &Options) -> Result<Self> {
        let target = match &options.target {
            Some(target) => target.clone(),
            None => default_target()?,
        };
        let binary = match &options.binary {
            Some(binary) => binary.clone(),
            None => build(&target)?,
        };
        let time = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(time) => time
                .parse()
                .context("SOURCE_DATE_EPOCH is no number of seconds")?,
            Err(_) => git(&["log", "-1", "--format=%ct"]).parse().unwrap_or(0),
        };
        let metadata = sbom::metadata(&target)?;
        let version = sbom::version(&metadata, "allot").context("no package allot")?;
        Ok(Self {
            sbom: sbom::bill(&metadata, "allot", time)?,
            binary,
            version,
            target,
            time,
            revision: git(&["rev-parse", "HEAD"]),
        })
    }

    /// The architecture, by the name of Go, OCI and Debian.
    fn architecture(&self) -> Result<&'static str> {
        match self.target.split('-').next() {
            Some("x86_64") => Ok("amd64"),
            Some("aarch64") => Ok("arm64"),
            _ => bail!("{}: only x86_64 and aarch64 are packaged", self.target),
        }
    }

    fn program(&self) -> Result<Vec<u8>> {
        std::fs::read(&self.binary).with_context(|| self.binary.display().to_string())
    }
}

/// `cargo xtask image`.
pub fn image(arguments: &[String]) -> Result<bool> {
    let options = Options::parse(arguments)?;
    let subject = Subject::prepare(&options)?;
    let out = options
        .out
        .unwrap_or_else(|| crate::root().join("target/image"));
    let name = options
        .name
        .unwrap_or_else(|| format!("docker.io/library/allot:{}", subject.version));
    let files = image::write(&subject, &out, &name)?;
    report(&out, &files, options.sign_key.as_deref())
}

/// `cargo xtask dist`.
pub fn dist(arguments: &[String]) -> Result<bool> {
    let options = Options::parse(arguments)?;
    ensure!(options.name.is_none(), "--name is for images");
    let subject = Subject::prepare(&options)?;
    let out = options
        .out
        .unwrap_or_else(|| crate::root().join("target/packages"));
    let files = dist::write(&subject, &out)?;
    report(&out, &files, options.sign_key.as_deref())
}

/// Writes the checksums of files in a directory, prints them, and signs them if there is a key.
fn report(out: &Path, files: &[String], key: Option<&Path>) -> Result<bool> {
    let mut sums = String::new();
    for file in files {
        let bytes = std::fs::read(out.join(file)).with_context(|| file.clone())?;
        sums += &format!("{}  {file}\n", sha256(&bytes));
    }
    let list = out.join("SHA256SUMS");
    sign::forget(&list)?;
    std::fs::write(&list, &sums)?;
    print!("{sums}");
    match key {
        Some(key) => {
            let signature = sign::sign(&list, key)?;
            println!("signed in {}", signature.display());
        }
        None => println!("in {}; not signed: there is no --sign-key", out.display()),
    }
    Ok(true)
}

fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The musl target of this machine, if its standard library and a compiler for it are installed, for a static program.
/// Otherwise this machine's own target.
fn default_target() -> Result<String> {
    let host = output(Command::new("rustc").arg("-vV"))?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc -vV names no host")?.to_owned();
    let architecture = host.split('-').next().unwrap_or_default();
    let musl = format!("{architecture}-unknown-linux-musl");
    let installed = output(Command::new("rustup").args(["target", "list", "--installed"]));
    let installed = installed.is_ok_and(|list| list.lines().any(|target| target == musl));
    // C code is part of the program: its TLS library and its allocator.
    let compiler = format!("{architecture}-linux-musl-gcc");
    let works = |program: &str| Command::new(program).arg("--version").output().is_ok();
    Ok(match installed && (works(&compiler) || works("musl-gcc")) {
        true => musl,
        false => host,
    })
}

fn build(target: &str) -> Result<PathBuf> {
    let flags = [
        "build",
        "--profile",
        "dist",
        "--locked",
        "-p",
        "allot",
        "--target",
        target,
    ];
    let status = crate::cargo().args(flags).status()?;
    ensure!(status.success(), "cargo {}: {status}", flags.join(" "));
    let directory = std::env::var_os("CARGO_TARGET_DIR");
    let directory = directory.map_or_else(|| crate::root().join("target"), PathBuf::from);
    Ok(directory.join(target).join("dist/allot"))
}

/// The output of git; empty outside of a checkout.
fn git(arguments: &[&str]) -> String {
    let mut git = Command::new("git");
    output(git.current_dir(crate::root()).args(arguments)).unwrap_or_default()
}

/// Standard output of a program, without the last newline.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", error.trim());
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}
