//! Several enqueuers in one database: the definitions and limits that they may use, and what they
//! learn about keys.

use crate::support::{Role, TestDb};

// SQLSTATEs.
const SUCCESS: &str = "00000";
const DENIED: &str = "42501";
const CHECK_VIOLATED: &str = "23514";

/// Runs a statement as a role. Returns the SQLSTATE, and the message of an error with its detail.
#[track_caller]
fn code_and_message(role: &Role<'_>, sql: &str) -> (String, String) {
    match role.client().simple_query(sql) {
        Ok(_) => (SUCCESS.to_owned(), String::new()),
        Err(error) => {
            let error = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error:?}"));
            (error.code().code().to_owned(), format!("{} {:?}", error.message(), error.detail()))
        }
    }
}

/// Runs a statement as a role. Returns the SQLSTATE.
#[track_caller]
fn code(role: &Role<'_>, sql: &str) -> String {
    code_and_message(role, sql).0
}

/// Returns an enqueuer, and defines two jobs: only this role may enqueue `receipt`, each enqueuer
/// may enqueue `open`.
fn role_that_may_enqueue_receipts(db: &TestDb) -> Role<'_> {
    let shop = Role::granted(db, "enqueuer");
    db.apply(&format!(
        "[jobs.receipt]\nshell = 'cat'\nenqueuers = ['{}']\n[jobs.open]\nshell = 'cat'\n",
        shop.name()
    ));
    shop
}

#[test]
fn only_named_roles_and_their_members_may_enqueue_a_definition() {
    let db = TestDb::new();
    let shop = role_that_may_enqueue_receipts(&db);
    let [member, other, operator, viewer] =
        ["enqueuer", "enqueuer", "operator", "viewer"].map(|p| Role::granted(&db, p));
    db.execute(&format!("GRANT {} TO {}", shop.name(), member.name()));
    // The SQLSTATE of jobctl.enqueue, and the exit status of the command.
    for (role, expected, exit) in [
        (&shop, SUCCESS, 0),
        (&member, SUCCESS, 0),
        (&operator, SUCCESS, 0),
        (&other, DENIED, 7),
        (&viewer, DENIED, 7),
    ] {
        assert_eq!(code(role, "SELECT jobctl.enqueue('receipt')"), expected, "{}", role.name());
        role.jobctl(["enqueue", "receipt"]).run().exits(exit);
    }
    let refused = other.jobctl(["enqueue", "receipt"]).run().exits(7).stdout("").complains_once();
    refused.stderr_has("is not among the enqueuers of definition `receipt`");
    assert_eq!(code(&other, "SELECT jobctl.enqueue('open')"), SUCCESS);
    // A list may have an unknown role. Such a list, and an empty one, allow only the owner
    // and operators.
    for enqueuers in ["never_created", ""] {
        let set = "UPDATE jobctl.job_definitions SET enqueuers =";
        db.execute(&format!("{set} '{{{enqueuers}}}' WHERE name = 'receipt'"));
        db.enqueue(["receipt"]);
        assert_eq!(code(&shop, "SELECT jobctl.enqueue('receipt')"), DENIED, "{enqueuers}");
    }
}

#[test]
fn a_membership_that_is_not_inherited_counts_after_set_role() {
    let db = TestDb::new();
    let shop = role_that_may_enqueue_receipts(&db);
    let login = Role::granted(&db, "enqueuer");
    db.execute(&format!("ALTER ROLE {} NOINHERIT; GRANT {} TO {0}", login.name(), shop.name()));
    assert_eq!(code(&login, "SELECT jobctl.enqueue('receipt')"), DENIED);
    let set = format!("SET ROLE {}", shop.name());
    assert_eq!(code(&login, &format!("{set}; SELECT jobctl.enqueue('receipt')")), SUCCESS);
    // After SET ROLE to a less privileged role, only that role's privileges count.
    let less = Role::granted(&db, "enqueuer");
    db.execute(&format!("GRANT {} TO {}", less.name(), shop.name()));
    let set = format!("SET ROLE {}", less.name());
    assert_eq!(code(&shop, &format!("{set}; SELECT jobctl.enqueue('receipt')")), DENIED);
}

