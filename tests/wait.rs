//! `jobctl wait` and `enqueue --wait`: until runs have ended.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Gate, Proxy, Role, TestDb, jobctl, wait_until};

/// Returns whether a session of this application has ended a transaction, so that its command now
/// waits.
pub fn has_ended_a_transaction(db: &TestDb, application: &str) -> bool {
    db.query(&format!(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
             AND application_name = '{application}' AND query = 'COMMIT' AND state = 'idle')"
    )) == "t"
}

#[test]
fn wait_returns_when_all_runs_have_ended() {
    let db = TestDb::new();
    let gate = Gate::new();
    let gated = gate.enqueue(&db).to_string();
    let quick = db.enqueue(["shell", "--", "echo", "hello"]).to_string();
    let mut wait_for_both = db.jobctl(["wait", &quick, &gated]).spawn();
    let tick = db.jobctl(["tick"]).spawn();
    db.wait_for_status(quick.parse().unwrap(), "succeeded");
    gate.wait_for_starts(1);
    assert!(wait_for_both.is_running());
    // A wait for a run that has ended returns at once.
    db.jobctl(["wait", &quick, "--output"]).run().success().stdout("hello\n").stderr("");
    gate.open();
    wait_for_both.wait().success().stdout("").stderr("");
    tick.wait().success();
}

#[test]
fn the_exit_status_of_wait_tells_how_the_runs_ended() {
    let db = TestDb::new();
    let enqueue = |command: &str| {
        db.enqueue(["shell", "--max-attempts", "1", "--", "sh", "-c", command]).to_string()
    };
    let (good, bad) = (enqueue("true"), enqueue("echo no; exit 7"));
    let killed = enqueue("kill -TERM $$");
    let cancelled = enqueue("true");
    db.jobctl(["cancel", &cancelled]).run().success();
    db.jobctl(["tick"]).run().success();
    let wait = |arguments: &[&str]| db.jobctl(["wait"]).args(arguments.iter().copied()).run();

    // All runs succeeded, or one is dead.
    let dead = format!("jobctl: run {bad} of job shell is dead after 1 attempt: exit status 7\n");
    wait(&[&good, &good]).success().stdout("").stderr("");
    wait(&[&good, &bad]).exits(1).stdout("").stderr(&dead);
    wait(&[&bad, "--output"]).exits(1).stdout("no\n").stderr(&dead);

    // `--exit-status` exits as the command did: 143 is 128 + 15 (SIGTERM).
    wait(&[&bad, "--exit-status"]).exits(7);
    wait(&[&killed, "--exit-status"]).exits(143);

    // The reason of a timeout is the timeout, and not the signal that ended the command. Without an
    // exit status, the error type is the reason.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET error_type = 'timeout' WHERE id = {killed};
         UPDATE jobctl.job_runs SET error_type = 'http_status' WHERE id = {bad};
         UPDATE jobctl.job_attempts SET exit_code = NULL WHERE run_id = {bad}"
    ));
    wait(&[&killed]).exits(1).stderr_has("is dead after 1 attempt: timed out\n");
    wait(&[&bad]).exits(1).stderr_has("is dead after 1 attempt: error type http_status\n");
    db.execute(&format!("UPDATE jobctl.job_attempts SET exit_code = 7 WHERE run_id = {bad}"));

    // One was cancelled, or does not exist.
    let was_cancelled = format!("jobctl: run {cancelled} of job shell was cancelled\n");
    wait(&[&cancelled]).exits(10).stderr(&was_cancelled);
    wait(&[&bad, &cancelled]).exits(10).stderr(&(dead + &was_cancelled));
    wait(&["99"])
        .exits(3)
        .stderr("jobctl: cannot wait for run 99: no such run, or another role enqueued it\n");
    wait(&[]).exits(2);
    wait(&["x"]).exits(2);
    wait(&[&good, "--timeout", "soon"]).exits(2);

    // `show --follow` ends with the same status.
    let follow = |id: &str| db.jobctl(["show", id, "--output", "--follow"]).run();
    follow(&good).success();
    follow(&bad).exits(1).stdout("no\n");
}

