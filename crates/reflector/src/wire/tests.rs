use std::sync::{Arc, Mutex};

use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{Collection, Observed, Writes, reflect};

fn map(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "resourceVersion": version}, "data": {"k": "v"},
    })
}

fn body(object: &Value) -> Vec<u8> {
    protobuf::encode(object, protobuf::compact).unwrap()
}

fn frame(kind: &str, object: &Value) -> Vec<u8> {
    protobuf::frame(kind, object, protobuf::compact).unwrap()
}

fn status(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "Expired", "code": code})
}

/// A server that returns responses in turn, with this content type, and records the requests.
fn server(
    answers: Vec<(u16, &'static str, Vec<u8>)>,
    done: CancellationToken,
) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let answers = Arc::new(Mutex::new(answers.into_iter()));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answer) = (log.clone(), answers.lock().unwrap().next());
        if answer.is_none() {
            done.cancel();
        }
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let header = |name| {
                let value = head.headers.get(name);
                value.map_or("-", |value: &HeaderValue| value.to_str().unwrap())
            };
            let same = match protobuf::is_protobuf(&body) {
                true => protobuf::to_json(&body, everything).unwrap().text,
                false => String::from_utf8(body.to_vec()).unwrap(),
            };
            let said = format!("{} {} {same}", header(ACCEPT), header(CONTENT_TYPE));
            // A request after the last response may or may not arrive before the end.
            if answer.is_some() {
                log.lock().unwrap().push(said);
            }
            let (code, kind, body) = answer.unwrap_or((500, JSON, Vec::new()));
            let answer = Response::builder().status(code).header(CONTENT_TYPE, kind);
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer.body(Body::from(body))?)
        }
    });
    (Client::new(service, "default"), asked)
}

#[tokio::test(start_paused = true)]
async fn lists_and_watches_in_protobuf() {
    const STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";
    let list = |version: &str, items: &[Value]| {
        body(&json!({
            "apiVersion": "v1", "kind": "ConfigMapList",
            "metadata": {"resourceVersion": version}, "items": items,
        }))
    };
    let one = [map("a", "1")];
    let bookmark =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "6"}});
    let events = [
        frame("ADDED", &map("b", "4")),
        frame("DELETED", &map("a", "5")),
        frame("BOOKMARK", &bookmark),
    ];
    let cut = frame("MODIFIED", &map("b", "7"));
    let old = frame("ERROR", &status(410));
    let too_long = [u32::MAX.to_be_bytes().to_vec(), vec![0; 9]].concat();
    let answers = vec![
        (503, PROTOBUF, body(&status(503))),
        (200, PROTOBUF, list("3", &one)),
        (200, STREAM, events.concat()),
        (200, STREAM, cut[..cut.len() - 3].to_vec()),
        (200, STREAM, too_long),
        (200, STREAM, [cut, old].concat()),
        (200, PROTOBUF, list("8", &one)),
        (410, PROTOBUF, body(&status(410))),
        (200, PROTOBUF, list("9", &[])),
    ];
    let count = answers.len();
    let shutdown = CancellationToken::new();
    let (client, asked) = server(answers, shutdown.clone());
    let seen = Mutex::new(Vec::new());
    let keep = |of: &str, field: &str| (of, field) != ("ConfigMap", "data");
    let all = Collection::new(Api::<ConfigMap>::all(client), None);
    reflect::<ConfigMap, _>(all, keep, shutdown, |observed| {
        let name = |map: &ConfigMap| {
            assert_eq!(map.data, None);
            map.metadata.name.clone().unwrap_or_default()
        };
        seen.lock().unwrap().push(match observed {
            Observed::Listed { items, version } => {
                let names: Vec<String> = items.iter().map(name).collect();
                format!("{} at {version}", names.join(" "))
            }
            Observed::Applied(map) => format!("+{}", name(&map)),
            Observed::Deleted(map) => format!("-{}", name(&map)),
        });
        true
    })
    .await;
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen, ["a at 3", "+b", "-a", "+b", "a at 8", " at 9"]);
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), count);
    assert!(asked.iter().all(|said| said.starts_with(BOTH)), "{asked:?}");
}

#[tokio::test]
async fn objects_are_written_in_what_the_server_answers_in() {
    let whole = map("c", "1");
    let mut strange = whole.clone();
    strange["later"] = json!({"x": 1});
    let in_json = |value: &Value| value.to_string().into_bytes();
    let answers = vec![
        (200, JSON, in_json(&whole)),
        (200, PROTOBUF, body(&whole)),
        (200, PROTOBUF, body(&whole)),
        (200, PROTOBUF, body(&whole)),
        (409, PROTOBUF, body(&status(409))),
        (200, JSON, in_json(&whole)),
        (200, JSON, in_json(&whole)),
    ];
    let (client, asked) = server(answers, CancellationToken::new());
    let writes = Writes::new(client);
    for object in [&whole, &whole, &whole, &strange, &whole, &whole, &whole] {
        let wrote = writes.send::<ConfigMap>(Method::PUT, "/m", object, everything);
        match wrote.await {
            Ok(map) => assert_eq!(map.metadata.name.as_deref(), Some("c")),
            Err(Error::Api(status)) => assert_eq!((status.code, &*status.message), (409, "no")),
            Err(error) => panic!("{error}"),
        }
    }
    let asked = asked.lock().unwrap();
    let kinds: Vec<&str> = asked
        .iter()
        .map(|said| said.split(' ').nth(1).unwrap())
        .collect();
    // The fourth has a field that no message has; an answer in JSON ends it.
    assert_eq!(
        kinds,
        [JSON, JSON, PROTOBUF, JSON, PROTOBUF, PROTOBUF, JSON]
    );
    for (said, object) in asked
        .iter()
        .zip([&whole, &whole, &whole, &strange, &whole, &whole, &whole])
    {
        let (_, sent) = said.split_once(" ").unwrap().1.split_once(' ').unwrap();
        assert_eq!(serde_json::from_str::<Value>(sent).unwrap(), *object);
    }
}

#[tokio::test]
async fn what_is_refused_in_protobuf_is_sent_in_json() {
    let whole = map("c", "1");
    let in_json = whole.to_string().into_bytes();
    let answers = vec![
        (200, PROTOBUF, body(&whole)),
        (415, JSON, status(415).to_string().into_bytes()),
        (200, JSON, in_json.clone()),
        (200, JSON, in_json),
    ];
    let (client, asked) = server(answers, CancellationToken::new());
    let writes = Writes::new(client);
    for _ in 0..3 {
        let wrote = writes.send::<ConfigMap>(Method::PUT, "/m", &whole, everything);
        let wrote = wrote.await.unwrap();
        assert_eq!(wrote.metadata.name.as_deref(), Some("c"));
    }
    let asked = asked.lock().unwrap();
    let kinds: Vec<&str> = asked
        .iter()
        .map(|said| said.split(' ').nth(1).unwrap())
        .collect();
    assert_eq!(kinds, [JSON, PROTOBUF, JSON, JSON]);
}

#[tokio::test]
async fn errors_that_cannot_be_read_keep_their_code() {
    let answers = vec![
        (
            503,
            PROTOBUF,
            [protobuf::MAGIC.to_vec(), vec![0xff]].concat(),
        ),
        (502, "text/plain", b"\xff".to_vec()),
    ];
    let (client, _) = server(answers, CancellationToken::new());
    for code in [503, 502] {
        let request = Request::get("/m").body(Vec::new()).unwrap();
        match send(&client, request, true).await {
            Err(Error::Api(status)) => assert_eq!(status.code, code),
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("no error"),
        }
    }
}
