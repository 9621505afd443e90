//! TLS with certificates of the openssl program: those of database servers, of clients and of web
//! servers. libpq of Debian accepts each certificate that jobctl accepts here.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::{fs, process, thread};

use postgres::{Client, NoTls};
use serde_json::json;
use tempfile::TempDir;

use crate::support::server::{self, Server};
use crate::support::{Invocation, TestDb, jobctl, temp_dir, wait_until};

/// Makes NAME.crt and NAME.key for each certificate.
const MAKE: &str = r#"
names=subjectAltName=DNS:db.example.com,DNS:localhost,IP:127.0.0.1
key() { case $2 in
    rsa) [ -e rsa.key ] || openssl genrsa -out rsa.key 2048; cp rsa.key $1.key ;;
    weak) openssl genrsa -out $1.key 1024 ;;
    ed25519) openssl genpkey -algorithm ed25519 -out $1.key ;;
    *) openssl ecparam -name $2 -genkey -noout -out $1.key ;;
esac }
authority() {
    name=$1
    key $1 $2
    shift 2
    openssl req -x509 -new -key $name.key -subj "/CN=$name" -days 3650 -out $name.crt "$@"
}
# signed NAME KEY AUTHORITY COMMON_NAME EXTENSIONS [OPTION...]
signed() {
    name=$1 authority=$3 extensions=$5
    key $1 $2
    openssl req -new -key $1.key -subj "/CN=$4" -out request
    shift 5
    printf '%s\n' $extensions >extensions
    [ -z "$extensions" ] || set -- -extfile extensions "$@"
    openssl x509 -req -in request -CA $authority.crt -CAkey $authority.key -CAcreateserial \
        -days 3650 -out $name.crt "$@"
}
own() {
    name=$1
    key $1 $2
    shift 2
    openssl req -x509 -new -key $name.key -subj /CN=db.example.com -addext $names -days 3650 \
        -out $name.crt "$@"
}
authority root rsa; authority stranger rsa; authority weak-root weak
for hash in sha224 sha384 sha512; do signed $hash rsa root x $names -$hash; done
signed pss rsa root x $names -sha256 -sigopt rsa_padding_mode:pss
signed pss384 rsa root x $names -sha384 -sigopt rsa_padding_mode:pss
own p384 secp384r1 -sha512
own ed25519 ed25519
own own rsa
signed good rsa root x $names
signed version1 rsa root db.example.com ""
signed version1-web rsa root localhost ""
signed elsewhere rsa root x subjectAltName=DNS:elsewhere.example
signed client-only rsa root x "$names extendedKeyUsage=clientAuth"
signed authority rsa root x "$names basicConstraints=CA:TRUE"
signed by-address rsa root x "subjectAltName=DNS:127.0.0.1"
signed ca-usage rsa root x "$names keyUsage=critical,keyCertSign"
signed usage rsa root x "$names keyUsage=keyAgreement"
signed middle rsa root middle "basicConstraints=CA:TRUE keyUsage=digitalSignature,cRLSign"
signed by-middle rsa middle x $names
cat middle.crt >>by-middle.crt
authority mute-root rsa -addext keyUsage=digitalSignature
signed by-mute rsa mute-root x $names
own own-ca-usage rsa -addext keyUsage=keyCertSign
own own-client-only rsa -addext extendedKeyUsage=clientAuth
signed by-weak rsa weak-root x $names
signed weak weak root x $names
signed p521 secp521r1 root x $names

signed client rsa root certified ""
signed client-ec prime256v1 root certified ""
signed client-weak weak root certified ""
signed client-p521 secp521r1 root certified ""
signed foreign rsa stranger certified ""
openssl genrsa -out other.key 2048
openssl rsa -in client.key -traditional -out client-pkcs1.key
openssl pkey -in client.key -outform der -out client-der.key
openssl pkey -in client.key -aes128 -passout pass:x -out client-encrypted.key
openssl rsa -in client.key -traditional -aes128 -passout pass:x -out client-encrypted-old.key
for file in client.crt client.key root.crt; do
    { echo 'subject=/CN=a text before'; cat $file; } | sed 's/$/\r/' >dos-$file
