//! The hosts that a tick may call: --http-allow, redirects, certificates.

use std::fs;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use serde_json::json;

use crate::support::http_server::HttpServer;
use crate::support::{TestDb, jobctl, temp_dir};

/// Enqueues a POST with secrets in its body and its headers, which follows this many redirects.
fn call(db: &TestDb, url: &str, redirects: u32) -> i64 {
    let headers =
        json!({"Authorization": "Bearer s3cret", "X-Api-Key": "s3cret", "Cookie": "s3cret"});
    db.enqueue([
        "http",
        &json!({"url": url, "redirects": redirects, "json": "s3cret", "headers": headers})
            .to_string(),
    ])
}

/// Returns an address that answers with a redirect to another one.
fn redirect(server: &HttpServer, status: u16, to: &str) -> String {
    let to = utf8_percent_encode(to, NON_ALPHANUMERIC);
    server.url(&format!("/redirect?status={status}&to={to}"))
}

#[test]
fn http_allow_limits_hosts_and_wildcards_reach_public_addresses_only() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let port = server.url("").rsplit_once(':').unwrap().1.to_owned();
    // Loopback and private addresses, in several spellings, and names that lead to them.
    let refused = [
        "127.0.0.1",
        "[::1]",
        "0.0.0.0",
        "2130706433",
        "0x7f.1",
        "127.1",
        "localhost",
        "localhost.",
        "LOCALHOST",
        "a.localhost",
        "169.254.169.254",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "[::ffff:10.0.0.1]",
        "[::ffff:127.0.0.1]",
        "[fd00::1]",
        "[fe80::1]",
        "100.64.0.1",
        "224.0.0.1",
    ];
    let runs =
        refused.map(|host| (call(&db, &format!("http://{host}:{port}/status/200"), 0), host));
    // These two patterns match all of the names.
    db.jobctl(["tick", "--http-allow", "*", "*.localhost"]).run().success();
    for (id, host) in runs {
        assert_eq!(
            db.of_run(id, "status, attempts, error_type"),
            "dead|1|not_allowed",
            "{host}: {}",
            db.dump()
        );
        assert!(db.of_run(id, "last_error").contains("--http-allow"), "{host}");
    }
    assert_eq!(server.connections(), 0);

    // The value of --http-allow, the host of the call, and the status of the run. An exact name may
    // lead to any address.
    for (allowed, host, becomes) in [
        ("127.0.0.1", "127.0.0.1", "succeeded"),
        ("localhost", "LOCALHOST", "succeeded"),
        ("example.com,127.0.0.1", "127.0.0.1", "succeeded"),
        ("localhost", "127.0.0.1", "dead"),
        ("127.0.0.1", "localhost", "dead"),
        // Other spellings of the same address.
        ("127.0.0.1", "2130706433", "succeeded"),
        ("127.0.0.1", "0x7f.1", "succeeded"),
        ("127.0.0.1", "127.0.0.1.example.com", "dead"),
        ("example.com", "127.0.0.1", "dead"),
    ] {
        let id = call(&db, &format!("http://{host}:{port}/status/200"), 0);
        db.jobctl(["tick", "--http-allow", allowed]).run().success();
        assert_eq!(db.status(id), becomes, "{allowed}: {host}\n{}", db.dump());
    }
    // The variable limits the hosts, too. Only the five allowed calls reached the server.
    let id = call(&db, &server.url("/status/200"), 0);
    db.jobctl(["tick"]).env("JOBCTL_TICK_HTTP_ALLOW", "example.com").run().success();
    assert_eq!(db.status(id), "dead");
    assert_eq!(server.requests().len(), 5);
}

#[test]
fn an_http_allow_entry_without_a_host_is_wrong_usage() {
    let db = TestDb::new();
    for entry in ["http://example.com", "example.com:80", "a b", "", "*.", "**"] {
        let refused = db.jobctl(["tick", "--http-allow", entry]).run().exits(2).stdout("");
        refused.stderr_has("'--http-allow <HOST>...': `").stderr_has("is not a host");
    }
}

