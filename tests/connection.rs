//! Connections: every source of settings, TLS, several hosts, and the errors of failed connections.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};
use std::{fs, thread};

use postgres::{Client, NoTls};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};
use tempfile::TempDir;

use crate::host_clock::{WRONG_CLOCK, ahead};
use crate::support::fake_server::FakeServer;
use crate::support::http_server::{BlackHole, HttpServer};
use crate::support::server::{self, Server};
use crate::support::{
    Finished, Invocation, Preload, Role, TestDb, jobctl, leave_out, temp_dir, wait_until,
};

/// Nothing but a person can correct these settings, so the error does not only say to try again.
#[test]
fn a_login_that_a_setting_stops_names_the_setting() {
    let (db, other) = (TestDb::new(), TestDb::new());
    let roles = [Role::granted(&db, "viewer"), Role::granted(&db, "viewer")];
    let assert_setting_named = |url: &str, exit: i32, cause: &str, remedy: &str| {
        let refused = jobctl(["list"]).env("JOBCTL_DATABASE_URL", url).run().exits(exit);
        refused.complains_once().stderr_has(cause).stderr_has(remedy);
    };
    let [role, limited] = roles.each_ref().map(Role::name);
    // A library that the server can't load.
    let library = "correct session_preload_libraries or local_preload_libraries of the role";
    for (name, library_name) in
        [("session", "gone"), ("local", "gone"), ("session", "/etc/passwd"), ("local", "/a")]
    {
        db.execute(&format!("ALTER ROLE {role} SET {name}_preload_libraries = '{library_name}'"));
        assert_setting_named(&roles[0].url(), 7, library_name, library);
        db.execute(&format!("ALTER ROLE {role} RESET {name}_preload_libraries"));
    }
    // The limit of a role, and that of a database.
    let (this, other_name) = (db.name(), other.name());
    db.execute(&format!("ALTER ROLE {limited} CONNECTION LIMIT 0"));
    let limit = "if the error remains, raise max_connections, or the CONNECTION LIMIT of the role";
    assert_setting_named(&roles[1].url(), 5, "too many connections for role", limit);
    other.execute(&format!("ALTER DATABASE {this} CONNECTION LIMIT 0"));
    assert_setting_named(&roles[0].url(), 5, "too many connections for database", limit);
    other.execute(&format!("ALTER DATABASE {this} CONNECTION LIMIT -1"));
    // A database that accepts no connections.
    db.execute(&format!("ALTER DATABASE {other_name} ALLOW_CONNECTIONS false"));
    let allow = "let it with ALTER DATABASE ... ALLOW_CONNECTIONS true, or name another";
    assert_setting_named(&other.url(), 7, "is not currently accepting connections", allow);
    db.execute(&format!("ALTER DATABASE {other_name} ALLOW_CONNECTIONS true"));
}

/// A server with TLS and passwords. Its certificate is for `db.example.com`.
struct Secured {
    port: u16,
    /// The directory of its Unix socket, which needs no password.
    directory: String,
    files: TempDir,
    _server: Server,
}

static SECURED: LazyLock<Secured> = LazyLock::new(Secured::start);

const HBA: &str = "local all all trust
hostssl all encrypted all scram-sha-256
hostnossl all plain all scram-sha-256
host all either all scram-sha-256
";

fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let mut parameters = CertificateParams::new([]).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = parameters.self_signed(&key).unwrap().pem();
    (Issuer::new(parameters, key), pem)
}

