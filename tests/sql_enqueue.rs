//! `jobctl.enqueue(...)`: what an application calls in its own transaction.

use std::thread;

use postgres::SimpleQueryMessage;

use crate::support::{Role, TestDb, jobctl};

/// Returns a database with the job `a`, whose values are not the defaults.
fn db_with_definition() -> TestDb {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'cat'\nqueue = 'own'\npriority = 4\nmax_attempts = 6\n\
         backoff = 'fixed:5m'\n",
    );
    db
}

/// Returns the SQLSTATE of a statement that fails, or `accepted`.
fn sqlstate_of(db: &TestDb, sql: &str) -> String {
    match db.client().simple_query(sql) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.code().map_or_else(|| error.to_string(), |code| code.code().to_owned()),
    }
}

#[test]
fn an_order_and_its_job_commit_or_roll_back_together() {
    let db = db_with_definition();
    db.execute("CREATE TABLE orders (id int PRIMARY KEY)");
    let both = "INSERT INTO orders VALUES (1); SELECT jobctl.enqueue('a', '{\"order\": 1}', key => \
        'order:1')";
    let orders_and_runs =
        || db.query("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM jobctl.job_runs)");
    db.execute(&format!("BEGIN; {both}; ROLLBACK"));
    assert_eq!(orders_and_runs(), "0|0");

    let mut application = db.client();
    application.batch_execute(&format!("BEGIN; {both}")).unwrap();
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(orders_and_runs(), "0|0", "the run is invisible before the commit");
    application.batch_execute("COMMIT").unwrap();
    assert_eq!(orders_and_runs(), "1|1");
    db.jobctl(["tick"]).run().success();
    assert_eq!(
        db.query("SELECT outcome, output FROM jobctl.job_attempts"),
        "succeeded|{\"order\": 1}"
    );
}