#[test]
fn a_redirect_is_followed_only_if_the_call_allows_it() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // After 302, POST becomes GET. After 307, the call is repeated. The last argument is the number
    // of redirects that the call follows.
    let not = call(&db, &redirect(&server, 302, "/echo"), 0);
    let once = call(&db, &redirect(&server, 302, "/status/204"), 1);
    let kept = call(&db, &redirect(&server, 307, "/echo"), 1);
    db.jobctl(["tick", "--concurrency", "1"]).run().success();
    assert_eq!(db.of_run(not, "status, last_error"), "dead|HTTP status 302, redirect not followed");
    assert_eq!(db.status(once), "succeeded");
    assert_eq!(db.status(kept), "succeeded");
    let requests = server.requests();
    let seen: Vec<_> = requests
        .iter()
        .map(|request| {
            let path = request.path.split('?').next().unwrap();
            (
                request.method.as_str(),
                path,
                request.body.len(),
                request.headers.contains_key("content-type"),
            )
        })
        .collect();
    // The method, the path, the length of the body, and whether the type of the body is sent.
    assert_eq!(
        seen,
        [
            ("POST", "/redirect", 8, true),
            ("POST", "/redirect", 8, true),
            ("GET", "/status/204", 0, false),
            ("POST", "/redirect", 8, true),
            ("POST", "/echo", 8, true),
        ]
    );
    // The headers of the call are sent again, because the origin is the same.
    for request in &requests {
        assert_eq!(request.headers["authorization"], "Bearer s3cret");
    }
    let key = |id: i64| format!("jobctl-run-{id}");
    let keys: Vec<_> =
        requests.iter().map(|request| request.headers["idempotency-key"].clone()).collect();
    assert_eq!(keys, [key(not), key(once), key(once), key(kept), key(kept)]);
}

#[test]
fn a_redirect_to_another_origin_drops_the_calls_headers() {
    let db = TestDb::new();
    let (server, other) = (HttpServer::start(), HttpServer::start());
    let by_name = server.url("/echo").replace("127.0.0.1", "localhost");
    let runs = [
        call(&db, &redirect(&server, 302, &other.url("/echo")), 1),
        call(&db, &redirect(&server, 308, &other.url("/echo")), 1),
        call(&db, &redirect(&server, 307, &by_name), 1),
        // To another origin and back: the headers are not restored.
        call(&db, &redirect(&server, 307, &redirect(&other, 307, &server.url("/status/299"))), 2),
    ];
    db.jobctl(["tick", "--concurrency", "1"]).run().success();
    for id in runs {
        assert_eq!(db.status(id), "succeeded", "{}", db.dump());
    }
    // Look only at requests after a redirect: at those two paths of the first server, and at all
    // requests to the other one. `localhost` and 127.0.0.1 are two origins.
    let is_redirected = |path: &str| path == "/echo" || path == "/status/299";
    let received = server
        .requests()
        .into_iter()
        .filter(|request| is_redirected(&request.path))
        .chain(other.requests());
    let received: Vec<_> = received.collect();
    assert_eq!(received.len(), 5);
    for request in received {
        for name in ["authorization", "x-api-key", "cookie"] {
            assert!(!request.headers.contains_key(name), "{request:?}");
        }
        assert!(request.headers.contains_key("idempotency-key"));
    }
}