#[test]
fn a_timeout_and_a_signal_end_the_wait_and_leave_the_run_alone() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--in", "1h", "--", "true"]).to_string();
    let goes_on = format!("jobctl: run {id} goes on; `jobctl wait {id}`\n");
    db.jobctl(["wait", &id, "--timeout", "1s"]).run().exits(124).stdout("").stderr(&goes_on);
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let wait = db.jobctl(["wait", &id]).env("PGAPPNAME", "waits").spawn();
        wait_until("it waits", || has_ended_a_transaction(&db, "waits"));
        wait.signal(signal);
        wait.wait().exits(status).stdout("").stderr(&goes_on);
    }
    assert_eq!(db.status(id.parse().unwrap()), "queued");
}

#[test]
fn enqueue_waits_for_its_runs() {
    let db = TestDb::new();
    // Each `enqueue` prints the id of its run, 1 to 4, and then its exit status.
    let script = "
        $jobctl tick --linger --max-time 1m >/dev/null 2>&1 & tick=$!
        $jobctl enqueue shell --wait -- true; echo $?
        $jobctl enqueue shell --max-attempts 1 --wait=1m -- false; echo $?
        $jobctl enqueue shell --in 1h --wait=1s -- true; echo $?
        echo '{\"job_type\": \"shell\", \"payload\": {\"command\": \"true\"}}' |
            $jobctl enqueue --batch - --wait; echo $?
        kill $tick; wait $tick";
    let script = db.script(script).run();
    script.stdout("1\n0\n2\n1\n3\n124\n4\n0\n").stderr_has("run 2 of job shell is dead after 1");
}

/// The login has `ALTER ROLE ... SET role`, so its statements run as another role. The runs name
/// the login, and the other role may not read them.
#[test]
fn a_login_with_another_role_waits_for_its_own_runs() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    let (app, login) = (Role::granted(&db, "enqueuer"), Role::new(&db));
    db.execute(&format!(
        "GRANT {0} TO {1}; ALTER ROLE {1} SET role = '{0}'",
        app.name(),
        login.name()
    ));
    let own = login.jobctl(["enqueue", "a"]).run().success().stdout;
    let after = login.jobctl(["enqueue", "a", "--after", own.trim()]).run().success().stdout;
    db.jobctl(["tick"]).run().success();
    login.jobctl(["wait", own.trim(), after.trim()]).run().success().stderr("");
    app.jobctl(["wait", own.trim()]).run().exits(3);
}

#[test]
fn an_enqueuer_waits_for_its_own_runs_only() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'false'\nmax_attempts = 1\n");
    let others = db.enqueue(["a"]).to_string();
    let enqueuer = Role::granted(&db, "enqueuer");
    let own = enqueuer.jobctl(["enqueue", "a"]).run().success().stdout.trim().to_owned();
    db.jobctl(["tick"]).run().success();
    let dead = format!("jobctl: run {own} of job a is dead after 1 attempt: exit status 1\n");
    enqueuer.jobctl(["wait", &own]).run().exits(1).stderr(&dead);
    enqueuer.jobctl(["wait", &own, &others]).run().exits(3).stderr_has("another role");
    for role in ["viewer", "worker", "operator"] {
        Role::granted(&db, role).jobctl(["wait", &own, &others]).run().exits(1);
    }
}

#[test]
fn wait_may_begin_during_an_outage_of_the_database() {
    // There is no server at this address.
    let wait = jobctl(["wait", "1", "--timeout", "100ms"]);
    let wait = wait.env("JOBCTL_DATABASE_URL", "postgresql://127.0.0.1:1/none").run();
    wait.exits(124).stderr_has("waiting for the database").stderr_has("did not answer");
}

#[test]
fn wait_goes_on_after_an_outage_of_the_database() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--", "true"]).to_string();
    let proxy = Proxy::to(&db);
    let wait = db.jobctl(["wait", &id]).env("PGAPPNAME", "waits").through(&proxy).spawn();
    wait_until("it waits", || has_ended_a_transaction(&db, "waits"));
    proxy.cut();
    let before = proxy.connections();
    wait_until("it connects again", || proxy.connections() > before);
    // The run ends during the outage.
    db.jobctl(["tick"]).run().success();
    proxy.restore();
    wait.wait().success().stdout("").stderr_has("waiting for the database: ");
}