impl Secured {
    fn start() -> Self {
        let server = server::start("127.0.0.1");
        let files = temp_dir();
        let (issuer, root) = authority("One");
        fs::write(files.path().join("root.pem"), root).unwrap();
        fs::write(files.path().join("other.pem"), authority("Other").1).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["db.example.com".to_owned()])
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        let mut client = Client::connect(&server.url, NoTls).unwrap();
        // The server writes these files, because its user must own them. COPY writes a line break
        // as a backslash and an `n`, and printf turns that back.
        for (name, text) in [
            ("server.crt", &*certificate.pem()),
            ("server.key", &*key.serialize_pem()),
            ("pg_hba.conf", HBA),
        ] {
            let write = format!("umask 077; printf %b \"$(cat)\" >{name}");
            client.batch_execute(&format!("COPY (SELECT '{text}') TO PROGRAM '{write}'")).unwrap();
        }
        client.batch_execute("ALTER SYSTEM SET ssl = on").unwrap();
        // The server asks for a client certificate, but accepts none.
        client.batch_execute("ALTER SYSTEM SET ssl_ca_file = 'server.crt'").unwrap();
        for user in ["encrypted", "plain", "either"] {
            client
                .batch_execute(&format!("CREATE ROLE {user} LOGIN SUPERUSER PASSWORD 's3cret'"))
                .unwrap();
        }
        client.batch_execute("CREATE DATABASE app").unwrap();
        client.batch_execute("SELECT pg_reload_conf()").unwrap();
        let mut show = |name: &str| -> String {
            client.query_one(&format!("SHOW {name}"), &[]).unwrap().get(0)
        };
        let (port, directory) = (show("port").parse().unwrap(), show("unix_socket_directories"));
        wait_until("the server to have certificates", || {
            client.query_one("SHOW ssl", &[]).unwrap().get::<_, String>(0) == "on"
        });
        let secured = Self { port, directory, files, _server: server };
        let socket = format!("host={} port={port} user=either dbname=app", secured.directory);
        jobctl(["migrate", "--database-url", &socket]).run().success();
        secured
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// An address as key=value pairs: TCP, with the password.
    fn address(&self, user: &str, more: &str) -> String {
        format!(
            "host=db.example.com hostaddr=127.0.0.1 port={} dbname=app user={user} \
             password=s3cret {more}",
            self.port
        )
    }
}

/// Runs `list-dead`, which prints nothing, without the settings of this machine's user.
fn list(address: &str) -> Invocation<'static> {
    jobctl(["list-dead"]).env("HOME", "/nonexistent").env("JOBCTL_DATABASE_URL", address)
}

/// Asserts that a connection to this address fails with this exit status and error.
#[track_caller]
fn assert_refused(address: &str, exit: i32, why: &str) -> Finished {
    list(address)
        .run()
        .exits(exit)
        .stdout("")
        .complains_once()
        .prints_nowhere("s3cret")
        .stderr_has(why)
}

#[track_caller]
fn assert_opens(address: &str) {
    list(address).run().success().stdout("").stderr("");
}

#[test]
fn an_error_about_a_malformed_address_does_not_repeat_it() {
    for address in [
        "mysql://u:s3cret@h/d",
        "s3cret",
        "postgres://u:s3cret/x@h/d",
        "postgres://u:s3cret@h:port/d",
        "postgres://u:s3cret@::1/d",
        "postgres://u:s3cret%zz@h/d",
        "postgres://u:s3cret@h/d?sslmod=require",
        "postgres://u:s3cret@h/d?sslmode=on",
        "postgres://u:s3cret@h/d?frobnicate=s3cret",
        "postgres://u:s3cret@h/d?s3cret",
        "postgres://u:s3cret@h/d?connect_timeout=s3cret",
        "host=h password=my s3cret",
        "host=h password='s3cret",
        "host=h port=s3cret",
    ] {
        // In JOBCTL_DATABASE_URL, in the flag, and in DATABASE_URL.
        assert_refused(address, 7, "jobctl: cannot use the database URL: ");
        jobctl(["list-dead", "--database-url", address])
            .run()
            .exits(7)
            .complains_once()
            .prints_nowhere("s3cret");
        let by_variable =
            jobctl(["list-dead"]).env("DATABASE_URL", address).run().exits(7).complains_once();
        by_variable.prints_nowhere("s3cret").stderr_has("jobctl: cannot use DATABASE_URL: ");
    }
    assert_refused(
        "postgres://u:s3cret@h/d?sslmod=require",
        7,
        "unknown parameter `sslmod`; did you mean `sslmode`?",
    );
    jobctl(["list-dead"])
        .env("PGPORT", "s3cret")
        .run()
        .exits(7)
        .complains_once()
        .stderr_has("cannot use PGPORT");
}

