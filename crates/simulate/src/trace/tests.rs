use serde_json::json;

use super::*;

fn read(text: &str) -> anyhow::Result<Workload> {
    let mut workload = Workload::default();
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trainer"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let (features, now) = (Features::default(), Timestamp::UNIX_EPOCH);
    workload.add(vec![manifest], "team", &[], &features, now)?;
    workload.arrivals.clear();
    add(&mut workload, text, "team", &features, now)?;
    Ok(workload)
}

fn summary(workload: &Workload) -> Vec<(u64, &str, u32, Option<u64>)> {
    let arrivals = workload.arrivals.iter();
    arrivals
        .map(|a| {
            (
                a.at.as_secs(),
                &*a.name,
                a.draft,
                a.duration.map(|d| d.as_secs()),
            )
        })
        .collect()
}

#[test]
fn csv_and_json_say_the_same() {
    let csv = "at,duration,name,class,devices,capacity,cpu,count,like\n\
               0,1h,a,gpu,2,memory=10Gi,4,,\n\
               5,,,gpu,2,memory=10Gi,4,2,\n\
               90,30,b,,,,,,trainer\n";
    let json = r#"{"at": 0, "duration": "1h", "name": "a", "class": "gpu", "devices": 2, "capacity": "memory=10Gi", "cpu": "4"}
                  {"at": 5, "class": "gpu", "devices": 2, "capacity": "memory=10Gi", "cpu": 4, "count": 2}
                  {"at": "90s", "duration": 30, "name": "b", "like": "trainer"}"#;
    let expected = [
        (0, "a", 1, Some(3600)),
        (5, "trace-2-0", 1, None),
        (5, "trace-2-1", 1, None),
        (90, "b", 0, Some(30)),
    ];
    for text in [csv, json] {
        let workload = read(text).expect("a trace");
        assert_eq!(summary(&workload), expected);
        let template = &workload.objects[0];
        let exactly = &template["spec"]["spec"]["devices"]["requests"][0]["exactly"];
        assert_eq!(exactly["count"], 2);
        assert_eq!(exactly["capacity"]["requests"], json!({"memory": "10Gi"}));
    }
}

#[test]
fn rows_that_can_not_be_read_are_named() {
    for (text, expected) in [
        ("at\nx\n", "row 1 of the trace: at: \"x\" is no duration"),
        ("name\na\n", "the trace has no column \"at\""),
        (
            "at,gpus\n0,1\n",
            "the trace has a column \"gpus\", which is none of at, ",
        ),
        (
            "at,like\n0,nobody\n",
            "row 1 of the trace: no pod or workload of the manifests is named \"nobody\"",
        ),
        (
            "at,like,cpu\n0,trainer,1\n",
            "row 1 of the trace: a row with \"like\" has no cpu",
        ),
        (
            "at,count\n0,1\n0,-1\n",
            "row 2 of the trace: count is no number",
        ),
        (
            "at,count\n0,99999999999\n",
            "row 1 of the trace: count is too large",
        ),
        ("at,cpu\n0,much\n", "row 1 of the trace: cpu \"much\""),
        (
            "at,class,capacity\n0,gpu,10Gi\n",
            "row 1 of the trace: capacity \"10Gi\" is not name=amount",
        ),
        (
            r#"[{"at": 0, "gpus": 1}]"#,
            "row 1 of the trace: there is no column \"gpus\"",
        ),
        (
            r#"[{"at": []}]"#,
            "row 1 of the trace: at is no text or number: []",
        ),
        ("[1]", "row 1 of the trace is no object"),
        ("{", "the trace is no JSON"),
    ] {
        let error = format!("{:#}", read(text).expect_err(text));
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}