#[test]
fn a_role_cannot_enqueue_in_the_name_of_another() {
    let db = TestDb::new();
    let shop = role_that_may_enqueue_receipts(&db);
    let other = Role::granted(&db, "enqueuer");
    // The type of `caller` accepts only the name of the current role.
    for forged in [shop.name(), "postgres"] {
        for sql in [
            format!("SELECT jobctl.enqueue('receipt', caller => '{forged}')"),
            format!("SELECT jobctl.enqueue('receipt', caller => '{forged}'::name::jobctl.caller)"),
            format!(
                "SELECT jobctl.enqueue('receipt', caller => ('{{{forged}}}'::jobctl.caller[])[1])"
            ),
            format!(
                "SELECT jobctl.enqueue('receipt', caller => c) FROM
                     json_to_record('{{\"c\": \"{forged}\"}}') AS forged (c jobctl.caller)"
            ),
        ] {
            assert_eq!(code(&other, &sql), CHECK_VIOLATED, "{sql}");
        }
    }
    assert_eq!(code(&other, "SELECT jobctl.enqueue('receipt', caller => NULL)"), CHECK_VIOLATED);
    // A subquery without a row gives a NULL that the domain does not check, so the function does.
    let unchecked = "(SELECT current_user::jobctl.caller WHERE false)";
    let sql = format!("SELECT jobctl.enqueue('receipt', caller => {unchecked})");
    assert_eq!(code(&other, &sql), DENIED);
    // A role can't store a value of the domain, to use it later as another role.
    for sql in [
        "CREATE TEMP TABLE mine (caller jobctl.caller)",
        "CREATE TEMP TABLE mine AS SELECT current_user::jobctl.caller AS caller",
        "CREATE FUNCTION pg_temp.mine() RETURNS jobctl.caller LANGUAGE sql AS 'SELECT \
            current_user'",
        "CREATE DOMAIN pg_temp.mine AS jobctl.caller",
    ] {
        assert_eq!(code(&other, sql), DENIED, "{sql}");
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
}

#[test]
fn default_privileges_do_not_reveal_callers() {
    let db = TestDb::empty();
    let role = Role::new(&db);
    let keep = "CREATE TEMP TABLE kept (caller jobctl.caller)";
    // These defaults apply to each type that `migrate` creates. It revokes them from this type.
    db.execute(&format!("ALTER DEFAULT PRIVILEGES GRANT ALL ON TYPES TO PUBLIC, {}", role.name()));
    db.jobctl(["migrate"]).run().success();
    db.execute(&format!("GRANT USAGE ON SCHEMA jobctl TO {}", role.name()));
    assert_eq!(code(&role, keep), DENIED);
    // The statements of `jobctl grants` revoke it, too.
    db.execute(&format!("GRANT USAGE ON TYPE jobctl.caller TO {}", role.name()));
    role.grant("enqueuer");
    assert_eq!(code(&role, keep), DENIED);
}

#[test]
fn maintenance_by_a_superuser_runs_with_the_owners_rights() {
    let db = TestDb::new();
    let _shop = role_that_may_enqueue_receipts(&db);
    let other = Role::granted(&db, "enqueuer");
    // A role that may not enqueue `receipt` has an index whose function does so. When a superuser
    // rebuilds the index, the function must not get the superuser's rights.
    db.execute(&format!("CREATE SCHEMA trap AUTHORIZATION {}", other.name()));
    other
        .client()
        .batch_execute(
            "CREATE TABLE trap.t (n int);
             INSERT INTO trap.t VALUES (1);
             CREATE FUNCTION trap.ask(n int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
                 BEGIN RETURN CASE current_setting('trap.caller', true)
                     WHEN 'current' THEN jobctl.enqueue('receipt')
                     WHEN 'session' THEN jobctl.enqueue('receipt', caller => session_user)
                     ELSE 0 END; END $$;
             CREATE INDEX t_ask ON trap.t (trap.ask(n))",
        )
        .unwrap();
    let mut owner = db.client();
    // The function runs as the owner of the index, and the caller must be the current user.
    for (caller, code) in [("current", DENIED), ("session", CHECK_VIOLATED)] {
        owner.batch_execute(&format!("SET trap.caller = '{caller}'")).unwrap();
        let refused = owner.batch_execute("REINDEX TABLE trap.t").unwrap_err();
        assert_eq!(refused.code().map(|code| code.code()), Some(code), "{refused:?}");
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
    drop(owner);
}

/// If the error depended on the status or the payload of the run that has the key, an enqueuer
/// could find out both of a job that it may not read.
#[test]
fn a_key_of_another_job_is_always_rejected_with_the_same_error() {
    let db = TestDb::new();
    db.apply("[jobs.theirs]\nshell = 'cat'\n[jobs.ours]\nshell = 'cat'\n");
    let role = Role::granted(&db, "enqueuer");
    let id = db.enqueue(["theirs", r#"{"pin": 4711}"#, "--key", "k"]);
    // The SQLSTATE, and the message with its detail, which is the key.
    let expected = (
        "JC004".to_owned(),
        "key `k` belongs to a run with another job or payload Some(\"k\")".to_owned(),
    );
    for status in ["queued", "dead"] {
        db.execute(&format!(
            "UPDATE jobctl.job_runs SET status = '{status}', finished_at = CASE '{status}' WHEN \
                'dead' THEN now() END
             WHERE id = {id}"
        ));
        // The payload of the other run, a similar one, and another one.
        for payload in ["{\"pin\": 4711}", "{\"pin\": 4712}", "{}"] {
            let asked = code_and_message(
                &role,
                &format!("SELECT jobctl.enqueue('ours', '{payload}', key => 'k')"),
            );
            assert_eq!(asked, expected, "{status} {payload}");
            let refused =
                role.jobctl(["enqueue", "ours", payload, "--key", "k"]).run().exits(4).stdout("");
            refused.stderr(
                "jobctl: key `k` belongs to a run with another job or payload; use another key\n",
            );
            // `try_enqueue` returns the refusal instead of raising it, and says no more.
            let asked = code_and_message(
                &role,
                &format!(
                    "DO $$ DECLARE said record; BEGIN
                         said := jobctl.try_enqueue('ours', '{payload}', 'k', NULL, NULL, NULL, \
                         NULL, NULL, NULL, NULL, NULL);
                         RAISE 'said %', said; END $$"
                ),
            );
            // The columns are id, result, code, reason, status and due_at.
            assert_eq!(
                asked.1,
                "said (,,JC004,\"key `k` belongs to a run with another job or payload\",,) None"
            );
        }
    }
}

#[test]
fn an_enqueue_waits_for_a_key_no_longer_than_the_lock_timeout() {
    let db = TestDb::new();
    db.apply("[jobs.theirs]\nshell = 'cat'\n[jobs.ours]\nshell = 'cat'\n");
    let [blocker, role] = ["enqueuer", "enqueuer"].map(|part| Role::granted(&db, part));
    let mut open = blocker.client();
    open.batch_execute("BEGIN; SELECT jobctl.enqueue('theirs', key => 'k')").unwrap();
    // The session has no timeout, and the function sets its own. 55P03 is lock_not_available.
    assert_eq!(
        code(&role, "SET lock_timeout = 0; SELECT jobctl.enqueue('ours', key => 'k')"),
        "55P03"
    );
    assert_eq!(code(&role, "SELECT jobctl.enqueue('ours', key => 'l')"), SUCCESS);
    drop(open);
}

#[test]
fn a_run_records_the_session_user_that_enqueued_it() {
    let db = TestDb::new();
    let shop = role_that_may_enqueue_receipts(&db);
    let login = Role::granted(&db, "enqueuer");
    db.execute(&format!("GRANT {} TO {}", shop.name(), login.name()));
    login
        .client()
        .batch_execute(&format!(
            "SELECT jobctl.enqueue('open'); SET ROLE {}; SELECT jobctl.enqueue('receipt')",
            shop.name()
        ))
        .unwrap();
    login.jobctl(["enqueue", "open"]).run().success();
    let by = |name: &str| {
        db.query(&format!("SELECT count(*) FROM jobctl.job_runs WHERE enqueued_by = '{name}'"))
    };
    assert_eq!(by(login.name()), "3");
    let id = db.enqueue(["shell", "--", "true"]);
    assert_eq!(db.of_run(id, "enqueued_by = session_user"), "t");
    // A run that a schedule fires records the worker's login.
    let worker = Role::granted(&db, "worker");
    db.apply("[jobs.nightly]\nshell = 'true'\nschedule = '@yearly'\n");
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now()) WHERE \
        name = 'nightly'",
    );
    worker.jobctl(["tick"]).run().success();
    assert_eq!(by(worker.name()), "1");
}

/// Returns a definition that limits every value of a run, with these keys besides.
fn definition_with_limits(keys: &str) -> String {
    format!(
        "[jobs.a]\nshell = 'cat'\nqueue = 'own'\npriority = 4\nmax_attempts = 6\nbackoff = \
            'fixed:5m'\n\
         timeout = '10m'\n{keys}\n"
    )
}

/// Values within these limits: as an argument of jobctl.enqueue, and as flags.
const WITHIN: &[(&str, &[&str])] = &[
    ("queue => 'own'", &["--queue", "own"]),
    ("priority => 4", &["--priority", "4"]),
    ("priority => 5", &["--priority", "5"]),
    ("max_attempts => 6", &["--max-attempts", "6"]),
    ("max_attempts => 1", &["--max-attempts", "1"]),
    ("timeout => '10 minutes'", &["--timeout", "10m"]),
    ("timeout => '1 second'", &["--timeout", "1s"]),
    ("backoff => 'fixed:5m'", &["--backoff", "fixed:5m"]),
    ("run_in => '1 hour', key => 'k'", &["--in", "1h", "--key", "l"]),
];

/// Values beyond these limits: the name of the limit, an argument and flags.
const BEYOND: &[(&str, &str, &[&str])] = &[
    ("queue", "queue => 'other'", &["--queue", "other"]),
    ("priority", "priority => 3", &["--priority", "3"]),
    ("max_attempts", "max_attempts => 7", &["--max-attempts", "7"]),
    ("timeout", "timeout => '601 seconds'", &["--timeout", "601s"]),
    ("backoff", "backoff => 'fixed:1s'", &["--backoff", "fixed:1s"]),
];

#[test]
fn an_enqueuer_cannot_exceed_the_limits_of_a_definition() {
    let db = TestDb::new();
    db.apply(&definition_with_limits(""));
    let [role, operator] = ["enqueuer", "operator"].map(|part| Role::granted(&db, part));
    // Values up to the limits of the definition, and beyond them, as an argument and as flags.
    for (argument, flags) in WITHIN {
        assert_eq!(
            code(&role, &format!("SELECT jobctl.enqueue('a', {argument})")),
            SUCCESS,
            "{argument}"
        );
        role.jobctl(["enqueue", "a"]).args(flags.iter().copied()).run().success();
    }
    for (limit, argument, flags) in BEYOND {
        let sql = format!("SELECT jobctl.enqueue('a', {argument})");
        let why = format!(
            "{limit} exceeds the limit of definition `a`; its enqueue_may_set does not allow that"
        );
        assert_eq!(
            code_and_message(&role, &sql),
            (DENIED.to_owned(), format!("{why} Some(\"a\")"))
        );
        let refused =
            role.jobctl(["enqueue", "a"]).args(flags.iter().copied()).run().exits(7).stdout("");
        refused.complains_once().stderr_has(&why);
        assert_eq!(code(&operator, &sql), SUCCESS, "an operator may set {limit}");
        db.execute(&sql);
    }
    // enqueue_may_set opens each limit separately.
    for (open, argument, _) in BEYOND {
        db.apply(&definition_with_limits(&format!("enqueue_may_set = ['{open}']")));
        assert_eq!(
            code(&role, &format!("SELECT jobctl.enqueue('a', {argument})")),
            SUCCESS,
            "{open}"
        );
        for (limit, argument, _) in BEYOND.iter().filter(|(limit, ..)| limit != open) {
            assert_eq!(
                code(&role, &format!("SELECT jobctl.enqueue('a', {argument})")),
                DENIED,
                "{open} {limit}"
            );
        }
    }
}

#[test]
fn timeouts_are_compared_in_seconds() {
    let db = TestDb::new();
    db.apply(&definition_with_limits(""));
    let role = Role::granted(&db, "enqueuer");
    // PostgreSQL compares intervals as if a year had 360 days. So compared, the first two are ten
    // minutes, which is the limit. In seconds, a year has 365.25 days: the first is too long, the
    // second negative, and only the third is ten minutes.
    for (timeout, expected) in [
        ("12000 months -359999 days -23:50", DENIED),
        ("-12000 months 360000 days 00:10", "22023"),
        ("-12000 months 365250 days 00:10", SUCCESS),
    ] {
        let sql = format!("SELECT jobctl.enqueue('a', timeout => '{timeout}')");
        assert_eq!(code(&role, &sql), expected, "{timeout}");
    }
    assert_eq!(db.query("SELECT timeout FROM jobctl.job_runs"), "00:10:00");
}

#[test]
fn an_http_definition_without_a_timeout_limits_runs_to_the_default() {
    let db = TestDb::new();
    db.apply(
        "[jobs.command]\nshell = 'true'\n[jobs.call]\nhttp = { url = 'http://127.0.0.1:1/' }\n\
         [jobs.short]\nhttp = { url = 'http://127.0.0.1:1/', timeout = '1m 30s' }\n",
    );
    let role = Role::granted(&db, "enqueuer");
    // A command without a timeout has no limit. A call has a timeout of 30 s by default.
    for (job, timeout, expected) in [
        ("command", "30 days", SUCCESS),
        ("call", "30 seconds", SUCCESS),
        ("call", "31 seconds", DENIED),
        ("short", "90 seconds", SUCCESS),
        ("short", "91 seconds", DENIED),
    ] {
        let sql = format!("SELECT jobctl.enqueue('{job}', timeout => '{timeout}')");
        assert_eq!(code(&role, &sql), expected, "{sql}");
    }
}

#[test]
fn only_the_owner_may_enqueue_a_disabled_definition() {
    let db = TestDb::new();
    // `a` is disabled by its key, and `gone` because the second file lacks it.
    db.apply("[jobs.a]\nshell = 'cat'\nenabled = false\n[jobs.gone]\nshell = 'cat'\n");
    db.apply("[jobs.a]\nshell = 'cat'\nenabled = false\n");
    for part in ["enqueuer", "operator"] {
        let role = Role::granted(&db, part);
        for job in ["a", "gone"] {
            let why = format!("definition `{job}` is disabled and takes no new runs");
            let sql = format!("SELECT jobctl.enqueue('{job}')");
            assert_eq!(
                code_and_message(&role, &sql),
                ("55000".to_owned(), format!("{why} Some({job:?})"))
            );
            role.jobctl(["enqueue", job])
                .run()
                .exits(4)
                .stdout("")
                .stderr(&format!("jobctl: {why}\n"));
        }
    }
    db.enqueue(["gone"]);
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "1");
}

/// The error of a constraint shows the row that violates it. Here that would be a row of another
/// enqueuer, which is replaced or dropped.
#[test]
fn a_rejected_change_shows_no_other_row() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'cat'\nexpires = '1d'\n
         [jobs.full]\nshell = 'cat'\nmax_waiting = 1\nwhen_full = 'drop_oldest'\n",
    );
    let [victim, other] = ["enqueuer", "enqueuer"].map(|part| Role::granted(&db, part));
    let live = "key => 'k', key_scope => 'live'";
    let sql = format!("SELECT jobctl.enqueue('a', '\"SECRET\"', {live}, run_in => '1 hour')");
    victim.client().batch_execute(&sql).unwrap();
    victim.client().batch_execute("SELECT jobctl.enqueue('full', '\"SECRET\"')").unwrap();
    // The owner of the database may add constraints. These reject what the calls below change.
    db.execute(
        "ALTER TABLE jobctl.job_runs ADD CONSTRAINT ours CHECK (payload <> '[7]') NOT VALID;
         ALTER TABLE jobctl.job_runs ADD CONSTRAINT kept CHECK (status <> 'cancelled');
         ALTER TABLE jobctl.job_runs ADD CONSTRAINT one_share UNIQUE (share)",
    );
    // This enqueue would cancel the victim's run, which `kept` forbids.
    other.client().batch_execute("SELECT jobctl.enqueue('full', share => 'x')").unwrap_err();
    db.execute("INSERT INTO jobctl.job_runs (job_type, share) VALUES ('a', 'x')");
    let replace = format!("{live}, on_conflict => 'replace'");
    // The arguments of jobctl.enqueue, and the SQLSTATE: of a wrong value (22023), of a violated
    // CHECK (23514), or of a value that must be unique (23505).
    for (given, code) in [
        (format!("'a', '[1]', {replace}, run_at => '9999-12-31 23:00Z'"), "22023"),
        ("'a', run_at => '9999-12-31 23:00Z'".to_owned(), "22023"),
        ("'a', run_at => '9999-12-31 23:00Z', expires_in => '3650 days'".to_owned(), "22023"),
        (format!("'a', to_jsonb(repeat('x', 1048576)), {replace}"), "22023"),
        (format!("'a', '[1]', {replace}, share => E'a\\nb'"), "22023"),
        (format!("'a', '[7]', {replace}"), "23514"),
        (format!("'a', '[1]', {replace}, share => 'x'"), "23505"),
        ("'full', '[1]'".to_owned(), "23514"),
    ] {
        let refused = other.client().simple_query(&format!("SELECT jobctl.enqueue({given})"));
        let refused = refused.expect_err(&given);
        let refused = refused.as_db_error().unwrap();
        assert_eq!(refused.code().code(), code, "{given}: {refused:?}");
        let shown = format!("{refused:?}");
        for secret in ["SECRET", victim.name(), "Failing row", "Key ("] {
            assert!(!shown.contains(secret), "{given}: {shown}");
        }
    }
}