#[test]
fn the_error_names_an_unreachable_server_and_a_remedy() {
    let remedy =
        "is PostgreSQL running there? set --database-url, DATABASE_URL or the PG* variables";
    let line = format!(
        "jobctl: cannot connect to the database at 127.0.0.1:1: connection refused; {remedy}\n"
    );
    assert_refused("postgres://u:s3cret@127.0.0.1:1/d", 5, "").stderr(&line);
    let line = format!(
        "jobctl: cannot connect to the database at /nonexistent:5432: the socket does not exist; \
         {remedy}\n"
    );
    assert_refused("host=/nonexistent user=u password=s3cret", 5, "").stderr(&line);
    assert_refused("postgres://u:s3cret@host.invalid/d", 5, "cannot resolve the host name");
    // The error is the same for every command.
    for command in [
        "migrate",
        "tick",
        "retry --all-dead --yes",
        "cancel 1",
        "enqueue shell {\"command\":\"x\"}",
    ] {
        let command = jobctl(command.split(' '))
            .env("JOBCTL_DATABASE_URL", "postgres://u:s3cret@127.0.0.1:1/d");
        command.run().exits(5).stdout("").prints_nowhere("s3cret").stderr_has("connection refused");
    }
}

#[test]
fn a_silent_server_fails_after_the_timeout() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let hole = BlackHole::open();
    let hole_url = hole.url();
    let hole_address = hole_url.trim_start_matches("http://").trim_end_matches('/');
    // A server that accepts connections and sends nothing, and one that does not accept.
    for (address, modes) in [
        (&*mute.local_addr().unwrap().to_string(), &["disable", "prefer"][..]),
        (hole_address, &["prefer"]),
    ] {
        for mode in modes {
            let address =
                format!("postgres://u:s3cret@{address}/d?connect_timeout=1&sslmode={mode}");
            let refused = assert_refused(&address, 5, "; is PostgreSQL running there, or a pooler");
            // The limit of jobctl or that of the connection attempt ends first.
            let names_limit =
                ["no answer within 1s", "timed out"].iter().any(|why| refused.stderr.contains(why));
            assert!(names_limit && refused.took.as_secs() < 8, "{refused}");
        }
    }
}

#[test]
fn a_server_that_is_not_postgresql_is_exit_5() {
    let server = HttpServer::start();
    let port = server.url("/").rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    for mode in ["disable", "prefer"] {
        let address =
            format!("postgres://u:s3cret@127.0.0.1:{port}/d?connect_timeout=2&sslmode={mode}");
        list(&address).run().exits(5).stdout("").complains_once().prints_nowhere("s3cret");
    }
    // A mail server, which sends the first message.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address =
        format!("postgres://u:s3cret@{}/d?sslmode=disable", listener.local_addr().unwrap());
    let greeter = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 smtp.example ESMTP\r\n").unwrap();
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    assert_refused(&address, 5, "it is not a PostgreSQL server");
    greeter.join().unwrap();
}

#[test]
fn without_an_address_the_remedy_is_to_set_one() {
    const AT_DEFAULT_SOCKET: &str = "mount --bind \"$directory\" /var/run/postgresql && ";
    let run = |command: &str| {
        let script = format!("exec unshare --mount sh -c '{AT_DEFAULT_SOCKET}exec {command}'");
        let run = Invocation::script(&script, None).env("directory", &SECURED.directory);
        run.env("PGPORT", &SECURED.port.to_string())
    };
    if !run("true").run().status.success() {
        return leave_out("a login without an address", "it needs root and /var/run/postgresql");
    }
    let role = "role \"root\" does not exist";
    let remedy = "name the database: set --database-url, DATABASE_URL or the PG* variables";
    let list = run("\"$jobctl\" list-dead");
    list.run().exits(7).complains_once().stderr_has(&format!("{role}; {remedy}"));
    let named = run("\"$jobctl\" list-dead").env("PGDATABASE", "app").run().exits(7);
    assert!(named.stderr.contains(role) && !named.stderr.contains(remedy), "{named}");
}

