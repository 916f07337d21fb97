//! The answer about a pod as text.

use std::io::{self, Write};

use allot_model::table::human_duration;

use super::gang::Gang;
use super::groups::groups;
use super::problem::Problem;
use super::{ClaimDevices, Device, Place, Rejected, Report};
use crate::cmd::count;

/// How many events are printed.
const EVENTS: usize = 3;

impl Report {
    /// Prints it, as one line of JSON or as text.
    pub fn print(&self, out: &mut impl Write, json: bool) -> io::Result<()> {
        if json {
            serde_json::to_writer(&mut *out, self)?;
            return writeln!(out);
        }
        self.print_answer(out)?;
        match &self.deleted {
            Some(deleted) => writeln!(out, "  {deleted}"),
            None => Ok(()),
        }
    }

    fn print_answer(&self, out: &mut impl Write) -> io::Result<()> {
        let pod = &self.pod;
        if self.finished {
            return writeln!(out, "pod {pod} has finished");
        }
        if let Some(node) = &self.node {
            let of_containers = |problem: &Problem| matches!(problem, Problem::Container { .. });
            let end = match (self.problems.is_empty(), self.started) {
                (true, _) => "",
                (false, _) if self.deleted.is_some() => ", and does not end",
                (false, false) => ", and does not start",
                (false, true) if self.problems.iter().all(of_containers) => {
                    ", and not all of its containers run"
                }
                (false, true) => ", and is cut off",
            };
            writeln!(out, "pod {pod} is on node {node}{end}")?;
            print_claims(out, &self.claims)?;
            return self.print_problems(out);
        }
        if let Some(quota) = &self.quota {
            writeln!(out, "pod {pod} is not let in: {quota}")?;
            return self.print_advice(out);
        }
        if !self.problems.is_empty() {
            writeln!(out, "pod {pod} waits for its devices to get ready")?;
            print_claims(out, &self.claims)?;
            return self.print_problems(out);
        }
        if let Some(rejected) = &self.rejected {
            let Rejected { plugin, reason } = rejected;
            writeln!(out, "pod {pod} goes to no node: {reason} ({plugin})")?;
            if let Some(gang) = &self.gang {
                gang.print(pod, Some(reason), out)?;
            }
            self.print_advice(out)?;
            return self.print_events(out);
        }
        if let Some(gang) = &self.gang {
            gang.print_head(pod, self.fits, self.hidden.is_empty(), out)?;
            gang.print(pod, None, out)?;
            if gang.fits && !self.hidden.is_empty() {
                writeln!(out, "  {}", self.partly_known())?;
            }
        } else {
            self.print_alone(out)?;
        }
        if let Some(place) = &self.would_go_to {
            place.print(out)?;
        } else {
            self.print_preemption(out)?;
        }
        if !self.claims.is_empty() {
            writeln!(out, "  it already has")?;
            print_claims(out, &self.claims)?;
        }
        // If a pod of a gang fits alone, the others prevent it, which is reported with the gang.
        let alone = |gang: &Gang| self.nodes.iter().all(|n| !n.fits) && !gang.tells_of(pod);
        if self.gang.as_ref().is_none_or(alone) {
            if self.gang.is_some() {
                writeln!(out, "  {pod} alone:")?;
            }
            for group in groups(&self.nodes) {
                group.print(out)?;
            }
        }
        self.print_advice(out)
    }

    fn print_advice(&self, out: &mut impl Write) -> io::Result<()> {
        match &self.advice {
            Some(advice) => writeln!(out, "  {advice}"),
            None => Ok(()),
        }
    }

    fn print_problems(&self, out: &mut impl Write) -> io::Result<()> {
        for problem in &self.problems {
            writeln!(out, "  {problem}")?;
        }
        match self.problems.is_empty() {
            true => Ok(()),
            false => self.print_events(out),
        }
    }

    fn print_events(&self, out: &mut impl Write) -> io::Result<()> {
        for event in self.events.iter().take(EVENTS) {
            let mut times = Vec::new();
            if event.count > 1 {
                times.push(format!("{} times", event.count));
            }
            if let Some(last) = event.last {
                let seconds = self.now.as_second() - last.as_second();
                times.push(format!("{} ago", human_duration(seconds.max(0))));
            }
            let times = match times.is_empty() {
                true => String::new(),
                false => format!(" ({})", times.join(", ")),
            };
            writeln!(
                out,
                "  event {}{times}: {}",
                event.reason,
                event.message.trim()
            )?;
        }
        Ok(())
    }

    /// On how many nodes it fits.
    fn print_alone(&self, out: &mut impl Write) -> io::Result<()> {
        let pod = &self.pod;
        let fitting = self.nodes.iter().filter(|n| n.fits).count();
        let nodes = count(self.nodes.len(), "node");
        match fitting {
            0 => writeln!(out, "pod {pod} fits on none of {nodes}"),
            _ if self.hidden.is_empty() => writeln!(out, "pod {pod} fits on {fitting} of {nodes}"),
            _ => {
                let partly = self.partly_known();
                writeln!(out, "pod {pod} may fit on {fitting} of {nodes}: {partly}")?;
                match &self.scheduler_says {
                    Some(says) => writeln!(out, "  the scheduler says: {says}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Place {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let with = if self.claims.is_empty() { "" } else { " with" };
        writeln!(out, "  it would go to {}{with}", self.node)?;
        print_claims(out, &self.claims)
    }
}

fn print_claims(out: &mut impl Write, claims: &[ClaimDevices]) -> io::Result<()> {
    for ClaimDevices { claim, devices } in claims {
        if devices.is_empty() {
            writeln!(
                out,
                "    claim {claim} has no devices, which the pod waits for"
            )?;
        }
        for device in devices {
            let Device {
                request,
                driver,
                pool,
                device,
            } = device;
            writeln!(
                out,
                "    claim {claim}, request {request}: {driver}/{pool}/{device}"
            )?;
        }
    }
    Ok(())
}