done
mark() { printf '\357\273\277'; cat $1; }
mark client.crt >marked-client.crt
mark client.key >marked-client.key
{ cat stranger.crt; mark root.crt; } >marked-root.crt
openssl x509 -in root.crt -outform der -out der.crt
openssl x509 -in root.crt -trustout -out trustout.crt
: >empty.crt
cp client.crt certificate.key
sed 3,6d root.crt >short.crt
sed 's/^M/!/' root.crt >damaged.crt
cat root.crt own.crt version1-web.crt >trusted.crt
chmod 600 ./*.key
"#;

static FILES: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = temp_dir();
    let script = format!("set -eu; exec >log 2>&1\n{MAKE}");
    let made = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).status();
    let log = || fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(made.unwrap().success(), "{}", log());
    folder
});

fn file(name: &str) -> PathBuf {
    FILES.path().join(name)
}

/// A database server whose certificate each test sets. So the tests use it one after the other.
struct Secured {
    port: u16,
    url: String,
    _server: Server,
}

static SECURED: LazyLock<Mutex<Secured>> = LazyLock::new(|| Mutex::new(Secured::start()));

fn secured() -> MutexGuard<'static, Secured> {
    SECURED.lock().unwrap_or_else(PoisonError::into_inner)
}

const HBA: &str = "local all all trust\n\
                   hostnossl all postgres all trust\n\
                   hostssl all certified all cert\n\
                   hostssl all all all scram-sha-256\n";

impl Secured {
    fn start() -> Self {
        let server = server::start("127.0.0.1");
        let url = server.url.clone();
        let secured = Self { port: server.show("port").parse().unwrap(), url, _server: server };
        secured.execute("CREATE ROLE app LOGIN SUPERUSER PASSWORD 's3cret'");
        secured.execute("CREATE ROLE certified LOGIN SUPERUSER");
        secured.execute("CREATE DATABASE app");
        secured.write("root.crt", &fs::read_to_string(file("root.crt")).unwrap());
        secured.write("pg_hba.conf", HBA);
        secured.execute("ALTER SYSTEM SET ssl_ca_file = 'root.crt'");
        secured.certify("good");
        let migrate = jobctl(["migrate"]).env("HOME", "/nonexistent");
        migrate.env("JOBCTL_DATABASE_URL", &secured.address("")).run().success();
        secured
    }

    fn execute(&self, statement: &str) {
        Client::connect(&self.url, NoTls).unwrap().batch_execute(statement).unwrap();
    }

    /// Lets the server write a file into its folder, because its user must own the file. COPY
    /// writes a new line as `\\n`, and printf turns that back.
    fn write(&self, name: &str, text: &str) {
        let write = format!("umask 077; printf %b \"$(cat)\" >{name}");
        self.execute(&format!("COPY (SELECT '{text}') TO PROGRAM '{write}'"));
    }

    /// Sets the certificate and key of this name, and waits until the server sends the certificate.
    fn certify(&self, name: &str) {
        for (setting, kind) in [("cert", "crt"), ("key", "key")] {
            let own = format!("{name}.{kind}");
            self.write(&own, &fs::read_to_string(file(&own)).unwrap());
            self.execute(&format!("ALTER SYSTEM SET ssl_{setting}_file = '{own}'"));
        }
        self.execute("ALTER SYSTEM SET ssl = on");
        self.execute("SELECT pg_reload_conf()");
        let show = "openssl x509 -noout -fingerprint";
        let print = |command: &str| {
            let printed = Command::new("sh").args(["-c", &format!("{command} 2>&1")]).output();
            String::from_utf8(printed.unwrap().stdout).unwrap()
        };
        let own = print(&format!("{show} -in {}", file(&format!("{name}.crt")).display()));
        let client =
            format!("openssl s_client -starttls postgres -connect 127.0.0.1:{}", self.port);
        wait_until("the server to send the certificate", || {
            print(&format!("{client} </dev/null | {show}")) == own
        });
    }

    /// Returns the address of the database with more settings.
    fn address(&self, more: &str) -> String {
        format!(
            "host=db.example.com hostaddr=127.0.0.1 port={} dbname=app user=app password=s3cret \
             {more}",
            self.port
        )
    }

    /// Returns the address with a check of the certificate by the authorities in this file.
    fn verified(&self, root: &str) -> String {
        self.address(&format!("sslmode=verify-full sslrootcert={}", file(root).display()))
    }

    /// Returns the address of a role that logs in with a client certificate instead of a password.
    fn with_client_certificate(&self, certificate: &str, key: &str) -> String {
        let (certificate, key) = (file(certificate), file(key));
        let address = self.verified("root.crt").replace("app password=s3cret", "certified");
        format!("{address} sslcert={} sslkey={}", certificate.display(), key.display())
    }
}

/// Returns a `list-dead`, which prints nothing here, without the settings of this machine's user.
fn list_dead(address: &str) -> Invocation<'static> {
    jobctl(["list-dead"]).env("HOME", "/nonexistent").env("JOBCTL_DATABASE_URL", address)
}

#[track_caller]
fn assert_connects(address: &str) {
    list_dead(address).run().success().stdout("").stderr("");
}

#[track_caller]
fn assert_refused(address: &str, why: &str) {
    list_dead(address)
        .run()
        .exits(7)
        .stdout("")
        .complains_once()
        .prints_nowhere("s3cret")
        .stderr_has(why);
}

#[test]
fn channel_binding_uses_the_hash_of_the_certificates_signature() {
    let secured = secured();
    let with_binding = secured.address("sslmode=require channel_binding=require");
    for name in ["sha224", "sha384", "sha512", "pss", "pss384", "p384"] {
        secured.certify(name);
        assert_connects(&with_binding);
    }
    // libpq fails here, too: "could not find digest for NID UNDEF".
    secured.certify("ed25519");
    assert_refused(
        &with_binding,
        "channel_binding=require needs the hash of the server's certificate, and its signature \
         algorithm (Ed25519) defines no hash that jobctl knows; let an authority sign it with RSA \
         or ECDSA, or use channel_binding=prefer",
    );
    assert_connects(&secured.address("sslmode=require"));
}

#[test]
fn the_server_logs_no_lost_connection_of_commands_that_end() {
    let secured = secured();
    secured.certify("good");
    let mut client = Client::connect(&secured.url, NoTls).unwrap();
    let folder: String = client.query_one("SHOW data_directory", &[]).unwrap().get(0);
    let log = || fs::read_to_string(Path::new(&folder).join("log")).unwrap();
    let before = log().len();
    // If a command did not end its session properly, the server would sometimes log that.
    (0..20).for_each(|_| assert_connects(&secured.address("sslmode=require")));
    let open = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'";
    wait_until("the sessions to end", || {
        client.query_one(open, &[]).unwrap().get::<_, i64>(0) == 0
    });
    let logged = log().split_off(before);
    assert!(!logged.contains("could not receive data from client"), "{logged}");
}

#[test]
fn the_error_names_the_defect_of_the_servers_certificate() {
    let secured = secured();
    let trust = "or trust this certificate itself";
    // The server's certificate, the file of trusted authorities, and the error.
    for (name, root, why) in [
        ("version1", "root.crt", "it is X.509 version 1; issue it as version 3 with"),
        (
            "client-only",
            "root.crt",
            "its extendedKeyUsage does not allow servers; issue it with extendedKeyUsage",
        ),
        (
            "authority",
            "root.crt",
            "it is the certificate of an authority, not of a server; issue it with CA:FALSE",
        ),
        (
            "sha224",
            "root.crt",
            "its chain has a signature by SHA-224 with RSA, which is not supported; sign it with",
        ),
        (
            "by-weak",
            "weak-root.crt",
            "its authority has an RSA key of 1024 bits; use an RSA key of 2048 to 8192 bits",
        ),
        (
            "elsewhere",
            "root.crt",
            "it is not for this host name, only for elsewhere.example; use the name in the \
             certificate, or sslmode=verify-ca",
        ),
        ("ca-usage", "root.crt", "its keyUsage does not allow TLS servers; issue it with"),
        ("ca-usage", "ca-usage.crt", "its keyUsage does not allow TLS servers; issue it with"),
        ("own-ca-usage", "own-ca-usage.crt", "its keyUsage does not allow TLS servers"),
        ("own-client-only", "own-client-only.crt", "its extendedKeyUsage does not allow servers"),
        (
            "by-middle",
            "root.crt",
            "the keyUsage of its authority does not allow to sign certificates; issue the",
        ),
        ("by-mute", "mute-root.crt", "the keyUsage of its authority does not allow to sign"),
        ("good", "stranger.crt", "no trusted authority signed it; set sslrootcert to a file"),
        ("own", "root.crt", "it is self-signed; set sslrootcert to a file"),
    ] {
        secured.certify(name);
        let why = format!("the server's certificate is not acceptable: {why}");
        assert_refused(&secured.verified(root), &why);
        // A client may trust one of these certificates itself, as most of the errors say.
        if ["version1", "authority", "sha224", "own"].contains(&name) {
            let refused = list_dead(&secured.verified(root)).run();
            assert!(name == "own" || refused.stderr.contains(trust), "{refused}");
            assert_connects(&secured.verified(&format!("{name}.crt")));
        }
    }
}

#[test]
fn the_error_names_a_host_name_that_the_certificate_does_not_have() {
    let secured = secured();
    let address_of = |host: &str| secured.verified("root.crt").replace("db.example.com", host);
    secured.certify("by-address");
    assert_refused(
        &address_of("127.0.0.1"),
        "its subjectAltName has this address as DNS, not as IP; issue it with subjectAltName IP:",
    );

    secured.certify("good");
    assert_connects(&address_of("db.example.com."));
    assert_refused(
        &address_of("10.0.0.1"),
        "it is not for this host name, only for db.example.com, localhost, 127.0.0.1; use",
    );
    assert_refused(
        &address_of("dä.example"),
        "no certificate can contain this host name; use the name in the certificate",
    );
}

#[test]
fn a_certificate_may_be_for_key_agreement_and_an_unsupported_key_fails_the_handshake() {
    let secured = secured();
    secured.certify("usage");
    assert_connects(&secured.verified("root.crt"));
    secured.certify("p521");
    let rejects =
        "the server rejects the handshake: its key or its cipher suites are not supported";
    assert_refused(&secured.address("sslmode=require"), rejects);
}

#[test]
fn a_client_certificate_may_have_each_form_that_openssl_makes() {
    let secured = secured();
    secured.certify("good");
    for (certificate, key) in [
        // X.509 version 1, which `openssl x509 -req` makes.
        ("client.crt", "client.key"),
        ("client.crt", "client-pkcs1.key"),
        ("client.crt", "client-der.key"),
        ("client-ec.crt", "client-ec.key"),
        ("dos-client.crt", "dos-client.key"),
        // Like OpenSSL, jobctl skips byte order marks.
        ("marked-client.crt", "marked-client.key"),
    ] {
        assert_connects(&secured.with_client_certificate(certificate, key));
    }
}

#[test]
fn the_error_names_the_defect_of_a_client_certificate_or_its_key() {
    let secured = secured();
    secured.certify("good");
    let supported = "use an RSA key of 2048 to 8192 bits, or a P-256, P-384 or Ed25519 key";
    let [weak, p521] = ["an RSA key of 1024 bits", "a P-521 key"]
        .map(|kind| format!("it has {kind}; {supported}"));
    let encrypted = "client-encrypted.key: it is encrypted; decrypt it with `openssl pkey -in FILE";
    // The files of sslcert and sslkey, and the error.
    for (certificate, key, why) in [
        ("client.crt", "other.key", "other.key: it is not the key of sslcert; use that key"),
        ("client.crt", "client-encrypted.key", encrypted),
        ("client.crt", "client-encrypted-old.key", "it is encrypted; decrypt it with `openssl"),
        ("client.crt", "certificate.key", "it has no private key; correct sslkey"),
        ("client-weak.crt", "client-weak.key", &*weak),
        ("client-p521.crt", "client-p521.key", &*p521),
        ("der.crt", "client.key", "it is in DER form; convert it with `openssl x509 -inform der`"),
        (
            "foreign.crt",
            "foreign.key",
            "the server rejects the client certificate: it does not trust its authority; check \
             sslcert and sslkey",
        ),
    ] {
        assert_refused(&secured.with_client_certificate(certificate, key), why);
    }
}

#[test]
fn the_error_says_why_a_file_has_no_root_certificates() {
    let secured = secured();
    secured.certify("good");
    assert_connects(&secured.verified("dos-root.crt"));
    assert_connects(&secured.verified("marked-root.crt"));
    for (root, why) in [
        ("empty.crt", "empty.crt: it has no certificate in PEM form; correct sslrootcert"),
        ("der.crt", "der.crt: it is in DER form; convert it with `openssl x509 -inform der`"),
        ("trustout.crt", "trustout.crt: it has a TRUSTED CERTIFICATE; convert it with `openssl"),
        ("short.crt", "short.crt: no certificate in it can be read; correct sslrootcert"),
        ("damaged.crt", "damaged.crt: its text in PEM form is damaged; correct sslrootcert"),
    ] {
        assert_refused(&secured.verified(root), why);
    }
    // A certificate in the place of a list of revoked certificates.
    let address = format!("{} sslcrl={}", secured.verified("root.crt"), file("root.crt").display());
    assert_refused(&address, "it has no revocation list in PEM form; correct sslcrl");
}

/// A web server of the openssl program, which answers every GET.
struct WebServer {
    port: u16,
    server: Child,
}

impl WebServer {
    fn start(certificate: &str, options: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let mut server = Command::new("openssl");
        server.args(["s_server", "-www", "-accept", &address, "-cert"]);
        server.arg(file(&format!("{certificate}.crt"))).arg("-key");
        server.arg(file(&format!("{certificate}.key"))).args(["-cipher", "ALL@SECLEVEL=0"]);
        server.args(options).stdin(Stdio::null());
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("openssl to listen", || TcpStream::connect(&address).is_ok());
        Self { port, server }
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _: Option<process::ExitStatus> = self.server.wait().ok();
    }
}

/// Enqueues a call of this address, and returns the run's id.
fn enqueue_call(db: &TestDb, url: &str) -> i64 {
    db.enqueue(["http", &json!({ "url": url, "method": "GET" }).to_string()])
}

#[test]
fn a_web_server_may_have_the_certificates_that_a_database_server_may_have() {
    let db = TestDb::new();
    let root = file("root.crt");
    let root = root.to_str().unwrap();
    let not_acceptable = |why: &str| format!("the server's certificate is not acceptable: {why}");
    let trust = "add its authority's certificate or this one to those that this host trusts";
    let demands = "the server demands a client certificate; http jobs have no client certificate";
    let rejects =
        "the server rejects the handshake: its key or its cipher suites are not supported";
    // The server's certificate, flags of `openssl s_server`, the host of the URL, and the error. An
    // empty text means that the call succeeds.
    let cases = [
        ("good", &["-tls1_2"][..], "localhost", String::new()),
        ("good", &["-tls1_3"], "127.0.0.1", String::new()),
        // The host trusts these two certificates themselves.
        ("own", &[], "localhost", String::new()),
        ("version1-web", &[], "localhost", String::new()),
        ("p384", &[], "localhost", not_acceptable(&format!("it is self-signed; {trust}"))),
        ("version1", &[], "localhost", not_acceptable("it is X.509 version 1; issue it as")),
        ("weak", &[], "localhost", not_acceptable("it has an RSA key of 1024 bits; use an RSA")),
        ("authority", &[], "localhost", not_acceptable("it is the certificate of an authority")),
        ("client-only", &[], "localhost", not_acceptable("its extendedKeyUsage does not allow")),
        ("elsewhere", &[], "localhost", not_acceptable("it is not for this host name; use a name")),
        (
            "good",
            &["-tls1_1"],
            "localhost",
            "the server supports only versions of TLS before 1.2; allow TLS 1.2 or".to_owned(),
        ),
        ("good", &["-Verify", "1", "-CAfile", root, "-tls1_2"], "localhost", rejects.to_owned()),
        ("good", &["-Verify", "1", "-CAfile", root, "-tls1_3"], "localhost", demands.to_owned()),
    ];
    let started: Vec<_> = cases
        .iter()
        .map(|(certificate, options, host, why)| {
            let server = WebServer::start(certificate, options);
            let id = enqueue_call(&db, &format!("https://{host}:{}/", server.port));
            (id, server, *certificate, why)
        })
        .collect();
    // A server without TLS, which answers with an error in plain text, as web servers do.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let no_tls = enqueue_call(&db, &format!("https://{}/", plain.local_addr().unwrap()));
    let answering = thread::spawn(move || {
        let (mut stream, _) = plain.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let trusted = file("trusted.crt");
    db.jobctl(["tick"]).env("SSL_CERT_FILE", trusted.to_str().unwrap()).run().success();
    for (id, _, certificate, why) in &started {
        if why.is_empty() {
            assert_eq!(db.status(*id), "succeeded", "{}", db.dump());
            continue;
        }
        let failed = db.of_run(*id, "error_type, last_error");
        assert!(failed.starts_with(&format!("tls|{why}")), "{failed}: {why}");
        if *certificate == "elsewhere" {
            let note = db.of_attempt(*id, 1, "error");
            assert!(note.ends_with("`; its certificate is for elsewhere.example"), "{note}");
        }
    }
    let failed = db.of_run(no_tls, "error_type, last_error");
    assert!(
        failed.starts_with("tls|the server's answer is not TLS; check the address"),
        "{failed}"
    );
    answering.join().unwrap();
}
