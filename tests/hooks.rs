//! `on_dead`, `on_success` and `on_end`: the jobs that a run enqueues when it ends.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::http_server::HttpServer;
use crate::support::{Role, TestDb};

/// Two jobs that print their payload.
const HOOKS: &str = "[jobs.alert]\nshell = 'cat'\n[jobs.ping]\nshell = 'cat'\n";

/// Returns the runs of hooks: the job, the key without its time, and the status in the payload. The
/// key has the hook and the run that ended: `on_dead-7`.
fn runs_of_hooks(db: &TestDb) -> String {
    db.query(
        "SELECT job_type, regexp_replace(idempotency_key, '^jobctl-hook-(.*)-[0-9]{16}$', '\\1'),
             payload ->> 'status'
         FROM jobctl.job_runs WHERE payload ? 'text' ORDER BY id",
    )
}

fn payload(db: &TestDb, id: i64) -> Value {
    serde_json::from_str(&db.of_run(id, "payload")).unwrap()
}

#[test]
fn the_end_of_a_run_enqueues_its_hooks() {
    let db = TestDb::new();
    db.apply(&format!(
        "{HOOKS}\
         [jobs.bad]\nshell = 'echo lost; exit 3'\nmax_attempts = 2\nbackoff = 'fixed:1h'\n\
         on_dead = 'alert'\non_success = 'ping'\n\
         [jobs.good]\nshell = 'true'\non_dead = 'alert'\non_success = 'ping'\non_end = 'alert'\n"
    ));
    let bad = db.enqueue(["bad", "--key", "invoice-7", "--share", "acme"]);
    let good = db.enqueue(["good"]);
    // The first attempt of `bad` fails, so this run has not ended. `good` has two hooks.
    db.jobctl(["tick", "--worker", "w1"]).run().success();
    let of_good = format!("alert|on_end-{good}|succeeded\nping|on_success-{good}|succeeded");
    assert_eq!(runs_of_hooks(&db), of_good);
    // The second attempt of `bad` fails, too, so the run is dead.
    db.make_waiting_runs_due();
    db.jobctl(["tick", "--worker", "w2"]).run().success();
    assert_eq!(runs_of_hooks(&db), format!("{of_good}\nalert|on_dead-{bad}|dead"));
    let hook_of_bad: i64 = db.query("SELECT max(id) FROM jobctl.job_runs").parse().unwrap();
    let error = db.of_run(bad, "last_error");
    let expected = json!({
        "text": format!("run {bad} of job bad is dead after 2 attempts: {error}: lost"),
        "run": bad, "job": "bad", "key": "invoice-7", "share": "acme", "status": "dead",
        "attempts": 2, "worker": "w2", "incident": format!("{bad}.1"), "error_type": "exit_code",
        "error": error, "cause": "lost", "last_line": "lost",
    });
    assert_eq!(payload(&db, hook_of_bad), expected);
    // A success has no error. The run after `good` is its first hook.
    let hook_of_good = payload(&db, good + 1);
    assert_eq!(hook_of_good["text"], json!(format!("run {good} of job good succeeded")));
    let missing = ["error", "error_type", "key"].map(|field| &hook_of_good[field]);
    assert_eq!(missing, [&Value::Null; 3]);
    // All hooks run. They print their payload.
    db.jobctl(["tick"]).run().success();
    let of_hooks = format!("SELECT DISTINCT status FROM jobctl.job_runs WHERE id > {good}");
    assert_eq!(db.query(&of_hooks), "succeeded");
    assert_eq!(db.of_attempt(hook_of_bad, 1, "output::json ->> 'job'"), "bad");
}

/// Cron's next tick may be a minute away.
#[test]
fn a_hook_starts_in_the_tick_that_ends_its_run() {
    let db = TestDb::new();
    db.apply(&format!("{HOOKS}[jobs.good]\nshell = 'true'\non_success = 'ping'\n"));
    db.enqueue(["good"]);
    let tick = db.jobctl(["tick"]).run().success();
    tick.stderr_has(" ping attempt 1/10: succeeded");
    assert_eq!(db.query("SELECT DISTINCT status FROM jobctl.job_runs"), "succeeded");
}