/// A redirect changes the method as in curl: after 301 and 302 POST becomes GET, and after 303
/// every method except HEAD. Otherwise the call is repeated with its body.
#[test]
fn a_redirect_repeats_the_call_or_the_history_names_the_change() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let mut runs = Vec::new();
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        for status in [301, 302, 303, 307, 308] {
            let is_changed = match status {
                301 | 302 => method == "POST",
                303 => !["GET", "HEAD"].contains(&method),
                _ => false,
            };
            let url = redirect(&server, status, "/status/299");
            let call = json!({"url": url, "method": method, "redirects": 1, "body": "x"});
            let id = db.enqueue(["http", &call.to_string()]);
            runs.push((id, method, if is_changed { "GET" } else { method }));
        }
    }
    let log = db.jobctl(["tick", "--concurrency", "4"]).run().success();
    let requests = server.requests();
    for (id, method, becomes) in runs {
        let is_changed = method != becomes;
        let note =
            if is_changed { format!("a redirect changed {method} to GET") } else { String::new() };
        assert_eq!(
            db.of_attempt(id, 1, "outcome, http_status, error"),
            format!("succeeded|299|{note}")
        );
        let sent = requests.iter().filter(|it| it.headers["x-jobctl-run-id"] == id.to_string());
        let sent: Vec<_> = sent.map(|it| (it.method.as_str(), it.body.len())).collect();
        // The body of one byte is repeated, unless the method has changed.
        assert_eq!(sent, [(method, 1), (becomes, usize::from(!is_changed))]);
        assert!(!is_changed || log.stderr.contains(&format!("; {note}\n")), "{log}");
    }
}

#[test]
fn a_location_with_blanks_or_utf_8_is_followed() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // Enqueues a call whose answer is a redirect with these Location headers.
    let call_with_locations = |locations: &[&str]| {
        let lines: String = locations.iter().map(|to| format!("Location: {to}\r\n")).collect();
        let answer = format!("HTTP/1.1 302 Found\r\n{lines}Content-Length: 0\r\n\r\n");
        call(&db, &server.url_with("/raw", answer), 1)
    };
    // The Location headers of an answer, and the path of the request that follows it.
    let followed = [
        (&["/echo/ü"][..], "/echo/%C3%BC"),
        (&["/echo/a b?c d"], "/echo/a%20b?c%20d"),
        (&["//127.0.0.1:PORT/a"], "/a"),
        (&["/a", "/a"], "/a"),
    ];
    let port = server.url("").rsplit_once(':').unwrap().1.to_owned();
    for (locations, path) in followed {
        let locations: Vec<_> = locations.iter().map(|to| to.replace("PORT", &port)).collect();
        call_with_locations(&locations.iter().map(String::as_str).collect::<Vec<_>>());
        db.jobctl(["tick"]).run().success();
        assert_eq!(server.requests().pop().unwrap().path, path, "{locations:?}");
    }
    // curl follows none of these either.
    for locations in [&[""][..], &["/a", "/b"], &["http://a b/"], &["/a\tb"], &[]] {
        let id = call_with_locations(locations);
        db.jobctl(["tick"]).run().success();
        let not = "dead|HTTP status 302, redirect not followed";
        assert_eq!(db.of_run(id, "status, last_error"), not, "{locations:?}");
        let why = match locations.len() {
            1 => "; its Location is not valid, or has another scheme or a user name",
            _ => "; it has no Location, or several",
        };
        assert!(db.of_attempt(id, 1, "error").ends_with(why), "{locations:?}");
        assert!(server.requests().pop().unwrap().path.starts_with("/raw"), "{locations:?}");
    }
}

#[test]
fn a_loop_of_redirects_ends() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // This address redirects to itself.
    let id = call(&db, &server.url("/status/302?location=%23"), 5);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.of_run(id, "status, last_error"), "dead|HTTP status 302, redirect not followed");
    assert_eq!(server.requests().len(), 1 + 5, "the call and five redirects");
    // No call may follow more than five.
    let payload = json!({"url": server.url("/"), "redirects": 6}).to_string();
    db.jobctl(["enqueue", "http", &payload])
        .run()
        .exits(2)
        .stderr_has("allowed are 0 to 5")
        .complains_once();
}