#[test]
fn a_missing_database_or_role_or_a_wrong_password_is_exit_7() {
    let secured = &*SECURED;
    // By the Unix socket, no login needs a password.
    let base = format!("host={} port={}", secured.directory, secured.port);
    assert_refused(
        &format!("{base} user=either dbname=nosuch"),
        7,
        "database \"nosuch\" does not exist; create it, or name another",
    );
    assert_refused(
        &format!("{base} user=nosuch dbname=app"),
        7,
        "role \"nosuch\" does not exist; create this role, or name another in --database-url, \
         DATABASE_URL or PGUSER",
    );
    assert_refused(
        "host=nosuch.invalid user=ana dbname=app",
        5,
        "cannot resolve the host name; correct it in --database-url, DATABASE_URL or PGHOST, or \
         check the DNS",
    );
    // By TCP, each login needs one.
    let wrong = secured.address("either", "").replace("s3cret", "wrong-s3cret");
    assert_refused(
        &wrong,
        7,
        "password authentication failed for user \"either\"; check the user and the password",
    );
    let none = secured.address("either", "").replace("password=s3cret", "");
    assert_refused(&none, 7, "password missing; check the user and the password");
    assert_refused(&secured.address("nosuch", ""), 7, "no pg_hba.conf entry");
    assert_refused(
        &format!("{base} user=pg_monitor dbname=app"),
        7,
        "role \"pg_monitor\" is not permitted to log in; let it with ALTER ROLE ... LOGIN, or name \
         another role",
    );
}

#[test]
fn the_flag_precedes_the_variables_and_each_hides_the_next() {
    let secured = &*SECURED;
    let good = format!("host={} port={} user=either dbname=app", secured.directory, secured.port);
    let bad = "host=/nonexistent dbname=app";
    let with = |flag: Option<&str>, own: Option<&str>, general: Option<&str>| {
        let mut command = jobctl(["list-dead"]).env("PGHOST", "/elsewhere").env("PGUSER", "either");
        if let Some(flag) = flag {
            command = command.args(["--database-url", flag]);
        }
        if let Some(own) = own {
            command = command.env("JOBCTL_DATABASE_URL", own);
        }
        if let Some(general) = general {
            command = command.env("DATABASE_URL", general);
        }
        command.run()
    };
    // The flag, JOBCTL_DATABASE_URL, DATABASE_URL, and last the variables of libpq.
    with(Some(&good), Some(bad), Some(bad)).success();
    with(None, Some(&good), Some(bad)).success();
    with(None, None, Some(&good)).success();
    with(Some(bad), Some(&good), Some(&good)).exits(5).stderr_has("/nonexistent");
    with(None, Some(bad), Some(&good)).exits(5).stderr_has("/nonexistent");
    with(None, None, Some(bad)).exits(5).stderr_has("/nonexistent");
    with(None, Some(""), Some(&good)).exits(2).stderr_has("cannot use JOBCTL_DATABASE_URL");
    with(None, None, None).exits(5).stderr_has("/elsewhere");
}

#[test]
fn the_environment_variables_of_libpq_are_enough_to_connect() {
    let secured = &*SECURED;
    let port = secured.port.to_string();
    let base = || {
        jobctl(["list-dead"]).env("PGPORT", &port).env("PGUSER", "either").env("PGDATABASE", "app")
    };
    // The Unix socket needs no password, and TCP does.
    base().env("PGHOST", &secured.directory).run().success().stderr("");
    let by_tcp = || base().env("PGHOST", "127.0.0.1").env("HOME", "/nonexistent");
    by_tcp().env("PGPASSWORD", "s3cret").run().success().stderr("");
    by_tcp().env("PGPASSWORD", "wrong").run().exits(7).prints_nowhere("wrong");
    by_tcp().env("PGPASSWORD", "s3cret").env("PGSSLMODE", "verify-full").run().exits(7);
    // The variables add the parts that the address lacks.
    by_tcp()
        .env("PGPASSWORD", "s3cret")
        .env("JOBCTL_DATABASE_URL", "postgres:///app")
        .run()
        .success();
    // A service of a file.
    let service = secured.file("services");
    let text = format!("[app]\nhost={}\nport={port}\nuser=either\ndbname=app\n", secured.directory);
    // libpq reads bytes: a comment may have another encoding.
    fs::write(&service, [&b"# f\xfcr\n"[..], text.as_bytes()].concat()).unwrap();
    let by_service = jobctl(["list-dead"])
        .env("PGSERVICEFILE", service.to_str().unwrap())
        .env("PGSERVICE", "app");
    by_service.run().success().stderr("");
}

