//! The drill: a hundred receipts, of which some fail at first, and a worker that is stopped once
//! and killed once. Every receipt is sent, none is recorded twice, and the history is complete.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::support::{TestDb, temp_dir, wait_until};

/// Returns a program of the server's installation: it has the server's version, and a wrapper of
/// the distribution may be slow.
pub fn program(name: &str) -> String {
    let folder = std::env::var("PG_BIN").ok().map(PathBuf::from).or_else(|| {
        let asked = Command::new("pg_config").arg("--bindir").output().ok()?;
        Some(PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim()))
    });
    folder
        .map(|folder| folder.join(name))
        .filter(|path| path.exists())
        .map_or(name.to_owned(), |path| path.display().to_string())
}

#[test]
fn a_hundred_receipts_survive_a_stopped_and_a_killed_worker() {
    let db = TestDb::new();
    db.execute(
        "CREATE TABLE public.receipts (number integer PRIMARY KEY, run_id bigint, attempt integer)",
    );
    let folder = temp_dir();
    let sent = folder.path().join("sent");
    fs::write(&sent, "").unwrap();
    // The key records each receipt once, even if its job runs twice. The file lists every sending.
    let script = format!(
        "number=$(grep -o '[0-9][0-9]*') || exit 65
         [ $((number % 5)) != 0 ] || [ $JOBCTL_ATTEMPT != 1 ] ||
             {{ echo 'the mail server is busy'; exit 1; }}
         sleep 0.05
         {psql} -XAqt -v ON_ERROR_STOP=1 '{url}' -c \"INSERT INTO public.receipts
             VALUES ($number, $JOBCTL_RUN_ID, $JOBCTL_ATTEMPT) ON CONFLICT DO NOTHING\" || exit 1
         echo $number >>{sent}",
        psql = program("psql"),
        url = db.url(),
        sent = sent.display()
    );
    let lines: String = (1..=100)
        .map(|number| {
            let payload = serde_json::json!({ "command": script, "stdin": { "number": number } });
            let key = format!("receipt:{number}");
            let wait = "fixed:10m";
            serde_json::json!({
                "job_type": "shell", "payload": payload, "idempotency_key": key, "backoff": wait
            })
            .to_string()
                + "\n"
        })
        .collect();
    let ids = db.jobctl(["enqueue", "--batch", "-"]).stdin(lines.clone()).run().success().stdout;
    assert_eq!(ids.lines().count(), 100);
    // The same batch again has the same keys, and so the same runs.
    db.jobctl(["enqueue", "--batch", "-"]).stdin(lines).run().success().stdout(&ids);

    let done = || db.query("SELECT count(*) FROM public.receipts").parse::<usize>().unwrap();
    // Stop a worker after 15 receipts, and kill the next one after 40.
    for (after, signal) in [(15, Signal::TERM), (40, Signal::KILL)] {
        let tick = db.jobctl(["tick", "--quiet", "--grace", "0s"]).spawn();
        wait_until("some receipts", || done() >= after);
        tick.signal(signal);
        assert_eq!(tick.wait().status.success(), signal == Signal::TERM);
    }
    let ended = || {
        db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded'")
            .parse::<usize>()
            .unwrap()
    };
    assert!((15..100).contains(&ended()), "{} ended", ended());
    // The commands of the killed worker may still run.
    let orphans = "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'psql'";
    wait_until("orphans to end", || db.query(orphans) == "0");
    db.jobctl(["tick", "--quiet"]).run().success().stderr("");
    let held = db
        .query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'running'")
        .parse::<usize>()
        .unwrap();
    // The runs of its four threads, unrecorded results, and prefetched runs.
    assert!((1..=16).contains(&held), "{held} left behind by the killed worker");

    // The retries of the failed runs are not due yet.
    let failed = "SELECT count(*),
        bool_and(run_at - failed_at BETWEEN interval '8 minutes' AND interval '12 minutes')
         FROM jobctl.job_runs WHERE status = 'failed'";
    assert!(db.query(failed).ends_with("|t"));
    db.jobctl(["tick", "--quiet"]).run().success();
    assert!(db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'failed'") != "0");
    db.expire_leases();
    db.jobctl(["tick"]).run().success().stderr_has("expired, next attempt in ");
    db.make_waiting_runs_due();
    db.jobctl(["tick", "--quiet"]).run().success();
    db.make_waiting_runs_due();
    db.jobctl(["tick", "--quiet"]).run().success();

    let all = db.query("SELECT count(*), min(number), max(number) FROM public.receipts");
    assert_eq!(all, "100|1|100", "{}", db.dump());
    let sent: std::collections::BTreeSet<_> =
        fs::read_to_string(&sent).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(sent.len(), 100);
    assert_eq!(db.query("SELECT DISTINCT status FROM jobctl.job_runs"), "succeeded");
    db.jobctl(["list-dead"]).run().success().stdout("");
    // The history has one row per start, with its outcome.
    let history = "SELECT count(*),
             count(*) FILTER (WHERE outcome = 'succeeded'),
             count(*) FILTER (WHERE outcome = 'failed' AND exit_code = 1 AND attempt = 1
                 AND output = E'the mail server is busy\\n'),
             count(*) FILTER (WHERE outcome = 'lease_expired'),
             count(*) FILTER (WHERE outcome = 'interrupted')
         FROM jobctl.job_attempts";
    let counts = db.query(history);
    let counts: Vec<usize> = counts.split('|').map(|count| count.parse().unwrap()).collect();
    let [rows, succeeded, failed, lost, interrupted] = counts[..] else { panic!("{counts:?}") };
    assert_eq!(succeeded, 100);
    assert_eq!(lost, held);
    // Each fifth receipt fails at its first attempt, unless that was interrupted or lost.
    assert!(
        failed <= 20 && failed + interrupted + lost >= 20,
        "{failed} failed, {interrupted} interrupted"
    );
    assert_eq!(rows, 100 + failed + lost + interrupted);
    let starts: usize = db.query("SELECT sum(attempts) FROM jobctl.job_runs").parse().unwrap();
    assert_eq!(starts, 100 + failed + lost + interrupted);
}