#[test]
fn a_redirect_to_a_forbidden_host_or_scheme_is_not_followed() {
    let db = TestDb::new();
    let server = HttpServer::start();
    // --http-allow below has the address of this server, but not its name `localhost`.
    let by_name = server.url("/echo").replace("127.0.0.1", "localhost");
    let not_allowed = call(&db, &redirect(&server, 307, &by_name), 5);
    // Other schemes, a user in the address, and an address without a host.
    let elsewhere = [
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http://u:p@127.0.0.1/",
        "http://",
    ]
    .map(|to| call(&db, &redirect(&server, 307, to), 5));
    db.jobctl(["tick", "--http-allow", "127.0.0.1"]).run().success();
    assert_eq!(
        db.of_run(not_allowed, "status, last_error"),
        "dead|--http-allow does not allow the server on this host"
    );
    for id in elsewhere {
        assert_eq!(
            db.of_run(id, "status, last_error"),
            "dead|HTTP status 307, redirect not followed"
        );
    }
    assert_eq!(server.requests().len(), 6, "one request of each call");
}

#[test]
fn a_forged_request_is_rejected_and_in_the_table_sends_nothing() {
    let db = TestDb::new();
    let server = HttpServer::start();
    let url = server.url("/status/200");
    let port = url.split(['/', ':']).nth(4).unwrap().to_owned();
    let local = |rest: &str| format!("{rest}:{port}/");
    // Wrong addresses, methods and keys. Then wrong values and names of headers.
    let mut payloads = vec![
        json!({"url": format!("{url} HTTP/1.1\r\nX-Smuggled: 1")}),
        json!({"url": format!("{url}\n")}),
        json!({"url": format!("{url} x")}),
        json!({"url": local("ftp://127.0.0.1")}),
        json!({"url": "file:///etc/passwd"}),
        json!({"url": local("http://user:pass@127.0.0.1")}),
        json!({"url": local("http://user@127.0.0.1")}),
        json!({"url": "http://"}),
        json!({"url": "/status/200"}),
        json!({"url": "127.0.0.1"}),
        json!({"url": ""}),
        json!({"url": "http://127.0.0.1:99999/"}),
        json!({"url": "http://127.0.0.1:0/"}),
        json!({"url": "http://127.0.0.1:x/"}),
        json!({"url": url, "method": "GET / HTTP/1.1\r\nX: y"}),
        json!({"url": url, "method": "CONNECT"}),
        json!({"url": url, "timeout": "0s"}),
        json!({"url": url, "retries": 3}),
        json!({"url": url, "json": 1, "body": "x"}),
        json!({}),
    ];
    for value in [
        "a\r\nX-Smuggled: 1",
        "a\nb",
        "a\rb",
        "a\u{7f}b",
        "a\u{1}b",
        "${",
        "${}",
        "${A B}",
        "${PGPASSWORD}",
    ] {
        payloads.push(json!({"url": url, "headers": {"X-Key": value}}));
    }
    for name in [
        "A B",
        "A:",
        "A\r\nB",
        "",
        "é",
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Connection",
    ] {
        payloads.push(json!({"url": url, "headers": {name: "x"}}));
    }
    let mut runs = Vec::new();
    for payload in payloads {
        let text = payload.to_string();
        db.jobctl(["enqueue", "http", &text]).run().exits(2).stdout("").complains_once();
        // The same payload in the table, as another program could write it.
        let insert = format!(
            "INSERT INTO jobctl.job_runs (job_type, payload) VALUES ('http', '{text}') RETURNING id"
        );
        runs.push((db.query(&insert).parse().unwrap(), text));
    }
    db.jobctl(["tick", "--quiet"])
        .env("PGPASSWORD", "s3cret")
        .run()
        .success()
        .prints_nowhere("s3cret");
    for (id, payload) in runs {
        assert_eq!(
            db.of_run(id, "status, attempts, error_type"),
            "dead|1|bad_payload",
            "{payload}"
        );
    }
    assert_eq!(server.connections(), 0);
}

/// A certificate authority, and servers with certificates from it.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Starts a server with a certificate for this name, which expires at the start of this year.
    fn server(&self, name: &str, until: i32) -> HttpServer {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        HttpServer::tls(&certificate.pem(), &key.serialize_pem())
    }
}

