//! `allot driver webhook`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use allot_driver::webhook::Webhook;

use crate::cmd::component;

/// Flags of `allot driver webhook`; the names are those of upstream's example driver.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The chart installs it with webhook.enabled=true. By hand, with a ValidatingWebhookConfiguration for
https://HOST:8443/validate-resource-claim-parameters:

  allot driver webhook --tls-cert-file tls.crt --tls-private-key-file tls.key")]
pub struct Args {
    /// Certificate chain, PEM; read again when it changes
    #[arg(long, value_name = "FILE")]
    tls_cert_file: PathBuf,
    /// Private key of --tls-cert-file, PEM
    #[arg(long, value_name = "FILE")]
    tls_private_key_file: PathBuf,
    /// Port for reviews, and for /healthz and /readyz, over TLS
    #[arg(long, default_value_t = 8443)]
    port: u16,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,
    /// Check the parameters of this driver only; may be repeated
    #[arg(long, value_name = "NAME", value_enum, default_values = [allot_driver_gpu::DRIVER_NAME, allot_driver_net::v1::DRIVER_NAME])]
    driver: Vec<Driver>,
}

/// The drivers of this program with parameters.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Driver {
    #[value(name = allot_driver_gpu::DRIVER_NAME)]
    Gpu,
    #[value(name = allot_driver_net::v1::DRIVER_NAME)]
    Net,
}

/// Runs the command until it is told to stop.
pub fn run(args: Args) -> anyhow::Result<()> {
    component::block_on(async move |shutdown| {
        let mut webhook = Webhook::new()
            .certificate(args.tls_cert_file, args.tls_private_key_file)
            .address((args.bind_address, args.port).into());
        for driver in args.driver {
            webhook = match driver {
                Driver::Gpu => allot_driver_gpu::webhook(webhook),
                Driver::Net => allot_driver_net::v1::webhook(webhook),
            };
        }
        let server = webhook.start().await?;
        server.serve_until(shutdown.cancelled_owned()).await;
        Ok(())
    })
}