#[test]
fn every_way_to_end_enqueues_hooks() {
    let db = TestDb::new();
    db.apply(&format!(
        "{HOOKS}\
         [jobs.a]\nshell = 'true'\nmax_attempts = 1\non_end = 'alert'\non_dead = 'ping'\n\
         [jobs.full]\nshell = 'true'\nmax_waiting = 1\nwhen_full = 'drop_oldest'\n\
         on_end = 'alert'\n"
    ));
    // Returns the runs of hooks that an action adds.
    let hooks_after = |action: &dyn Fn()| {
        let before = runs_of_hooks(&db).lines().count();
        action();
        runs_of_hooks(&db).lines().skip(before).map(str::to_owned).collect::<Vec<_>>()
    };
    // An operator cancels.
    let id = db.enqueue(["a"]).to_string();
    let cancelled = hooks_after(&|| drop(db.jobctl(["cancel", &id]).run().success()));
    assert_eq!(cancelled, [format!("alert|on_end-{id}|cancelled")]);
    // A second end enqueues it again, although the hook of the first one still waits.
    db.jobctl(["retry", &id]).run().success();
    let again = hooks_after(&|| drop(db.jobctl(["cancel", &id]).run().success()));
    assert_eq!(again, [format!("alert|on_end-{id}|cancelled")]);
    // The run expires.
    let id = db.enqueue(["a", "--in", "1h", "--expires-in", "1h"]);
    db.execute("UPDATE jobctl.job_runs SET expires_at = now() WHERE expires_at IS NOT NULL");
    let expired = hooks_after(&|| drop(db.jobctl(["tick"]).run().success()));
    assert_eq!(expired, [format!("alert|on_end-{id}|cancelled")]);
    // The definition is full: the newer run drops the older one.
    let dropped = hooks_after(&|| {
        db.enqueue(["full", "--in", "1h"]);
        db.enqueue(["full", "--in", "1h"]);
    });
    assert!(matches!(&*dropped, [one] if one.ends_with("|cancelled")), "{dropped:?}");
    // The worker of the run is gone, and its lease has ended.
    let id = db.enqueue(["a", "--in", "1h"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, started_at = now(),
             locked_by = 'gone', locked_until = now() - interval '1s' WHERE id = {id}"
    ));
    let lost = hooks_after(&|| drop(db.jobctl(["tick"]).run().success()));
    assert_eq!(lost, ["ping|on_dead-", "alert|on_end-"].map(|it| format!("{it}{id}|dead")));
    let worker = "SELECT DISTINCT payload ->> 'worker' FROM jobctl.job_runs WHERE payload @>";
    assert_eq!(db.query(&format!("{worker} '{{\"run\": {id}}}'")), "gone");
}

#[test]
fn hooks_of_runs_that_die_alike_name_one_incident() {
    let db = TestDb::new();
    db.apply(&format!(
        "{HOOKS}[jobs.bad]\nshell = 'echo \"$JOBCTL_RUN_ID: the disk is full\"; exit 3'\n\
         max_attempts = 1\non_dead = 'alert'\n\
         [jobs.lost]\nshell = 'true'\nmax_attempts = 1\non_dead = 'alert'\n"
    ));
    // Two runs die in one tick, and one statement may record both. A third dies later. Their
    // outputs differ only in a number.
    let [first, second] = [(); 2].map(|()| db.enqueue(["bad"]));
    db.jobctl(["tick"]).run().success();
    db.enqueue(["bad"]);
    db.jobctl(["tick"]).run().success();
    // A run whose worker is gone dies of another cause.
    let lost = db.enqueue(["lost", "--in", "1h"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, started_at = now(),
             locked_by = 'gone', locked_until = now() - interval '1s' WHERE id = {lost}"
    ));
    db.jobctl(["tick"]).run().success();
    let named = |job: &str| {
        db.query(&format!(
            "SELECT DISTINCT payload ->> 'incident' FROM jobctl.job_runs
             WHERE job_type = 'alert' AND payload ->> 'job' = '{job}'"
        ))
    };
    // The three dead runs name one incident, by the first or second run. `list` finds all three.
    let incident = named("bad");
    assert!([first, second].map(|id| format!("{id}.1")).contains(&incident), "{incident}");
    assert_eq!(named("lost"), format!("{lost}.1"));
    let listed = db.jobctl(["list", "--incident", &incident]).run().success();
    assert_eq!(listed.stdout.lines().count(), 3);
}