#[test]
fn enqueue_run_starts_its_run_at_once_in_the_same_process() {
    let db = TestDb::new();
    db.apply(
        "[jobs.one]\nshell = 'true'\nmax_running = 1\n\
         [jobs.bad]\nshell = 'exit 7'\nmax_attempts = 1\n",
    );
    // These runs would come first in a claim, but `enqueue --run` starts only its own run.
    let others = [db.enqueue(["one", "--priority", "-5"]), db.enqueue_script("true")];
    let enqueue =
        |arguments: &[&str]| db.jobctl(["enqueue", "--run"]).args(arguments.iter().copied()).run();

    let printed = enqueue(&["one"]).success().stderr("").stdout;
    let good = printed.trim_end().parse().unwrap();
    assert_eq!(db.of_attempt(good, 1, "outcome"), "succeeded");
    let dead = enqueue(&["bad"]).exits(1);
    let bad = dead.stdout.trim_end().to_owned();
    dead.stderr_has(&format!("run {bad} of job bad is dead after 1 attempt"));

    // A key whose run has succeeded: the second command starts nothing and prints the same id.
    let with_key = enqueue(&["shell", "--wait=1m", "--key", "a", "--", "true"]).success().stdout;
    enqueue(&["shell", "--key", "a", "--", "true"]).success().stdout(&with_key);

    // A run that is not dead after its attempt: the command waits for the next one.
    let retried = enqueue(&["shell", "--wait=1s", "--", "false"]).exits(124);
    retried.stderr_has("of job shell failed after 1 attempt: exit status 1\n");

    assert_eq!(others.map(|id| db.status(id)), ["queued", "queued"]);
    // A tick of a worker would write a row here.
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_workers"), "0");
    for flags in [["--in", "1h"], ["--after", "1"], ["--batch", "-"]] {
        enqueue(&[&flags[..], &["one"]].concat()).exits(2).stderr_has("cannot be used with");
    }
}

#[test]
fn enqueue_run_leaves_a_run_that_it_may_not_start_to_a_tick() {
    let db = TestDb::new();
    db.apply("[jobs.one]\nshell = 'true'\n");
    let enqueue_shell = |variable: &str, value: &str| {
        let enqueue = db.jobctl(["enqueue", "shell", "--run", "--wait=1s", "--", "true"]);
        enqueue.env(variable, value).run()
    };
    let enqueue_one = || db.jobctl(["enqueue", "one", "--run", "--wait=1s"]);
    let waits = "has not started; `jobctl show";

    // The host does not execute commands.
    enqueue_shell("JOBCTL_TICK_SHELL", "off").exits(124).stderr_has(waits);

    // The job is held.
    db.jobctl(["hold", "--job", "one"]).run().success();
    enqueue_one().run().exits(124).stderr_has(waits);

    // These flags of a tick choose or change other runs, so they have no effect here: the first
    // command ends when its time is over, the second starts its run, and the third prunes nothing.
    enqueue_one().env("JOBCTL_TICK_LINGER", "true").run().exits(124).stderr_has(waits);
    enqueue_shell("JOBCTL_TICK_QUEUE", "mail").success().stderr("");
    db.execute("UPDATE jobctl.job_runs SET finished_at = '2020-01-01' WHERE status = 'succeeded'");
    enqueue_shell("JOBCTL_TICK_PRUNE", "true").success().stderr("");
    assert_eq!(
        db.query("SELECT count(*) FROM jobctl.job_runs WHERE finished_at < '2021-01-01'"),
        "1"
    );

    // The definition allows one running run, and another worker has one.
    db.apply("[jobs.one]\nshell = 'true'\nmax_running = 1\n");
    db.jobctl(["release", "--job", "one"]).run().success();
    db.execute(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, started_at = now(),
             locked_by = 'w', locked_until = now() + interval '1 hour'
         WHERE id = (SELECT min(id) FROM jobctl.job_runs WHERE job_type = 'one')",
    );
    db.allow_running_runs_at_end();
    enqueue_one().run().exits(124).stderr_has(waits);
}

