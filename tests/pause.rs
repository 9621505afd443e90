//! `pause` stops a schedule; `resume` continues it.

use crate::support::{Proxy, TestDb, wait_until};

/// Makes all schedules due at the start of this minute.
fn make_due_now(db: &TestDb) {
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now()) WHERE \
         schedule IS NOT NULL",
    );
}

#[test]
fn a_paused_schedule_does_not_fire_but_its_job_can_be_enqueued() {
    let db = TestDb::new();
    db.apply(
        "[jobs.a]\nshell = 'true'\nschedule = '@yearly'\n\
         [jobs.b]\nshell = 'true'\nschedule = '@yearly'\n",
    );
    // Both schedules are due, and one of them is paused.
    db.jobctl(["pause", "a"]).run().success().stdout("a\tpaused\n");
    make_due_now(&db);
    let by_hand = db.enqueue(["a"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(by_hand), "succeeded");
    assert_eq!(
        db.query("SELECT job_type FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL"),
        "b",
        "the other schedule still fires"
    );
}

#[test]
fn a_resumed_schedule_skips_the_times_of_its_pause() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '@yearly'\n");
    db.jobctl(["pause", "a"]).run().success();
    let paused_at = db.query("SELECT paused_at FROM jobctl.job_definitions");
    // A second pause.
    db.jobctl(["pause", "a"]).run().success();
    assert_eq!(
        db.query("SELECT paused_at FROM jobctl.job_definitions"),
        paused_at,
        "a second pause keeps the time of the first"
    );
    make_due_now(&db);
    // `resume` prints the next time of the schedule.
    let said = db.jobctl(["resume", "a"]).run().success().stdout;
    let next = db.query(
        "SELECT to_char(next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') FROM \
         jobctl.job_definitions",
    );
    assert_eq!(said, format!("a\tresumed\t{next}\n"));
    assert_eq!(
        db.query("SELECT paused_at IS NULL, next_run_at > now() FROM jobctl.job_definitions"),
        "t|t"
    );
    assert_eq!(
        db.query("SELECT count(*) FROM jobctl.job_runs"),
        "0",
        "times of the pause are skipped"
    );
}

#[test]
fn resuming_a_schedule_that_is_not_paused_keeps_its_due_time() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '@yearly'\n");
    make_due_now(&db);
    let due = db.query("SELECT next_run_at FROM jobctl.job_definitions");
    let said = db.jobctl(["resume", "a"]).run().success().stdout;
    assert_eq!(db.query("SELECT next_run_at FROM jobctl.job_definitions"), due);
    let next = "SELECT to_char(next_run_at AT TIME ZONE 'UTC', \
        'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') FROM jobctl.job_definitions";
    assert_eq!(said, format!("a\tnot paused\t{}\n", db.query(next)));
    // A file without `a` disables it, so it has no next time.
    db.apply("[jobs.b]\nshell = 'true'\n");
    db.jobctl(["resume", "a"]).run().success().stdout("a\tnot paused\n");
}

#[test]
fn pause_warns_about_a_definition_without_a_schedule() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n[jobs.b]\nshell = 'true'\nschedule = '@daily'\n");
    let paused = db.jobctl(["pause", "a"]).run().success().stdout("a\tpaused\n");
    paused.stderr("jobctl: `a` has no schedule yet; the pause has no effect until it has one\n");
    db.jobctl(["pause", "b"]).run().success().stdout("b\tpaused\n").stderr("");
    let json = |verb| db.jobctl([verb, "a", "--json"]).run().success();
    json("pause").stdout("{\"job_type\":\"a\",\"result\":\"paused\"}\n");
    json("resume").stdout("{\"job_type\":\"a\",\"result\":\"resumed\",\"next_run_at\":null}\n");
    db.jobctl(["resume", "a"]).run().success().stdout("a\tnot paused\n");
}

#[test]
fn an_unknown_name_is_refused_with_a_suggestion() {
    let db = TestDb::new();
    db.apply("[jobs.cleanup]\nshell = 'true'\n");
    for verb in ["pause", "resume"] {
        db.jobctl([verb, "clenup"])
            .run()
            .exits(3)
            .stdout("")
            .stderr_has("jobctl: no definition `clenup`; did you mean `cleanup`?\n");
        let built_in = db.jobctl([verb, "shell"]).run().exits(3);
        built_in.stderr("jobctl: no definition `shell`: it is a built-in job\n");
    }
}

#[test]
fn a_schedule_disabled_by_a_file_does_not_fire() {
    let db = TestDb::new();
    let job = |enabled: bool| {
        format!("[jobs.a]\nshell = 'true'\nschedule = '@yearly'\nenabled = {enabled}\n")
    };
    db.apply(&job(true));
    db.apply(&job(false));
    make_due_now(&db);
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
    // Enabling it again does not catch up on missed times either.
    db.apply(&job(true));
    assert_eq!(db.query("SELECT enabled, next_run_at > now() FROM jobctl.job_definitions"), "t|t");
}

#[test]
fn resume_uses_a_schedule_that_changes_meanwhile() {
    // Both changes move the times to 5:00 UTC, which is 14:00 in Tokyo.
    for change in ["schedule = '0 5 * * *'", "time_zone = 'Asia/Tokyo'"] {
        let db = TestDb::new();
        let proxy = Proxy::to(&db);
        db.apply("[jobs.a]\nshell = 'true'\nschedule = '0 14 * * *'\n");
        db.jobctl(["pause", "a"]).run().success();
        // The definition changes after `resume` has sent the query with this comment.
        proxy.freeze_after("Lists the definitions by name, each with its own schedule");
        let resume = db.jobctl(["resume", "a"]).through(&proxy).spawn();
        wait_until("`resume` to read the definition", || proxy.is_frozen());
        db.execute(&format!("UPDATE jobctl.job_definitions SET {change}"));
        proxy.restore();
        resume.wait().success();
        let next = "SELECT (next_run_at AT TIME ZONE 'UTC')::time FROM jobctl.job_definitions";
        assert_eq!(db.query(next), "05:00:00", "{change}");
    }
}