#[test]
fn a_hook_is_not_lost_when_its_worker_is_killed() {
    let db = TestDb::new();
    let server = HttpServer::start();
    db.apply(&format!(
        "[jobs.pager]\nhttp = {{ url = '{}' }}\n\
         [jobs.fatal]\nshell = 'kill -9 $PPID'\nmax_attempts = 1\non_dead = 'pager'\n",
        server.url("/pager")
    ));
    // The command of this run kills its tick.
    let id = db.enqueue(["fatal"]);
    assert!(!db.jobctl(["tick"]).run().status.success());
    db.expire_leases();
    // The next tick recovers the run: it had one attempt, so it is dead. Its end and its hook are
    // one transaction, so a tick that is killed leaves both or none.
    let tick = db.jobctl(["tick"]).spawn();
    db.wait_for_status(id, "dead");
    tick.signal(Signal::KILL);
    tick.wait();
    assert_eq!(runs_of_hooks(&db), format!("pager|on_dead-{id}|dead"));
    // The killed tick may have claimed the hook, too. One tick recovers it, and one retries it.
    db.expire_leases();
    db.jobctl(["tick"]).run().success();
    db.make_waiting_runs_due();
    db.jobctl(["tick"]).run().success();
    let requests = server.requests();
    let request = requests.last().unwrap();
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["run"], json!(id));
    let what = format!("run {id} of job fatal is dead after 1 attempt: ");
    assert!(body["text"].as_str().unwrap().starts_with(&what), "{body}");
}

#[test]
fn many_dead_runs_at_once_send_one_alert_now_and_one_for_the_last_run_later() {
    let db = TestDb::new();
    db.apply(
        "[jobs.pager]\nshell = 'cat'\nrate = '1/1h'\nmax_waiting = 1\nwhen_full = 'drop_oldest'\n\
         [jobs.a]\nshell = 'false'\nmax_attempts = 1\non_dead = 'pager'\n",
    );
    // Each first tick ends the run, each second one could run its alert. The rate lets only the
    // first alert start; each later one replaces the alert that waits.
    for _ in 0..3 {
        db.enqueue(["a"]);
        db.jobctl(["tick"]).run().success();
        db.jobctl(["tick"]).run().success();
    }
    for _ in 0..20 {
        db.enqueue(["a"]);
    }
    db.jobctl(["tick", "--concurrency", "1"]).run().success();
    let of_pager = "SELECT count(*) FILTER (WHERE status = 'succeeded'),
             count(*) FILTER (WHERE status = 'queued'),
             max((payload ->> 'run')::int) FILTER (WHERE status = 'queued')
                 = (SELECT max(id) FROM jobctl.job_runs WHERE job_type = 'a')
         FROM jobctl.job_runs WHERE job_type = 'pager'";
    assert_eq!(db.query(of_pager), "1|1|t");
}

#[test]
fn a_run_ends_although_its_hook_can_t_be_enqueued() {
    let db = TestDb::new();
    db.apply(&format!(
        "{HOOKS}[jobs.a]\nshell = 'false'\nmax_attempts = 1\non_dead = 'alert'\non_end = 'ping'\n"
    ));
    // The definition of one of the two hooks is gone.
    db.execute("DELETE FROM jobctl.job_definitions WHERE name = 'ping'");
    let id = db.enqueue(["a"]);
    let tick = db.jobctl(["tick"]).run().success();
    tick.stderr_has(&format!("on_end of run {id} is not enqueued: no definition `ping`"));
    assert_eq!(runs_of_hooks(&db), format!("alert|on_dead-{id}|dead"));
    // A trigger rejects the runs of the other hook.
    db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN RAISE EXCEPTION ''no alerts''; END';
         CREATE TRIGGER refuse BEFORE INSERT ON jobctl.job_runs FOR EACH ROW
             WHEN (new.job_type = 'alert') EXECUTE FUNCTION refuse()",
    );
    let id = db.enqueue(["a"]);
    let tick = db.jobctl(["tick"]).run().success();
    tick.stderr_has(&format!("on_dead of run {id} is not enqueued: no alerts"));
    assert_eq!(db.status(id), "dead");
}