#[test]
fn the_pass_file_is_used_only_if_it_is_private() {
    let secured = &*SECURED;
    let home = temp_dir();
    let path = home.path().join(".pgpass");
    let address = secured.address("either", "").replace("password=s3cret", "");
    let list = |mode: u32, text: &str| {
        // As libpq does, it reads files of any encoding.
        fs::write(&path, [&b"# f\xfcr\n"[..], text.as_bytes()].concat()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        list(&address).env("HOME", home.path().to_str().unwrap()).run()
    };
    // The first line that fits the login has the password.
    let good = "# ours\nelsewhere:*:*:*:wrong\ndb.example.com:*:app:either:s3cret\n*:*:*:*:wrong\n";
    list(0o600, good).success().stderr("");
    list(0o600, "elsewhere:*:*:*:s3cret\n")
        .exits(7)
        .stderr_has("password missing")
        .prints_nowhere("s3cret");
    let refused =
        list(0o640, good).exits(7).prints_nowhere("s3cret").stderr_has("password missing");
    refused.stderr_has(".pgpass is ignored: other users can read it; run `chmod 600`");
}

#[test]
fn of_several_hosts_the_first_suitable_one_is_used() {
    let secured = &*SECURED;
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = mute.local_addr().unwrap();
    let good = format!("127.0.0.1:{}", secured.port);
    let url = |hosts: &str, more: &str| {
        format!("postgres://either:s3cret@{hosts}/app?connect_timeout=2{more}")
    };
    // Hosts without a server, with an unknown name, and without an answer are skipped.
    assert_opens(&url(&format!("127.0.0.1:1,{good}"), ""));
    assert_opens(&url(&format!("host.invalid,127.0.0.1:1,{good}"), ""));
    assert_opens(&url(&format!("{mute},{good}"), ""));
    assert_opens(&url(&format!("127.0.0.1:1,{good}"), "&target_session_attrs=read-write"));
    // There is no standby: `prefer-standby` takes another server then, and `standby` does not.
    assert_opens(&url(&good, "&target_session_attrs=prefer-standby"));
    assert_opens(&url(&format!("{good},{mute},{good}"), "&target_session_attrs=prefer-standby"));
    let refused = assert_refused(
        &url(&format!("127.0.0.1:1,{good}"), "&target_session_attrs=standby"),
        5,
        "it is not a standby",
    );
    refused.stderr_has("127.0.0.1:1: connection refused");
    // A wrong password is sent to one host only.
    let wrong = url(&format!("{good},127.0.0.1:1"), "").replace("s3cret", "wrong");
    assert_refused(&wrong, 7, "password authentication failed").prints_nowhere("127.0.0.1:1:");
}

#[test]
fn each_sslmode_behaves_as_in_libpq() {
    let secured = &*SECURED;
    // The server accepts one user only with TLS and the other only without, and the mode allows the
    // client one of both or both.
    for (user, mode, opened) in [
        ("encrypted", "disable", false),
        ("encrypted", "allow", true),
        ("encrypted", "prefer", true),
        ("encrypted", "require", true),
        ("plain", "disable", true),
        ("plain", "allow", true),
        ("plain", "prefer", true),
        ("plain", "require", false),
    ] {
        let address = secured.address(user, &format!("sslmode={mode}"));
        if opened {
            assert_opens(&address);
        } else {
            assert_refused(&address, 7, "no pg_hba.conf entry");
        }
    }
}

#[test]
fn each_sslmode_checks_the_certificate_as_in_libpq() {
    let secured = &*SECURED;
    let with = |mode: &str, root: &str| {
        secured.address(
            "encrypted",
            &format!("sslmode={mode} sslrootcert={}", secured.file(root).display()),
        )
    };
    for mode in ["verify-full", "verify-ca", "require"] {
        assert_opens(&with(mode, "root.pem"));
        // As in libpq, `require` checks the certificate if sslrootcert is set.
        assert_refused(
            &with(mode, "other.pem"),
            7,
            "the server's certificate is not acceptable: no trusted authority signed it",
        );
        assert_refused(&with(mode, "missing.pem"), 7, "missing.pem");
    }
    let other_name = |mode: &str| {
        with(mode, "root.pem").replace("host=db.example.com", "host=elsewhere.example")
    };
    assert_opens(&other_name("verify-ca"));
    let why =
        "it is not for this host name, only for db.example.com; use the name in the certificate";
    assert_refused(&other_name("verify-full"), 7, why);
    let system = secured.address("encrypted", "sslmode=verify-full sslrootcert=system");
    assert_refused(&system, 7, "the server's certificate is not acceptable");
}

#[test]
fn doctor_reports_a_host_clock_before_1970_over_tls() {
    let clock = Preload::compile(WRONG_CLOCK);
    let doctor = |more: &str| {
        let doctor = jobctl(["doctor"]).env("HOME", "/nonexistent");
        let doctor = doctor.env("JOBCTL_DATABASE_URL", &SECURED.address("encrypted", more));
        ahead(&clock, -25_000 * 86_400, doctor).run().prints_nowhere("panicked")
    };
    doctor("sslmode=require").stdout_has(" behind the database");
    let verified =
        format!("sslmode=verify-full sslrootcert={}", SECURED.file("root.pem").display());
    doctor(&verified).exits(7).stderr_has("the server's certificate is not acceptable");
}

/// Starts a server with a self-signed certificate that does the TLS handshake, and sends the bytes
/// after it to the receiver. With the negotiation `postgres`, the client first asks for TLS. With
/// `direct`, TLS begins at once.
fn impostor(negotiation: &'static str) -> (u16, Receiver<Vec<u8>>) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(["db.example.com".to_owned()]).unwrap().self_signed(&key).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = Arc::new(
        config
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        if negotiation == "postgres" {
            // The client asks for TLS, and gets the answer that this server has it.
            socket.read_exact(&mut [0; 8]).unwrap();
            socket.write_all(b"S").unwrap();
        }
        let mut session = ServerConnection::new(config).unwrap();
        let mut received = Vec::new();
        let _ = rustls::Stream::new(&mut session, &mut socket).read_to_end(&mut received);
        let _ = sender.send(received);
    });
    (port, receiver)
}

