//! A host with a wrong clock: only the clock of the database counts.

use crate::support::{Invocation, Preload, TestDb};

/// A library to preload. It moves a process's clock forward by `CLOCK_AHEAD` seconds, or back if
/// they are negative. The clock for durations stays as it is.
pub(crate) const WRONG_CLOCK: &str = r#"
    #define _GNU_SOURCE
    #include <stdlib.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>

    int clock_gettime(clockid_t which, struct timespec *time) {
        const char *seconds = getenv("CLOCK_AHEAD");
        int failed = syscall(SYS_clock_gettime, which, time);
        if (which == CLOCK_REALTIME && seconds) time->tv_sec += atol(seconds);
        return failed;
    }
"#;

/// Returns `command` for a host whose clock is ahead by this many seconds.
pub(crate) fn ahead<'db>(
    clock: &Preload,
    seconds: i64,
    command: Invocation<'db>,
) -> Invocation<'db> {
    clock.before(command).env("CLOCK_AHEAD", &seconds.to_string())
}

#[test]
fn a_wrong_clock_changes_no_start_expiry_or_fire() {
    let clock = Preload::compile(WRONG_CLOCK);
    // The clock of the host is wrong by more than a year, so yearly fires would differ. The last
    // clock is before 1970.
    for days in [-400, 400, -25_000] {
        let host = |command| ahead(&clock, days * 86_400, command);
        let db = TestDb::new();
        let warning = if days > 0 { " ahead of the database" } else { " behind the database" };
        host(db.jobctl(["doctor"])).run().stdout_has(warning);

        // One schedule is due since the start of the year, and one in 30 minutes. Two runs are
        // running elsewhere: the lease of one is over, and the lease of the other lasts 30 minutes.
        db.apply("[jobs.yearly]\nshell = 'true'\nschedule = '0 0 1 1 *'\n");
        db.execute(
            "INSERT INTO jobctl.job_definitions (name, kind, action, schedule, next_run_at)
             SELECT 'later', kind, action, schedule, now() + interval '30 minutes'
             FROM jobctl.job_definitions;
             UPDATE jobctl.job_definitions
             SET next_run_at = date_trunc('year', now(), 'UTC') WHERE name = 'yearly';
             INSERT INTO jobctl.job_runs
                 (job_type, payload, status, attempts, max_attempts, locked_by, locked_until,
                  started_at)
             SELECT 'shell', '{\"command\": \"true\"}', 'running', 1, 1, 'elsewhere',
                    now() + lease, now()
             FROM unnest(ARRAY[interval '-1 second', '30 minutes']) AS lease",
        );
        let enqueue = |arguments: &[&str]| -> i64 {
            let enqueued = host(db.jobctl(["enqueue", "shell"]))
                .args(arguments.iter().copied())
                .run()
                .success();
            enqueued.stdout.trim().parse().unwrap()
        };
        let waits = enqueue(&["--in", "30m", "--", "true"]);
        let fails = enqueue(&["--backoff", "fixed:30m", "--", "false"]);
        host(db.jobctl(["tick"])).run().success().stderr_has("schedule yearly: fired, run");

        // By the database's clock, these runs are due in half an hour. A backoff is longer or
        // shorter by up to a fifth, and the test may take a minute.
        let half_an_hour =
            "run_at BETWEEN now() + interval '23 minutes' AND now() + interval '37 minutes'";
        assert_eq!(
            db.of_run(waits, &format!("status, attempts, {half_an_hour}")),
            "queued|0|t",
            "{days}"
        );
        assert_eq!(
            db.of_run(fails, &format!("status, attempts, {half_an_hour}")),
            "failed|1|t",
            "{days}"
        );
        // Only the run whose lease is over has ended: it had its only attempt. These two runs are
        // the only ones with max_attempts 1.
        let leases = "SELECT status, last_error IS NULL FROM jobctl.job_runs
            WHERE max_attempts = 1 ORDER BY id";
        assert_eq!(db.query(leases), "dead|f\nrunning|t", "{days}");
        // Only the yearly schedule has fired, for the time of this year, and its next time is next
        // year.
        let fires = "SELECT job_type, status, scheduled_for = date_trunc('year', now(), 'UTC')
            FROM jobctl.job_runs WHERE scheduled_for IS NOT NULL";
        assert_eq!(db.query(fires), "yearly|succeeded|t", "{days}");
        let next = "SELECT next_run_at = date_trunc('year', now(), 'UTC') + interval '1 year'
            FROM jobctl.job_definitions WHERE name = 'yearly'";
        assert_eq!(db.query(next), "t", "{days}");
        // The history has the times of the database.
        let history =
            "SELECT bool_and(abs(extract(epoch FROM now() - time)) < 60) FROM jobctl.job_attempts
            CROSS JOIN LATERAL unnest(ARRAY[started_at, finished_at]) AS time";
        assert_eq!(db.query(history), "t", "{days}");
        db.allow_running_runs_at_end();
    }
}

#[test]
fn a_clock_set_back_after_a_fire_does_not_repeat_it() {
    let db = TestDb::new();
    db.apply("[jobs.yearly]\nshell = 'true'\nschedule = '0 0 1 1 *'\n");
    db.execute("UPDATE jobctl.job_definitions SET next_run_at = date_trunc('year', now(), 'UTC')");
    db.jobctl(["tick"]).run().success().stderr_has("schedule yearly: fired, run 1");
    let clock = Preload::compile(WRONG_CLOCK);
    // Two minutes back, more than a year back, and two minutes ahead.
    for seconds in [-120, -400 * 86_400, 120] {
        ahead(&clock, seconds, db.jobctl(["tick"])).run().success().stderr("");
    }
    assert_eq!(db.query("SELECT count(*) FROM jobctl.job_runs"), "1");
}