#[test]
fn no_run_of_a_hook_is_enqueued_while_its_definition_is_disabled() {
    let db = TestDb::new();
    let file = |keys: &str| {
        db.apply(&format!(
            "[jobs.alert]\nshell = 'cat'\n{keys}[jobs.a]\nshell = 'false'\nmax_attempts = 1\n\
             on_end = 'alert'\n"
        ));
    };
    file("enabled = false\n");
    let id = db.enqueue(["a"]);
    let why = "is not enqueued: definition `alert` is disabled and takes no new runs";
    let tick = db.jobctl(["tick"]).run().success();
    tick.stderr_has(&format!("on_end of run {id} {why}"));
    assert_eq!(db.status(id), "dead");
    assert_eq!(runs_of_hooks(&db), "");
    // A pause stops only a schedule.
    file("schedule = '@yearly'\n");
    db.jobctl(["pause", "alert"]).run().success();
    let id = db.enqueue(["a"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(runs_of_hooks(&db), format!("alert|on_end-{id}|dead"));
}

#[test]
fn roles_that_may_not_enqueue_a_hook_enqueue_it_by_ending_a_run() {
    let db = TestDb::new();
    db.apply(
        "[jobs.alert]\nshell = 'cat'\nenqueuers = ['pg_monitor']\n\
         [jobs.a]\nshell = 'false'\nmax_attempts = 1\non_end = 'alert'\n",
    );
    // A worker and an operator end runs, and neither may enqueue the hook.
    let [dead, cancelled] = [db.enqueue(["a"]), db.enqueue(["a", "--in", "1h"])];
    Role::granted(&db, "worker").jobctl(["tick"]).run().success();
    let id = cancelled.to_string();
    Role::granted(&db, "operator").jobctl(["cancel", &id]).run().success();
    let expected = format!("alert|on_end-{dead}|dead\nalert|on_end-{cancelled}|cancelled");
    assert_eq!(runs_of_hooks(&db), expected);
    // A run that has ended does not end again.
    let call = format!("SELECT jobctl.end_runs('cancel', ARRAY[{dead}, {cancelled}])");
    Role::granted(&db, "worker").client().batch_execute(&call).unwrap();
    assert_eq!(runs_of_hooks(&db), expected);
    let role = Role::granted(&db, "enqueuer");
    let mut enqueuer = role.client();
    enqueuer.batch_execute(&call).unwrap_err();
    // No enqueuer can take the key of a hook.
    let taken = "SELECT jobctl.enqueue('a', key => 'jobctl-hook-on_end-1-2', key_scope => 'live')";
    let error = enqueuer.batch_execute(taken).unwrap_err();
    assert_eq!(error.code().map(|code| code.code()), Some("22023"));
    let taken = db.jobctl(["enqueue", "a", "--key", "jobctl-hook-x"]).run().exits(2);
    taken.stderr_has("the key prefix jobctl-hook- is reserved for hooks");
}

/// An application that could enqueue a hook could forge an alert, and use up the rate of the hook.
#[test]
fn only_ends_of_runs_and_named_roles_enqueue_a_hook() {
    let db = TestDb::new();
    let [shop, worker, operator] =
        ["enqueuer", "worker", "operator"].map(|part| Role::granted(&db, part));
    let pager = "shell = 'cat'\nrate = '1/1h'\nmax_waiting = 1\nwhen_full = 'drop_new'\n";
    let file = |keys: &str, key: &str| {
        format!(
            "[jobs.pager]\n{pager}{keys}\n\
             [jobs.a]\nshell = 'exit 1'\nmax_attempts = 1\n{key} = 'pager'\n"
        )
    };
    let asked =
        || shop.client().batch_execute("SELECT jobctl.enqueue('pager', '{\"text\": \"x\"}')");
    let refused = || asked().unwrap_err().code().map(|code| code.code().to_owned());
    let by_flag = |exit| shop.jobctl(["enqueue", "pager"]).run().exits(exit);
    for key in ["on_dead", "on_success", "on_end"] {
        db.apply(&file("", key));
        assert_eq!(refused().as_deref(), Some("42501"), "{key}");
        by_flag(7).stdout("").complains_once().stderr_has(&format!(
            "definition `pager` is a hook, so only ends of runs enqueue it, unless its enqueuers \
             name role `{}`",
            shop.name()
        ));
        let line = r#"{"job_type": "pager"}"#;
        shop.jobctl(["enqueue", "--batch", "-"]).stdin(line).run().exits(7).stdout("");
    }
    // The alert is neither forged nor dropped.
    let id = shop.jobctl(["enqueue", "a"]).run().success().stdout;
    worker.jobctl(["tick"]).run().success();
    assert_eq!(runs_of_hooks(&db), format!("pager|on_end-{}|dead", id.trim()));
    // A disabled definition still makes it a hook.
    let disabled = file("", "on_end") + "enabled = false\n";
    db.apply(&disabled);
    assert_eq!(refused().as_deref(), Some("42501"));
    // Operators and the owner may enqueue a hook, to try it.
    operator.jobctl(["enqueue", "pager"]).run().success();
    db.execute("DELETE FROM jobctl.job_runs");
    db.enqueue(["pager"]);
    db.execute("DELETE FROM jobctl.job_runs");
    // If the definition names enqueuers, only these may enqueue the hook.
    db.apply(&file(&format!("enqueuers = ['{}']", shop.name()), "on_dead"));
    asked().unwrap();
    db.apply(&file("enqueuers = ['pg_monitor']", "on_dead"));
    by_flag(7).stderr_has("is not among the enqueuers of definition `pager`");
    // If no job names `pager` in a key, it is not a hook, so all enqueuers may enqueue it.
    db.execute("DELETE FROM jobctl.job_runs");
    db.apply(&format!("[jobs.pager]\n{pager}[jobs.a]\nshell = 'true'\n"));
    asked().unwrap();
}

#[test]
fn a_job_that_is_a_hook_may_have_a_schedule_too() {
    let db = TestDb::new();
    db.apply(
        "[jobs.ping]\nshell = 'true'\nschedule = '@yearly'\n\
         [jobs.a]\nshell = 'true'\non_success = 'ping'\n",
    );
    // The schedule of the hook is due now, and a worker's login may fire it.
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now())
         WHERE name = 'ping'",
    );
    Role::granted(&db, "worker").jobctl(["tick"]).run().success();
    assert_eq!(
        db.query("SELECT job_type, status, scheduled_for IS NULL FROM jobctl.job_runs"),
        "ping|succeeded|f"
    );
}