#[test]
fn named_arguments_override_the_definitions_values() {
    let db = db_with_definition();
    let columns =
        "job_type, payload, idempotency_key, run_at > now() - interval '1 minute', priority, queue,
                   max_attempts, timeout, backoff, key_scope, status";
    // Returns the columns of the run that a call has enqueued.
    let run = |call: &str| {
        db.of_run(db.query(&format!("SELECT jobctl.enqueue({call})")).parse().unwrap(), columns)
    };
    // Without an argument or with NULL, the definition decides.
    assert_eq!(run("'a'"), "a|{}||t|4|own|6||fixed:5m|retained|queued");
    assert_eq!(
        run("job => 'a', payload => NULL, key_scope => NULL"),
        "a|{}||t|4|own|6||fixed:5m|retained|queued"
    );
    assert_eq!(
        run("job => 'a', payload => '[1]', key => 'k', run_at => '2020-01-01 00:00:00+02',
             priority => -3, queue => 'q', max_attempts => 2, timeout => '90 seconds',
             backoff => 'list:1m,5m', key_scope => 'live'"),
        "a|[1]|k|t|-3|q|2|00:01:30|list:1m,5m|live|queued"
    );

    let id = db.query("SELECT jobctl.enqueue('a', run_in => '1 hour')");
    assert_eq!(
        db.of_run(
            id.parse().unwrap(),
            "run_at BETWEEN now() + interval '59 minutes' AND now() + interval '1 hour'"
        ),
        "t"
    );
}

#[test]
fn a_repeated_key_returns_the_same_run_unless_the_payload_differs() {
    let db = db_with_definition();
    db.apply("[jobs.a]\nshell = 'cat'\n[jobs.b]\nshell = 'cat'\n");
    let first = db.query("SELECT jobctl.enqueue('a', '{\"x\": 1, \"y\": 2}', key => 'k')");
    assert_eq!(db.query("SELECT jobctl.enqueue('a', '{\"y\":2,  \"x\":1}', key => 'k')"), first);
    assert_eq!(db.enqueue(["a", r#"{"y":2,"x":1}"#, "--key", "k"]).to_string(), first);

    // Another payload, no payload and another job are conflicts.
    for conflict in ["'a', '{\"x\": 2}'", "'a'", "'b', '{\"x\": 1, \"y\": 2}'"] {
        assert_eq!(
            sqlstate_of(&db, &format!("SELECT jobctl.enqueue({conflict}, key => 'k')")),
            "JC004",
            "{conflict}"
        );
    }

    // Keys that only look alike are other keys. Here are four runs more.
    for other in ["K", "k ", "\u{e9}", "e\u{301}"] {
        assert_ne!(
            db.query(&format!("SELECT jobctl.enqueue('a', '{{}}', key => '{other}')")),
            first,
            "{other}"
        );
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "5");
}

#[test]
fn unknown_names_and_built_in_jobs_are_rejected() {
    let db = db_with_definition();
    for name in ["'absent'", "'A'", "''", "NULL", "'shell'", "'http'"] {
        assert_eq!(
            sqlstate_of(&db, &format!("SELECT jobctl.enqueue({name}, '{{\"command\": \"id\"}}')")),
            "JC003",
            "{name}"
        );
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

#[test]
fn bad_values_are_rejected_with_the_right_sqlstate() {
    let db = db_with_definition();
    // An argument, and the SQLSTATE. 22023 is of jobctl's own checks, the others are of PostgreSQL.
    for (given, code) in [
        ("priority => 2147483648", "42883"),
        ("priority => '2147483648'", "22003"),
        ("priority => '-2147483649'", "22003"),
        ("max_attempts => 0", "22023"),
        ("max_attempts => -1", "22023"),
        ("max_attempts => 1001", "22023"),
        ("max_attempts => 1000000000", "22023"),
        ("run_at => 'infinity'", "22023"),
        ("run_at => '-infinity'", "22023"),
        ("run_at => '200000-01-01'", "22023"),
        ("run_at => '2026-13-01'", "22008"),
        ("run_at => now(), run_in => '1 hour'", "22023"),
        ("run_in => '1000000 years'", "22023"),
        ("run_in => '-1 second'", "22023"),
        // These compare as a few days, or one, and would move a time by years.
        ("run_in => '-10 years 3601 days'", "22023"),
        ("run_at => '0001-01-01 00:00Z', expires_in => '-100 years 36001 days'", "22023"),
        ("key => 'k', key_scope => 'live', debounce => '-10 years 3601 days'", "22023"),
        ("timeout => '0'", "22023"),
        ("timeout => '-1 second'", "22023"),
        ("backoff => 'often'", "22023"),
        ("backoff => 'fixed:'", "22023"),
        ("backoff => 'fixed:' || repeat(' ', 1000) || '1m'", "22023"),
        ("queue => 'a b'", "22023"),
        ("queue => ''", "22023"),
        ("key => ''", "22023"),
        ("key => E'a\\nb'", "22023"),
        ("key => repeat('k', 256)", "22023"),
        ("key => '-k'", "22023"),
        ("key => 'jobctl-run-7'", "22023"),
        ("key => 'k', key_scope => 'forever'", "22023"),
        ("key_scope => 'live'", "22023"),
        ("payload => '{'", "22P02"),
        ("payload => '\"\\u0000\"'", "22P05"),
        ("payload => to_jsonb(repeat('x', 4 * 262144))", "22023"),
        ("payload => (SELECT jsonb_agg(1) FROM generate_series(1, 200000))", "22023"),
        ("payload => (repeat('[', 65) || repeat(']', 65))::jsonb", "22023"),
        ("payload => '[{\"a\": -1e309}]'", "22023"),
    ] {
        assert_eq!(
            sqlstate_of(&db, &format!("SELECT jobctl.enqueue('a', {given})")),
            code,
            "{given}"
        );
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");

    // The last values that are allowed.
    for given in [
        "priority => 2147483647",
        "priority => (-2147483648)",
        "max_attempts => 1000",
        "key => repeat('k', 255)",
        "payload => (repeat('[', 64) || '1' || repeat(']', 64))::jsonb",
        "payload => '[{\"a\": -1e308}]'",
    ] {
        assert_eq!(
            sqlstate_of(&db, &format!("SELECT jobctl.enqueue('a', {given})")),
            "accepted",
            "{given}"
        );
    }
}

#[test]
fn an_error_names_the_argument_and_hides_the_payload() {
    let db = db_with_definition();
    // A wrong argument, and the name with which the error begins.
    for (given, argument) in [
        ("run_at => 'infinity'", "run_at"),
        ("run_in => '11 years'", "run_in"),
        (r#""in" => '11 years'"#, "in"),
        (r#""in" => '1 hour', debounce => '1 hour', key => 'k', key_scope => 'live'"#, "debounce"),
        ("timeout => '100 years'", "timeout"),
        ("max_attempts => 0", "max_attempts"),
        ("queue => 'a b'", "queue"),
        ("backoff => 'fixed:zz'", "backoff"),
        ("key => E'a\\nb'", "key"),
        ("key_scope => 'forever'", "key_scope"),
        ("payload => jsonb_build_object('password', repeat('hunter2', 200000))", "payload"),
    ] {
        let payload =
            if argument == "payload" { "" } else { r#"payload => '{"password": "hunter2"}', "# };
        let refused =
            db.client().simple_query(&format!("SELECT jobctl.enqueue('a', {payload}{given})"));
        let refused = refused.expect_err(given);
        let refused = refused.as_db_error().unwrap();
        assert!(refused.message().starts_with(&format!("{argument} ")), "{given}: {refused:?}");
        assert!(!format!("{refused:?}").contains("hunter2"), "{given}: {refused:?}");
    }
}

#[test]
fn the_function_and_the_command_line_accept_the_same_values() {
    let db = db_with_definition();
    let command_accepts =
        |flag: &str, value: &str| db.jobctl(["enqueue", "a", flag, value]).run().status.success();
    // The argument, the flag, and values of which some are allowed. This test only compares both.
    // Other tests say which values are allowed.
    for (argument, flag, values) in [
        (
            "backoff",
            "--backoff",
            &[
                "fixed:0s",
                "fixed:0",
                "exponential:0..1m",
                "list:0,1m",
                "fixed:1m",
                "fixed:2d 12h 30m 5s 7ms",
                "fixed: 1 0 m ",
                "fixed:30d",
                "fixed:99h",
                "exponential:00ms",
                "fixed:5x",
                "fixed:720h",
                "polynomial:10s",
                "exponential:1s",
                "exponential:30d",
                "exponential:1h..60m",
                "exponential:1s..30d",
                "list:1m",
                "list:1m,5m, 30m,2h",
                "list:2h,1m",
                "fixed:00000000000000000000000000001s",
                "",
                "1m",
                "fixed",
                "fixed:",
                "fixed:zz",
                "fixed:5",
                "fixed:s",
                "fixed:1M",
                "fixed:1y",
                "fixed:-1s",
                "fixed:1.5h",
                "fixed:1m s",
                "fixed:1m,2m",
                "fixed:1m..2m",
                "fixed:1m:2m",
                "fixed:31d",
                "fixed:1m\n",
                "fixed:\t1m",
                "fixed:5\u{b5}s",
                "Fixed:1m",
                " fixed:1m",
                "linear:1m",
                "polynomial:31d",
                "exponential:",
                "exponential:2h..1h",
                "exponential:1m..",
                "exponential:..1m",
                "exponential:1m..31d",
                "exponential:1m..2m..3m",
                "exponential:1m...2m",
                "exponential:1m,2m",
                "list:",
                "list:1m,",
                "list:1m,,2m",
                "list:1m..2m",
                "list:1m;2m",
                "fixed:99999999999999999999s",
            ][..],
        ),
        ("timeout", "--timeout", &["999ms", "1s", "30d", "2592000s", "2592001s", "36500d"]),
        ("\"in\"", "--in", &["0s", "3650d", "3651d"]),
        (
            "run_at",
            "--run-at",
            &[
                "0001-01-01T00:00:00Z",
                "0001-01-01T00:00:00+01:00",
                "9999-12-31T23:59:59Z",
                "9999-12-31T23:59:59-01:00",
                "2026-01-01T00:00:00+01:00",
            ],
        ),
        ("queue", "--queue", &["q", "a.b:c-d_E1", "", "-q", "a b", "a\n", "\u{e9}"]),
        (
            "key",
            "--key",
            &[
                "k",
                " ",
                "\u{e9}",
                "\u{80}",
                "\u{9f}",
                "a\u{7f}",
                "\u{1b}",
                "\u{a0}",
                "",
                "-k",
                "k-",
                "jobctl-run-7",
                "jobctl-run",
            ],
        ),
        ("share", "--share", &["s", " s", " ", "   ", "", "-s"]),
        ("lock", "--lock", &["s", " s", " ", "   ", "", "-s"]),
        ("worker", "--worker", &["s", " s", " ", "   ", "", "-s"]),
    ] {
        for value in values {
            let call = format!("SELECT jobctl.enqueue('a', {argument} => '{value}')");
            let function_accepts = db.client().simple_query(&call).is_ok();
            assert_eq!(function_accepts, command_accepts(flag, value), "{argument} {value:?}");
        }
    }
}

#[test]
fn the_flags_the_sql_arguments_and_the_batch_fields_of_enqueue_have_the_same_names() {
    let db = db_with_definition();
    // The help has the flags, and the error of an unknown field has all fields.
    let names =
        db.query("SELECT unnest(proargnames) FROM pg_proc WHERE oid = 'jobctl.enqueue'::regproc");
    let help = jobctl(["enqueue", "--help"]).run().success().stdout;
    let line = r#"{"job": "a", "no_such_field": 1}"#;
    let known = db.jobctl(["enqueue", "--batch", "-"]).stdin(line).run().exits(2).stderr;
    // These arguments have no flag and no field of their name.
    let only_in_sql = ["run_in", "after_rule", "caller"];
    for name in names.lines().filter(|name| !only_in_sql.contains(name)) {
        let flag = format!("--{}", name.replace('_', "-"));
        let is_flag = help.split_whitespace().any(|word| word == flag);
        assert!(is_flag || name == "payload", "{name}: {help}");
        assert!(known.contains(&format!("`{name}`")), "{name}: {known}");
    }
    // The names of the columns are fields, too.
    for column in ["job_type", "idempotency_key"] {
        assert!(known.contains(&format!("`{column}`")), "{column}: {known}");
    }
}

#[test]
fn sql_flags_and_both_names_of_a_field_store_the_same_columns() {
    let db = db_with_definition();
    let rows = "job_type, idempotency_key, run_at > now() + interval '9 minutes', payload";
    let stored =
        |id: &str| db.query(&format!("SELECT {rows} FROM jobctl.job_runs WHERE id = {id}"));
    let sql = db.query(r#"SELECT jobctl.enqueue(job => 'a', key => 'sql', "in" => '10 minutes')"#);
    let flags =
        db.jobctl(["enqueue", "--job", "a", "--key", "flag", "--in", "10m"]).run().success();
    assert_eq!(stored(&sql), "a|sql|t|{}");
    assert_eq!(stored(flags.stdout.trim()), "a|flag|t|{}");
    let lines = r#"{"job": "a", "key": "k1", "in": "10m"}
{"job_type": "a", "idempotency_key": "k2", "in": "10m"}"#;
    let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success();
    let stored_by_batch: Vec<_> = batch.stdout.lines().map(stored).collect();
    assert_eq!(stored_by_batch, ["a|k1|t|{}", "a|k2|t|{}"]);

    // Both names at once are one field twice.
    for both in
        [r#""job": "a", "job_type": "a""#, r#""job": "a", "key": "k", "idempotency_key": "k""#]
    {
        let line = format!("{{{both}}}");
        let refused = db.jobctl(["enqueue", "--batch", "-"]).stdin(line).run().exits(2);
        refused.stderr_has("duplicate field `");
    }
}

#[test]
fn rules_for_predecessors_have_the_names_of_their_flags() {
    let db = db_with_definition();
    let first = db.query("SELECT jobctl.enqueue('a')");
    for (given, rule) in [
        ("after_any_end => true", "any_end"),
        ("or_cancel => true", "or_cancel"),
        ("after_any_end => NULL, or_cancel => false", "success"),
        ("after_rule => 'any_end'", "any_end"),
    ] {
        let id = db.query(&format!("SELECT jobctl.enqueue('a', after => '{{{first}}}', {given})"));
        let stored = format!("SELECT rule FROM jobctl.job_dependencies WHERE run_id = {id}");
        assert_eq!(db.query(&stored), rule, "{given}");
    }
    // Two rules, or two times, at once are an error.
    for given in [
        "after_any_end => true, or_cancel => true",
        "after_any_end => true, after_rule => 'or_cancel'",
        r#""in" => '1 hour', run_in => '1 hour'"#,
    ] {
        assert_eq!(
            sqlstate_of(&db, &format!("SELECT jobctl.enqueue('a', {given})")),
            "22023",
            "{given}"
        );
    }
}

/// The constraints, the functions and the command line refuse the same invisible characters. Of
/// each range, the first and the last character and their neighbours are tried.
#[test]
fn no_key_or_share_has_an_invisible_character() {
    let db = db_with_definition();
    let mut client = db.client();
    let ranges = [
        0x1..=0x1f,
        0x7f..=0x9f,
        0xad..=0xad,
        0x34f..=0x34f,
        0x61c..=0x61c,
        0x115f..=0x1160,
        0x17b4..=0x17b5,
        0x180b..=0x180f,
        0x200b..=0x200f,
        0x2028..=0x202e,
        0x2060..=0x206f,
        0x3164..=0x3164,
        0xfe00..=0xfe0f,
        0xfeff..=0xfeff,
        0xffa0..=0xffa0,
        0xfff0..=0xfffb,
        0x1bca0..=0x1bca3,
        0x1d173..=0x1d17a,
        0xe0000..=0xe0fff,
    ];
    for range in ranges {
        let (first, last) = (*range.start(), *range.end());
        for (code, is_plain) in [(first - 1, true), (first, false), (last, false), (last + 1, true)]
        {
            // PostgreSQL has no zero byte in a text.
            let Some(c) = char::from_u32(code).filter(|c| *c != '\0') else { continue };
            let text = format!("a{c}b");
            // The functions, the constraints and the command line.
            for statement in [
                "SELECT jobctl.enqueue('a', key => $1)",
                "SELECT jobctl.enqueue('a', share => $1)",
                "SELECT jobctl.record_effect($1)",
                "INSERT INTO jobctl.job_runs (job_type, key_scope, idempotency_key)
                 VALUES ('a', 'live', $1)",
                "INSERT INTO jobctl.job_runs (job_type, share) VALUES ('a', $1)",
            ] {
                let accepted = client.execute(statement, &[&text]);
                assert_eq!(accepted.is_ok(), is_plain, "{code:x}: {statement}: {accepted:?}");
            }
            let enqueue = db.jobctl(["enqueue", "a", "--key", &text]).run();
            assert_eq!(enqueue.status.success(), is_plain, "{code:x}: {enqueue}");
        }
    }
}

#[test]
fn every_text_is_stored_unchanged() {
    let db = db_with_definition();
    let mut client = db.client();
    let texts =
        ["'; DROP TABLE jobctl.job_runs; --", "$$", "%s", "\\", "\u{2019}", "$1", "\"", "{}"];
    for text in texts {
        let id: i64 = client
            .query_one(
                "SELECT jobctl.enqueue($1, to_jsonb($2::text), key => $3)",
                &[&"a", &text, &text],
            )
            .unwrap()
            .get(0);
        let stored = client
            .query_one(
                "SELECT payload #>> '{}', idempotency_key FROM jobctl.job_runs WHERE id = $1",
                &[&id],
            )
            .unwrap();
        assert_eq!(stored.get::<_, &str>(0), text);
        assert_eq!(stored.get::<_, &str>(1), text);

        // The command line finds the run by the same key and payload.
        let payload = serde_json::Value::from(text).to_string();
        assert_eq!(db.enqueue(["a", "--key", text, &payload]), id, "{text}");

        // As the name of a job, the text is in the detail of the error.
        let unknown = client
            .query_one("SELECT jobctl.enqueue($1)", &[&text])
            .expect_err("no such definition");
        let unknown = unknown.as_db_error().unwrap();
        assert_eq!(unknown.code().code(), "JC003");
        assert_eq!(unknown.detail(), Some(text));
        db.jobctl(["enqueue", "--", text]).run().exits(2);

        // As the key of an effect, the text is stored, too.
        db.jobctl(["once", text, "--", "true"]).run().success();
        assert_eq!(
            db.query("SELECT count(*) FROM jobctl.job_effects WHERE completed_at IS NOT NULL"),
            "1"
        );
        let kept: String =
            client.query_one("DELETE FROM jobctl.job_effects RETURNING key", &[]).unwrap().get(0);
        assert_eq!(kept, text);
    }
}

#[test]
fn concurrent_transactions_with_one_key_make_one_run() {
    let db = db_with_definition();
    for round in 0..3 {
        // 32 transactions at once.
        let callers: Vec<_> = (0..32)
            .map(|_| {
                let mut client = db.client();
                thread::spawn(move || -> i64 {
                    let call =
                        format!("SELECT jobctl.enqueue('a', '[{round}]', key => 'round:{round}')");
                    client.query_one(&call, &[]).unwrap().get(0)
                })
            })
            .collect();
        let mut ids: Vec<i64> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
        assert_eq!(ids.len(), 32);
        ids.dedup();
        assert_eq!(ids.len(), 1, "{ids:?}");
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "3");
}

#[test]
fn a_waiting_transaction_gets_the_key_after_a_rollback() {
    let db = db_with_definition();
    let mut first = db.client();
    first.batch_execute("BEGIN; SELECT jobctl.enqueue('a', '[1]', key => 'k')").unwrap();
    let mut other = db.client();
    let waiting = thread::spawn(move || -> i64 {
        other.query_one("SELECT jobctl.enqueue('a', '[2]', key => 'k')", &[]).unwrap().get(0)
    });
    crate::support::wait_until("the second to wait", || db.sessions_waiting_for_locks() == 1);
    first.batch_execute("ROLLBACK").unwrap();
    let id = waiting.join().unwrap();
    assert_eq!(db.of_run(id, "payload"), "[2]");
}

#[test]
fn objects_of_the_caller_are_never_used() {
    let db = db_with_definition();
    let role = Role::granted(&db, "enqueuer,effects");
    db.execute(&format!("CREATE SCHEMA trap AUTHORIZATION {}", role.name()));
    // The role creates objects with the names of those that the functions use, and puts its schemas
    // first in its path. A function that used such an object would write to trap.sprung, or fail.
    let mut client = role.client();
    client
        .batch_execute(
            "CREATE TABLE trap.sprung (by text);
             CREATE FUNCTION trap.now() RETURNS timestamptz LANGUAGE sql AS
                 $$INSERT INTO trap.sprung VALUES ('now'); SELECT 'infinity'::timestamptz$$;
             CREATE FUNCTION trap.same(text, text) RETURNS boolean LANGUAGE sql AS
                 $$INSERT INTO trap.sprung VALUES ('='); SELECT true$$;
             CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.same);
             CREATE FUNCTION trap.has_column_privilege(name, text, text, text) RETURNS boolean
                 LANGUAGE sql AS
                 $$INSERT INTO trap.sprung VALUES ('privilege'); SELECT true$$;
             CREATE TEMP TABLE job_definitions (LIKE trap.sprung);
             CREATE TEMP TABLE job_effects
                 (key text PRIMARY KEY, run_id bigint, attempt int, completed_at timestamptz);
             CREATE TEMP TABLE job_runs (id bigint GENERATED ALWAYS AS IDENTITY, payload text);
             CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (false);
             CREATE DOMAIN pg_temp.jsonb AS pg_catalog.jsonb CHECK (false);
             SET search_path = pg_temp, trap, pg_catalog, jobctl",
        )
        .unwrap();
    let enqueue = "SELECT jobctl.enqueue('a', '[1]', key => 'k')";
    let id: i64 = client.query_one(enqueue, &[]).unwrap().get(0);
    let again: i64 = client.query_one(enqueue, &[]).unwrap().get(0);
    let recorded: bool = client.query_one("SELECT jobctl.record_effect('k')", &[]).unwrap().get(0);
    assert!(id > 0);
    assert_eq!(again, id);
    assert!(recorded);

    // The role's tables are empty, and the run has the values of jobctl's own objects.
    let count_rows = "SELECT (SELECT count(*) FROM trap.sprung)
        + (SELECT count(*) FROM pg_temp.job_runs) + (SELECT count(*) FROM pg_temp.job_effects)";
    let rows = client.simple_query(count_rows).unwrap();
    let written = rows
        .iter()
        .find_map(|row| if let SimpleQueryMessage::Row(row) = row { row.get(0) } else { None });
    assert_eq!(written, Some("0"));
    assert_eq!(db.of_run(id, "job_type, payload, isfinite(run_at)"), "a|[1]|t");
    drop(client);
}

/// The settings of a function whose plans are kept.
const PLANNED: &str =
    ",row_security=off,plan_cache_mode=force_generic_plan,enable_seqscan=off,jit=off";

/// The settings of a function that claims. Its plan must not sort a lane.
const CLAIMING: &str = ",row_security=off,plan_cache_mode=force_generic_plan,\
    random_page_cost=1.1,enable_seqscan=off,enable_bitmapscan=off,jit=off";

/// Functions without settings: the planner copies their text into functions that pin the path.
const INLINED: &str = "inlined";

#[test]
fn every_function_pins_its_search_path_and_public_may_not_execute_it() {
    let db = TestDb::new();
    // The name of each function, whether it is SECURITY DEFINER, and its settings except the path.
    assert_eq!(
        db.query(
            "SELECT proname, prosecdef, proconfig, has_function_privilege('public', oid, 'EXECUTE')
             FROM pg_proc WHERE pronamespace = 'jobctl'::regnamespace ORDER BY proname"
        ),
        [
            ("application_schedule_is_due", 'f', ""),
            ("attempt_texts", 'f', ""),
            ("claim_runs", 'f', CLAIMING),
            ("count_attempts", 't', ",row_security=off"),
            ("decide_followers", 't', PLANNED),
            ("definition_keys", 'f', ""),
            ("drop_oldest", 'f', ",row_security=off"),
            ("effect_result", 't', ",row_security=off"),
            ("end_runs", 't', PLANNED),
            ("enqueue", 't', ""),
            ("enqueue_following", 't', ",row_security=off"),
            ("enqueue_hooks", 't', ",row_security=off"),
            ("enqueue_refusal", 'f', ""),
            (
                "enqueue_runs",
                't',
                ",row_security=off,lock_timeout=2s,plan_cache_mode=force_generic_plan,\
                 enable_seqscan=off,jit=off"
            ),
            ("exceeded_limit", 'f', INLINED),
            ("failure_cause", 'f', ",standard_conforming_strings=on"),
            ("fire", 't', PLANNED),
            ("forget_history", 't', ",row_security=off"),
            ("hold_snoozed", 'f', ",row_security=off"),
            ("is_backoff", 'f', ""),
            ("is_hook", 'f', ""),
            ("is_on_day", 'f', INLINED),
            ("is_operator", 'f', ""),
            ("is_own_effect", 't', ""),
            ("is_running", 'f', ""),
            ("keep_effect", 'f', ""),
            ("key_conflict", 'f', INLINED),
            ("last_line", 'f', INLINED),
            ("limited_runs", 'f', CLAIMING),
            ("lock_schedule", 'f', ""),
            ("lock_slot", 'f', INLINED),
            ("mark_followers", 't', PLANNED),
            ("may_settle", 't', ""),
            ("most_with_lock", 'f', ""),
            ("name_incident", 't', PLANNED),
            ("next_time", 't', ",TimeZone=UTC"),
            ("note_predecessors", 'f', ""),
            ("read_json", 'f', ""),
            ("record_alerts", 't', ",row_security=off"),
            ("record_effect", 't', ",row_security=off,lock_timeout=2s"),
            ("refuse_update", 'f', ""),
            ("regular_workers", 'f', ""),
            ("release_right", 'f', ""),
            ("renew_leases", 'f', PLANNED),
            ("reopen_dependencies", 't', ",row_security=off"),
            ("replace_waiting", 'f', ",row_security=off"),
            ("require_written", 'f', ""),
            ("result", 't', ""),
            ("results", 't', ",row_security=off"),
            ("run_states", 't', ",row_security=off"),
            ("run_time_trend", 'f', ""),
            (
                "schedule",
                't',
                ",row_security=off,lock_timeout=2s,plan_cache_mode=force_generic_plan"
            ),
            ("schedule_error", 'f', ",plan_cache_mode=force_generic_plan"),
            ("serving", 'f', ""),
            ("set_aside_unclaimable", 'f', ",row_security=off"),
            ("stuck_predecessor", 'f', ",row_security=off"),
            ("succeeded_attempt", 'f', ""),
            ("try_enqueue", 't', ",row_security=off,lock_timeout=2s"),
            ("unschedule", 't', ",row_security=off,lock_timeout=2s"),
            ("usual_run_time", 'f', ",enable_seqscan=off,enable_bitmapscan=off,jit=off"),
            ("visible_runs", 'f', ",row_security=off"),
            ("wait_for", 't', ",row_security=off"),
            ("waiting_runs", 'f', ",row_security=off"),
            ("within_locks", 'f', PLANNED),
            ("wrong_value", 'f', INLINED)
        ]
        .map(|(name, definer, more)| match more {
            INLINED => format!("{name}|{definer}||f"),
            more => format!("{name}|{definer}|{{\"search_path=pg_catalog, pg_temp\"{more}}}|f"),
        })
        .join("\n")
    );
}

#[test]
fn meaningless_rows_are_rejected_by_constraints() {
    let db = db_with_definition();
    // A run with six attempts, by its definition.
    db.enqueue(["a"]);
    // A statement of the owner, and the constraint that rejects it.
    for (statement, constraint) in [
        ("UPDATE jobctl.job_definitions SET name = 'a b'", "name_is_short_and_plain"),
        ("UPDATE jobctl.job_definitions SET name = 'shell'", "name_is_not_built_in"),
        ("UPDATE jobctl.job_definitions SET kind = 'exec'", "kind_is_known"),
        ("UPDATE jobctl.job_definitions SET catch_up = 'all:0'", "catch_up_is_known"),
        ("UPDATE jobctl.job_definitions SET overlap = 'never'", "overlap_is_known"),
        ("UPDATE jobctl.job_definitions SET max_running = 0", "max_running_is_positive"),
        ("UPDATE jobctl.job_definitions SET max_waiting = 0", "max_waiting_in_range"),
        ("UPDATE jobctl.job_definitions SET when_full = 'wait'", "when_full_is_known"),
        ("UPDATE jobctl.job_definitions SET max_attempts = 1001", "max_attempts_in_range"),
        ("UPDATE jobctl.job_definitions SET timeout = '0'", "timeout_is_positive"),
        ("UPDATE jobctl.job_definitions SET backoff = 'often'", "backoff_is_known"),
        ("UPDATE jobctl.job_definitions SET queue = ''", "queue_is_short_and_plain"),
        ("UPDATE jobctl.job_definitions SET spread = '25 hours'", "spread_is_at_most_a_day"),
        ("UPDATE jobctl.job_definitions SET next_run_at = now()", "only_a_schedule_has_a_next_run"),
        (
            "UPDATE jobctl.job_definitions SET schedule = '@daily', next_run_at = 'infinity'",
            "next_run_at_is_a_date",
        ),
        ("UPDATE jobctl.job_runs SET run_at = '-infinity'", "run_at_is_a_date"),
        ("UPDATE jobctl.job_definitions SET paused_at = 'infinity'", "times_are_dates"),
        ("UPDATE jobctl.job_runs SET created_at = '-infinity'", "times_are_dates"),
        ("UPDATE jobctl.job_runs SET failed_at = '20000-01-01'", "times_are_dates"),
        (
            "INSERT INTO jobctl.job_workers (worker, version, last_tick_at) VALUES ('w', '0', \
                'infinity')",
            "times_are_dates",
        ),
        (
            "INSERT INTO jobctl.job_effects (key, completed_at) VALUES ('k', 'infinity')",
            "times_are_dates",
        ),
        ("UPDATE jobctl.job_runs SET job_type = ''", "job_type_is_short"),
        ("UPDATE jobctl.job_runs SET job_type = repeat('j', 64)", "job_type_is_short"),
        (
            "UPDATE jobctl.job_runs SET payload = to_jsonb(repeat('x', 8 * 262144))",
            "payload_is_bounded",
        ),
        (
            "UPDATE jobctl.job_runs SET payload = to_jsonb(array_fill(1e-9999, ARRAY[1700]))",
            "payload_is_bounded",
        ),
        (
            "UPDATE jobctl.job_definitions SET payload = to_jsonb(array_fill(1e-9999, \
                ARRAY[1700]))",
            "payload_is_bounded",
        ),
        (
            "UPDATE jobctl.job_definitions SET action = to_jsonb(array_fill(1e-9999, ARRAY[110]))",
            "action_is_bounded",
        ),
        ("UPDATE jobctl.job_runs SET status = 'done'", "status_is_known"),
        ("UPDATE jobctl.job_runs SET max_attempts = 1000001", "max_attempts_in_range"),
        ("UPDATE jobctl.job_runs SET attempts = -1", "starts_are_bounded"),
        ("UPDATE jobctl.job_runs SET attempts = 7", "starts_are_bounded"),
        ("UPDATE jobctl.job_runs SET attempts = 6", "waiting_has_an_attempt_left"),
        (
            "UPDATE jobctl.job_runs SET status = 'running', locked_by = 'w'",
            "only_running_has_a_lease",
        ),
        (
            "UPDATE jobctl.job_runs SET status = 'running', locked_until = now()",
            "only_running_has_a_lease",
        ),
        (
            "UPDATE jobctl.job_runs SET locked_by = 'w', locked_until = now()",
            "only_running_has_a_lease",
        ),
        ("UPDATE jobctl.job_runs SET status = 'dead'", "only_final_has_finished_at"),
        ("UPDATE jobctl.job_runs SET finished_at = now()", "only_final_has_finished_at"),
        (
            "INSERT INTO jobctl.job_attempts (run_id, attempt, worker, started_at, finished_at, \
                outcome)
             VALUES (1, 1, 'w', now(), now(), 'odd')",
            "outcome_is_known",
        ),
        (
            "INSERT INTO jobctl.job_workers (worker, version, last_tick_at, claiming_tick) VALUES \
                ('w', '0', now(), 't')",
            "only_a_claiming_tick_has_a_lease",
        ),
    ] {
        let refused = db.client().batch_execute(statement).expect_err(statement);
        let refused = refused.as_db_error().unwrap();
        assert_eq!(refused.code().code(), "23514", "{statement}");
        assert_eq!(refused.constraint(), Some(constraint), "{statement}");
    }
}