#[test]
fn a_server_with_a_self_signed_certificate_gets_no_password() {
    let root = SECURED.file("root.pem");
    for mode in ["verify-ca", "verify-full"] {
        let (port, received) = impostor("postgres");
        let address = format!(
            "host=db.example.com hostaddr=127.0.0.1 port={port} user=u password=s3cret \
             sslmode={mode} sslrootcert={}",
            root.display()
        );
        assert_refused(
            &address,
            7,
            "the server's certificate is not acceptable: it is self-signed; set sslrootcert to",
        );
        assert_eq!(received.recv().unwrap(), b"");
    }
}

#[test]
fn channel_binding_is_used_if_required() {
    let secured = &*SECURED;
    assert_opens(&secured.address("either", "sslmode=require channel_binding=require"));
    let plain = secured.address("either", "sslmode=disable channel_binding=require");
    assert_refused(
        &plain,
        7,
        "server did not use channel binding; channel_binding=require needs TLS",
    );
}

#[test]
fn direct_tls_without_a_confirmed_protocol_sends_no_password() {
    let (port, received) = impostor("direct");
    let more = "sslmode=require sslnegotiation=direct";
    let address =
        format!("host=db.example.com hostaddr=127.0.0.1 port={port} user=u password=s3cret {more}");
    assert_refused(
        &address,
        7,
        "the server has not confirmed PostgreSQL's protocol in TLS; check sslmode",
    );
    assert_eq!(received.recv().unwrap(), b"");
}