#[test]
fn defaults_give_hooks_to_all_jobs_but_the_hooks() {
    let db = TestDb::new();
    let file = format!(
        "[defaults]\non_dead = 'alert'\non_success = 'ping'\n{HOOKS}\
         [jobs.a]\nshell = 'true'\n\
         [jobs.b]\nshell = 'true'\non_dead = ''\non_success = 'alert'\n"
    );
    db.apply(&file);
    // `b` replaces both defaults, one by none. The hooks `alert` and `ping` get none.
    assert_eq!(
        db.query(
            "SELECT name, on_dead, on_success, has_hooks FROM jobctl.job_definitions ORDER BY 1"
        ),
        "a|alert|ping|t\nalert|||f\nb||alert|t\nping|||f"
    );
    db.jobctl(["jobs", "a"]).run().success().stdout_has("on_dead").stdout_has("alert");
    // The same file changes nothing. Another default changes `a`.
    db.jobctl(["apply", "-"]).stdin(file.as_str()).run().success().stdout("");
    let other = file.replace("on_dead = 'alert'", "on_dead = 'ping'");
    let changed = db.jobctl(["apply", "-", "--json"]).stdin(other).run().success();
    changed.stdout_has(
        "\"definition_key\":\"on_dead\",\"old\":\"\\\"alert\\\"\",\"new\":\"\\\"ping\\\"\"",
    );
}

