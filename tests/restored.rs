//! A tick notices that a backup of its database was restored. It starts nothing until an operator
//! accepts the database.
//!
//! A host notes in its state folder when its worker ticked, by the database's clock. A database
//! counts as restored if its last tick of this worker is older than a noted one. Noted ticks of the
//! last ten minutes do not count, because an asynchronous failover may lose them.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::drill::program;
use crate::restore::{pg_dump_version, restore, run};
use crate::support::{Finished, Gate, Invocation, Role, TestDb, server, temp_dir, wait_until};

/// A host with its own state folder.
struct Host {
    worker: &'static str,
    state: TempDir,
}

impl Host {
    /// Creates a host without notes, whose worker ticked a day ago.
    fn new(db: &TestDb, worker: &'static str) -> Self {
        db.execute(&format!(
            "INSERT INTO jobctl.job_workers (worker, version, last_tick_at)
             VALUES ('{worker}', '0.1.0', now() - interval '1 day')"
        ));
        Self { worker, state: temp_dir() }
    }

    /// Creates a host that has noted two ticks of its worker: one of 15 minutes ago and one of now.
    #[track_caller]
    fn with_notes(db: &TestDb, worker: &'static str) -> Self {
        let host = Self::new(db, worker);
        set_last_ticks_of_database(db, "15 minutes");
        // A tick notes itself and the tick before it.
        host.tick(db).success();
        host
    }

    fn command<'db>(&self, db: &'db TestDb) -> Invocation<'db> {
        let command = db.jobctl(["tick", "--worker", self.worker]);
        command.env("XDG_STATE_HOME", self.state.path().to_str().unwrap())
    }

    fn tick(&self, db: &TestDb) -> Finished {
        self.command(db).run()
    }

    fn notes(&self) -> PathBuf {
        self.state.path().join("jobctl")
    }

    /// Returns the only file with notes.
    fn note(&self) -> PathBuf {
        let mut notes = fs::read_dir(self.notes()).unwrap().map(|note| note.unwrap().path());
        let note = notes.next().unwrap();
        assert_eq!(notes.next(), None);
        note
    }
}

/// Moves the last ticks of all workers back to this age, so the database looks like a backup of
/// that time.
fn set_last_ticks_of_database(db: &TestDb, age: &str) {
    db.execute(&format!(
        "UPDATE jobctl.job_workers
         SET last_tick_at = now() - interval '{age}', previous_tick_at = NULL"
    ));
}

const RESTORED: &str = "jobctl: cannot start runs: the database is older than a tick has seen it";
const REMEDY: &str = ", as after a restore; cancel the runs whose work is done, then accept the \
    rest: as an operator, `jobctl accept-restore`";

/// Asserts that a tick starts no run, because the database is an older one.
#[track_caller]
fn assert_starts_nothing(tick: Finished) {
    tick.exits(7).complains_once().stderr_has(RESTORED).stderr_has(REMEDY);
}

#[test]
fn no_blocked_run_is_released_before_an_operator_accepts_a_restore() {
    let db = TestDb::new();
    let first = db.enqueue(["shell", "--", "true"]);
    let follower = db.enqueue(["shell", "--after", &first.to_string(), "--", "true"]);
    // The first run has ended, but no tick has released its follower yet.
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'succeeded', finished_at = now() WHERE id = {first};
         UPDATE jobctl.job_dependencies SET state = 'due'"
    ));
    // As if a tick of another host had noticed a restore.
    db.execute("INSERT INTO jobctl.job_events (action, detail) VALUES ('restore', 'worker web1')");
    assert_starts_nothing(db.jobctl(["tick", "--worker", "web9"]).run());
    assert_eq!(db.status(follower), "blocked");
    db.jobctl(["accept-restore"]).run().success();
    db.jobctl(["tick", "--worker", "web9"]).run().success();
    assert_eq!(db.status(follower), "succeeded");
}

