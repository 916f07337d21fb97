//! A conformance kit for DRA drivers: what csi-sanity is for storage.
//!
//! It runs any driver, in any language, without a cluster: the API server is in this process, and `allot_kubelet` registers
//! the driver and makes it prepare and unprepare claims; in between the driver is killed and restarted. Each [`Case`] is a
//! rule with its source.
//!
//! Invariants:
//! - every wait has a deadline ([`Options::timeout`]); the driver and all of its children are ended with the run;
//! - with [`Options::command`] each case has its own node, directory and API server, so that one failure does not cause
//!   another;
//! - a rule is tested through what a kubelet, a runtime or a user of the API can see; nothing is assumed about a
//!   driver's own files.
//!
//! It must not depend on any particular driver. In a driver's own tests:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use allot_conformance::{Options, run};
//!
//! let options = Options::command("./my-driver --kubeconfig {kubeconfig} --node {node} --kubelet-dir {kubelet} --cdi-dir {cdi}")?;
//! let report = run(options.jobs(4), |record| println!("{}", record.text())).await?;
//! report.assert_passed();
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod api;
mod boot;
mod case;
mod cases;
mod chaos;
mod command;
mod fixture;
mod options;
mod outcome;
mod process;
mod report;
mod runner;
mod select;
mod selection;

pub use boot::BOOT_ID_VARIABLE;
pub use case::Case;
pub use cases::cases;
pub use chaos::{Length, chaos};
pub use command::{Command, CommandError, PLACEHOLDERS};
pub use options::{AtExit, Options, OptionsError, Target};
pub use report::{Record, Report, Verdict};
pub use runner::{StartError, run};