#[test]
fn enqueue_run_enqueues_nothing_if_it_cannot_tick() {
    let db = TestDb::new();
    db.apply("[jobs.one]\nshell = 'true'\n");
    let runs = || db.query("SELECT count(*) FROM jobctl.job_runs");
    let before = runs();
    // A wrong value for a flag of a tick.
    db.jobctl(["enqueue", "shell", "--run", "--wait=1s", "--", "true"])
        .env("JOBCTL_TICK_LEASE", "5")
        .run()
        .exits(2)
        .stdout("")
        .stderr_has("in the variables of `tick`: invalid value '5' for '--lease");
    // A role without the privileges of a worker.
    let enqueuer = Role::granted(&db, "enqueuer");
    enqueuer.jobctl(["enqueue", "one", "--run"]).run().exits(7).stdout("");
    assert_eq!(runs(), before);
}

#[test]
fn a_tick_for_one_run_says_why_it_does_nothing() {
    let db = TestDb::new();
    let [run, _other] = [(); 2].map(|()| db.enqueue_script("true").to_string());
    let tick = |id: &str| db.jobctl(["tick", "--run", id]).run();
    // Of two due runs, only one is named.
    let planned = db.jobctl(["tick", "--run", &run, "--dry-run"]).run().success().stdout;
    assert!(planned.starts_with(&format!("{run}\t")) && planned.lines().count() == 1, "{planned}");
    tick(&run).success().stdout("");

    let why = format!("jobctl: cannot start run {run}: its status is succeeded\n");
    tick(&run).exits(4).stderr_has(&why);
    tick("77").exits(3).stderr_has("cannot start run 77: no such run");
    let later = db.enqueue(["shell", "--in", "1h", "--", "true"]).to_string();
    tick(&later)
        .exits(1)
        .stderr_has(&format!("run {later} has not started; `jobctl show {later}`"));
    db.jobctl(["tick", "--run", &later, "--linger"]).run().exits(2);
}

#[test]
fn several_enqueue_run_start_at_once_and_count_against_the_concurrency_of_a_tick() {
    let db = TestDb::new();
    let gate = Gate::new();
    let script = gate.script();
    let enqueue = || db.jobctl(["enqueue", "shell", "--run", "--", "sh", "-c", &script]).spawn();
    let commands = [enqueue(), enqueue(), enqueue()];
    gate.wait_for_starts(3);
    // Three are running, so a tick with three slots starts no run, and a tick with four starts one.
    let other = db.enqueue_script("true");
    db.jobctl(["tick", "--concurrency", "3"]).run().success();
    assert_eq!(db.status(other), "queued");
    db.jobctl(["tick", "--concurrency", "4"]).run().success();
    assert_eq!(db.status(other), "succeeded");
    gate.open();
    for command in commands {
        command.wait().success().stderr("");
    }
}

#[test]
fn a_signal_ends_the_attempt_of_enqueue_run_and_its_wait() {
    let db = TestDb::new();
    let gate = Gate::new();
    let script = gate.script();
    let enqueue = db.jobctl(["enqueue", "shell", "--run", "--", "sh", "-c", &script]);
    let enqueue = enqueue.env("JOBCTL_TICK_GRACE", "0s").spawn();
    gate.wait_for_starts(1);
    enqueue.signal(Signal::INT);
    let ended = enqueue.wait().exits(130);
    let id: i64 = ended.stdout.trim_end().parse().unwrap();
    ended.stderr_has(&format!("run {id} is queued; `jobctl wait {id}`\n"));
    assert_eq!(db.of_attempt(id, 1, "outcome"), "interrupted");
}

#[test]
fn a_result_that_can_t_be_recorded_delays_no_end_of_the_wait() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    // The time of `--wait` ends the command, or a signal does.
    for (signal, exit) in [(None, 124), (Some(Signal::INT), 130)] {
        let (proxy, gate) = (Proxy::to(&db), Gate::new());
        let script = gate.script();
        let enqueue =
            db.jobctl(["enqueue", "shell", "--run", "--wait=2s", "--", "sh", "-c", &script]);
        let enqueue = enqueue.through(&proxy).spawn();
        gate.wait_for_starts(1);
        proxy.cut();
        gate.open();
        wait_until("the job to end", || gate.count("end") == 1);
        signal.into_iter().for_each(|signal| enqueue.signal(signal));
        let ended = enqueue.wait_within(SOON).exits(exit);
        ended.stderr_has("shell attempt 1/10: succeeded after ").stderr_has(
            "; result not recorded, so the run will start again; another tick recovers the run \
             when its lease ends",
        );
    }
}