#[test]
fn a_tick_for_one_run_starts_nothing_in_a_restored_database() {
    let db = TestDb::new();
    let web = Host::new(&db, "web1");
    let before = db.enqueue(["shell", "--", "true"]);
    web.command(&db).args(["--limit", "1"]).run().success();
    let after = db.enqueue(["shell", "--", "true"]);
    set_last_ticks_of_database(&db, "2 days");
    assert_starts_nothing(web.command(&db).args(["--run", &after.to_string()]).run());
    assert_eq!([before, after].map(|id| db.status(id)), ["succeeded", "queued"]);
    db.jobctl(["accept-restore"]).run().success();
    web.command(&db).args(["--run", &after.to_string()]).run().success();
    assert_eq!(db.status(after), "succeeded");
}

/// Any worker may notice a restore, so a worker's login may insert the event, also without reason.
#[test]
fn a_restore_event_that_a_worker_writes_stops_all_hosts_until_an_operator_accepts_it() {
    let db = TestDb::new();
    let [one, other, operator] =
        ["worker", "worker", "operator"].map(|part| Role::granted(&db, part));
    let event = "INSERT INTO jobctl.job_events (action) VALUES ('restore')";
    one.client().batch_execute(event).unwrap();
    db.enqueue(["shell", "--", "true"]);
    assert_starts_nothing(other.jobctl(["tick", "--worker", "web9"]).run());
    operator.jobctl(["accept-restore"]).run().success();
    other.jobctl(["tick", "--worker", "web9"]).run().success();
    let events = "SELECT recorded_by FROM jobctl.job_events WHERE action = 'restore'";
    assert_eq!(db.query(events), one.name());
}

#[test]
fn ticks_start_nothing_after_a_restore_until_an_operator_accepts_it() {
    if pg_dump_version() < server::major() {
        return;
    }
    let db = TestDb::new();
    let hosts = ["web1", "web2"].map(|worker| Host::new(&db, worker));
    let folder = temp_dir();
    let receipts = folder.path().join("receipts");
    let charge = format!("echo charged >>{}", receipts.display());
    let receipts = || fs::read_to_string(&receipts).unwrap_or_default();
    db.apply("[jobs.hourly]\nshell = 'true'\nschedule = '0 * * * *'\n");
    let paid = db.enqueue_script(&charge);
    let lost = db.enqueue(["shell", "--", "true"]);
    db.execute(&format!(
        "UPDATE jobctl.job_runs SET status = 'running', attempts = 1, locked_by = 'web1',
             started_at = now() - interval '1 day', locked_until = now() - interval '1 day'
         WHERE id = {lost};
         UPDATE jobctl.job_definitions SET next_run_at = date_trunc('hour', now())"
    ));
    let backup = folder.path().join("backup");
    run(Command::new(program("pg_dump")).arg("--file").arg(&backup).arg(db.url()));

    // After the backup, the hosts tick, and the paid run is executed.
    set_last_ticks_of_database(&db, "15 minutes");
    hosts.iter().for_each(|host| drop(host.tick(&db).success()));
    assert_eq!(db.status(paid), "succeeded");
    assert_eq!(receipts(), "charged\n");
    db.execute("DROP SCHEMA jobctl CASCADE");
    restore("plain", &backup, &db);

    // In the restored database, no tick executes the paid run again or changes any run.
    let rows = "SELECT string_agg(run::text, '') FROM (SELECT * FROM jobctl.job_runs ORDER BY id)
        AS run";
    let restored = db.query(rows);
    assert_starts_nothing(hosts[0].tick(&db));
    // From now on, the event stops all hosts, with or without notes.
    hosts.iter().for_each(|host| assert_starts_nothing(host.tick(&db)));
    assert_starts_nothing(db.jobctl(["tick", "--worker", "web3"]).env("XDG_STATE_HOME", "").run());
    assert_eq!(db.query(rows), restored);
    assert_eq!(receipts(), "charged\n");

    // The restore is in the trail, and `check` and `doctor` report it.
    let events = "SELECT action, host_user IS NULL, reason, detail FROM jobctl.job_events
        WHERE action LIKE '%restore' ORDER BY id";
    assert_eq!(db.query(events), "restore|t||worker web1");
    let remedy = "(noticed by worker web1); cancel the runs whose work is done, then accept the \
        rest: `jobctl accept-restore`";
    let check = db.jobctl(["check"]).run().exits(1);
    check
        .stdout_has("the database was restored, so ticks start nothing, since ")
        .stdout_has(remedy);
    // Ticks that start and recover nothing are intended, so `check` does not report them.
    let check = db.jobctl(["check"]).run().exits(1);
    check.prints_nowhere("no worker ticks").prints_nowhere("expired lease");
    let doctor = db.jobctl(["doctor"]).run().exits(1);
    let doctor = doctor.stdout_has("unknown\tqueues\tnot checked while ticks start nothing");
    doctor.stdout_has("bad\trestores\tthe database was restored, so ticks start nothing\t");

    // An operator cancels the run whose work is done, and accepts the restore.
    db.jobctl(["cancel", &paid.to_string()]).run().success();
    let operator = Role::granted(&db, "operator");
    let accept = operator.jobctl(["accept-restore", "--reason", "paid ones are cancelled"]);
    let accepted = accept.run().success().stdout("accepted\n").complains_once();
    let owner = "new runs can get the ids of lost runs, and so their keys, such as jobctl-run-17; \
        as the schema's owner, ";
    let setval = "setval('jobctl.job_runs_id_seq', nextval('jobctl.job_runs_id_seq') + 1000000)";
    accepted.stderr_has(owner).stderr_has(setval);

    // From then on, ticks work again.
    hosts.iter().for_each(|host| drop(host.tick(&db).success()));
    assert_eq!(db.status(lost), "failed", "recovered");
    assert_eq!(db.status(paid), "cancelled");
    assert_eq!(receipts(), "charged\n");
    let accepted = "restore|t||worker web1\naccept-restore|f|paid ones are cancelled|";
    assert_eq!(db.query(events), accepted);
    db.jobctl(["check"]).run().prints_nowhere("restore");
    db.jobctl(["doctor"]).run().stdout_has("ok\trestores\t");
}

