//! `/debug/flags`: flags that can be changed while the server runs. There is one, `v`, the verbosity of the log.

use allot_apimachinery::quote::quote;
use http::{HeaderValue, Method, Response, header};

use crate::body::{Body, text_response};
use crate::config::LogVerbosity;
use crate::context::Core;
use crate::request::Incoming;
use crate::webhook::excerpt;

const INDEX: &str = "<html>\n<head>\n<title>/debug/flags/</title>\n</head>\n<body>\n/debug/flags/<br>\n<br>\nflags:<br>\n\
                     <table>\n<tr>v<br>\n</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n";

/// The setter of the flag whose value the body of a request is.
pub(crate) fn set_by<'c>(core: &'c Core, request: &Incoming) -> Option<&'c LogVerbosity> {
    let verbosity = core.config.log_verbosity.as_ref()?;
    (request.info.path == "/debug/flags/v" && request.method == Method::PUT).then_some(verbosity)
}

/// The answer to a new value of the flag.
pub(crate) fn set(verbosity: &LogVerbosity, body: &[u8]) -> Response<Body> {
    let text = String::from_utf8_lossy(body);
    match parse(&text).and_then(|level| verbosity.set(level)) {
        Ok(()) => plain(
            200,
            &format!("successfully set klog.logging.verbosity to {text}"),
        ),
        Err(why) => plain(400, &why),
    }
}

/// The answer to other requests, if the path is one of these.
pub(crate) fn answer(core: &Core, request: &Incoming) -> Option<Response<Body>> {
    core.config.log_verbosity.as_ref()?;
    match request.info.path.as_str() {
        "/debug/flags/v" => Some(plain(406, "unsupported http method")),
        "/debug/flags" => Some(index()),
        path => path.starts_with("/debug/flags/").then(index),
    }
}

fn index() -> Response<Body> {
    let page = HeaderValue::from_static("text/html; charset=utf-8");
    let mut response = crate::health::without_sniffing(text_response(200, INDEX));
    response.headers_mut().insert(header::CONTENT_TYPE, page);
    response
}

fn plain(code: u16, text: &str) -> Response<Body> {
    let mut response = text_response(code, format!("{text}\n"));
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// A level, with the errors of the two functions of Go that read it upstream: the first takes 32 bits without a sign, the
/// second takes a sign as well.
fn parse(text: &str) -> Result<u32, String> {
    let failed = |function: &str, why: &str| {
        let text = quote(excerpt(text));
        format!("strconv.{function}: parsing {text}: {why}")
    };
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("ParseUint", "invalid syntax"));
    }
    let level: u32 = text
        .parse()
        .map_err(|_| failed("ParseUint", "value out of range"))?;
    if i32::try_from(level).is_err() {
        let why = failed("ParseInt", "value out of range");
        return Err(format!("failed set klog.logging.verbosity {text}: {why}"));
    }
    Ok(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_as_upstream_reads_them() {
        let check = |text: &str, expected: Result<u32, &str>| {
            assert_eq!(parse(text), expected.map_err(str::to_owned), "{text:?}");
        };
        let syntax = |quoted: &str| format!("strconv.ParseUint: parsing {quoted}: invalid syntax");
        check("0", Ok(0));
        check("007", Ok(7));
        check("2147483647", Ok(2_147_483_647));
        check("", Err(&syntax("\"\"")));
        check("-1", Err(&syntax("\"-1\"")));
        check("+1", Err(&syntax("\"+1\"")));
        check("5\n", Err(&syntax("\"5\\n\"")));
        check("0x1", Err(&syntax("\"0x1\"")));
        check(
            "2147483648",
            Err(
                "failed set klog.logging.verbosity 2147483648: strconv.ParseInt: parsing \"2147483648\": value out of range",
            ),
        );
        check(
            "4294967296",
            Err("strconv.ParseUint: parsing \"4294967296\": value out of range"),
        );
    }
}
