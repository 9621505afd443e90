//! Creates a database with jobctl's schema for each measurement.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use postgres::{Client, NoTls};

use crate::process::{self, Jobctl};

pub struct Database {
    pub url: String,
    name: String,
}

/// Returns the address of the server that `tests/with-postgres` started.
fn server() -> String {
    std::env::var("JOBCTL_TEST_DATABASE_URL").expect("make bench starts the server and names it")
}

impl Database {
    pub fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name =
            format!("bench_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let server = server();
        Client::connect(&server, NoTls)
            .unwrap()
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .unwrap();
        let (start, _) = server.rsplit_once('/').unwrap();
        let database = Self { url: format!("{start}/{name}"), name };
        database.jobctl(["migrate"]).run();
        database
    }

    /// Returns a command of jobctl for this database.
    pub fn jobctl<const N: usize>(&self, arguments: [&str; N]) -> Jobctl {
        Jobctl::new(&self.url, arguments)
    }

    /// Returns a command of psql for this database.
    pub fn psql(&self) -> Command {
        process::psql(&self.url)
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.url, NoTls).unwrap()
    }

    /// Runs statements one by one, because VACUUM can't run in a transaction.
    pub fn execute<const N: usize>(&self, statements: [&str; N]) {
        let mut client = self.client();
        for statement in statements {
            client.batch_execute(statement).unwrap();
        }
    }

    pub fn number(&self, sql: &str) -> i64 {
        self.client().query_one(sql, &[]).unwrap().get(0)
    }

    /// Inserts this many due runs of a built-in job.
    pub fn fill(&self, runs: usize, job: &str, payload: &str) {
        let insert = format!(
            "INSERT INTO jobctl.job_runs (job_type, payload) SELECT '{job}', '{payload}' FROM \
                generate_series(1, {runs})"
        );
        self.execute([&insert, "VACUUM ANALYZE jobctl.job_runs"]);
    }

    /// Asserts that this many runs succeeded at their first attempt and that there are no others.
    #[track_caller]
    pub fn assert_all_ran_once(&self, runs: usize) {
        let of = |sql: &str| usize::try_from(self.number(sql)).unwrap();
        let succeeded =
            of("SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded' AND attempts = 1");
        let all = of("SELECT count(*) FROM jobctl.job_runs");
        let attempts = of("SELECT count(*) FROM jobctl.job_attempts WHERE outcome = 'succeeded'");
        assert_eq!([succeeded, all, attempts], [runs; 3], "succeeded, runs, attempts");
    }

    /// Describes the machine and the server of the measurement.
    pub fn about(&self) -> String {
        let row = self
            .client()
            .query_one(
                "SELECT current_setting('server_version'), current_setting('fsync'),
                    current_setting('synchronous_commit'), current_setting('shared_buffers')",
                &[],
            )
            .unwrap();
        let setting = |index: usize| row.get::<_, String>(index);
        format!(
            "PostgreSQL {}, fsync {}, synchronous_commit {}, shared_buffers {}; {} cores, which \
                the server, jobctl and the references share",
            setting(0),
            setting(1),
            setting(2),
            setting(3),
            std::thread::available_parallelism().unwrap()
        )
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let dropped = Client::connect(&server(), NoTls).and_then(|mut client| {
            client.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name))
        });
        if let Err(error) = dropped {
            eprintln!("cannot drop {}: {error}", self.name);
        }
    }
}