#[test]
fn a_second_restore_needs_to_be_accepted_again() {
    let db = TestDb::new();
    let host = Host::new(&db, "web1");
    for age in ["1 day", "2 days"] {
        set_last_ticks_of_database(&db, "15 minutes");
        host.tick(&db).success();

        // A backup from before the first restore does not have its event.
        db.execute("DELETE FROM jobctl.job_events");
        set_last_ticks_of_database(&db, age);
        assert_starts_nothing(host.tick(&db));
        db.jobctl(["accept-restore"]).run().success();
        host.tick(&db).success();

        // This backup was made after the first restore, so it has the event of that one, which is
        // older than the ticks that are lost now.
        db.execute("UPDATE jobctl.job_events SET recorded_at = now() - interval '1 hour'");
        set_last_ticks_of_database(&db, age);
        assert_starts_nothing(host.tick(&db));
        let restores = "SELECT count(*) FROM jobctl.job_events WHERE action = 'restore'";
        assert_eq!(db.query(restores), "2");
        db.jobctl(["accept-restore"]).run().success().stderr("");
    }
    // Each of the four accepted restores skips a million ids, since lost runs have used some.
    assert!(db.enqueue(["shell", "--", "true"]) > 4_000_000);
}

#[test]
fn a_restore_that_no_tick_has_noticed_is_accepted_only_with_yes() {
    let db = TestDb::new();
    let refused = db.jobctl(["accept-restore", "--reason", "what does it do?"]).run().exits(4);
    refused.stdout("").stderr(
        "jobctl: cannot accept a restore: no tick has noticed one; after a restore while no tick \
         ran, or a failover that lost runs, add --yes\n",
    );
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_events"), "0");
    assert_eq!(db.enqueue(["shell", "--", "true"]), 1, "no id is skipped");

    let failover = db.jobctl(["accept-restore", "--yes", "--reason", "failover at 03:10"]).run();
    failover.success().stdout("accepted\n").stderr("");
    assert!(db.enqueue(["shell", "--", "true"]) > 1_000_000);
    assert_eq!(
        db.query("SELECT action, reason FROM jobctl.job_events"),
        "accept-restore|failover at 03:10"
    );
}