/// Sets columns of each new run before `enqueue` looks at it, as another worker's lingering tick
/// may do that claims the run first.
fn change_new_runs(db: &TestDb, assignments: &str) {
    db.execute(&format!(
        "CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             {assignments}
             RETURN NEW;
         END $$;
         CREATE TRIGGER take BEFORE INSERT ON jobctl.job_runs
             FOR EACH ROW EXECUTE FUNCTION take()"
    ));
}

#[test]
fn enqueue_run_does_not_start_a_run_that_another_tick_has_ended_already() {
    let db = TestDb::new();
    change_new_runs(&db, "NEW.status := 'succeeded'; NEW.attempts := 1; NEW.finished_at := now();");
    db.jobctl(["enqueue", "shell", "--run", "--", "true"]).run().success().stderr("");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts"), "0", "no attempt here");
}

/// The exit status proves that it waits: 124 is that of `--wait` when its time is over.
#[test]
fn enqueue_run_waits_for_a_run_that_another_tick_has_claimed_first() {
    let db = TestDb::new();
    db.allow_running_runs_at_end();
    change_new_runs(
        &db,
        "NEW.status := 'running'; NEW.attempts := 1; NEW.started_at := now();
         NEW.locked_by := 'w'; NEW.locked_until := now() + interval '1 hour';",
    );
    db.jobctl(["enqueue", "shell", "--run", "--wait=1s", "--", "true"]).run().exits(124);
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts"), "0", "no attempt here");
}

#[test]
fn neither_tick_run_nor_enqueue_run_starts_a_run_after_a_restore_that_is_not_accepted() {
    let db = TestDb::new();
    let waiting = db.enqueue_script("true").to_string();
    db.execute("INSERT INTO jobctl.job_events (action) VALUES ('restore')");
    db.jobctl(["tick", "--run", &waiting]).run().exits(7).stderr_has("accept-restore");
    // The run is enqueued, so the exit status must not be that of a failed enqueue.
    let enqueue = db.jobctl(["enqueue", "shell", "--run", "--wait=1s", "--", "true"]);
    let ended = enqueue.run().exits(124).stderr_has("accept-restore");
    let enqueued = db.query("SELECT max(id) FROM jobctl.job_runs");
    ended.stderr_has(&format!("run {enqueued} is enqueued; waiting for a tick: "));
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_attempts"), "0");
}

/// On a loaded machine, a command may end this long after its time is over or a signal has come.
const SOON: Duration = Duration::from_secs(6);

#[test]
fn a_wait_for_a_silent_database_ends_at_its_timeout_or_a_signal() {
    let db = TestDb::new();
    let id = db.enqueue(["shell", "--in", "1h", "--", "true"]).to_string();
    for is_connected in [true, false] {
        // The timeout ends the first wait, and signals end the others.
        for (timeout, signal, status) in
            [("1s", None, 124), ("1h", Some(Signal::INT), 130), ("1h", Some(Signal::TERM), 143)]
        {
            let proxy = Proxy::to(&db);
            let url = proxy.url().replace("connect_timeout=2", "connect_timeout=60");
            // The database is silent from the first query of the run's state on, or from the start.
            if is_connected {
                proxy.freeze_after("run_states")
            } else {
                proxy.freeze()
            }
            let wait = db.jobctl(["wait", &id, "--timeout", timeout]);
            let wait = wait.env("JOBCTL_DATABASE_URL", &url).spawn();
            wait_until("it waits", || proxy.is_frozen() && proxy.connections() == 1);
            signal.into_iter().for_each(|signal| wait.signal(signal));
            let ended = wait.wait_within(SOON).exits(status);
            ended.stdout("").stderr("jobctl: the database did not answer\n");
        }
    }
}

