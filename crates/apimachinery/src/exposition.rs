//! The text format of Prometheus 0.0.4, which scrapers of Kubernetes components read.

use std::fmt::Write as _;

/// The media type of [`prometheus_text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Converts a page in OpenMetrics 1.0, as `prometheus-client` writes it, into the text format 0.0.4.
///
/// The two differ in a way that loses types: OpenMetrics names the family of a counter without `_total`, the older
/// format with it, so that a scraper finds the type of neither sample nor family. OpenMetrics also has units and an end
/// marker, which the older format lacks.
pub fn prometheus_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len() + 256);
    // HELP comes before TYPE, and its name depends on the type.
    let mut help: Option<(&str, &str)> = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = Some(rest.split_once(' ').unwrap_or((rest, "")));
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            // The family of the older format has the name of its samples.
            let suffix = match kind {
                "counter" if !name.ends_with("_total") => "_total",
                "info" if !name.ends_with("_info") => "_info",
                _ => "",
            };
            let kind = match kind {
                "unknown" => "untyped",
                // The older format has no such types.
                "info" | "stateset" => "gauge",
                kind => kind,
            };
            // Writing to a string does not fail.
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
                let _ = writeln!(text, "# HELP {name}{suffix} {help}");
            }
            let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::prometheus_text;

    fn check(openmetrics: &str, expected: &str) {
        assert_eq!(prometheus_text(openmetrics), expected);
    }

    #[test]
    fn regression_counters_keep_their_type() {
        check(
            "# HELP scheduler_attempts Attempts.\n# TYPE scheduler_attempts counter\n\
             scheduler_attempts_total{result=\"error\"} 3\n# EOF\n",
            "# HELP scheduler_attempts_total Attempts.\n# TYPE scheduler_attempts_total counter\n\
             scheduler_attempts_total{result=\"error\"} 3\n",
        );
    }

    #[test]
    fn other_types_and_samples_stay() {
        let histogram = "# HELP d Duration.\n# TYPE d histogram\nd_sum 1.5\nd_count 1\nd_bucket{le=\"+Inf\"} 1\n";
        check(&format!("{histogram}# EOF\n"), histogram);
        check(
            "# HELP up Up.\n# TYPE up gauge\n# UNIT up seconds\nup 1\n",
            "# HELP up Up.\n# TYPE up gauge\nup 1\n",
        );
        check("# TYPE x unknown\nx 1\n", "# TYPE x untyped\nx 1\n");
        check(
            "# HELP build Build.\n# TYPE build info\nbuild_info{v=\"1\"} 1\n",
            "# HELP build_info Build.\n# TYPE build_info gauge\nbuild_info{v=\"1\"} 1\n",
        );
        check("", "");
    }
}
