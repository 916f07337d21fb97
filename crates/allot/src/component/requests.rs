//! `rest_client_*` metrics: the requests that this process sends to API servers, with the names, labels and buckets of
//! client-go.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;

/// Upper bounds in seconds, client-go's.
const BUCKETS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// The code of a request without an answer, as client-go writes it.
const NO_ANSWER: &str = "<error>";

/// The number of hosts with their own label. A process uses a few API servers at most; further hosts share one label.
const HOSTS: usize = 32;

static REQUESTS: Mutex<Requests> = Mutex::new(Requests::new());

/// All requests so far.
struct Requests {
    /// By host, method and code.
    answered: BTreeMap<(String, String, String), u64>,
    /// By host and method: how many took at most so long (not cumulated), and the sum.
    took: BTreeMap<(String, String), ([u64; BUCKETS.len() + 1], f64)>,
}

/// Counts a request by the code of its response, or as an error without a response.
pub(super) fn count(host: &str, method: &Method, code: Option<u16>, took: Duration) {
    REQUESTS.lock().count(host, method, code, took);
}

/// One page in the text format 0.0.4.
pub(super) fn metrics() -> String {
    REQUESTS.lock().page()
}

impl Requests {
    const fn new() -> Self {
        Self {
            answered: BTreeMap::new(),
            took: BTreeMap::new(),
        }
    }

    fn count(&mut self, host: &str, method: &Method, code: Option<u16>, took: Duration) {
        let known = self.took.keys().any(|(known, _)| known == host);
        let host = match known || self.took.len() < HOSTS {
            true => host.to_owned(),
            false => "other".to_owned(),
        };
        // Of a fixed set: the API server's client uses no other methods.
        let method = method.as_str().to_owned();
        let code = code.map_or_else(|| NO_ANSWER.to_owned(), |code| code.to_string());
        let seconds = took.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound);
        let (buckets, sum) = self.took.entry((host.clone(), method.clone())).or_default();
        buckets[bucket.unwrap_or(BUCKETS.len())] += 1;
        *sum += seconds;
        *self.answered.entry((host, method, code)).or_default() += 1;
    }

    fn page(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let head = |text: &mut String, name: &str, kind: &str, help: &str| {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        };
        if self.answered.is_empty() {
            return text;
        }
        let name = "rest_client_requests_total";
        head(
            &mut text,
            name,
            "counter",
            "Number of HTTP requests, partitioned by status code, method, and host.",
        );
        for ((host, method, code), count) in &self.answered {
            let host = escaped(host);
            let _ = writeln!(
                text,
                "{name}{{code=\"{code}\",host=\"{host}\",method=\"{method}\"}} {count}"
            );
        }
        let name = "rest_client_request_duration_seconds";
        head(
            &mut text,
            name,
            "histogram",
            "Request latency in seconds. Broken down by verb, and host.",
        );
        for ((host, verb), (buckets, sum)) in &self.took {
            let labels = format!("host=\"{}\",verb=\"{verb}\"", escaped(host));
            let mut total = 0;
            let bounds = BUCKETS.iter().map(f64::to_string);
            for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(buckets) {
                total += count;
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {total}");
            }
            let _ = writeln!(text, "{name}_sum{{{labels}}} {sum}");
            let _ = writeln!(text, "{name}_count{{{labels}}} {total}");
        }
        text
    }
}

/// A label's value in the text format.
fn escaped(value: &str) -> String {
    value
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_code_and_time() {
        let mut requests = Requests::new();
        assert_eq!(requests.page(), "");
        for (method, code, milliseconds) in [
            (Method::GET, Some(200), 3),
            (Method::GET, Some(200), 200),
            (Method::GET, Some(404), 1),
            (Method::PATCH, None, 75_000),
        ] {
            requests.count("a:1", &method, code, Duration::from_millis(milliseconds));
        }
        let page = requests.page();
        for line in [
            "# TYPE rest_client_requests_total counter\n",
            "rest_client_requests_total{code=\"200\",host=\"a:1\",method=\"GET\"} 2\n",
            "rest_client_requests_total{code=\"404\",host=\"a:1\",method=\"GET\"} 1\n",
            "rest_client_requests_total{code=\"<error>\",host=\"a:1\",method=\"PATCH\"} 1\n",
            "rest_client_request_duration_seconds_bucket{host=\"a:1\",verb=\"GET\",le=\"0.005\"} 2\n",
            "rest_client_request_duration_seconds_bucket{host=\"a:1\",verb=\"GET\",le=\"0.25\"} 3\n",
            "rest_client_request_duration_seconds_bucket{host=\"a:1\",verb=\"PATCH\",le=\"60\"} 0\n",
            "rest_client_request_duration_seconds_bucket{host=\"a:1\",verb=\"PATCH\",le=\"+Inf\"} 1\n",
            "rest_client_request_duration_seconds_sum{host=\"a:1\",verb=\"PATCH\"} 75\n",
            "rest_client_request_duration_seconds_count{host=\"a:1\",verb=\"GET\"} 3\n",
        ] {
            assert!(page.contains(line), "{line} in {page}");
        }
    }

    #[test]
    fn hosts_are_bounded() {
        let mut requests = Requests::new();
        for host in 0..1000 {
            requests.count(&host.to_string(), &Method::GET, Some(200), Duration::ZERO);
        }
        assert_eq!(requests.took.len(), HOSTS + 1);
    }
}
