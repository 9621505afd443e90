//! The simplest reliable queue: one table, one index, SKIP LOCKED, one transaction to claim a job
//! and one to end it. No history, no retries, no output, no leases, no scheduling.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;
use postgres::types::Type;

use crate::database::Database;

const CLAIM: &str = "UPDATE queue SET status = 'running' WHERE id = (
    SELECT id FROM queue WHERE status = 'queued' AND run_at <= now()
    ORDER BY run_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
) RETURNING id";
const END: &str = "UPDATE queue SET status = 'succeeded' WHERE id = $1";

/// Whether a statement's plan outlives its transaction.
#[derive(Clone, Copy)]
pub enum Plans {
    /// The session keeps the plan.
    Kept,
    /// Each transaction plans again, as behind a pooler in transaction mode.
    Forgotten,
}

/// Returns the time that this many single-threaded workers need for this many `sh -c true`.
pub fn drain(count: usize, workers: usize, plans: Plans) -> Duration {
    let database = Database::new();
    let mut client = database.client();
    client
        .batch_execute(&format!(
            "CREATE TABLE queue (
                 id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                 status text NOT NULL DEFAULT 'queued',
                 run_at timestamptz NOT NULL DEFAULT now()
             );
             CREATE INDEX ON queue (run_at, id) WHERE status = 'queued';
             INSERT INTO queue SELECT FROM generate_series(1, {count});
             ANALYZE queue"
        ))
        .unwrap();
    let started = Instant::now();
    thread::scope(|scope| {
        (0..workers).for_each(|_| drop(scope.spawn(|| work(database.client(), plans))))
    });
    let took = started.elapsed();
    let ended: i64 = client
        .query_one("SELECT count(*) FROM queue WHERE status = 'succeeded'", &[])
        .unwrap()
        .get(0);
    assert_eq!(usize::try_from(ended).unwrap(), count);
    took
}

fn work(mut client: Client, plans: Plans) {
    let kept = match plans {
        Plans::Kept => Some((client.prepare(CLAIM).unwrap(), client.prepare(END).unwrap())),
        Plans::Forgotten => None,
    };
    loop {
        let claimed = match &kept {
            Some((claim, _)) => client.query(claim, &[]).unwrap(),
            None => client.query_typed(CLAIM, &[]).unwrap(),
        };
        let Some(job) = claimed.first() else { break };
        let mut command = Command::new("sh");
        command.args(["-c", "true"]).stdin(Stdio::null());
        assert!(command.status().unwrap().success());
        let job: i64 = job.get(0);
        match &kept {
            Some((_, end)) => client.query(end, &[&job]).unwrap(),
            None => client.query_typed(END, &[(&job, Type::INT8)]).unwrap(),
        };
    }
}
