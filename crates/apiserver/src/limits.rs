//! Every limit and time-out of the server in one place, with the defaults of kube-apiserver where it has them.
//!
//! `docs/apiserver.md` has the same list as a table. Limits of a single parser or algorithm (nesting depth, sizes of
//! selectors) stay beside that code; this module has the limits of requests, answers and connections.

use std::time::Duration;

use allot_apimachinery::{Status, interrupt};
use tokio::time::Instant;

use crate::error::ApiError;

/// Largest request body, as in kube-apiserver.
pub const MAX_BODY: usize = 3 << 20;
/// Large answers are created in pieces of about this size; smaller ones at once.
pub const CHUNK: usize = 64 << 10;
/// What one streamed answer holds at most in buffers of the connection: the queue of an HTTP/1.1 connection and TLS.
pub const STREAM_BUFFERS: usize = 512 << 10;
/// Size of the send queue of one HTTP/2 stream. A whole piece is added as long as the queue is not full, and one more piece
/// waits outside of it; together they are within [`STREAM_BUFFERS`].
pub const STREAM_QUEUE: usize = STREAM_BUFFERS - 2 * CHUNK;
/// Bytes of answers that one connection may hold until its client reads them, beside those that count for a budget.
pub const UNREAD: usize = 64 << 10;
/// Pieces of an answer that are created before other tasks on the same thread run. Encrypting and sending a piece takes
/// about a tenth of a millisecond: each task of hundreds that send large answers makes all others wait for that time.
pub const BURST: usize = 1;
/// How much of a body that no handler has read is read and thrown away, so that the client gets to see the answer.
pub const DISCARD_BYTES: usize = 16 << 20;
/// How long that may take.
pub const DISCARD_TIME: Duration = Duration::from_secs(10);
/// How many such bodies are read at once; beyond that connections are closed without.
pub const DISCARDS: usize = 64;
/// How many requests wait without a seat for bodies that their clients send slowly; one user has a quarter of them.
pub const SLOW_UPLOADS: usize = 256;
/// How long requests that are under way get when the server stops.
pub const DRAIN: Duration = Duration::from_secs(10);
/// Memory for a document as a tree, per byte of the document.
pub(crate) const TREE_FACTOR: usize = 8;
/// What is needed beside that for each object, list and member in it.
const TREE_NODE: usize = 1 << 10;

/// Memory that a document takes as a tree while it is a request's object, roughly: for the limit of concurrent decoding.
///
/// What takes most is not text. A million elements `{}` of a list, with the fields that their type gives them, take more than
/// a gigabyte, and so do elements `null`, which become objects with these fields. Objects, lists and members are counted by
/// the characters that begin them in JSON and YAML, or those that separate elements if there are more. In YAML the lists of a
/// line begin with dashes. In protobuf they begin with their length, which is a small byte where there are many of them.
pub(crate) fn tree_size(document: &[u8]) -> usize {
    let (mut begun, mut separated, mut small, mut dashes) = (0, 0, 0, 0);
    let mut before = b'\n';
    for byte in document {
        match byte {
            b'{' | b'[' | b':' => begun += 1,
            b',' => separated += 1,
            b' ' if before == b'-' => dashes += 1,
            0..=31 => small += 1,
            _ => {}
        }
        before = *byte;
    }
    let nodes = usize::max(begun, separated) + usize::max(small, dashes);
    document.len() * TREE_FACTOR + nodes * TREE_NODE
}

/// Limits that flags can change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest time for a request that is not long-running, and upper bound of its `?timeout=`.
    pub request_timeout: Duration,
    /// Shortest life of a watch whose client names none; it is random up to twice of it.
    pub min_request_timeout: Duration,
    /// Non-mutating requests in flight; with priority and fairness the levels share the sum of both limits. 0 is no
    /// limit.
    pub max_requests_inflight: usize,
    /// Mutating requests in flight. 0 is no limit.
    pub max_mutating_requests_inflight: usize,
    /// FlowSchemas and PriorityLevelConfigurations decide which requests wait.
    pub priority_and_fairness: bool,
    /// For the head of a request, from its first byte; an idle HTTP/1.1 connection is closed after the same time.
    pub header_timeout: Duration,
    /// For the TLS handshake.
    pub handshake_timeout: Duration,
    /// For a connection without requests.
    pub idle_timeout: Duration,
    /// How long a request keeps its seat among the requests in flight while its body arrives.
    pub seated_upload: Duration,
    /// For a client that does not read an available answer.
    pub stall_timeout: Duration,
    /// Bytes that all large answers together may hold.
    pub answer_bytes: usize,
    /// Bytes of small answers and streams that connections hold beyond [`UNREAD`] each.
    pub unread_bytes: usize,
    /// Bytes of memory for the large request bodies that are decoded at the same time.
    pub decode_bytes: usize,
    /// Connections; the longest idle one is closed for a new one.
    pub max_connections: usize,
    /// Open watches; one user has a quarter of them. The service accounts of a large cluster's system namespace, which
    /// are one user, have thousands.
    pub max_watches: usize,
    /// Streams of one HTTP/2 connection.
    pub http2_max_streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request_timeout: Duration::from_secs(60),
            min_request_timeout: Duration::from_secs(1800),
            max_requests_inflight: 400,
            max_mutating_requests_inflight: 200,
            priority_and_fairness: true,
            header_timeout: Duration::from_secs(32),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(90),
            seated_upload: Duration::from_secs(1),
            stall_timeout: Duration::from_secs(30),
            answer_bytes: 256 << 20,
            unread_bytes: 64 << 20,
            decode_bytes: 512 << 20,
            max_connections: 10_000,
            max_watches: 100_000,
            http2_max_streams: 100,
        }
    }
}