#[test]
fn sslcertmode_require_rejects_a_server_that_asks_for_no_certificate() {
    let secured = &*SECURED;
    let files = temp_dir();
    let (certificate, key) = (files.path().join("own.pem"), files.path().join("own.key"));
    let pair = KeyPair::generate().unwrap();
    let own = CertificateParams::new(["me".to_owned()]).unwrap().self_signed(&pair).unwrap();
    fs::write(&certificate, own.pem()).unwrap();
    fs::write(&key, pair.serialize_pem()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let identity = format!("sslcert={} sslkey={}", certificate.display(), key.display());
    // A server with TLS that asks for no certificate receives nothing after the handshake.
    let (port, received) = impostor("postgres");
    let address = format!(
        "host=db.example.com hostaddr=127.0.0.1 port={port} user=u password=s3cret {identity}"
    );
    let unasked = "sslcertmode is require, but the server does not ask for a client certificate; \
                   set ssl_ca_file on the server, or use sslcertmode=allow";
    assert_refused(&format!("{address} sslmode=require sslcertmode=require"), 7, unasked);
    assert_eq!(received.recv().unwrap(), b"");
    // The default of sslmode allows a connection without TLS, and so without a certificate.
    assert_refused(
        &format!("{address} sslcertmode=require"),
        7,
        "`sslcertmode` is require, but TLS is optional; use sslmode=require",
    );
    // Another server asks for the certificate and rejects it.
    let why = "the server rejects the client certificate";
    assert_refused(
        &secured.address("encrypted", &format!("sslmode=require sslcertmode=require {identity}")),
        7,
        why,
    );
    assert_refused(
        &secured.address("encrypted", "sslmode=require sslcertmode=require"),
        7,
        "sslcertmode is require, but no client certificate is set; set sslcert and sslkey",
    );
    // Without sslcertmode, that server accepts a client without a certificate.
    assert_opens(&secured.address("encrypted", "sslmode=require"));
}

#[test]
fn a_server_that_asks_for_a_forbidden_auth_method_gets_no_password() {
    let secured = &*SECURED;
    for allowed in ["scram-sha-256", "md5,scram-sha-256", "!password,!none", "!md5"] {
        assert_opens(&secured.address("either", &format!("require_auth={allowed}")));
    }
    for forbidden in ["password", "!scram-sha-256", "none"] {
        let why = "the server asks for authentication by scram-sha-256, which require_auth forbids";
        assert_refused(&secured.address("either", &format!("require_auth={forbidden}")), 7, why);
    }
    assert_refused(
        &secured.address("either", "require_auth=scram"),
        7,
        "`require_auth` has an unknown method; use none",
    );
    assert_refused(
        &secured.address("either", "require_auth=md5,!none"),
        7,
        "`require_auth` mixes methods with and without",
    );
    list(&secured.address("either", ""))
        .env("PGREQUIREAUTH", "md5")
        .run()
        .exits(7)
        .stderr_has("scram-sha-256");
    // A server that lets every client in without authentication.
    let trusting = FakeServer::start(|_, _| Ok(()));
    let why = "the server asks for authentication by none, which require_auth forbids";
    assert_refused(&format!("{}&require_auth=scram-sha-256", trusting.url()), 7, why);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!(
        "postgres://u:s3cret@{}/d?sslmode=disable&require_auth=scram-sha-256",
        listener.local_addr().unwrap()
    );
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        // Asks for the password itself, without encryption.
        stream.write_all(b"R\0\0\0\x08\0\0\0\x03").unwrap();
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        received
    });
    assert_refused(
        &address,
        7,
        "the server asks for authentication by password, which require_auth forbids",
    );
    assert_eq!(server.join().unwrap(), b"");
}

#[test]
fn doctor_warns_of_an_unverified_server() {
    let secured = &*SECURED;
    // 0.0.0.0 leads to this host, but is not a loopback address.
    let remote = |more: &str| secured.address("encrypted", more).replace("127.0.0.1", "0.0.0.0");
    let doctor = |address: &str| {
        jobctl(["doctor"])
            .env("HOME", "/nonexistent")
            .env("JOBCTL_DATABASE_URL", address)
            .run()
            .stdout
    };
    let line = |address: &str| doctor(address).lines().next().unwrap_or_default().to_owned();
    // TLS without a check of the certificate, then with one, and then to this host.
    let unverified = line(&remote("sslmode=require"));
    assert!(
        unverified.starts_with("warn\tconnection") && unverified.contains(", not verified, "),
        "{unverified}"
    );
    assert!(unverified.contains("set sslmode=verify-full"), "{unverified}");
    let root = format!("sslmode=verify-full sslrootcert={}", secured.file("root.pem").display());
    assert!(line(&remote(&root)).starts_with("ok\tconnection"), "{}", line(&remote(&root)));
    assert!(line(&secured.address("encrypted", "sslmode=require")).starts_with("ok\tconnection"));
}

/// Starts a proxy that answers for the secured server that it has no TLS.
fn start_proxy_without_tls() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let target = SECURED.port;
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut first = [0; 8];
                client.read_exact(&mut first)?;
                let mut server = TcpStream::connect(("127.0.0.1", target))?;
                // The message by which a client asks for TLS.
                if first == [0, 0, 0, 8, 4, 210, 22, 47] {
                    client.write_all(b"N")?;
                } else {
                    server.write_all(&first)?;
                }
                let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    to.shutdown(std::net::Shutdown::Both)
                });
                std::io::copy(&mut client, &mut server)?;
                server.shutdown(std::net::Shutdown::Write)
            });
        }
    });
    port
}