#[test]
fn apply_refuses_an_unknown_hook_and_hooks_of_a_hook() {
    let db = TestDb::new();
    let refused = |file: &str, why: &str| {
        let apply = db.jobctl(["apply", "-", "--yes"]).stdin(file).run().exits(2).stdout("");
        apply.stderr(&format!("jobctl: cannot apply: {why}\n"));
    };
    // A hook that does not exist, a hook of itself, and hooks of a hook.
    refused(
        "[jobs.a]\nshell = 'true'\non_dead = 'pager'\n",
        "-: job `a`: `on_dead`: no definition `pager`; add it to the file",
    );
    refused(
        "[jobs.a]\nshell = 'true'\non_end = 'a'\n",
        "-: job `a`: `on_end`: `a` is a hook of `a`, and a hook has no hooks",
    );
    refused(
        "[jobs.a]\nshell = 'true'\non_end = 'b'\n[jobs.b]\nshell = 'true'\non_dead = 'c'\n\
         [jobs.c]\nshell = 'true'\n",
        "-: job `b`: `on_dead`: `b` is a hook of `a`, and a hook has no hooks",
    );
    // Values that are no names of definitions.
    refused("[jobs.a]\nshell = 'true'\non_dead = 7\n", "-:3: job `a`: `on_dead`: must be a string");
    refused(
        "[jobs.a]\nshell = 'true'\non_dead = 'shell'\n",
        "-:3: job `a`: `on_dead`: is the name of a built-in job",
    );

    // A definition that is not in the file is disabled, and keeps its hooks.
    db.apply("[jobs.a]\nshell = 'true'\non_end = 'b'\n[jobs.b]\nshell = 'true'\n");
    refused(
        "[jobs.b]\nshell = 'true'\non_dead = 'c'\n[jobs.c]\nshell = 'true'\n",
        "-: job `b`: `on_dead`: `b` is a hook of `a`, and a hook has no hooks; `a` is no \
         longer in the file, but its definition stays; add --prune to remove it",
    );
    db.execute("DELETE FROM jobctl.job_definitions");
    refused("defaults = 7\n[jobs.a]\nshell = 'true'\n", "-:1: `defaults` must be a table");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_definitions"), "0");

    // A hook that is in use can't be removed.
    db.apply(&format!("[defaults]\non_end = 'alert'\n{HOOKS}[jobs.a]\nshell = 'true'\n"));
    let file = "[jobs.a]\nshell = 'true'\non_end = 'alert'\n";
    let apply = db.jobctl(["apply", "-", "--prune", "--yes"]).stdin(file).run().exits(2);
    apply.stderr_has("job `a`: `on_end`: no definition `alert`");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_definitions"), "3");
}

/// The claim of such a run finds no definition. So it ends the run without a hook.
#[test]
fn apply_says_that_runs_of_a_removed_definition_have_no_hooks() {
    let db = TestDb::new();
    let file = |more: &str| format!("{HOOKS}{more}");
    let hooked = "[jobs.bad]\nshell = 'exit 1'\non_dead = 'alert'\non_end = 'ping'\n";
    let prune = |file: &str| db.jobctl(["apply", "-", "--prune", "--yes"]).stdin(file).run();
    let without = |runs: &str| {
        format!("jobctl: {runs} of removed definitions will be dead, and enqueue no hooks\n")
    };
    for (runs, says) in [(0, None), (1, Some("1 waiting run")), (2, Some("2 waiting runs"))] {
        db.apply(&file(hooked));
        for _ in 0..runs {
            db.enqueue(["bad"]);
        }
        let applied = prune(&file("")).success();
        applied.stderr(&says.map(without).unwrap_or_default());
        db.jobctl(["tick"]).run().success();
        assert_eq!(runs_of_hooks(&db), "");
    }
    // No hook is lost if the removed definition has none.
    db.apply(&file("[jobs.bad]\nshell = 'exit 1'\n"));
    db.enqueue(["bad"]);
    prune(&file("")).success().stderr("");
    // Without --prune, the definition is only disabled, and keeps its hooks.
    db.apply(&file(hooked));
    db.enqueue(["bad", "--in", "1h"]);
    db.jobctl(["apply", "-", "--yes"]).stdin(file("")).run().success().stderr("");
}
