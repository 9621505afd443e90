//! The database's clock was ahead and was corrected: the rows have times that no rule can have
//! written. None of them stops work for as long as the clock was ahead.

use crate::support::TestDb;

/// Moves times of a table into the future, as a clock that is two days ahead writes them.
fn put_ahead(db: &TestDb, table: &str, columns: &[&str]) {
    let moved = columns.iter().map(|column| format!("{column} = {column} + interval '2 days'"));
    let moved: Vec<_> = moved.collect();
    db.execute(&format!("UPDATE jobctl.{table} SET {}", moved.join(", ")));
}

#[test]
fn a_rate_that_was_used_up_ahead_of_time_begins_again() {
    let db = TestDb::new();
    db.apply("[jobs.mail]\nshell = 'true'\nrate = '2/1d'\n");
    for _ in 0..5 {
        db.enqueue(["mail"]);
    }
    let sent = || db.query("SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded'");
    for _ in 0..2 {
        db.jobctl(["tick"]).run().success().nowhere("begins again");
        assert_eq!(sent(), "2", "a rate can be used up for so long");
    }
    put_ahead(&db, "job_definitions", &["rate_next_at"]);
    db.jobctl(["show", "5"]).run().success().stdout_has("used up for another 12h");
    let tick = db.jobctl(["tick"]).run().success();
    tick.stderr_has("the rate of mail begins again, because the database's clock was ahead\n");
    assert_eq!(sent(), "4");
    db.jobctl(["tick"]).run().success().stderr("");
    assert_eq!(sent(), "4");
}