/// Lets long computations in other crates ask whether the time of their request is over.
pub(crate) fn let_work_end() {
    interrupt::ask(is_over);
}

tokio::task_local! {
    static DEADLINE: Instant;
}

/// Passes the request's deadline to the work done for it.
pub(crate) async fn until<F: Future>(deadline: Instant, work: F) -> F::Output {
    DEADLINE.scope(deadline, work).await
}

/// Whether the time of the request that this work is done for is over.
///
/// Work that does not wait continues after its client has been told that there was no time: loops whose length others
/// determine ask, or call [`checkpoint`].
pub(crate) fn is_over() -> bool {
    DEADLINE
        .try_with(|deadline| Instant::now() >= *deadline)
        .unwrap_or(false)
}

/// The limits of one expression of a policy, which ends with the time of its request.
pub(crate) fn of_expression() -> allot_cel::program::Limits<'static> {
    allot_cel::program::Limits {
        interrupted: Some(&is_over),
        ..Default::default()
    }
}

/// Ends the work of a request whose time is over: the time limit is checked where the work waits, so it waits here.
/// The timer may be a millisecond late.
pub(crate) async fn checkpoint() {
    while is_over() {
        tokio::task::yield_now().await;
    }
}

/// `Retry-After` of a request that is refused because a limit is reached, in seconds.
const RETRY_AFTER_SECONDS: i32 = 1;

/// The answer to a request for which a budget or a share is exhausted.
pub(crate) fn too_many_requests() -> ApiError {
    let message = "Too many requests, please try again later.";
    Status::too_many_requests(message, RETRY_AFTER_SECONDS).into()
}

/// The answer to a request whose time is over.
pub(crate) fn timed_out() -> ApiError {
    let message = "Timeout: request did not complete within the allotted timeout";
    Status::failure(504, "Timeout", message).into()
}

/// The time limit of a call that is part of a request: `wanted`, or the rest of the request's time, in whole seconds.
/// Calls send their time limit in seconds, and upstream rounds up.
pub(crate) fn for_call(wanted: Duration) -> Duration {
    let left = DEADLINE.try_with(|deadline| deadline.saturating_duration_since(Instant::now()));
    match left {
        Ok(left) if left < wanted => {
            let seconds = left.as_millis().div_ceil(1000).max(1);
            Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)).min(wanted)
        }
        _ => wanted,
    }
}

/// How many of so many connections may be upgraded to streams, which are never closed for new connections: the others
/// remain for requests. One user can have a quarter of the streams.
pub(crate) fn streams_of(connections: usize) -> usize {
    (connections / 4 * 3).max(1)
}

/// How many connections a limit on open files leaves: the store, watches on files, nodes and webhooks need some, too.
pub fn connections_for(open_files: u64) -> usize {
    const OTHERS: u64 = 32;
    const FEWEST: u64 = 8;
    let most = Limits::default().max_connections as u64;
    let share = open_files.saturating_sub(OTHERS) / 4 * 3;
    usize::try_from(share.clamp(FEWEST, most)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn calls_end_with_their_request() {
        let seconds = Duration::from_secs;
        assert_eq!(super::for_call(seconds(10)), seconds(10));
        for (left, wanted, given) in [(30_000, 10, 10), (2_500, 10, 3), (0, 10, 1)] {
            let deadline = Instant::now() + Duration::from_millis(left);
            let call = super::until(deadline, async { super::for_call(seconds(wanted)) });
            assert_eq!(call.await, seconds(given), "{left}");
        }
    }

    #[tokio::test]
    async fn work_that_does_not_wait_ends_with_its_request() {
        assert!(!super::is_over());
        let deadline = Instant::now();
        let endless = async {
            assert!(super::is_over());
            loop {
                super::checkpoint().await;
            }
        };
        let work = super::until(deadline, endless);
        let ended: Result<(), _> = tokio::time::timeout_at(deadline, work).await;
        assert!(ended.is_err());
    }

    /// A body of three megabytes counted for 24 megabytes, and could take 1.4 gigabytes.
    #[test]
    fn regression_bodies_count_by_what_is_in_them() {
        const MIB: usize = 1 << 20;
        for (of, document, least, most) in [
            ("a text", "x".repeat(MIB), 8, 8),
            (
                "a text of lines",
                "twenty characters...\n".repeat(MIB / 21),
                50,
                70,
            ),
            ("empty objects", "{},".repeat(MIB / 3), 300, 400),
            ("lists of a number", "[0],".repeat(MIB / 4), 200, 300),
            ("members", "\"a\":0,".repeat(MIB / 6), 150, 200),
            (
                "elements that become objects",
                "null,".repeat(MIB / 5),
                200,
                250,
            ),
            ("elements that are none", "0,".repeat(MIB / 2), 500, 550),
            (
                "lists in a line",
                "- - - - - - - a\n".repeat(MIB / 16),
                440,
                470,
            ),
            ("elements of YAML", "- a:\n".repeat(MIB / 5), 350, 450),
            (
                "messages of protobuf",
                "\x0a\x02\x08\x01".repeat(MIB / 4),
                200,
                1100,
            ),
        ] {
            let size = super::tree_size(document.as_bytes()) / MIB;
            assert!((least..=most).contains(&size), "{of}: {size} MiB");
        }
    }

    #[test]
    fn connections_leave_files_to_others() {
        for (files, connections) in [(0, 8), (64, 24), (1024, 744), (1 << 20, 10_000)] {
            assert_eq!(super::connections_for(files), connections, "{files}");
        }
    }
}
