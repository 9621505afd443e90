//! Faulty and malicious HTTP servers.

use std::net::TcpListener;

use serde_json::json;

use crate::support::TestDb;
use crate::support::http_server::{BlackHole, HttpServer};

fn enqueue(db: &TestDb, url: &str) -> i64 {
    db.enqueue(["http", &json!({"url": url, "body": "x"}).to_string()])
}

#[test]
fn a_call_without_a_complete_answer_fails_and_notes_an_unknown_outcome() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let peer = server.url("").split_once("//").unwrap().1.to_owned();
    // The address, the error, and the HTTP status, if the server sends one before it fails.
    let hostile = [
        (
            "/reset",
            "the connection failed: Connection reset by peer (os error 104); outcome unknown",
            "",
        ),
        (
            "/close",
            "the server closed the connection before its answer was complete; outcome unknown",
            "",
        ),
        (
            "/truncated",
            "the server closed the connection before its answer was complete; outcome unknown",
            "200",
        ),
        (
            "/garbage",
            "the answer is not valid HTTP, or has more than 128 headers; outcome unknown",
            "",
        ),
        (
            "/headers/500",
            "the answer is not valid HTTP, or has more than 128 headers; outcome unknown",
            "",
        ),
        (
            "/cut-body",
            "the server closed the connection before its answer was complete; outcome unknown",
            "200",
        ),
        ("/big-header", "the answer has a header longer than 64 KiB; outcome unknown", ""),
    ];
    let runs =
        hostile.map(|(path, error, status)| (enqueue(&db, &server.url(path)), path, error, status));
    db.jobctl(["tick", "--quiet"]).run().success().stderr("");
    for (id, path, error, status) in &runs {
        assert_eq!(
            db.of_run(*id, "status, attempts, error_type, last_error"),
            format!("failed|1|transport|{error}"),
            "{path}"
        );
        assert_eq!(
            db.of_attempt(*id, 1, "outcome, http_status, error"),
            format!("failed|{status}|{error}; the server is `{peer}`"),
            "{path}"
        );
    }
    // Each attempt sends one request, which has the attempt's number.
    assert_eq!(server.requests().len(), runs.len());
    db.make_waiting_runs_due();
    db.jobctl(["tick", "--quiet"]).run().success();
    for (id, path, ..) in &runs {
        let requests = server.requests();
        let mut sent: Vec<_> = requests.iter().filter(|request| request.path == *path).collect();
        assert_eq!(sent.len(), 2, "{path}");
        sent.sort_by_key(|request| &request.headers["x-jobctl-attempt"]);
        for (request, attempt) in sent.iter().zip(["1", "2"]) {
            assert_eq!(request.headers["idempotency-key"], format!("jobctl-run-{id}"));
            assert_eq!(request.headers["x-jobctl-attempt"], attempt);
        }
    }
}

