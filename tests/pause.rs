//! `pause` stops a schedule, `resume` lets it go on.

use crate::support::{Proxy, TestDb, wait_until};

/// As if the nominal time of this minute had come and nobody had ticked yet.
fn make_due(db: &TestDb) {
    db.execute(
        "UPDATE jobctl.job_definitions SET next_run_at = date_trunc('minute', now()) WHERE schedule IS NOT NULL",
    );
}

#[test]
fn a_paused_schedule_does_not_fire_and_its_runs_can_still_be_enqueued() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\n[jobs.b]\nshell = 'true'\nschedule = '* * * * *'\n");
    db.jobctl(["pause", "a"]).run().success().stdout("a\tpaused\n");
    make_due(&db);
    let by_hand = db.enqueue(["a"]);
    db.jobctl(["tick"]).run().success();
    assert_eq!(db.status(by_hand), "succeeded");
    assert_eq!(
        db.query("SELECT job_type FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL"),
        "b",
        "the other schedule goes on"
    );
}

#[test]
fn a_resumed_schedule_goes_on_from_now() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\n");
    db.jobctl(["pause", "a"]).run().success();
    let paused_at = db.query("SELECT paused_at FROM jobctl.job_definitions");
    db.jobctl(["pause", "a"]).run().success();
    assert_eq!(db.query("SELECT paused_at FROM jobctl.job_definitions"), paused_at, "it is paused since then");
    make_due(&db);
    let said = db.jobctl(["resume", "a"]).run().success().stdout;
    let next = db.query(
        "SELECT to_char(next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') FROM jobctl.job_definitions",
    );
    assert_eq!(said, format!("a\tresumed\t{next}\n"));
    assert_eq!(db.query("SELECT paused_at IS NULL, next_run_at > now() FROM jobctl.job_definitions"), "t|t");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0", "the pause is not made up for");
}

#[test]
fn resuming_what_is_not_paused_forgets_no_fire_that_is_due() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\n");
    make_due(&db);
    let due = db.query("SELECT next_run_at FROM jobctl.job_definitions");
    let said = db.jobctl(["resume", "a"]).run().success().stdout;
    assert_eq!(db.query("SELECT next_run_at FROM jobctl.job_definitions"), due);
    let told =
        "SELECT to_char(next_run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') FROM jobctl.job_definitions";
    assert_eq!(said, format!("a\tresumed\t{}\n", db.query(told)));
    db.apply("");
    db.jobctl(["resume", "a"]).run().success().stdout("a\tresumed\t-\n");
}

#[test]
fn a_definition_without_a_schedule_can_be_paused_and_resumed_too_but_says_that_nothing_stops() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n[jobs.b]\nshell = 'true'\nschedule = '@daily'\n");
    let paused = db.jobctl(["pause", "a"]).run().success().stdout("a\tpaused\n");
    paused.stderr("jobctl: `a` has no schedule: the pause stops nothing before it has one\n");
    db.jobctl(["pause", "b"]).run().success().stdout("b\tpaused\n").stderr("");
    let json = |verb| db.jobctl([verb, "a", "--json"]).run().success();
    json("pause").stdout("{\"job\":\"a\",\"state\":\"paused\"}\n");
    json("resume").stdout("{\"at\":null,\"job\":\"a\",\"state\":\"resumed\"}\n");
    db.jobctl(["resume", "a"]).run().success().stdout("a\tresumed\t-\n");
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest_one() {
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
fn a_schedule_that_a_file_disabled_does_not_fire() {
    let db = TestDb::new();
    let job = |enabled: bool| format!("[jobs.a]\nshell = 'true'\nschedule = '* * * * *'\nenabled = {enabled}\n");
    db.apply(&job(true));
    db.apply(&job(false));
    make_due(&db);
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "0");
    // Being enabled again makes up for nothing either.
    db.apply(&job(true));
    assert_eq!(db.query("SELECT enabled, next_run_at > now() FROM jobctl.job_definitions"), "t|t");
}

#[test]
fn a_schedule_that_changes_while_it_is_resumed_goes_on_as_it_is_then() {
    for change in ["schedule = '0 5 * * *'", "time_zone = 'Asia/Tokyo'"] {
        let db = TestDb::new();
        let proxy = Proxy::to(&db);
        db.apply("[jobs.a]\nshell = 'true'\nschedule = '0 14 * * *'\n");
        db.jobctl(["pause", "a"]).run().success();
        proxy.freeze_after("Definitions with what");
        let resume = db.jobctl(["resume", "a"]).env("JOBCTL_DATABASE_URL", &proxy.url()).spawn();
        wait_until("the resume to look", || proxy.is_frozen());
        db.execute(&format!("UPDATE jobctl.job_definitions SET {change}"));
        proxy.mend();
        resume.wait().success();
        let next = "SELECT (next_run_at AT TIME ZONE 'UTC')::time FROM jobctl.job_definitions";
        assert_eq!(db.query(next), "05:00:00", "{change}");
    }
}