/// A run with a time in the past is due now. It does not pass the runs that already wait.
#[test]
fn a_time_in_the_past_is_now() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'cat'\n");
    let live = ["--key", "k", "--key-scope", "live"];
    let past = ["--run-at", "0001-01-01T00:00:00Z"];
    let (mut ids, mut expiring) = (Vec::new(), Vec::new());
    for job in [&["a"][..], &["shell", r#"{"command": "true"}"#]] {
        let enqueue = |flags: &[&'static str]| {
            db.enqueue(job.iter().copied().chain(flags.iter().copied()).chain(past))
        };
        ids.push(enqueue(&[]));
        ids.push(enqueue(&live));
        let replace = [&live[..], &["--on-conflict", "replace", "--expires-in", "1h"]].concat();
        assert_eq!(enqueue(&replace), ids[ids.len() - 1]);
        expiring.push(ids[ids.len() - 1]);
        db.execute("UPDATE jobctl.job_runs SET idempotency_key = NULL");
        let line = format!(
            r#"{{"job_type": "{}", "payload": {}, "run_at": "{}"}}"#,
            job[0],
            job.get(1).unwrap_or(&"{}"),
            past[1]
        );
        let batch = db.jobctl(["enqueue", "--batch", "-"]).stdin(line).run().success();
        ids.push(batch.stdout.trim().parse().unwrap());
    }
    let sql = "SELECT jobctl.enqueue('a', run_at => '0001-01-01', expires_in => '1 hour')";
    let by_sql = db.query(sql).parse().unwrap();
    ids.push(by_sql);
    expiring.push(by_sql);
    let edited = db.enqueue(["a", "--in", "1h"]);
    db.jobctl(["edit", &edited.to_string()]).args(past).run().success();
    ids.push(edited);
    for id in &ids {
        assert_eq!(db.of_run(*id, "run_at >= created_at, run_at <= now()"), "t|t", "{id}");
    }
    // A run that was enqueued long ago becomes due now, and not at the time of its enqueue.
    let parked = ["a", "--key", "parked", "--key-scope", "live"];
    let id = db.enqueue(parked.into_iter().chain(["--in", "3650d"]));
    db.execute("UPDATE jobctl.job_runs SET created_at = now() - interval '1 day'");
    db.enqueue(parked.into_iter().chain(["--debounce", "0s", "--debounce-max", "0s"]));
    assert_eq!(db.of_run(id, "run_at BETWEEN now() - interval '1 minute' AND now()"), "t");
    // The expiry counts from the time that was given, so these runs have expired already.
    let expiries: Vec<_> = expiring.iter().map(|id| db.of_run(*id, "expires_at")).collect();
    assert_eq!(expiries, ["0001-01-01 01:00:00+00"; 3]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(expiring[0]), "cancelled");
    assert_eq!(db.status(ids[0]), "succeeded");
}

#[test]
fn a_replacement_keeps_the_share_unless_it_names_another() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'cat'\n");
    for job in [&["a"][..], &["shell", r#"{"command": "true"}"#]] {
        let key = ["--key", job[0], "--key-scope", "live"];
        let enqueue = |flags: &[&'static str]| {
            db.enqueue(job.iter().copied().chain(key).chain(flags.iter().copied()))
        };
        let id = enqueue(&["--share", "acme", "--priority", "7", "--expires-in", "1h"]);
        // Replaces the run, and returns its share, its priority, and whether it never expires. The
        // priority stays, and an expiry that the replacement does not name is removed.
        let replaced = |flags: &[&'static str]| {
            assert_eq!(enqueue(&[&["--on-conflict", "replace"], flags].concat()), id);
            db.of_run(id, "share, priority, expires_at IS NULL")
        };
        assert_eq!(replaced(&["--priority", "9"]), "acme|7|t");
        assert_eq!(replaced(&["--share", "bolt", "--expires-in", "1h"]), "bolt|7|f");
    }
}