#[test]
fn a_server_needs_a_trusted_certificate_for_its_name() {
    let db = TestDb::new();
    let (trusted, stranger) = (Authority::new("trusted"), Authority::new("stranger"));
    let directory = temp_dir();
    let roots = directory.path().join("roots.pem");
    fs::write(&roots, trusted.pem()).unwrap();
    // A server, by the name in its certificate and the year in which that expires, and the error.
    let servers = [
        (trusted.server("127.0.0.1", 4000), ""),
        (trusted.server("127.0.0.1", 2021), "it has expired; renew it on the server"),
        (
            trusted.server("example.com", 4000),
            "it is not for this host name; use a name of the certificate in the URL",
        ),
        (
            stranger.server("127.0.0.1", 4000),
            "no trusted authority signed it; add its authority's certificate or this one to those \
             that this host trusts",
        ),
    ];
    let runs = servers.each_ref().map(|(server, _)| call(&db, &server.url("/status/204"), 0));
    let plain = HttpServer::start();
    let no_tls = call(&db, &plain.url("/status/204").replace("http:", "https:"), 0);
    db.jobctl(["tick"]).env("SSL_CERT_FILE", roots.to_str().unwrap()).run().success();
    for (id, (server, why)) in runs.into_iter().zip(&servers) {
        if why.is_empty() {
            assert_eq!(db.status(id), "succeeded", "{}", db.dump());
            assert_eq!(server.requests().len(), 1);
            continue;
        }
        let peer = server.url("").split_once("//").unwrap().1.to_owned();
        let why = format!("the server's certificate is not acceptable: {why}");
        assert_eq!(
            db.of_run(id, "status, attempts, error_type, last_error"),
            format!("failed|1|tls|{why}")
        );
        let note = db.of_attempt(id, 1, "error");
        assert!(note.starts_with(&format!("{why}; the server is `{peer}`")), "{note}");
        assert!(server.requests().is_empty(), "no request was sent before");
    }
    // The server without TLS.
    assert_eq!(db.of_run(no_tls, "status, error_type"), "failed|tls");
    assert!(plain.requests().is_empty());
}

#[test]
fn missing_root_certificates_of_a_variable_are_named() {
    let db = TestDb::new();
    let id = call(&db, "https://127.0.0.1:9/", 0);
    db.jobctl(["tick"])
        .env("SSL_CERT_DIR", "")
        .env("SSL_CERT_FILE", "/nowhere/roots.pem")
        .run()
        .success();
    let why = "SSL_CERT_FILE leads to no certificate; correct it or unset it";
    assert_eq!(db.of_run(id, "last_error"), why);
    // The connection to a database says the same.
    let url = "postgres://127.0.0.1:9/a?sslmode=verify-full";
    let list = jobctl(["list", "--database-url", url])
        .env("SSL_CERT_DIR", "")
        .env("SSL_CERT_FILE", "/nowhere/roots.pem");
    let refused = list.run().exits(7).complains_once();
    refused.stderr_has(&format!("cannot use the root certificates: {why}, or set sslrootcert to"));
}

#[test]
fn a_redirect_goes_from_http_to_https_and_never_back() {
    let db = TestDb::new();
    let authority = Authority::new("trusted");
    let directory = temp_dir();
    let roots = directory.path().join("roots.pem");
    fs::write(&roots, authority.pem()).unwrap();
    let (plain, secure) = (HttpServer::start(), authority.server("127.0.0.1", 4000));
    let up = call(&db, &redirect(&plain, 307, &secure.url("/status/204")), 5);
    let down = call(&db, &redirect(&secure, 307, &plain.url("/status/204")), 5);
    db.jobctl(["tick"]).env("SSL_CERT_FILE", roots.to_str().unwrap()).run().success();
    assert_eq!(db.status(up), "succeeded", "{}", db.dump());
    assert_eq!(
        db.of_run(down, "status, last_error"),
        "dead|HTTP status 307, redirect not followed"
    );
    assert!(db.of_attempt(down, 1, "error").ends_with("; it leads from https to http"));
    // Each server got the call that it redirects. Only the server with TLS also got the next one.
    assert_eq!(plain.requests().len(), 1);
    assert_eq!(secure.requests().len(), 2);
}
