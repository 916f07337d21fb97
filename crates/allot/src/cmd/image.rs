//! `allot image`: the images of this machine's nodes.

use std::io::{Read as _, Write as _, stdout};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use allot_images::{Credential, Limits, Puller, Reference, Registries, Store, Timeouts};
use anyhow::Context as _;

use super::output::{self, Format};

/// Flags of `allot image`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Take images from an OCI image layout (directory or archive) or an archive of `docker save`
    Import(Import),
    /// List the images with their ids and sizes
    List(List),
    /// Remove names of images, and content that is no longer used
    Remove(Remove),
    /// Pull an image from its registry, or a mirror of it
    Pull(Pull),
}

#[derive(Debug, clap::Args)]
struct Place {
    /// State directory of the node; images are in `images` below it
    #[arg(long, value_name = "DIR", default_value = "/var/lib/allot")]
    root_dir: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Import {
    /// The layout or the archive
    path: PathBuf,
    /// Name for an image without one, or repository for one that has only a tag
    #[arg(long, value_name = "IMAGE")]
    name: Option<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct List {
    /// How to print the list
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct Remove {
    /// Names, or digests of images with all their names
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Args)]
struct Pull {
    /// The image's name
    image: String,
    /// File with mirrors, plain-HTTP registries and certificates; docs/node.md has its form
    #[arg(long, value_name = "FILE")]
    registries: Option<PathBuf>,
    /// User of the registry; the password is read from standard input
    #[arg(long)]
    username: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// Longest password.
const MAX_PASSWORD: u64 = 64 << 10;

impl Place {
    fn store(&self) -> PathBuf {
        self.root_dir.join("images")
    }

    fn open(&self) -> anyhow::Result<Store> {
        Ok(Store::open(
            self.store(),
            Limits::default(),
            Timeouts::default(),
        )?)
    }
}

/// Runs the command until it is done or asked to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Import(args) => import(&args),
        Command::List(args) => list(&args),
        Command::Remove(args) => remove(&args),
        Command::Pull(args) => pull(args),
    }
}

fn import(args: &Import) -> anyhow::Result<()> {
    let store = args.place.open()?;
    let name = args.name.as_deref().map(Reference::parse).transpose()?;
    let cancel = AtomicBool::new(false);
    let images = allot_images::import::import(&store, &args.path, name.as_ref(), &cancel)
        .with_context(|| args.path.display().to_string())?;
    for image in images {
        writeln!(stdout(), "{}  {}", image.name, image.id)?;
    }
    Ok(())
}

fn list(args: &List) -> anyhow::Result<()> {
    let images = args.place.open()?.list()?;
    let list = images.iter().map(|image| {
        serde_json::json!({
            "name": image.name, "id": image.id, "imageID": image.image_id(), "digest": image.target,
            "size": image.size, "created": image.pulled.to_string(),
        })
    });
    let list: Vec<serde_json::Value> = list.collect();
    (args.output).print(&mut stdout(), &list, |mut out| {
        if images.is_empty() {
            writeln!(
                std::io::stderr(),
                "no images in {}",
                args.place.store().display()
            )?;
            return Ok(());
        }
        let mut rows = vec![["NAME", "ID", "BYTES"].map(str::to_owned).to_vec()];
        rows.extend(images.iter().map(|image| {
            let id = image.id.hex().chars().take(12).collect();
            vec![image.name.clone(), id, image.size.to_string()]
        }));
        Ok(output::table(&mut out, &rows)?)
    })
}

fn remove(args: &Remove) -> anyhow::Result<()> {
    let store = args.place.open()?;
    for image in &args.images {
        let removed = store.remove(image)?;
        for name in removed.names {
            writeln!(stdout(), "removed {name}")?;
        }
        writeln!(stdout(), "{} bytes are free again", removed.freed)?;
    }
    Ok(())
}

fn pull(args: Pull) -> anyhow::Result<()> {
    let reference = Reference::parse(&args.image)?;
    let registries = args
        .registries
        .as_deref()
        .map(Registries::read)
        .transpose()?;
    let credential = args.username.map(|username| -> anyhow::Result<Credential> {
        let mut password = String::new();
        std::io::stdin()
            .take(MAX_PASSWORD)
            .read_to_string(&mut password)?;
        Ok(Credential {
            username,
            password: password.trim_end_matches(['\r', '\n']).to_owned(),
            source: None,
        })
    });
    let credentials: Vec<Credential> = credential.transpose()?.into_iter().collect();
    let puller = Puller::new(args.place.open()?, registries.unwrap_or_default());
    super::component::block_on(async move |shutdown| {
        let pulled = tokio::select! {
            pulled = puller.pull(&reference, &credentials) => pulled?,
            () = shutdown.cancelled() => anyhow::bail!("interrupted; what has come so far is used by the next pull"),
        };
        writeln!(
            stdout(),
            "{}  {}",
            pulled.image.name,
            pulled.image.image_id()
        )?;
        Ok(())
    })
}