/// The server keeps the connection open. So a call that took the character for a part of the answer
/// and waited for more would time out.
#[test]
fn an_answer_with_wrong_control_characters_fails_at_once() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // A control character in the status line, in a value and in a name of a header.
    let headers = ["\0", "\r", "\u{1b}[31m", "\u{7f}"].iter().flat_map(|wrong| {
        [
            format!("200 O{wrong}K"),
            format!("200 OK\r\nA: b{wrong}c"),
            format!("200 OK\r\nA{wrong}: b"),
        ]
    });
    let headers = headers.map(|head| format!("{head}\r\nContent-Length: 1\r\n\r\nx"));
    // Chunks whose lines end without `\r`.
    let bodies =
        ["1\nx\n0\n\n", "1\r\nx\n0\r\n\r\n", "1\r\nx\r\n0\n\n", "1\r\nx\r\n0\r\n\n"].iter();
    let bodies = bodies.map(|body| format!("200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
    let runs: Vec<_> = headers
        .chain(bodies)
        .map(|answer| {
            let url = server.url_with("/raw-kept", format!("HTTP/1.1 {answer}"));
            (enqueue(&db, &url), answer)
        })
        .collect();
    let tick = db.jobctl(["tick", "--concurrency", "8"]).run().success();
    // None of the characters reaches the terminal.
    assert!(!tick.stderr.contains(|c: char| c.is_control() && c != '\n'), "{tick}");
    let error = "the answer is not valid HTTP, or has more than 128 headers; outcome unknown";
    for (id, answer) in runs {
        assert_eq!(
            db.of_run(id, "status, error_type, last_error"),
            format!("failed|transport|{error}"),
            "{answer:?}"
        );
    }
}

#[test]
fn only_history_and_log_name_an_unreachable_server() {
    let db = TestDb::new();
    let hole = BlackHole::open();
    // A port without a server.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let peer = hole.url().trim_start_matches("http://").trim_end_matches('/').to_owned();
    let silent = enqueue(&db, &hole.url());
    let refused = enqueue(&db, &format!("http://{closed}/"));
    let unknown = enqueue(&db, "http://no-such-host.invalid/");
    let log = db.jobctl(["tick"]).run().success();
    let closed = closed.to_string();
    // The run, its error, and the server, which may be a secret.
    for (id, why, server) in [
        (silent, "no connection to the server within 5s", peer.as_str()),
        (refused, "cannot connect to the server: Connection refused (os error 111)", &closed),
        (unknown, "cannot look up the server: ", "no-such-host.invalid:80"),
    ] {
        let error = db.of_run(id, "error_type || ' ' || last_error");
        assert!(
            error.starts_with(&format!("transport {why}")) && !error.contains(server),
            "{error}"
        );
        let named = format!("; the server is `{server}`");
        assert!(db.of_attempt(id, 1, "error").ends_with(&named), "{}", db.dump());
        assert!(log.stderr.contains(&named), "{log}");
    }
}

#[test]
fn the_beginning_of_an_endless_answer_is_kept_in_little_memory() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // The tick makes these calls one after the other. The first one takes the memory that each call
    // needs. Three endless answers and a large one follow.
    let first = enqueue(&db, &server.url("/status/200"));
    let before = db.enqueue_that_prints_peak_memory();
    let endless = [1, 2, 3].map(|_| enqueue(&db, &server.url("/endless")));
    let large = enqueue(&db, &server.url("/bytes/50000000"));
    let after = db.enqueue_that_prints_peak_memory();
    db.jobctl(["tick", "--concurrency", "1"]).run().success();
    assert_eq!(db.status(first), "succeeded");
    for id in endless {
        assert_eq!(
            db.of_attempt(
                id,
                1,
                "outcome, http_status, output_bytes > 65536, output_truncated, length(output)"
            ),
            "succeeded|200|t|t|65536"
        );
    }
    assert_eq!(
        db.of_attempt(large, 1, "outcome, output_bytes, output_truncated, length(output)"),
        "succeeded|50000000|t|65536"
    );
    let (before, after) = (db.peak_memory(before), db.peak_memory(after));
    assert!(after - before < 8 * 1024, "grew from {before} KiB to {after} KiB");
}

#[test]
fn a_binary_answer_is_stored_as_text() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let binary = enqueue(&db, &server.url("/binary"));
    let gzip = enqueue(&db, &server.url("/gzip"));
    db.jobctl(["tick", "--quiet"]).run().success().stderr("");
    assert_eq!(db.of_attempt(binary, 1, "outcome, http_status, output_bytes"), "succeeded|200|256");
    let text = db.of_attempt(binary, 1, "output");
    assert!(text.starts_with("\u{fffd}\u{1}\u{2}") && text.ends_with('\u{fffd}'), "{text:?}");
    // Never decompressed: a small answer could become a very large one.
    assert_eq!(db.of_attempt(gzip, 1, "outcome, right(output, 12)"), "succeeded|not inflated");
    assert!(!server.requests()[1].headers.contains_key("accept-encoding"));
}

#[test]
fn a_call_is_sent_again_if_the_server_closes_a_kept_connection() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let call = |method: &str| {
        let call = json!({"url": server.url("/close-kept"), "method": method, "body": "x"});
        db.enqueue(["http", &call.to_string()])
    };
    let calls = ["POST", "PUT", "DELETE"].map(call);
    db.jobctl(["tick", "--quiet", "--concurrency", "1"]).run().success().stderr("");
    for id in calls {
        assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
    }
    // The second call reuses the connection of the first one. The server closes it, so the call is
    // sent again on a new connection, which the third call reuses.
    let requests_of_runs: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.headers["x-jobctl-run-id"].clone())
        .collect();
    let expected = [calls[0], calls[1], calls[1], calls[2], calls[2]].map(|id| id.to_string());
    assert_eq!(requests_of_runs, expected.to_vec());
    assert_eq!(server.connections(), 3);
    // POST and PATCH are not sent again: the server may have done already what they ask for.
    for method in ["POST", "PATCH"] {
        let [first, second] = ["GET", method].map(call);
        let sent = server.requests().len();
        db.jobctl(["tick", "--quiet", "--concurrency", "1"]).run().success();
        assert_eq!(db.status(first), "succeeded");
        assert_eq!(server.requests().len() - sent, 2);
        let error =
            "the server closed the connection before its answer was complete; outcome unknown";
        assert_eq!(db.of_run(second, "status, last_error"), format!("failed|{error}"));
        db.execute("DELETE FROM jobctl.job_runs");
    }
}

