//! HTTP calls: the request, the answer, and the result.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::TestDb;
use crate::support::http_server::{HttpServer, Request};

fn enqueue(db: &TestDb, payload: &Value) -> i64 {
    db.enqueue(["http", &payload.to_string()])
}

fn tick(db: &TestDb) {
    db.jobctl(["tick", "--quiet", "--concurrency", "1"]).run().success().stdout("");
}

/// Asserts that a call succeeds, and returns the request that the server received.
#[track_caller]
fn call_and_take_request(db: &TestDb, server: &HttpServer, path: &str, payload: &Value) -> Request {
    let mut payload = payload.clone();
    payload["url"] = server.url(path).into();
    let id = enqueue(db, &payload);
    tick(db);
    assert_eq!(db.status(id), "succeeded", "{payload}\n{}", db.dump());
    let request = server.requests().pop().unwrap();
    assert_eq!(request.path, path);
    request
}

fn headers<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[test]
fn a_call_sends_its_payload_and_names_its_run() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let host = server.url("").split_once("//").unwrap().1.to_owned();
    let agent = format!("jobctl/{}", env!("CARGO_PKG_VERSION"));
    let path = "/echo?a=1&b=%20c";

    // Without a body, the method is GET. These headers are sent with each call.
    let request = call_and_take_request(&db, &server, path, &json!({}));
    assert_eq!(request.method, "GET");
    assert_eq!(request.body, b"");
    let sent_with_each_call = |id: i64| {
        [
            ("accept", "*/*".to_owned()),
            ("host", host.clone()),
            ("user-agent", agent.clone()),
            ("idempotency-key", format!("jobctl-run-{id}")),
            ("x-jobctl-attempt", "1".to_owned()),
            ("x-jobctl-run-id", id.to_string()),
        ]
    };
    // The first call is run 1, and the second one is run 2.
    assert_eq!(request.headers, headers(sent_with_each_call(1)));

    // With a body, the method is POST. The payload adds headers, but it can't replace the run's id.
    let payload = json!({
        "json": {"id": 5, "of": ["ü", null]},
        "headers": {"X-Api-Key": "k", "x-jobctl-run-id": "0"},
    });
    let request = call_and_take_request(&db, &server, path, &payload);
    let body = r#"{"id": 5, "of": ["ü", null]}"#;
    assert_eq!(request.method, "POST");
    assert_eq!(String::from_utf8(request.body).unwrap(), body);
    let given = [
        ("content-length", body.len().to_string()),
        ("content-type", "application/json".to_owned()),
        ("x-api-key", "k".to_owned()),
    ];
    assert_eq!(request.headers, headers(sent_with_each_call(2).into_iter().chain(given)));
}

#[test]
fn every_method_is_sent_with_and_without_a_body() {
    let db = TestDb::new();
    let server = HttpServer::start();
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let request = call_and_take_request(
            &db,
            &server,
            "/status/200",
            &json!({"method": method.to_ascii_lowercase()}),
        );
        assert_eq!(request.method, method);
        assert_eq!(request.body, b"");
        // Servers expect a body of these methods, so its length is sent even if it is 0.
        let empty = matches!(method, "POST" | "PUT" | "PATCH").then_some("0");
        assert_eq!(request.headers.get("content-length").map(String::as_str), empty, "{method}");

        let request = call_and_take_request(
            &db,
            &server,
            "/status/200",
            &json!({"method": method, "body": "a\nü"}),
        );
        assert_eq!(request.method, method);
        assert_eq!(request.body, "a\nü".as_bytes());
    }
}

#[test]
fn an_url_is_escaped_and_a_null_or_an_empty_body_is_a_body() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let id = enqueue(&db, &json!({"url": server.url("/echo?straße=ü")}));
    tick(&db);
    assert_eq!(db.status(id), "succeeded");
    assert_eq!(server.requests().pop().unwrap().path, "/echo?stra%C3%9Fe=%C3%BC");

    // A call with a body is a POST.
    let request = call_and_take_request(&db, &server, "/status/200", &json!({"json": null}));
    assert_eq!(request.method, "POST");
    assert_eq!(request.body, b"null");

    // An empty text is a body, too.
    let request = call_and_take_request(
        &db,
        &server,
        "/status/200",
        &json!({"body": "", "headers": {"content-type": "text/plain"}}),
    );
    assert_eq!(request.method, "POST");
    assert_eq!(request.headers["content-type"], "text/plain");
}

