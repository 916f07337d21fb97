use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use http::Response;
use kube::Client;

use super::*;

/// What the server answers, one after the other.
#[derive(Clone)]
enum Answer {
    /// The claim in JSON.
    Claim,
    /// The claim in protobuf, with this uid and version.
    Protobuf(&'static str, &'static str),
    Refused(u16),
}

impl Answer {
    fn response(self) -> Response<Body> {
        let (code, body) = match self {
            Self::Claim => {
                let metadata = json!({"name": "c", "namespace": "n", "uid": "u"});
                (
                    200,
                    json!({"metadata": metadata, "spec": {}})
                        .to_string()
                        .into_bytes(),
                )
            }
            Self::Protobuf(uid, version) => (200, wire::tests::claim(uid, version)),
            Self::Refused(code) => {
                let status =
                    json!({"kind": "Status", "status": "Failure", "message": "no", "code": code});
                (code, status.to_string().into_bytes())
            }
        };
        Response::builder()
            .status(code)
            .body(Body::from(body))
            .unwrap()
    }
}

/// Adds a finalizer to version 7 of the claim (or to whatever there is); says what was asked, and what came of it.
async fn check(version: Option<&str>, answers: &[Answer], asked: &[&str], result: Result<(), u16>) {
    let answers = Arc::new(Mutex::new(VecDeque::from(answers.to_vec())));
    let requests = Arc::new(Mutex::new(Vec::new()));
    let log = requests.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (answers, log) = (answers.clone(), log.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let kind = head.headers.get(CONTENT_TYPE).or(head.headers.get(ACCEPT));
            let kind = kind
                .map_or("", |k| k.to_str().unwrap())
                .rsplit(['.', '/'])
                .next();
            let changed = body.windows(5).any(|w| w == b"ours!");
            let changed = if changed { " with it" } else { "" };
            let said = format!("{} {}{changed}", head.method, kind.unwrap_or_default());
            log.lock().unwrap().push(said);
            let answer = answers.lock().unwrap().pop_front();
            Ok::<_, std::convert::Infallible>(answer.unwrap_or(Answer::Refused(500)).response())
        }
    });
    let api: Api<ResourceClaim> = Api::namespaced(Client::new(service, "n"), "n");
    let target = Target {
        name: "c",
        uid: "u",
        version,
    };
    let finalizers = ["ours!".to_owned()];
    let what = Change::Finalizers(&finalizers);
    let done = change(&api, target, what, None, allot_reflector::everything).await;
    let done = done.map(drop).map_err(|e| match e {
        Error::Api(status) => status.code,
        other => panic!("{other}"),
    });
    assert_eq!(*requests.lock().unwrap(), asked);
    assert_eq!(done, result);
}

const PATCH: &str = "PATCH merge-patch+json with it";
const GET: &str = "GET protobuf";
/// A read in whatever the server prefers.
const READ: &str = "GET json;native=1";
const PUT: &str = "PUT protobuf with it";

#[tokio::test]
async fn a_patch_does_where_the_server_takes_it() {
    check(Some("7"), &[Answer::Claim], &[PATCH], Ok(())).await;
    check(Some("7"), &[Answer::Refused(409)], &[PATCH], Err(409)).await;
}

#[tokio::test]
async fn parameters_that_a_patch_would_rewrite_are_put_as_they_are() {
    let there = Answer::Protobuf("u", "7");
    let answers = [Answer::Refused(422), there.clone(), Answer::Claim];
    check(Some("7"), &answers, &[PATCH, GET, PUT], Ok(())).await;
    let answers = [Answer::Refused(422), there, Answer::Refused(422)];
    check(Some("7"), &answers, &[PATCH, GET, PUT], Err(422)).await;
}

#[tokio::test]
async fn another_claim_or_version_is_a_conflict() {
    let answers = [Answer::Refused(422), Answer::Protobuf("u", "8")];
    check(Some("7"), &answers, &[PATCH, GET], Err(409)).await;
    let answers = [Answer::Refused(422), Answer::Protobuf("v", "7")];
    check(Some("7"), &answers, &[PATCH, GET], Err(409)).await;
    let answers = [Answer::Refused(422), Answer::Refused(404)];
    check(Some("7"), &answers, &[PATCH, GET], Err(404)).await;
}

#[tokio::test]
async fn what_does_not_depend_on_a_version_is_tried_again() {
    let there = |version| Answer::Protobuf("u", version);
    let answers = [
        Answer::Refused(422),
        there("7"),
        Answer::Refused(409),
        Answer::Claim,
        there("8"),
        Answer::Claim,
    ];
    let asked = [PATCH, GET, PUT, READ, GET, PUT];
    check(None, &answers, &asked, Ok(())).await;
}

#[tokio::test]
async fn a_server_without_protobuf_means_what_it_says() {
    let answers = [Answer::Refused(422), Answer::Refused(406)];
    check(None, &answers, &[PATCH, GET], Err(422)).await;
}
