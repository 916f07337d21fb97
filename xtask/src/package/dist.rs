//! A tarball and a Debian package.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::tree::{Tree, gzip};
use super::{Subject, deb, libraries, output, sbom};

/// Shells whose completions are packaged, and Debian's directories for them.
const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "allot", "usr/share/bash-completion/completions"),
    ("zsh", "_allot", "usr/share/zsh/vendor-completions"),
    ("fish", "allot.fish", "usr/share/fish/vendor_completions.d"),
];

/// Units of `deploy/systemd`.
const UNITS: [&str; 4] = [
    "allot.service",
    "allot-controllers.service",
    "allot-node.service",
    "allot-scheduler.service",
];

/// Writes the packages; returns the names of the files.
pub(super) fn write(subject: &Subject, out: &Path) -> Result<Vec<String>> {
    let architecture = subject.architecture()?;
    std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let parts = Parts::of(subject)?;
    let stem = format!("allot-{}-linux-{architecture}", subject.version);
    let tarball = format!("{stem}.tar.gz");
    let tar = parts.tarball().tar(&format!("{stem}/"), subject.time)?;
    std::fs::write(out.join(&tarball), gzip(&tar)?)?;
    let package = format!("allot_{}_{architecture}.deb", subject.version);
    std::fs::write(out.join(&package), parts.debian(subject, architecture)?)?;
    let bom = format!("{stem}.cdx.json");
    std::fs::write(out.join(&bom), sbom::document(&subject.sbom)?)?;
    Ok(vec![tarball, package, bom])
}

/// What both packages have.
struct Parts {
    program: Vec<u8>,
    /// Manual pages by name.
    manual: Vec<(String, Vec<u8>)>,
    /// Completions in the order of [`COMPLETIONS`].
    completions: Vec<Vec<u8>>,
    /// Units in the order of [`UNITS`].
    units: Vec<Vec<u8>>,
    /// The configuration of `allot.service`.
    configuration: Vec<u8>,
    license: Vec<u8>,
    changelog: Vec<u8>,
    readme: Vec<u8>,
    bom: Vec<u8>,
}

impl Parts {
    fn of(subject: &Subject) -> Result<Self> {
        let file =
            |path: &str| std::fs::read(crate::root().join(path)).with_context(|| path.to_owned());
        let completions = COMPLETIONS.iter().map(|(shell, _, _)| {
            let mut program = Command::new(&subject.binary);
            Ok(output(program.args(["completion", shell]))?.into_bytes())
        });
        let units = UNITS
            .iter()
            .map(|unit| file(&format!("deploy/systemd/{unit}")));
        Ok(Self {
            program: subject.program()?,
            manual: manual(&subject.binary)?,
            completions: completions.collect::<Result<_>>()?,
            units: units.collect::<Result<_>>()?,
            configuration: file("deploy/systemd/up.yaml")?,
            license: file("LICENSE")?,
            changelog: file("CHANGELOG.md")?,
            readme: file("README.md")?,
            bom: sbom::document(&subject.sbom)?,
        })
    }

    fn tarball(&self) -> Tree {
        let mut tree = Tree::default();
        tree.file("bin/allot", 0o755, self.program.clone());
        for (name, page) in &self.manual {
            tree.file(format!("share/man/man1/{name}"), 0o644, page.clone());
        }
        for ((_, name, _), script) in COMPLETIONS.iter().zip(&self.completions) {
            tree.file(format!("share/completions/{name}"), 0o644, script.clone());
        }
        for (name, unit) in UNITS.iter().zip(&self.units) {
            tree.file(format!("systemd/{name}"), 0o644, unit.clone());
        }
        tree.file("systemd/up.yaml", 0o644, self.configuration.clone());
        for (name, content) in [
            ("LICENSE", &self.license),
            ("CHANGELOG.md", &self.changelog),
            ("README.md", &self.readme),
            ("sbom.cdx.json", &self.bom),
        ] {
            tree.file(name, 0o644, content.clone());
        }
        tree
    }

    fn debian(&self, subject: &Subject, architecture: &str) -> Result<Vec<u8>> {
        let mut tree = Tree::default();
        tree.file("usr/bin/allot", 0o755, self.program.clone());
        for (name, page) in &self.manual {
            tree.file(format!("usr/share/man/man1/{name}.gz"), 0o644, gzip(page)?);
        }
        for ((_, name, place), script) in COMPLETIONS.iter().zip(&self.completions) {
            tree.file(format!("{place}/{name}"), 0o644, script.clone());
        }
        for (name, unit) in UNITS.iter().zip(&self.units) {
            tree.file(
                format!("usr/lib/systemd/system/{name}"),
                0o644,
                unit.clone(),
            );
        }
        tree.file("etc/allot/up.yaml", 0o644, self.configuration.clone());
        let doc = "usr/share/doc/allot";
        tree.file(format!("{doc}/copyright"), 0o644, self.license.clone());
        tree.file(format!("{doc}/changelog.gz"), 0o644, gzip(&self.changelog)?);
        tree.file(format!("{doc}/README.md"), 0o644, self.readme.clone());
        tree.file(format!("{doc}/sbom.cdx.json"), 0o644, self.bom.clone());
        deb::package(&deb::Control {
            version: &subject.version,
            architecture,
            glibc: libraries::glibc(&self.program),
            configuration: &["/etc/allot/up.yaml"],
            time: subject.time,
            files: &tree,
        })
    }
}

/// The manual pages, which the program writes itself.
fn manual(binary: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let directory = tempfile::tempdir()?;
    output(Command::new(binary).arg("manual").arg(directory.path()))?;
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory.path())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        all.push((name, std::fs::read(entry.path())?));
    }
    all.sort();
    Ok(all)
}