#[test]
fn the_idempotency_key_is_the_same_on_every_attempt() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // This address answers 500 to the first two requests, and then 200.
    let url = |id: &str| json!({"url": server.url(&format!("/fail/2/{id}"))}).to_string();
    let plain = db.enqueue(["http", &url("plain")]);
    let keyed = db.enqueue(["http", &url("keyed"), "--key", "weekly: ü"]);
    for _ in 0..3 {
        tick(&db);
        db.make_waiting_runs_due();
    }
    // The run, its path, and its key as a header, in which other characters than ASCII are escaped.
    for (id, path, key) in [
        (plain, "/fail/2/plain", format!("jobctl-run-{plain}")),
        (keyed, "/fail/2/keyed", "weekly:%20%C3%BC".to_owned()),
    ] {
        assert_eq!(db.of_run(id, "status, attempts"), "succeeded|3");
        let requests = server.requests().into_iter().filter(|request| request.path == path);
        let seen: Vec<_> = requests
            .map(|request| {
                ["idempotency-key", "x-jobctl-attempt", "x-jobctl-run-id"]
                    .map(|name| request.headers[name].clone())
            })
            .collect();
        assert_eq!(
            seen,
            ["1", "2", "3"].map(|attempt| [key.clone(), attempt.to_owned(), id.to_string()])
        );
    }
    assert_eq!(
        db.query(
            "SELECT attempt, outcome, http_status FROM jobctl.job_attempts ORDER BY run_id, attempt"
        ),
        "1|failed|500\n2|failed|500\n3|succeeded|200\n".repeat(2).trim_end()
    );
}

#[test]
fn the_http_status_decides_the_next_status() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // The HTTP status, the next status of the run, and the error.
    let mut runs = Vec::new();
    for status in [200, 201, 202, 204, 299] {
        runs.push((status, "succeeded", String::new()));
    }
    for status in [301, 302, 303, 307, 308] {
        runs.push((status, "dead", format!("HTTP status {status}, redirect not followed")));
    }
    for status in [300, 304, 305, 306, 399, 400, 401, 403, 404, 405, 409, 410, 422, 451, 499] {
        runs.push((status, "dead", format!("HTTP status {status}")));
    }
    for status in [408, 425, 429, 500, 501, 502, 503, 504, 599] {
        runs.push((status, "failed", format!("HTTP status {status}")));
    }
    let url = |status: i32| {
        server.url(&format!("/status/{status}?location={}", server.url("/status/200")))
    };
    let runs: Vec<_> =
        runs.into_iter().map(|run| (enqueue(&db, &json!({"url": url(run.0)})), run)).collect();
    tick(&db);
    for (id, (status, becomes, error)) in &runs {
        let (outcome, kind) =
            if error.is_empty() { ("succeeded", "") } else { ("failed", "http_status") };
        assert_eq!(
            db.of_run(*id, "status, attempts, error_type, last_error"),
            format!("{becomes}|1|{kind}|{error}")
        );
        let is_redirect = error.ends_with("not followed");
        let note = if is_redirect { "; `redirects` is 0" } else { "" };
        assert_eq!(
            db.of_attempt(*id, 1, "outcome, error_type, error, http_status, exit_code, signal"),
            format!("{outcome}|{kind}|{error}{note}|{status}||")
        );
    }
    // The server got one request of each run: no redirect was followed, and no call repeated.
    assert_eq!(server.requests().len(), runs.len());
}

#[test]
fn an_answer_is_kept_as_output() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let empty = enqueue(&db, &json!({"url": server.url("/status/204")}));
    let short = enqueue(&db, &json!({"url": server.url("/echo"), "body": "grün"}));
    // At most 64 KiB of an answer are kept.
    let fits = enqueue(&db, &json!({"url": server.url("/bytes/65536")}));
    let long = enqueue(&db, &json!({"url": server.url("/bytes/200000")}));
    let refused = enqueue(&db, &json!({"url": server.url("/nowhere")}));
    tick(&db);
    let kept = |id| {
        db.of_attempt(
            id,
            1,
            "http_status, output_bytes, output_truncated, left(output, 20), length(output)",
        )
    };
    assert_eq!(kept(empty), "204|0|f||");
    assert_eq!(kept(short), "200|5|f|grün|4");
    assert_eq!(kept(fits), format!("200|65536|f|{}|65536", "x".repeat(20)));
    assert_eq!(kept(long), format!("200|200000|t|{}|65536", "x".repeat(20)));
    assert_eq!(kept(refused), "404|17|f|no such behaviour|17");
    assert_eq!(db.status(long), "succeeded");
}