#[test]
fn a_corrected_clock_of_the_database_stops_no_other_host_of_the_worker() {
    let db = TestDb::new();
    // Two hosts tick under one name. One is away while the clock is wrong.
    let away = Host::with_notes(&db, "web1");
    let there = Host { worker: "web1", state: temp_dir() };
    let move_ticks = |time: &str| {
        db.execute(&format!(
            "UPDATE jobctl.job_workers SET
                 last_tick_at = last_tick_at + interval '{time}',
                 previous_tick_at = previous_tick_at + interval '{time}'"
        ));
    };
    // The clock was two hours ahead, and was set back: the stored ticks are in the future.
    move_ticks("2 hours");
    for _ in 0..2 {
        there.tick(&db).success();
    }
    // Two hours pass.
    move_ticks("-2 hours");
    away.tick(&db).success();
    there.tick(&db).success();
    // A backup from before all noted ticks is still noticed.
    set_last_ticks_of_database(&db, "1 day");
    assert_starts_nothing(away.tick(&db));
}

#[test]
fn a_failover_that_lost_ten_minutes_stops_no_tick() {
    let db = TestDb::new();
    let host = Host::new(&db, "web1");
    // This is the worker's first tick, so the host notes no earlier one.
    db.execute("DELETE FROM jobctl.job_workers");
    host.tick(&db).success();
    set_last_ticks_of_database(&db, "9 minutes");
    host.tick(&db).success();
    set_last_ticks_of_database(&db, "11 minutes");
    assert_starts_nothing(host.tick(&db));
}

#[test]
fn a_failover_that_lost_the_last_of_hourly_ticks_stops_no_tick() {
    let db = TestDb::new();
    let host = Host::new(&db, "web2");
    set_last_ticks_of_database(&db, "1 hour");
    host.tick(&db).success();
    set_last_ticks_of_database(&db, "1 hour");
    host.tick(&db).success();
    set_last_ticks_of_database(&db, "61 minutes");
    assert_starts_nothing(host.tick(&db));
}

#[test]
fn a_worker_that_the_backup_does_not_know_starts_nothing_unless_it_was_forgotten() {
    let db = TestDb::new();
    let host = Host::with_notes(&db, "web1");
    // `forget` deletes the worker's row. That does not count as a restore.
    db.jobctl(["forget", "web1"]).run().success();
    host.tick(&db).success();

    // A backup from before the worker's first tick has neither the row nor the event of `forget`.
    db.execute("DELETE FROM jobctl.job_workers; DELETE FROM jobctl.job_events");
    // The row of another worker, and that it was forgotten, explain nothing.
    db.jobctl(["tick", "--worker", "web2"]).run().success();
    db.execute("INSERT INTO jobctl.job_events (action, detail) VALUES ('forget', 'worker web2')");
    assert_starts_nothing(host.tick(&db));
    assert_eq!(db.query("SELECT worker FROM jobctl.job_workers"), "web2");
}

#[test]
fn a_new_database_stops_no_tick() {
    let db = TestDb::new();
    let host = Host::with_notes(&db, "web1");
    db.execute("DROP SCHEMA jobctl CASCADE");
    db.jobctl(["migrate"]).run().success();
    host.tick(&db).success();
    // A backup of the new database is noticed.
    set_last_ticks_of_database(&db, "15 minutes");
    assert_starts_nothing(host.tick(&db));
}

