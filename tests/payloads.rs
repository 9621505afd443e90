//! Payloads: bad ones are refused before a row exists, good ones arrive unchanged.

use std::fs;

use crate::cli::Untouched;
use crate::support::{TestDb, json_string, temp_dir};

/// How many bytes a payload may have.
const LIMIT: usize = 256 * 1024;

/// Returns a shell payload of this length.
fn payload_of(bytes: usize) -> String {
    let frame = r#"{"command":"wc -c","stdin":""}"#;
    frame.replace("\"\"}", &format!("\"{}\"}}", "x".repeat(bytes - frame.len())))
}

#[track_caller]
fn assert_nothing_is_enqueued(db: &TestDb) {
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

/// Asserts that an enqueue refuses this payload from stdin, as an argument and in a batch. An
/// argument must be UTF-8, and not too long for the system. The errors name the position, except
/// that of the batch, which names the line.
#[track_caller]
fn assert_refused(db: &TestDb, payload: &[u8], why: &str, position: &str) {
    let refused = db.jobctl(["enqueue", "shell", "--payload-file", "-"]).stdin(payload).run();
    refused.exits(2).stdout("").complains_once().stderr_has(why).stderr_has(position);
    if let Ok(text) = std::str::from_utf8(payload)
        && text.len() < 100_000
    {
        let refused = db.jobctl(["enqueue", "shell", text]).run();
        refused.exits(2).stdout("").complains_once().stderr_has(why).stderr_has(position);
    }
    let line = [b"{\"job_type\": \"shell\", \"payload\": ", payload, b"}"].concat();
    let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(line).run();
    refused.exits(2).stdout("").complains_once().stderr_has("cannot enqueue: batch line 1: ");
}

#[test]
fn a_bad_payload_is_refused_with_its_position() {
    let db = TestDb::new();
    // Characters that PostgreSQL or UTF-8 do not allow.
    assert_refused(&db, br#"{"a":"x\u0000y"}"#, "NUL not allowed", "line 1 column");
    assert_refused(&db, br#"{"command":"x","x\u0000y":1}"#, "NUL not allowed", "line 1 column");
    assert_refused(&db, br#"{"command":"\ud800"}"#, "not valid JSON", "line 1 column");
    assert_refused(&db, br#"{"command":"\ud800\u0041"}"#, "not valid JSON", "line 1 column");
    assert_refused(&db, b"{\"command\":\"\xff\"}", "not UTF-8", "byte 13");
    assert_refused(&db, b"{\"command\":\"\xed\xa0\x80\"}", "not UTF-8", "byte 13");
    assert_refused(
        &db,
        "\u{feff}{\"command\":\"x\"}".as_bytes(),
        "byte order mark",
        "line 1 column 1",
    );
    // Texts that are not JSON, numbers that are out of range, and keys that come twice.
    assert_refused(&db, b"", "not valid JSON", "line 1 column 0");
    assert_refused(&db, br#"{"command":"x"} x"#, "trailing characters", "line 1 column 17");
    assert_refused(&db, b"{\n\"command\": nan}", "not valid JSON", "line 2 column");
    assert_refused(&db, br#"{"command":"x","stdin":1e999}"#, "out of range", "line 1 column");
    assert_refused(&db, br#"{"command":"x","stdin":[1e-9999]}"#, "exponent beyond 308", "byte 26");
    assert_refused(&db, br#"{"command":"x","command":"y"}"#, "the same key twice", "line 1 column");
    assert_refused(
        &db,
        br#"{"command":"x","stdin":{"a":1,"a":1}}"#,
        "the same key twice",
        "line 1 column",
    );
    // Objects and lists that are nested too deep.
    let deep = format!(r#"{{"command":"x","stdin":{}{}}}"#, "[".repeat(64), "]".repeat(64));
    assert_refused(&db, deep.as_bytes(), "nested deeper than 64", "line 1 column");
    assert_refused(&db, "[".repeat(20_000).as_bytes(), "nested deeper than 64", "line 1 column 65");
    assert_refused(
        &db,
        r#"{"a":"#.repeat(20_000).as_bytes(),
        "nested deeper than 64",
        "line 1 column",
    );
    assert_nothing_is_enqueued(&db);
}

#[test]
fn a_payload_that_is_not_a_job_is_refused() {
    let db = TestDb::new();
    // A built-in job, its payload, and the error.
    for (job, payload, why) in [
        ("shell", "{}", "missing field `command`"),
        ("shell", r#"{"command": []}"#, "`command` is empty"),
        ("shell", r#"{"command": "x", "comand": "y"}"#, "; did you mean `command`?"),
        ("shell", "[]", "the payload is not a shell job"),
        ("shell", "null", "the payload is not a shell job"),
        ("http", r#"{"url": "ftp://a"}"#, "must start with http:// or https://"),
        ("http", r#"{"url": "http://a", "json": 1, "body": ""}"#, "exclude each other"),
    ] {
        db.jobctl(["enqueue", job, payload])
            .run()
            .exits(2)
            .stdout("")
            .complains_once()
            .stderr_has(why);
    }
    // Without a payload, the error says how to write one.
    let call = "needs a payload; for a call write: jobctl enqueue http '{\"url\": \"URL\"}'";
    db.jobctl(["enqueue", "http"]).run().exits(2).complains_once().stderr_has(call);
    let command = "needs a payload; to run a command: jobctl enqueue shell -- COMMAND";
    db.jobctl(["enqueue", "shell"]).run().exits(2).complains_once().stderr_has(command);
    db.jobctl(["enqueue", "http", "--", "true"])
        .run()
        .exits(2)
        .complains_once()
        .stderr_has("the job shell");
    assert_nothing_is_enqueued(&db);
}

#[test]
fn the_limit_of_a_payload_is_exact() {
    let db = TestDb::new();
    let send = |payload: String| {
        db.jobctl(["enqueue", "shell", "--payload-file", "-"]).stdin(payload).run()
    };
    // A payload of 256 KiB, and one that is a byte longer; and then the same in a batch.
    send(payload_of(LIMIT)).success();
    send(payload_of(LIMIT + 1))
        .exits(2)
        .stdout("")
        .complains_once()
        .stderr_has("longer than 256 KiB");
    let line = |payload: String| format!("{{\"job_type\": \"shell\", \"payload\": {payload}}}\n");
    let batch = |payload: String| db.jobctl(["enqueue", "--batch", "-"]).stdin(line(payload)).run();
    batch(payload_of(LIMIT)).success();
    batch(payload_of(LIMIT + 1))
        .exits(2)
        .stdout("")
        .complains_once()
        .stderr_has("longer than 256 KiB");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "2");
}

#[test]
fn a_payload_runs_however_much_longer_it_is_in_the_database() {
    let db = TestDb::new();
    // The database stores a space between items, and all digits of a number: 1e308 has 309.
    for item in ["1", "[]", "\"\"", "1e308", "1e-308", "{\"a\":1}"] {
        let items = vec![item; (LIMIT - 40) / (item.len() + 1)].join(",");
        let payload = format!(r#"{{"command":"cat >/dev/null","stdin":[{items}]}}"#);
        db.jobctl(["enqueue", "shell", "--payload-file", "-"]).stdin(payload).run().success();
    }
    db.jobctl(["tick", "--quiet"]).run().success().stderr("");
    assert_eq!(db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1"), "succeeded|6");
}

/// Asserts that a tick ends all waiting runs dead and needs less than 64 MiB of memory.
fn assert_runs_end_dead_in_little_memory(db: &TestDb, runs: u32) {
    let last = db.enqueue_that_prints_peak_memory();
    db.jobctl(["tick", "--concurrency", "4", "--quiet"]).run().success();
    let peak = db.peak_memory(last);
    assert!(peak < 64 * 1024, "{peak} KiB");
    assert_eq!(
        db.query("SELECT status, count(*) FROM jobctl.job_runs GROUP BY 1 ORDER BY 1"),
        format!("dead|{runs}\nsucceeded|1")
    );
}

#[test]
fn few_large_payloads_are_in_memory_at_once() {
    let db = TestDb::new();
    // A command that is a number makes its run dead at once. After a thousand runs that end so
    // fast, the tick prefetches many runs. Behind them are 300 large ones.
    db.execute(
        "INSERT INTO jobctl.job_runs (job_type, payload)
         SELECT 'shell', '{\"command\": 7}' FROM generate_series(1, 1000);
         INSERT INTO jobctl.job_runs (job_type, payload)
         SELECT 'shell', jsonb_build_object('command', 7, 'stdin', large) FROM generate_series(1, \
         300),
             (SELECT string_agg(md5(n::text), '') AS large FROM generate_series(1, 8000) AS n) AS \
             random",
    );
    assert_runs_end_dead_in_little_memory(&db, 1300);
}

#[test]
fn compressed_payloads_take_no_more_memory() {
    let db = TestDb::new();
    db.apply(&format!(
        "[jobs.large]\nhttp.url = 'http://127.0.0.1:9/'\nhttp.headers.a = '{}'\n",
        "x".repeat(100_000)
    ));
    // A method or a command that is a number makes its run dead at once. The large payloads and the
    // large definition are one repeated letter, so PostgreSQL compresses them.
    db.execute(
        "UPDATE jobctl.job_definitions SET action = action || '{\"method\": 7}';
         INSERT INTO jobctl.job_runs (job_type, payload) SELECT 'shell', '{\"command\": 7}' FROM \
         generate_series(1, 1000);
         INSERT INTO jobctl.job_runs (job_type) SELECT 'large' FROM generate_series(1, 1000);
         INSERT INTO jobctl.job_runs (job_type, payload)
         SELECT 'shell', jsonb_build_object('command', 7, 'stdin', repeat('x', 250000)) FROM \
         generate_series(1, 300)",
    );
    assert_runs_end_dead_in_little_memory(&db, 2300);
}

#[test]
fn endless_input_is_refused_in_little_memory() {
    let db = TestDb::new();
    for arguments in [
        "shell --payload-file -",
        "shell --payload-file /dev/stdin",
        "--batch -",
        "--batch /dev/stdin",
    ] {
        // The command may use 32 MiB of memory, and its input never ends.
        let script =
            format!("ulimit -d 32768; yes 1 | tr -d '\\n' | \"$jobctl\" enqueue {arguments}");
        db.script(&script).run().exits(2).stdout("").complains_once().stderr_has("longer than");
    }
    assert_nothing_is_enqueued(&db);
}

#[test]
fn a_payload_file_that_cannot_be_read_is_named() {
    let db = TestDb::new();
    let directory = temp_dir();
    let missing = directory.path().join("missing").display().to_string();
    for flag in ["--payload-file", "--batch"] {
        let job: &[&str] = if flag == "--batch" { &[] } else { &["shell"] };
        // A missing file, and a folder.
        for path in [missing.as_str(), directory.path().to_str().unwrap()] {
            let refused = db.jobctl(["enqueue"]).args(job.iter().copied()).args([flag, path]).run();
            refused.exits(1).stdout("").complains_once();
        }
        db.jobctl(["enqueue"])
            .args(job.iter().copied())
            .args([flag, &missing])
            .run()
            .stderr_has(&missing);
    }
    assert_nothing_is_enqueued(&db);
}

#[test]
fn a_payload_arrives_byte_for_byte_and_nothing_in_it_is_executed() {
    let db = TestDb::new();
    let directory = temp_dir();
    for text in [
        "\"; touch pwned; $(touch pwned) `touch pwned`",
        "-rf",
        "%0A",
        "'; DROP TABLE x; --",
        "\\\u{2019}%s$$\n\t",
    ] {
        let id = db.enqueue(["shell", &json_string(text), "--", "cat"]);
        db.jobctl(["tick", "--quiet"]).current_dir(directory.path()).run().success().stderr("");
        assert_eq!(db.of_attempt(id, 1, "output"), text);
    }
    // A number with 20 digits keeps all of them.
    let id = db.enqueue(["shell", r#"{"user": 12345678901234567890, "x": null}"#, "--", "cat"]);
    db.jobctl(["tick", "--quiet"]).current_dir(directory.path()).run().success().stderr("");
    let same = r#"output::jsonb = '{"user": 12345678901234567890, "x": null}'"#;
    assert_eq!(db.of_attempt(id, 1, same), "t");
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "something was executed");
}

#[test]
fn no_list_of_processes_shows_a_payload_or_a_password() {
    let db = TestDb::new();
    let folder = temp_dir();
    let list = folder.path().join("list");
    // The command lines of all processes, like `ps`; the tick and the job are among them. They go
    // to a file, because the list of a busy machine is longer than a stored output.
    let look =
        format!("cat >/dev/null; cat /proc/[0-9]*/cmdline | tr '\\\\0' ' ' >{}", list.display());
    db.apply(&format!("[jobs.look]\nshell = \"{look}\"\n"));
    let payload = r#"{"token": "4Gk0dgsW-token"}"#;
    db.jobctl(["enqueue", "look", "--payload-file", "-"]).stdin(payload).run().success();
    db.jobctl(["tick"]).env("PGPASSWORD", "4Gk0dgsW-password").run().success();
    let seen = String::from_utf8_lossy(&fs::read(&list).unwrap()).into_owned();
    assert!(seen.contains("/proc/") && seen.contains(" tick "), "{seen}");
    assert!(!seen.contains("4Gk0dgsW"), "{seen}");
}

#[test]
fn a_command_or_address_given_as_payload_gets_a_tip() {
    let database = Untouched::new();
    let refused = |words: &[&str]| {
        database.jobctl(["enqueue"]).args(words.iter().copied()).run().exits(2).stdout("")
    };
    // A command instead of a payload. Several words are wrong usage, whose error has a tip.
    let command = "to run a command: jobctl enqueue shell -- COMMAND\n";
    for words in [
        &["shell", "ls -la"][..],
        &["shell", "true"],
        &["shell", "\"ls\""],
        &["shell", "ls", "--", "-la"],
    ] {
        refused(words).complains_once().stderr_has(&format!("; {command}"));
    }
    for words in [&["shell", "ls", "-la"][..], &["shell", "ls", "la"]] {
        refused(words).stderr_has(&format!("\n  tip: {command}")).prints_nowhere("as a value");
    }
    // An address instead of a payload.
    let call = "; for a call write: jobctl enqueue http '{\"url\": \"URL\"}'\n";
    refused(&["http", "https://app.example/mail"]).complains_once().stderr_has(call);
    // A whole command in one word. The error does not repeat it, because it may have a password.
    let one_word = ["shell", "--", "mysql -pS3CRET"];
    let apart = "one word with blanks; pass its words separately, or use sh -c COMMAND\n";
    refused(&one_word).complains_once().stderr_has(apart).prints_nowhere("S3CRET");
    refused(&["shell", r#"{"command": ["mysql -pS3CRET"]}"#])
        .complains_once()
        .stderr_has(apart)
        .prints_nowhere("S3CRET");
}

#[test]
fn a_payload_that_lost_its_quotes_in_the_shell_gets_a_tip() {
    let database = Untouched::new();
    let refused = |words: &[&str]| {
        database.jobctl(["enqueue"]).args(words.iter().copied()).run().exits(2).stdout("")
    };
    let command = "to run a command: jobctl enqueue shell -- COMMAND\n";
    let quotes = "put a payload into single quotes, as in '{\"user\": 1}', or use --payload-file";
    for words in [
        &["report", "{user:1}"][..],
        &["report", "{\"user\":1"],
        &["report", "user=1"],
        &["shell", "{command:true}"],
        &["shell", "{user:1}", "--", "true"],
        &["--batch", "-", "--then", "report", "{user:1}"],
    ] {
        refused(words).complains_once().stderr_has(&format!("; {quotes}\n"));
    }
    for words in [&["report", "{user:", "1}"][..], &["report", "{\"user\":", "1,", "\"b\":", "2}"]]
    {
        refused(words).stderr_has(&format!("\n  tip: {quotes}\n")).prints_nowhere(command);
    }
    refused(&["report", r#"{"a": 1, "a": 2}"#]).prints_nowhere("single quotes");
    let tip = "\n  tip: to give a payload: jobctl enqueue JOB '{\"user\": 1}'\n";
    refused(&["report", "--payload", "{}"]).stderr_has(tip);
    // Only a shell removes quotes, so the error about a file has no such tip.
    let of_file = database.jobctl(["enqueue", "report", "--payload-file", "-"]).stdin("{user:1}");
    of_file.run().exits(2).prints_nowhere("single quotes");
    // A text that begins like an object gets an error of its own.
    for words in [
        &["shell", "{"][..],
        &["shell", "{}"],
        &["shell", "5", "--", ""],
        &["shell", "{}", "--timeot"],
    ] {
        refused(words).prints_nowhere(command);
    }
}

#[test]
fn a_command_that_begins_with_a_variable_gets_a_tip_without_its_value() {
    let database = Untouched::new();
    let refused = |words: &[&str]| {
        database.jobctl(["enqueue"]).args(words.iter().copied()).run().exits(2).stdout("")
    };
    let env = "cannot find the program: the first word sets the variable A, as only a shell does; \
               begin with `env A=...`";
    // The value of the variable may be a secret, so the error has only its name.
    for words in [
        &["shell", "--", "A=S3CRET", "printenv", "A"][..],
        &["shell", r#"{"command": ["A=S3CRET"]}"#],
        &["shell", "{}", "--", "A=S3CRET x", "y"],
    ] {
        refused(words).complains_once().stderr_has(env).prints_nowhere("S3CRET");
    }
}
