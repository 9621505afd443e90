//! A database for each test, so that tests run side by side.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postgres::{Client, NoTls};

use super::{Invocation, server, wait_until_within};

/// A database of its own, dropped with this value.
pub struct TestDb {
    /// The address of its server.
    server: String,
    name: String,
    /// Whether running runs at the end of the test are no error.
    leaves_running: AtomicBool,
}

/// Returns a name that no other database has, also of other processes that share the server.
fn unique_name(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("jobctl_{what}_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Connects to the server, to create and drop databases.
fn connect_to(server: &str) -> Client {
    Client::connect(server, NoTls).expect("the test server answers")
}

/// The server's URL with another database's name.
fn url_of(server: &str, database: &str) -> String {
    let (before, query) = server.split_once('?').unwrap_or((server, ""));
    let authority = before.rsplit_once('/').map_or(before, |(authority, _)| authority);
    if query.is_empty() {
        format!("{authority}/{database}")
    } else {
        format!("{authority}/{database}?{query}")
    }
}

impl TestDb {
    /// Creates a database with jobctl's schema, as a copy of a template that is migrated once.
    pub fn new() -> Self {
        static TEMPLATE: Mutex<Option<String>> = Mutex::new(None);
        let mut template = TEMPLATE.lock().unwrap_or_else(PoisonError::into_inner);
        let template = template.get_or_insert_with(|| {
            let made = Self::empty();
            made.jobctl(["migrate"]).run().success();
            // `check` reports that no worker has ever ticked only if the schema is not new.
            made.execute(
                "UPDATE jobctl.schema_migrations SET applied_at = applied_at - interval '1h'",
            );
            let name = made.name.clone();
            // The template stays for the whole test run; a server of our own is deleted with it.
            std::mem::forget(made);
            name
        });
        // The lock allows one copy at a time: a template must have no other session, and a copy is
        // a session.
        let name = unique_name("test");
        let create =
            format!("CREATE DATABASE {name} TEMPLATE {template} {}", server::copy_strategy());
        connect_to(server::url()).batch_execute(&create).unwrap();
        Self::named(server::url(), name)
    }

    fn named(server: &str, name: String) -> Self {
        Self { server: server.to_owned(), name, leaves_running: AtomicBool::new(false) }
    }

    /// Creates a database with jobctl's schema on another server.
    pub fn on(server: &server::Server) -> Self {
        let db = Self::empty_on(server);
        db.jobctl(["migrate"]).run().success();
        db
    }

    /// Creates a database without jobctl's schema on another server.
    pub fn empty_on(server: &server::Server) -> Self {
        let name = unique_name("own");
        connect_to(&server.url).batch_execute(&format!("CREATE DATABASE {name}")).unwrap();
        Self::named(&server.url, name)
    }

    /// Creates a database without jobctl's schema.
    pub fn empty() -> Self {
        Self::encoded("UTF8")
    }

    /// Creates an empty database with another encoding.
    pub fn encoded(encoding: &str) -> Self {
        Self::created(&format!("ENCODING '{encoding}' LOCALE 'C'")).unwrap()
    }

    /// Creates an empty database whose texts are compared by the rules of an ICU locale. Fails if
    /// the server was built without ICU. PostgreSQL 14 has no such databases.
    pub fn with_icu_locale(locale: &str) -> Result<Self, postgres::Error> {
        Self::created(&format!(
            "ENCODING 'UTF8' LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE '{locale}'"
        ))
    }

    fn created(options: &str) -> Result<Self, postgres::Error> {
        let name = unique_name("empty");
        let create = format!("CREATE DATABASE {name} TEMPLATE template0 {options}");
        connect_to(server::url()).batch_execute(&create)?;
        Ok(Self::named(server::url(), name))
    }

    /// Makes the planner expect a table that is larger than the server's memory. The planner then
    /// prefers the order of the ids to the index of a job.
    pub fn make_tables_outgrow_memory(&self) {
        self.execute(&format!("ALTER DATABASE {} SET effective_cache_size = '8kB'", self.name()));
    }

    /// Waits until the server's statistics count what all earlier sessions did. A session is
    /// counted when it ends, and the statistics of PostgreSQL 14 are up to half a second old.
    #[track_caller]
    pub fn wait_for_statistics(&self) {
        super::wait_until("other sessions to end", || {
            let others = "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND pid <> pg_backend_pid()
                     AND backend_type = 'client backend'";
            self.query(others) == "0"
        });
        // When the statistics count this row, they count all earlier sessions, too.
        self.execute(
            "CREATE TABLE IF NOT EXISTS public.counted_rows ();
             INSERT INTO public.counted_rows DEFAULT VALUES",
        );
        super::wait_until("the statistics", || {
            let counted = "SELECT n_tup_ins = (SELECT count(*) FROM public.counted_rows)
                 FROM pg_stat_user_tables WHERE relname = 'counted_rows'";
            self.query(counted) == "t"
        });
    }

    /// Returns how many entries were read of the indexes whose names match this pattern of LIKE. A
    /// session is counted when it ends.
    pub fn read_entries(&self, indexes: &str) -> i64 {
        let read = "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE indexrelname LIKE ";
        self.query(&format!("{read}'{indexes}'")).parse().unwrap()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self) -> String {
        url_of(&self.server, &self.name)
    }

    /// Returns the address for another role. Its password is its name.
    pub fn url_as(&self, role: &str) -> String {
        let url = self.url();
        let (scheme, rest) = url.split_once("://").expect("a URL");
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        format!("{scheme}://{role}:{role}@{host}/{path}")
    }

    /// Applies these definitions, without a question, and returns what changed.
    #[track_caller]
    pub fn apply(&self, definitions: &str) -> String {
        let folder = super::temp_dir();
        std::fs::write(folder.path().join("jobs.toml"), definitions).unwrap();
        self.jobctl(["apply", "--yes", "jobs.toml"])
            .current_dir(folder.path())
            .run()
            .success()
            .stderr("")
            .stdout
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.url(), NoTls).expect("the test's database answers")
    }

    /// Blocks every claim until the returned client is dropped.
    #[must_use]
    pub fn block_claims(&self) -> Client {
        self.block_claims_of("true")
    }

    /// Blocks the claims of runs that match a condition on `NEW`, until the client is dropped.
    #[must_use]
    pub fn block_claims_of(&self, runs: &str) -> Client {
        // A trigger waits for the lock of this session.
        let mut holder = self.client();
        holder
            .batch_execute(&format!(
                "CREATE FUNCTION block_claim() RETURNS trigger LANGUAGE plpgsql AS
                     'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NEW; END';
                 CREATE TRIGGER block_claim BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW
                     WHEN (NEW.status = 'running' AND {runs}) EXECUTE FUNCTION block_claim();
                 SELECT pg_advisory_lock(1)"
            ))
            .unwrap();
        holder
    }

    #[track_caller]
    pub fn execute(&self, sql: &str) {
        if let Err(error) = self.client().batch_execute(sql) {
            panic!("{sql}: {error:?}");
        }
    }

    /// Returns rows as `psql -At` prints them: columns separated by `|`, NULL empty.
    #[track_caller]
    pub fn query(&self, sql: &str) -> String {
        self.try_query(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// The same, but returns an error, for example if the database is away.
    pub fn try_query(&self, sql: &str) -> Result<String, postgres::Error> {
        let messages = Client::connect(&self.url(), NoTls)?.simple_query(sql)?;
        let rows = messages.iter().filter_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => Some(
                (0..row.len())
                    .map(|column| row.get(column).unwrap_or_default())
                    .collect::<Vec<_>>()
                    .join("|"),
            ),
            _ => None,
        });
        Ok(rows.collect::<Vec<_>>().join("\n"))
    }

    /// Returns a command line of jobctl with this database as its only setting.
    pub fn jobctl<'a>(&'a self, arguments: impl IntoIterator<Item = &'a str>) -> Invocation<'a> {
        Invocation::new(arguments, Some(self)).env("JOBCTL_DATABASE_URL", &self.url())
    }

    /// Returns a tick for a queue without runs. The tick fires schedules and recovers lost runs,
    /// but starts no run.
    pub fn tick_that_starts_nothing(&self) -> Invocation<'_> {
        self.jobctl(["tick", "--queue", "none"])
    }

    /// Executes SQL as a replica, for which no trigger of the schema runs. So the SQL can set
    /// columns that only jobctl's functions change.
    #[track_caller]
    pub fn execute_without_triggers(&self, sql: &str) {
        self.execute(&format!("SET session_replication_role = replica; {sql}"));
    }

    /// Returns a script of `sh` in which `"$jobctl"` is the binary with this database.
    pub fn script<'a>(&'a self, text: &str) -> Invocation<'a> {
        Invocation::script(text, Some(self)).env("JOBCTL_DATABASE_URL", &self.url())
    }

    /// Enqueues with these arguments and returns the run's id.
    #[track_caller]
    pub fn enqueue<'a>(&'a self, arguments: impl IntoIterator<Item = &'a str>) -> i64 {
        let finished = self.jobctl(["enqueue"]).args(arguments).run().success();
        finished.stdout.trim().parse().unwrap_or_else(|_| panic!("no id: {finished}"))
    }

    /// Enqueues a shell script and returns the run's id.
    #[track_caller]
    pub fn enqueue_script(&self, script: &str) -> i64 {
        let payload = format!("{{\"command\": {}}}", json_string(script));
        self.enqueue(["shell", &payload])
    }

    /// Enqueues a run that prints the peak memory of its tick; `peak_memory` reads it.
    #[track_caller]
    pub fn enqueue_that_prints_peak_memory(&self) -> i64 {
        self.enqueue_script("sed -n 's/^VmHWM:[^0-9]*\\([0-9]*\\) kB/\\1/p' /proc/$PPID/status")
    }

    /// Returns the peak memory that such a run printed, in KiB.
    pub fn peak_memory(&self, id: i64) -> u64 {
        self.of_attempt(id, 1, "output").trim().parse().unwrap()
    }

    pub fn status(&self, id: i64) -> String {
        self.query(&format!("SELECT status FROM jobctl.job_runs WHERE id = {id}"))
    }

    /// Returns the status of each run, in the order of the ids.
    #[track_caller]
    pub fn statuses(&self) -> String {
        self.query("SELECT string_agg(status, ' ' ORDER BY id) FROM jobctl.job_runs")
    }

    /// Returns a column, or any expression, of a run.
    #[track_caller]
    pub fn of_run(&self, id: i64, expression: &str) -> String {
        self.query(&format!("SELECT {expression} FROM jobctl.job_runs WHERE id = {id}"))
    }

    /// Returns a column, or any expression, of an attempt.
    #[track_caller]
    pub fn of_attempt(&self, id: i64, attempt: i32, expression: &str) -> String {
        self.query(&format!(
            "SELECT {expression} FROM jobctl.job_attempts WHERE run_id = {id} AND \
            attempt = {attempt}"
        ))
    }

    /// Makes all waiting runs due now.
    pub fn make_waiting_runs_due(&self) {
        self.execute(
            "UPDATE jobctl.job_runs SET run_at = now() - interval '1 second' WHERE status IN \
                ('queued', 'failed')",
        );
    }

    /// Ends all leases, as if their workers had not renewed them.
    pub fn expire_leases(&self) {
        self.execute(
            "UPDATE jobctl.job_runs SET locked_until = now() - interval '1 second' WHERE \
            status = 'running'",
        );
    }

    /// Waits until a run has this status.
    #[track_caller]
    pub fn wait_for_status(&self, id: i64, status: &str) {
        super::wait_until(&format!("run {id} to be {status}"), || self.status(id) == status);
    }

    /// Returns how many sessions wait for a lock.
    pub fn sessions_waiting_for_locks(&self) -> usize {
        let waiting = self.query(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'",
        );
        waiting.parse().unwrap()
    }

    /// Waits until a tick has the claim right of its worker: it may claim runs now. A lingering
    /// tick keeps the right until a signal stops it.
    #[track_caller]
    pub fn wait_until_a_tick_has_the_claim_right(&self) {
        let ticks = "SELECT count(*) FROM jobctl.job_workers WHERE claiming_tick IS NOT NULL";
        super::wait_until("a tick to have the claim right", || self.query(ticks) == "1");
    }

    /// Waits until the tick of the only worker has given the claim right back. It does so once it
    /// claims no more runs, for example because of a signal.
    #[track_caller]
    pub fn wait_until_no_tick_has_the_claim_right(&self) {
        let is_free = "SELECT claiming_tick IS NULL FROM jobctl.job_workers";
        super::wait_until("the claim right to be free", || self.query(is_free) == "t");
    }

    /// Waits until the lease of a run was renewed so many times.
    #[track_caller]
    pub fn wait_for_renewals(&self, id: i64, renewals: u32) {
        let lease = || self.of_run(id, "locked_until");
        for _ in 0..renewals {
            let before = lease();
            super::wait_until("the lease to be renewed", || lease() != before);
        }
    }

    /// Creates a trigger, as of another program, that skips the updates of runs for which this
    /// condition holds. The trigger returns NULL, so there is no error.
    pub fn skip_updates(&self, condition: &str) {
        self.execute(&format!(
            "CREATE FUNCTION public.skip() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN RETURN NULL; END';
             CREATE TRIGGER skip BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW
                 WHEN ({condition}) EXECUTE FUNCTION public.skip()"
        ));
    }

    /// Declares that this test ends with running runs. Otherwise they are an error: a tick must
    /// leave none.
    pub fn allow_running_runs_at_end(&self) {
        self.leaves_running.store(true, Ordering::Relaxed);
    }

    /// Returns all runs and attempts, for the message of a failing test.
    pub fn dump(&self) -> String {
        let Ok(mut client) = Client::connect(&self.url(), NoTls) else {
            return "(no database)".to_owned();
        };
        // The test itself may hold locks on the tables.
        let _ = client.batch_execute("SET lock_timeout = '500ms'");
        let mut table = |sql: &str| -> String {
            let Ok(messages) = client.simple_query(sql) else { return "(no table)".to_owned() };
            let rows = messages.iter().filter_map(|message| match message {
                postgres::SimpleQueryMessage::Row(row) => {
                    Some(row.get(0).unwrap_or_default().to_owned())
                }
                _ => None,
            });
            rows.collect::<Vec<_>>().join("\n")
        };
        let runs = table("SELECT run::text FROM jobctl.job_runs AS run ORDER BY id LIMIT 50");
        let attempts = table(
            "SELECT left(attempt::text, 500) FROM jobctl.job_attempts AS attempt ORDER BY run_id, \
                attempt LIMIT 50",
        );
        format!("job_runs:\n{runs}\njob_attempts:\n{attempts}")
    }

    fn assert_no_running_run_and_no_session(&self) {
        let migrated = self.query("SELECT to_regclass('jobctl.job_runs') IS NOT NULL") == "t";
        if migrated && !self.leaves_running.load(Ordering::Relaxed) {
            let running = self.query("SELECT id FROM jobctl.job_runs WHERE status = 'running'");
            assert!(running.is_empty(), "runs are still running:\n{}", self.dump());
        }
        let others = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND pid <> \
                pg_backend_pid()",
            self.name
        );
        // A server process ends shortly after its client.
        wait_until_within(Duration::from_secs(10), "all sessions to end", || {
            self.query(&others) == "0"
        });
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_no_running_run_and_no_session();
        }
        let _ = connect_to(&self.server)
            .batch_execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// Returns a text as a JSON string.
pub fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