#[test]
fn variables_in_header_values_come_from_the_ticks_environment() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // Only `${NAME}` in a header is replaced, and its value is not searched for names again.
    let headers = json!({
        "Authorization": "Bearer ${APP_TOKEN}",
        "X-Two": "${APP_TOKEN}/${APP_NAME}}",
        "X-Plain": "$APP_TOKEN {APP_TOKEN} $",
        "X-Nested": "${APP_NESTED}",
    });
    let url = server.url("/status/200?t=$APP_TOKEN");
    let id = enqueue(&db, &json!({"url": url, "headers": headers, "body": "${APP_TOKEN}"}));
    let tick = db
        .jobctl(["tick"])
        .env("APP_TOKEN", "s3cret")
        .env("APP_NAME", "n")
        .env("APP_NESTED", "${APP_TOKEN}");
    tick.run().success().prints_nowhere("s3cret");
    assert_eq!(db.status(id), "succeeded", "{}", db.dump());
    let request = server.requests().pop().unwrap();
    assert_eq!(
        ["authorization", "x-two", "x-plain", "x-nested"]
            .map(|name| request.headers[name].as_str()),
        ["Bearer s3cret", "s3cret/n}", "$APP_TOKEN {APP_TOKEN} $", "${APP_TOKEN}"]
    );
    // Neither the body nor the URL has the value, nor does the database.
    assert_eq!(request.body, b"${APP_TOKEN}");
    assert!(!request.path.contains("s3cret") && !db.dump().contains("s3cret"));
}

#[test]
fn a_missing_or_invalid_variable_fails_transiently_without_a_call() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let call = |value: &str| {
        enqueue(&db, &json!({"url": server.url("/status/200"), "headers": {"X-Key": value}}))
    };
    // The tick has the last two variables, one empty and one with a line break.
    let absent = call("${APP_ABSENT}");
    let empty = call("Bearer ${APP_EMPTY}");
    let broken = call("${APP_BROKEN}");
    db.jobctl(["tick"])
        .env("APP_BROKEN", "s3cret\r\nX-Smuggled: 1")
        .env("APP_EMPTY", "")
        .run()
        .success()
        .prints_nowhere("s3cret");
    assert_eq!(
        db.of_run(absent, "status, attempts, error_type, last_error"),
        "failed|1|spawn|could not start: header `X-Key` names a variable that is unset or empty"
    );
    assert_eq!(
        db.of_run(empty, "last_error"),
        "could not start: header `X-Key` names a variable that is unset or empty"
    );
    // Only the history names the variable.
    assert_eq!(
        db.of_attempt(absent, 1, "error"),
        "could not start: header `X-Key` names a variable that is unset or empty; the variable \
         is `APP_ABSENT`"
    );
    assert_eq!(
        db.of_run(broken, "status, attempts, error_type, last_error"),
        "failed|1|spawn|could not start: header `X-Key` has a character that HTTP does not allow"
    );
    assert_eq!(server.connections(), 0);
}

