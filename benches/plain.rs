//! The plainest queue that keeps its word: one table, one index, SKIP LOCKED, one transaction to claim a job and one to
//! end it, with plans that its sessions keep. No history, no retries, no output, no leases, no scheduling.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use crate::database::Database;

const CLAIM: &str = "UPDATE queue SET status = 'running' WHERE id = (
    SELECT id FROM queue WHERE status = 'queued' AND run_at <= now()
    ORDER BY run_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
) RETURNING id";
const END: &str = "UPDATE queue SET status = 'succeeded' WHERE id = $1";

/// How long so many workers of one thread take for so many `sh -c true`.
pub fn drain(count: usize, workers: usize) -> Duration {
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
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(|| work(database.client())))));
    let took = started.elapsed();
    let ended: i64 = client.query_one("SELECT count(*) FROM queue WHERE status = 'succeeded'", &[]).unwrap().get(0);
    assert_eq!(usize::try_from(ended).unwrap(), count);
    took
}

fn work(mut client: Client) {
    let (claim, end) = (client.prepare(CLAIM).unwrap(), client.prepare(END).unwrap());
    while let Some(job) = client.query_opt(&claim, &[]).unwrap() {
        let mut command = Command::new("sh");
        command.args(["-c", "true"]).stdin(Stdio::null());
        assert!(command.status().unwrap().success());
        client.execute(&end, &[&job.get::<_, i64>(0)]).unwrap();
    }
}