#[test]
fn a_lingering_tick_notices_a_restore_without_a_state_folder() {
    let db = TestDb::new();
    let tick = db.jobctl(["tick", "--linger", "--lease", "3s", "--worker", "web1"]).spawn();
    wait_until("the tick", || db.query("SELECT count(*) FROM jobctl.job_workers") == "1");
    set_last_ticks_of_database(&db, "11 minutes");
    assert_starts_nothing(tick.wait());
}

#[test]
fn a_tick_that_cannot_use_its_notes_works_without_them_and_prints_nothing() {
    let db = TestDb::new();
    let host = Host::with_notes(&db, "web1");
    let (notes, note) = (host.notes(), host.note());

    // The note is not valid JSON: the tick notices no restore.
    fs::write(&note, "{\"ticks\": [").unwrap();
    set_last_ticks_of_database(&db, "1 day");
    host.tick(&db).success().stderr("");
    // That tick has replaced the note, so the next restore is noticed.
    set_last_ticks_of_database(&db, "2 days");
    assert_starts_nothing(host.tick(&db));
    db.jobctl(["accept-restore"]).run().success();

    // Other users can write to the folder, so the tick does not use it.
    fs::remove_file(&note).unwrap();
    fs::set_permissions(&notes, Permissions::from_mode(0o777)).unwrap();
    host.tick(&db).success().stderr("");

    // A file is in the place of the folder.
    fs::remove_dir_all(&notes).unwrap();
    fs::write(&notes, "").unwrap();
    set_last_ticks_of_database(&db, "2 days");
    host.tick(&db).success().stderr("");

    // The user has no folder for notes.
    let homeless = db.jobctl(["tick"]).env("XDG_STATE_HOME", "").env("HOME", "/dev/null");
    homeless.run().success().stderr("");
}

#[test]
fn a_quiet_tick_says_once_an_hour_that_it_starts_nothing() {
    let db = TestDb::new();
    let host = Host::with_notes(&db, "web1");
    set_last_ticks_of_database(&db, "1 day");
    let quiet = || host.command(&db).args(["--quiet"]).run().exits(7);
    quiet().complains_once().stderr_has("repeated after an hour at the earliest");
    quiet().stderr("");
}

#[test]
fn a_tick_that_ends_late_keeps_the_notes_of_a_later_one() {
    let db = TestDb::new();
    let (host, gate) = (Host::new(&db, "web1"), Gate::new());
    gate.enqueue(&db);
    // This tick has claimed its only run, so it does not wake again. It writes its note at its end.
    let early = host.command(&db).args(["--limit", "1"]).spawn();
    gate.wait_for_starts(1);
    db.wait_until_no_tick_has_the_claim_right();
    // This tick begins later and ends earlier.
    host.tick(&db).success();
    let later = fs::read_to_string(host.note()).unwrap();
    gate.open();
    early.wait().success();
    assert_eq!(fs::read_to_string(host.note()).unwrap(), later);
}

/// A load test deletes its workers' rows at its end. With notes about these workers, the next load
/// test would take the missing rows for a restore.
#[test]
fn a_load_test_keeps_no_notes() {
    let (db, state) = (TestDb::new(), temp_dir());
    let load = db.jobctl(["load", "--runs", "1"]);
    load.env("XDG_STATE_HOME", state.path().to_str().unwrap()).run().success();
    assert!(!state.path().join("jobctl").exists());
}

/// Creates a file that was last changed this many days ago.
fn create_file_of_age(file: &Path, days: u64) {
    File::create(file).unwrap();
    let modified = SystemTime::now() - Duration::from_secs(days * 86_400);
    File::open(file).unwrap().set_times(FileTimes::new().set_modified(modified)).unwrap();
}

#[test]
fn notes_that_no_tick_has_written_for_long_are_deleted() {
    let db = TestDb::new();
    let host = Host::new(&db, "web1");
    fs::create_dir_all(host.notes()).unwrap();
    let [old, new] = ["old", "new"].map(|name| host.notes().join(name));
    create_file_of_age(&old, 101);
    create_file_of_age(&new, 99);
    host.tick(&db).success();
    assert!(!old.exists());
    assert!(new.exists());
}