#[test]
fn variables_with_the_database_address_are_never_sent() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let variables =
        ["JOBCTL_DATABASE_URL", "JOBCTL_ANYTHING", "PGPASSWORD", "PGHOST", "DATABASE_URL"];
    // `enqueue` refuses such a call. A tick refuses it if another program wrote it to the table.
    let runs = variables.map(|name| {
        let headers = json!({"X-Key": format!("a ${{{name}}}")});
        let payload = json!({"url": server.url("/status/200"), "headers": headers});
        db.jobctl(["enqueue", "http", &payload.to_string()])
            .run()
            .exits(2)
            .stdout("")
            .stderr_has("header `X-Key` names a database variable")
            .complains_once();
        let id = enqueue(&db, &json!({"url": "http://localhost/"}));
        db.execute(&format!("UPDATE jobctl.job_runs SET payload = '{payload}' WHERE id = {id}"));
        id
    });
    // Set the variables, except the two with which this tick itself connects to the database.
    let mut tick = db.jobctl(["tick"]);
    for name in
        variables.into_iter().filter(|name| *name != "JOBCTL_DATABASE_URL" && *name != "PGHOST")
    {
        tick = tick.env(name, "s3cret");
    }
    tick.run().success().prints_nowhere("s3cret");
    for id in runs {
        assert_eq!(db.of_run(id, "status, attempts, error_type"), "dead|1|bad_payload");
        assert!(db.of_run(id, "last_error").contains("header `X-Key` names a database variable"));
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn calls_of_one_tick_share_a_connection() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let runs = [(); 5].map(|()| enqueue(&db, &json!({"url": server.url("/echo"), "json": 1})));
    tick(&db);
    for id in runs {
        assert_eq!(db.status(id), "succeeded");
    }
    assert_eq!(server.requests().len(), 5);
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_proxy_in_the_environment_is_ignored() {
    let db = TestDb::new();
    let (server, proxy) = (HttpServer::start(), HttpServer::start());
    let id = enqueue(&db, &json!({"url": server.url("/status/200")}));
    // All variables that name a proxy have the address of the second server.
    let mut tick = db.jobctl(["tick"]);
    let address = proxy.url("");
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
    {
        tick = tick.env(name, &address);
    }
    tick.run().success();
    assert_eq!(db.status(id), "succeeded");
    assert_eq!(server.connections(), 1);
    assert_eq!(proxy.connections(), 0);
}

#[test]
fn no_secret_of_a_call_is_logged_or_listed() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let call = |url: String| {
        let headers = json!({"Authorization": "Bearer s3cret"});
        json!({"url": url, "headers": headers, "json": {"password": "s3cret"}}).to_string()
    };
    // Calls that fail in different ways: by the answer, the connection, and the name.
    let urls = [
        server.url("/status/404?token=s3cret"),
        server.url("/status/302?token=s3cret&location=/s3cret"),
        server.url("/close?token=s3cret"),
        server.url("/garbage?token=s3cret"),
        "http://127.0.0.1:1/?token=s3cret".to_owned(),
        "https://127.0.0.1:1/?token=s3cret".to_owned(),
        "http://no-such-host.invalid/?token=s3cret".to_owned(),
    ];
    for url in &urls {
        db.enqueue(["http", &call(url.clone()), "--max-attempts", "1"]);
    }
    db.jobctl(["tick"]).env("RUST_LOG", "trace").run().success().prints_nowhere("s3cret");
    assert_eq!(
        db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'dead'"),
        urls.len().to_string()
    );
    db.jobctl(["list-dead"]).run().success().prints_nowhere("s3cret");
    db.jobctl(["failures"]).run().success().stdout_has("http").prints_nowhere("s3cret");
    let said = db.query(
        "SELECT last_error FROM jobctl.job_runs UNION ALL SELECT error FROM jobctl.job_attempts",
    );
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn a_call_ends_at_its_timeout_whatever_the_server_does() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let hangs = ["/silent", "/drip-header", "/drip-body", "/slow/600000"].map(|path| {
        let own = enqueue(&db, &json!({"url": server.url(path), "timeout": "1s"}));
        // The run's timeout takes precedence over the call's.
        let of_run = db.enqueue([
            "http",
            &json!({"url": server.url(path), "timeout": "1h"}).to_string(),
            "--timeout",
            "1s",
        ]);
        (path, [own, of_run])
    });
    // An error status is the answer, even if its body never ends.
    let not_found = enqueue(&db, &json!({"url": server.url("/drip-body/404"), "timeout": "1s"}));
    let in_time = enqueue(&db, &json!({"url": server.url("/slow/100"), "timeout": "1h"}));
    db.jobctl(["tick", "--concurrency", "10"]).run().success();
    for (path, runs) in hangs {
        // Only the answer of this address has a complete head.
        let answered = if path == "/drip-body" { "200" } else { "" };
        for id in runs {
            assert_eq!(
                db.of_run(id, "status, attempts, error_type, last_error"),
                "failed|1|timeout|timed out after 1s",
                "{path}"
            );
            assert_eq!(db.of_attempt(id, 1, "http_status"), answered, "{path}");
        }
    }
    assert_eq!(db.of_run(not_found, "status, last_error"), "dead|HTTP status 404");
    assert_eq!(db.status(in_time), "succeeded");
}