#[test]
fn enqueue_run_tries_again_if_an_answer_is_lost() {
    let db = TestDb::new();
    // A text of the statement whose answer is lost: before the claim, the claim, and after the
    // attempt.
    for text in ["unaccepted_restores", "Claims due runs", "run_states"] {
        let proxy = Proxy::to(&db);
        proxy.lose_answer_to(&[text]);
        let enqueue = db.jobctl(["enqueue", "shell", "--run", "--wait=20s", "--", "true"]);
        let printed = enqueue.through(&proxy).run().success().stdout;
        assert!(proxy.has_lost(), "{text}");
        let id = printed.trim_end().parse().unwrap();
        assert_eq!(db.of_run(id, "status, attempts"), "succeeded|1");
    }
}

#[test]
fn a_signal_ends_enqueue_run_while_the_database_is_silent() {
    let db = TestDb::new();
    // The server executes the claim, although its answer does not arrive.
    db.allow_running_runs_at_end();
    let proxy = Proxy::to(&db);
    proxy.freeze_after("Claims due runs");
    let enqueue = db.jobctl(["enqueue", "shell", "--run", "--", "true"]);
    let enqueue = enqueue.env("JOBCTL_TICK_GRACE", "0s").through(&proxy).spawn();
    wait_until("the claim", || proxy.is_frozen());
    enqueue.signal(Signal::INT);
    let ended = enqueue.wait_within(SOON).exits(130);
    let id = ended.stdout.trim_end().to_owned();
    ended.stderr_has(&format!("`jobctl wait {id}`"));
}

#[test]
fn a_tick_for_one_run_that_another_tick_took_says_so() {
    let db = TestDb::new();
    let id = db.enqueue_script("true").to_string();
    let (proxy, mut client) = (Proxy::to(&db), db.client());
    // Another tick claims the run, and has not committed yet.
    let mut other = client.transaction().unwrap();
    other
        .batch_execute(
            "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, started_at = now(),
                 locked_by = 'w', locked_until = now() + interval '1 hour'",
        )
        .unwrap();
    let tick = db.jobctl(["tick", "--run", &id]).through(&proxy).spawn();
    // By its first connection, the command has seen that the run is due.
    wait_until("a second connection", || proxy.connections() > 1);
    other.commit().unwrap();
    tick.wait().exits(4).stderr(&format!("jobctl: cannot start run {id}: its status is running\n"));
    db.allow_running_runs_at_end();
}

/// Each `wait` asks for its runs again and again, so it must not read all dependencies each time.
#[test]
fn a_wait_reads_only_the_runs_before_its_own() {
    let db = TestDb::new();
    let [dead, open] = ["1h"; 2].map(|time| db.enqueue(["shell", "--in", time, "--", "true"]));
    let own = db.enqueue(["shell", "--after", &open.to_string(), "--", "true"]).to_string();
    // 10,000 other runs wait for a dead run, and 10,000 more wait for those.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'dead', finished_at = now() WHERE id = {dead};
         INSERT INTO jobctl.job_runs (job_type, status)
         SELECT 'mail', 'blocked' FROM generate_series(1, 20000);
         INSERT INTO jobctl.job_dependencies (run_id, after_id, state)
         SELECT id, CASE WHEN id % 2 = 0 THEN {dead} ELSE id - 1 END,
             CASE WHEN id % 2 = 0 THEN 'stuck' ELSE 'open' END
         FROM jobctl.job_runs WHERE job_type = 'mail';
         ANALYZE jobctl.job_runs, jobctl.job_dependencies"
    ));
    let rows_read = || {
        let rows = "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes
                 WHERE relname = 'job_dependencies')
             + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'job_dependencies')";
        db.query(rows).parse::<i64>().unwrap()
    };
    for run in [&own, &open.to_string()] {
        db.wait_for_statistics();
        let before = rows_read();
        db.jobctl(["wait", run, "--timeout", "1ms"]).run().exits(124).prints_nowhere("can't start");
        let is_stuck = format!("SELECT stuck FROM jobctl.run_states(ARRAY[{run}])");
        assert_eq!(db.query(&is_stuck), "f");
        // Only the first run has dependencies, so only its wait must have read some.
        wait_until("the counts", || run != &own || rows_read() > before);
        let read = rows_read() - before;
        assert!(read < 1000, "{read} rows");
    }
    // A run that waits for a dead run can't start, and `wait` says so.
    let stuck = db.query("SELECT max(id) FROM jobctl.job_runs");
    db.jobctl(["wait", &stuck, "--timeout", "1ms"]).run().exits(124).stderr_has("can't start");
}