/// RFC 9112 forbids servers to fold headers, and asks clients to join those that are folded.
#[test]
fn a_retry_after_header_that_is_folded_over_two_lines_is_obeyed() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // Its answer has status 503 and the header `Retry-After: 7200`, folded over two lines: the
    // seconds are in the second line.
    let id = enqueue(&db, &server.url("/folded"));
    db.jobctl(["tick"]).run().success();
    // The run waits for two hours. The default backoff is at most 30 minutes.
    assert_eq!(
        db.of_run(id, "last_error, run_at > now() + interval '1 hour'"),
        "HTTP status 503|t"
    );
    assert_eq!(db.of_attempt(id, 1, "http_status, output"), "503|no");
}

/// RFC 9110, section 10.1.1: a client waits a limited time for the answer to `Expect`.
#[test]
fn a_body_is_sent_to_a_server_that_ignores_expect() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let call = |url: String| {
        let headers = json!({"Expect": "100-continue"});
        let call = json!({"url": url, "body": "x", "headers": headers, "timeout": "20s"});
        db.enqueue(["http", &call.to_string()])
    };
    // This address ignores `Expect`: it waits for the body.
    let ignored = call(server.url("/echo"));
    // These answers ask for the body.
    let asked = [
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 100 Continue\r\nDate: now\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
    ]
    .map(|interim| call(server.url_with("/interim", interim)));
    // After 417, RFC 9110 asks clients to repeat the call without `Expect`.
    let unable = call(server.url_with("/early", "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n"));
    // The server refuses the body. Then `early` closes the connection, and `early-kept` does not.
    let refused = ["/early", "/early-kept"].map(|path| {
        call(server.url_with(path, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"))
    });
    // The server answers before it reads the body, and keeps the connection open.
    let kept = ["200 OK", "417 No"].map(|status| {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 1\r\n\r\nx");
        call(server.url_with("/early-kept", &answer))
    });
    db.jobctl(["tick", "--concurrency", "8"]).run().success();
    for id in asked.into_iter().chain([ignored, unable]).chain(kept) {
        assert_eq!(db.of_run(id, "status, last_error"), "succeeded|", "{}", db.dump());
        assert_eq!(db.of_attempt(id, 1, "output"), "x");
    }
    for id in refused {
        assert_eq!(db.of_run(id, "status, last_error"), "dead|HTTP status 413");
    }
}

/// curl accepts these answers, too.
#[test]
fn a_correct_but_odd_answer_is_read() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // The answer, and its status and body.
    let answers = [
        ("HTTP/1.1 200\r\n\r\nx", "200|x"),
        ("HTTP/1.1 200 Très bien\r\nX-Odd: ü\r\n\r\nx", "200|x"),
        ("HTTP/1.0 200 OK\r\n\r\nx", "200|x"),
        ("HTTP/1.1 200 OK\nContent-Length: 1\n\nx", "200|x"),
        ("\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "200|x"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nxy", "200|x"),
        ("HTTP/1.1 204 None\r\nContent-Length: 1\r\n\r\nx", "204|"),
        ("HTTP/1.1 205 Reset\r\nContent-Length: 1\r\n\r\nx", "205|x"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             1;a=b\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n",
            "200|x",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n\
             1\r\nx\r\n0\r\n\r\n",
            "200|x",
        ),
        (
            "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n b\r\n\r\n\
             HTTP/1.1 100 Continue\r\nA: b\r\n\r\n\
             HTTP/1.1 200 OK\r\nX-Odd: a\r\n b\r\nContent-Length: 1\r\n\r\nx",
            "200|x",
        ),
    ];
    let runs = answers
        .map(|(answer, result)| (enqueue(&db, &server.url_with("/raw", answer)), answer, result));
    db.jobctl(["tick", "--quiet", "--concurrency", "4"]).run().success().stderr("");
    for (id, answer, result) in runs {
        let kept = db.of_attempt(id, 1, "outcome, http_status, output");
        assert_eq!(kept, format!("succeeded|{result}"), "{answer:?}\n{}", db.dump());
    }
}