#[test]
fn a_server_without_tls_is_rejected_if_sslmode_demands_tls() {
    let port = start_proxy_without_tls();
    let with = |mode: &str| format!("postgres://either:s3cret@127.0.0.1:{port}/app?sslmode={mode}");
    // In these modes, TLS is optional.
    for mode in ["disable", "allow", "prefer"] {
        assert_opens(&with(mode));
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        assert_refused(
            &with(mode),
            7,
            "server does not support TLS; check sslmode and the TLS settings of the server",
        );
    }
}

/// Each of these errors lasts until a person acts, and cron would mail it every minute.
#[test]
fn a_quiet_tick_reports_a_wrong_setting_once_an_hour() {
    let (secured, db) = (&*SECURED, TestDb::new());
    let role = Role::new(&db);
    let state = temp_dir();
    let socket = format!("host={} port={} user=either", secured.directory, secured.port);
    let tick = |name: &str, value: &str, flags: &[&str]| {
        let tick = jobctl(["tick"]).args(flags.iter().copied()).env(name, value);
        tick.env("XDG_STATE_HOME", state.path().to_str().unwrap()).run().exits(7).stdout("")
    };
    // The variable, its wrong value, and the error.
    for (name, value, why) in [
        ("DATABASE_URL", secured.address("either", "").replace("s3cret", "wrong"), "password"),
        ("DATABASE_URL", format!("{socket} dbname=nosuch"), "database \"nosuch\" does not exist"),
        ("DATABASE_URL", role.url(), "permission denied"),
        ("JOBCTL_ENV_FILE", "/nonexistent".to_owned(), "cannot use JOBCTL_ENV_FILE"),
    ] {
        let first = tick(name, &value, &["--quiet"]).complains_once().stderr_has(why);
        first.stderr_has("; repeated after an hour at the earliest");
        tick(name, &value, &["--quiet"]).stderr("");
        // Without `--quiet`, each tick reports it.
        tick(name, &value, &[]).complains_once();
    }
}

#[test]
fn a_quiet_tick_reports_an_unreachable_database_once_an_hour() {
    let state = temp_dir();
    let tick = |port: &str, flags: &[&str]| {
        let url = format!("postgresql://127.0.0.1:{port}/app");
        let tick = jobctl(["tick", "--database-url", &url]).args(flags.iter().copied());
        tick.env("XDG_STATE_HOME", state.path().to_str().unwrap()).run().exits(5).stdout("")
    };
    tick("1", &["--quiet"]).complains_once().stderr_has("; repeated after an hour at the earliest");
    (0..3).for_each(|_| drop(tick("1", &["--quiet"]).stderr("")));
    // Another server is reported, and so is every failure without --quiet.
    tick("2", &["--quiet"]).complains_once();
    tick("1", &[]).complains_once();

    // After an hour, the tick reports the error again, and deletes other old notes but no other
    // files.
    let said = state.path().join("jobctl/said");
    // Names that no note has.
    let others = ["notes.txt", "0123456789abcde", "0123456789ABCDEF"];
    others.iter().for_each(|other| fs::write(said.join(other), "").unwrap());
    assert_eq!(fs::metadata(&said).unwrap().permissions().mode() & 0o777, 0o700);
    for file in fs::read_dir(&said).unwrap() {
        let an_hour_ago = SystemTime::now() - Duration::from_secs(3601);
        fs::File::options()
            .write(true)
            .open(file.unwrap().path())
            .unwrap()
            .set_modified(an_hour_ago)
            .unwrap();
    }
    tick("1", &["--quiet"]).complains_once();
    tick("1", &["--quiet"]).stderr("");
    // Of the two notes, the one about the other server is deleted.
    assert_eq!(fs::read_dir(&said).unwrap().count(), 1 + others.len());
    if rustix::process::geteuid().is_root() {
        // Without a folder of its own for notes, a tick reports the error each time.
        chown(&said, Some(65534), None).unwrap();
        (0..2).for_each(|_| drop(tick("1", &["--quiet"]).complains_once()));
    } else {
        leave_out("a note in a folder of another user", "a change of owner needs root");
    }

    // The same if there is a file in place of the folder.
    fs::remove_dir_all(&said).unwrap();
    fs::write(&said, "no folder").unwrap();
    (0..2).for_each(|_| drop(tick("1", &["--quiet"]).complains_once()));
}
