//! A PostgreSQL for random operations: the product's own code performs them there, and the tests
//! read all rows.
//!
//! In the test's database, `now()` and `clock_timestamp()` read a clock which only the test moves.
//! So times are equal to the microsecond, and leases expire without waiting.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use chrono::{DateTime, Utc};
use postgres::SimpleQueryMessage;
use postgres::SimpleQueryRow;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::database::{Database, Session};
use super::left_out::leave_out;
use super::operations::{LEASE, Operation, RIGHT, TICKS, filter};
use super::rows::first_fire;
use super::{Random, number};
use crate::connect::{self, Client, INTERRUPTED_LIMIT, Wait};
use crate::job::due;
use crate::job::seen_ticks::SeenTicks;
use crate::store::{
    self, ApplyMode, ApplyTerms, Cause, Holder, Keep, NewRun, OperationResult, Queued, Recovered,
    Store, Timeouts,
};
use crate::tick::request::{Answer, AnswerTimeout, Request};
use crate::tick::timing::Timing;
use crate::tick::{self, Bounds, Plan};
use crate::upkeep::{FailedClaim, Wake};

/// The fewest sequences to try if their number is not given.
const LEAST: u64 = 60;
/// How long to try sequences then.
const SHORT: Duration = Duration::from_secs(12);
pub(super) const THREADS: usize = 2;
/// How long a statement waits for a locked row, if it must fail then.
const LOCK: Duration = Duration::from_millis(20);
/// The error of a recovered run, as in src/upkeep/recover.rs.
const LEASE_EXPIRED: &str = "lease expired: its worker crashed, hung or lost the database";

/// The fake clock, and the table of the writes that a trigger rejects.
const SETUP: &str = "
    CREATE SEQUENCE public.clock;
    SELECT setval('public.clock', 1);
    ALTER FUNCTION pg_catalog.now() RENAME TO real_now;
    CREATE FUNCTION pg_catalog.now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
    BEGIN
        RETURN timestamptz 'epoch' + interval '1 microsecond'
            * pg_catalog.pg_sequence_last_value('public.clock'::regclass);
    END $$;
    ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO real_clock_timestamp;
    CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()';
    CREATE TABLE public.refused (id bigint, write text)";
/// The trigger that rejects writes. Also prevents that a vacuum truncates an emptied table, because
/// that locks the table for longer than a statement waits here.
const TRIGGERS: &str = "
    ALTER TABLE jobctl.job_runs SET (vacuum_truncate = off);
    ALTER TABLE jobctl.job_attempts SET (vacuum_truncate = off);
    CREATE OR REPLACE FUNCTION jobctl.name_incident() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN NEW.incident := NEW.run_id || ''.'' || NEW.attempt; RETURN NEW; END';
    ALTER TABLE jobctl.job_definitions SET (vacuum_truncate = off);
    ALTER TABLE jobctl.job_workers SET (vacuum_truncate = off);
    CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM public.refused WHERE id = NEW.id AND write = CASE
                WHEN OLD.status <> 'running' AND NEW.status = 'running' THEN 'Claim'
                WHEN NEW.status = 'running' THEN 'Renewal'
                WHEN OLD.status = 'running' THEN 'Result'
                ELSE 'Other' END)
            OR TG_OP = 'INSERT' AND NEW.scheduled_for IS NOT NULL
                AND EXISTS (SELECT FROM public.refused WHERE write = NEW.job_type)
        THEN
            RAISE EXCEPTION 'refused';
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON jobctl.job_runs
        FOR EACH ROW EXECUTE FUNCTION public.refuse()";
/// Empties the tables, and numbers new rows from 1 on.
const RESET: &str = "
    DELETE FROM jobctl.job_runs;
    DELETE FROM jobctl.job_attempts;
    DELETE FROM jobctl.job_definitions;
    DELETE FROM jobctl.job_workers;
    DELETE FROM jobctl.job_locked_runs;
    DELETE FROM jobctl.job_holds;
    DELETE FROM jobctl.job_dependencies;
    DELETE FROM jobctl.job_predecessors;
    DELETE FROM jobctl.job_events;
    DELETE FROM jobctl.job_figures;
    DELETE FROM public.refused;
    SELECT setval('jobctl.job_runs_id_seq', 1, false),
        setval('jobctl.job_definitions_id_seq', 1, false)";
/// Reads all rows as JSON, in the form of `rows.rs`, without the columns that the model lacks.
const ROWS: &str = "
    SELECT 'run ' || id AS key, to_jsonb(run)
        - '{payload_bytes, enqueued_by, live_output, settled_at, created_at,
        traceparent, schedule}'::text[]
        || jsonb_build_object('timeout', extract(epoch FROM timeout), 'payload',
            payload::text) AS row
    FROM jobctl.job_runs AS run
    UNION ALL SELECT 'attempt ' || run_id || ' ' || attempt, to_jsonb(it) - '{run_id, attempt,
        exit_code, cause, incident, signal, http_status, output, output_bytes,
        output_truncated}'::text[]
    FROM jobctl.job_attempts AS it
    UNION ALL SELECT 'definition ' || name, to_jsonb(definition) - '{action_bytes, payload_bytes,
        usual_least, usual_most, resumed_at,
        most_fires, most_running, most_at_once, rate_interval, share_interval,
        most_at_once_per_share, lock_name, lock_most, is_limited, has_hooks, created_at,
        updated_at}'::text[] || jsonb_build_object('timeout', extract(epoch FROM timeout),
            'spread', extract(epoch FROM spread), 'expires', extract(epoch FROM expires),
            'keep', extract(epoch FROM keep), 'keep_dead', extract(epoch FROM keep_dead))
    FROM jobctl.job_definitions AS definition
    UNION ALL SELECT 'worker ' || worker, jsonb_build_object('last_tick_at', last_tick_at,
        'ticking_since', ticking_since, 'queues', queues, 'claiming', CASE WHEN claiming_tick IS NOT
        NULL THEN jsonb_build_array(claiming_tick, claiming_until) END)
    FROM jobctl.job_workers
    UNION ALL SELECT 'kept ' || run_id, to_jsonb(kept) - '{run_id, attempt, started_at}'::text[]
        || jsonb_build_object('claim', jsonb_build_object('id', run_id, 'attempt', attempt,
            'claimed_at', started_at))
    FROM jobctl.job_locked_runs AS kept
    UNION ALL SELECT 'dependency ' || after_id || ' ' || run_id,
        to_jsonb(it) - '{after_id, run_id, attempt}'::text[]
    FROM jobctl.job_dependencies AS it
    UNION ALL SELECT 'last_run',
        to_jsonb(coalesce(pg_sequence_last_value('jobctl.job_runs_id_seq'), 0))
    UNION ALL SELECT 'holds', jsonb_agg(jsonb_build_array(scope, name, held_until, run_id)
        ORDER BY scope, name, held_until, run_id)
    FROM jobctl.job_holds HAVING count(*) > 0";

/// All rows of a database, by table and key.
pub(super) type Rows = BTreeMap<String, Value>;

/// The answer to an operation.
#[derive(Debug)]
pub(super) enum Reply {
    Tick(Answer),
    Acted(store::Result<Vec<OperationResult>>),
    Queued(store::Result<Vec<Queued>>),
    Fired(store::Result<Vec<(usize, Vec<i64>)>>),
    Recovered(store::Result<Vec<Recovered>>),
    /// Whether a command for definitions or holds, or a prune, was granted.
    Done(store::Result<bool>),
    /// Of operations at the same time, in the order in which they had the row.
    Raced(usize, Box<[Reply; 2]>),
    /// The operation only sets locks or refusals.
    None,
}

/// A session for raw statements.
pub(super) struct Sql(RefCell<Client>);

impl Sql {
    pub(super) fn rows(&self, text: &str) -> Vec<SimpleQueryRow> {
        let mut wait = Wait::new(INTERRUPTED_LIMIT * 60);
        let mut client = self.0.borrow_mut();
        let messages = client.request(&mut wait, async |client| client.simple_query(text).await);
        let messages = messages.unwrap();
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        };
        messages.into_iter().filter_map(row).collect()
    }
}

fn connect(url: &str) -> Client {
    let target = connect::resolve(Some(url), &|_| None).unwrap();
    connect::open(&target, &AtomicBool::default()).unwrap()
}

/// Returns a copy of a request: requests are not `Clone`.
pub(super) fn copy_of_request(request: &Request) -> Request {
    match request {
        Request::Wake(asked) => Request::Wake(Wake {
            keeps_right: asked.keeps_right,
            right_lasts: asked.right_lasts,
            own_claims: asked.own_claims.clone(),
            until: asked.until,
            slow: asked.slow,
            failed_claim: asked.failed_claim.as_ref().map(|FailedClaim { error, goes_on }| {
                let error = store::Error::new(error.kind, error.exit, error.to_string());
                FailedClaim { error, goes_on: *goes_on }
            }),
        }),
        Request::Renew { claims, kept } => {
            Request::Renew { claims: claims.clone(), kept: kept.clone() }
        }
        Request::Step { results, kept, unstarted, claim, skips_locked } => Request::Step {
            results: results.clone(),
            kept: kept.clone(),
            unstarted: unstarted.clone(),
            claim: claim.clone(),
            skips_locked: *skips_locked,
        },
        Request::Store(outputs) => Request::Store(outputs.clone()),
        Request::Leave { slow } => Request::Leave { slow: *slow },
        Request::Prune => Request::Prune,
    }
}

/// A tick's session with PostgreSQL.
pub(super) struct Tick {
    database: tick::database::Database,
    pub(super) plan: Plan,
    holder: Holder,
    timing: Timing,
}

impl Tick {
    fn open(url: &str) -> Self {
        let bounds = Bounds {
            limit: 0,
            max_time: LEASE,
            linger: false,
            grace: LEASE,
            prunes: true,
            outage: None,
        };
        let filter = filter(&mut Random::new(0));
        let hours = |count: u64| Duration::from_secs(3600 * count);
        let worker = String::new();
        Self {
            database: tick::database::Database::over(connect(url), Arc::default()),
            plan: Plan {
                worker,
                filter,
                concurrency: 100,
                bounds,
                keep: Some(Keep { ended: hours(1), dead: hours(24) }),
                is_remembered: false,
            },
            holder: Holder { worker: String::new(), tick: String::new() },
            timing: Timing { timeouts: timeouts(LOCK), ..Timing::of(LEASE) },
        }
    }

    fn perform(&mut self, request: Request) -> Answer {
        let Self { database, plan, holder, timing } = self;
        let timeout = AnswerTimeout { until: None, interrupted: LEASE, extra: Duration::ZERO };
        database.ask(request, timeout, (plan, holder, timing), &mut SeenTicks::default())
    }
}

/// Returns the usual timeouts with this time to wait for a locked row.
fn timeouts(lock: Duration) -> Timeouts {
    Timeouts { lock, ..Timeouts::USUAL }
}

/// The session that performs an operation.
enum Party<'a> {
    Tick(&'a mut Tick),
    Operator(&'a mut Store),
}

impl Party<'_> {
    /// Performs an operation of a tick as the tick, and all others as an operator or application.
    fn perform(self, operation: &Operation) -> Reply {
        let store = match (self, operation) {
            (Self::Tick(tick), Operation::Tick(_, request)) => {
                return Reply::Tick(tick.perform(copy_of_request(request)));
            }
            (Self::Operator(store), _) => store,
            (Self::Tick(_), _) => unreachable!(),
        };
        let mut cause = Cause { host_user: "ana@web1".to_owned(), ..Cause::default() };
        match operation {
            Operation::Act(action, ids, from, name) => {
                cause.operation = Some(name.clone());
                let acted = store.operate(action, ids.clone(), from, &cause, false);
                Reply::Acted(acted.map(|(answers, _)| answers))
            }
            Operation::Enqueue(runs, dependencies) => {
                let runs: Vec<_> = runs.iter().map(NewRun::encode).collect();
                Reply::Queued(store.enqueue(&runs, dependencies, |_| ()))
            }
            Operation::Prune(ids, keep) => {
                let pruned = store.prune(ids.clone(), *keep, &cause, None);
                Reply::Done(pruned.map(|pruned| !pruned.is_empty()))
            }
            Operation::Pause(name) => {
                Reply::Done(store.pause(name.clone(), cause).map(|paused| paused.is_some()))
            }
            Operation::Resume(name) => {
                // As `jobctl resume`.
                let found = store.list_schedules(Some(name.clone()), 0).unwrap().pop();
                let next = |it: &due::Scheduled| {
                    let schedule = it.schedule.as_ref().filter(|_| it.enabled)?;
                    first_fire(schedule, &it.time_zone, it.now)
                };
                Reply::Done(match found {
                    Some(found) => {
                        let resumed = store.resume(found.clone(), next(&found), &cause);
                        resumed.map(|resumed| resumed.is_some())
                    }
                    None => Ok(false),
                })
            }
            Operation::Hold(target, lasts) => {
                Reply::Done(store.hold(vec![target.clone()], *lasts, cause).map(|_| true))
            }
            Operation::Release(target) => {
                let ended = store.end_holds(vec![target.clone()], cause);
                Reply::Done(ended.map(|_| true))
            }
            Operation::Apply(specs, unlisted, takes_over) => {
                let names = specs.iter().filter_map(|it| it["name"].as_str());
                let names = names.map(str::to_owned).collect();
                let file = specs[0]["file"].as_str().unwrap_or_default().to_owned();
                let specs = specs.clone();
                // As `jobctl apply`.
                let rows = move |now| {
                    let row = |spec: &Value| {
                        let mut row = spec.clone();
                        let schedule = row["schedule"].as_str().filter(|_| row["enabled"] == true);
                        let zone = row["time_zone"].as_str().unwrap_or_default();
                        let next = schedule.and_then(|it| first_fire(it, zone, now));
                        row["next_run_at"] = next.map_or(Value::Null, |it| it.to_rfc3339().into());
                        row
                    };
                    specs.iter().map(row).collect()
                };
                let terms = ApplyTerms {
                    file,
                    unlisted: *unlisted,
                    takes_over: *takes_over,
                    mode: ApplyMode::Change,
                };
                let applied = store.apply(names, rows, terms, cause);
                Reply::Done(applied.map(|it| {
                    let is_right = it.wrong_hooks.is_empty() && it.graph.mistakes.is_empty();
                    is_right && it.foreign.is_empty()
                }))
            }
            Operation::Recover(expired) => Reply::Recovered(store.recover(expired, LEASE_EXPIRED)),
            Operation::Fire(plans) => Reply::Fired(store.fire(plans.clone())),
            _ => unreachable!(),
        }
    }
}

/// The test's database on the server.
pub(super) struct Real {
    pub(super) ticks: Vec<Tick>,
    operators: [Store; 2],
    pub(super) sql: Sql,
    /// The session whose transaction locks rows.
    locker: Sql,
}

impl Real {
    fn new(url: &str) -> Self {
        let (sql, locker) = (Sql(connect(url).into()), Sql(connect(url).into()));
        sql.rows(SETUP);
        Store::over(connect(url), Arc::default()).migrate().unwrap();
        sql.rows(TRIGGERS);
        sql.rows(&format!("PREPARE rows AS {ROWS}"));
        let operators = [(); 2].map(|()| {
            let mut store = Store::over(connect(url), Arc::default());
            store.set_timeouts(timeouts(LOCK));
            store
        });
        Self { ticks: (0..TICKS.len()).map(|_| Tick::open(url)).collect(), operators, sql, locker }
    }

    /// Empties the tables, and gives the ticks their names and filters.
    pub(super) fn reset(&mut self, sessions: &[Session]) {
        self.locker.rows("ROLLBACK");
        for (tick, session) in self.ticks.iter_mut().zip(sessions) {
            let end = || Wake {
                keeps_right: false,
                right_lasts: RIGHT,
                own_claims: Vec::new(),
                until: Instant::now(),
                failed_claim: None,
                slow: None,
            };
            // It may still be searching for runs that can't be claimed, in several steps.
            let mut wakes = || tick.perform(Request::Wake(end()));
            while matches!(wakes(), Answer::Wake { is_searching: true, .. }) {}
            tick.holder = session.holder.clone();
            tick.plan.worker.clone_from(&session.holder.worker);
            tick.plan.filter = session.filter.clone();
        }
        self.sql.rows(RESET);
    }

    /// Performs an operation in the session to which it belongs.
    pub(super) fn perform(&mut self, operation: &Operation) -> Reply {
        let list = |ids: &[i64]| format!("'{{{}}}'", join(ids));
        match operation {
            Operation::Tick(index, _) => Party::Tick(&mut self.ticks[*index]).perform(operation),
            Operation::Lock(runs, definitions, workers) => {
                self.locker.rows(&format!(
                    "BEGIN; SELECT FROM jobctl.job_runs WHERE id = ANY ({}) FOR UPDATE;
                    SELECT FROM jobctl.job_definitions WHERE name = ANY ('{{{}}}') FOR UPDATE;
                    SELECT FROM jobctl.job_workers WHERE worker = ANY ('{{{}}}') FOR UPDATE",
                    list(runs),
                    definitions.join(","),
                    workers.join(",")
                ));
                Reply::None
            }
            Operation::Unlock => {
                self.locker.rows("ROLLBACK");
                Reply::None
            }
            Operation::Refuse(run, write) => {
                self.sql.rows(&format!("INSERT INTO public.refused VALUES ({run}, '{write:?}')"));
                Reply::None
            }
            Operation::RefuseJob(job) => {
                self.sql.rows(&format!("INSERT INTO public.refused VALUES (0, '{job}')"));
                Reply::None
            }
            Operation::Race(run, both) => self.race(*run, both),
            _ => Party::Operator(&mut self.operators[0]).perform(operation),
        }
    }

    /// Performs both at the same time. The first waits for a lock of the run before the second
    /// begins.
    fn race(&mut self, run: i64, both: &[Operation; 2]) -> Reply {
        self.locker
            .rows(&format!("BEGIN; SELECT FROM jobctl.job_runs WHERE id = {run} FOR UPDATE"));
        let patient = timeouts(Duration::from_secs(5));
        let [first, second] = self.ticks.get_disjoint_mut([0, 1]).unwrap();
        let [one, other] = &mut self.operators;
        first.timing.timeouts = patient;
        second.timing.timeouts = patient;
        one.set_timeouts(patient);
        other.set_timeouts(patient);
        let party = |operation: &Operation, tick, store| match operation {
            Operation::Tick(..) => Party::Tick(tick),
            _ => Party::Operator(store),
        };
        let (sql, locker) = (&self.sql, &self.locker);
        // Waits until this many sessions wait for a row, or until the operation is finished.
        let wait = |waiting: usize, is_finished: &dyn Fn() -> bool| {
            // Other locks, as for the extension of a table, are held for an instant.
            let waits = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND \
                wait_event IN ('transactionid', 'tuple') AND datname = current_database()";
            while !is_finished() && sql.rows(waits).len() < waiting {}
        };
        let said = thread::scope(|scope| {
            let parties = [party(&both[0], first, one), party(&both[1], second, other)];
            let [one, other] = parties;
            let one = scope.spawn(|| one.perform(&both[0]));
            wait(1, &|| one.is_finished());
            let waiting = if one.is_finished() { 1 } else { 2 };
            let other = scope.spawn(|| other.perform(&both[1]));
            wait(waiting, &|| other.is_finished());
            // If only the first one waits, the second one comes first.
            let first = usize::from(waiting == 2 && other.is_finished());
            locker.rows("ROLLBACK");
            Reply::Raced(first, Box::new([one.join().unwrap(), other.join().unwrap()]))
        });
        for tick in &mut self.ticks[..2] {
            tick.timing.timeouts = timeouts(LOCK);
        }
        self.operators.iter_mut().for_each(|store| store.set_timeouts(timeouts(LOCK)));
        said
    }

    /// Reads all rows, and then sets the clock.
    pub(super) fn rows(&self, next: DateTime<Utc>) -> Rows {
        let set =
            format!("EXECUTE rows; SELECT setval('public.clock', {})", next.timestamp_micros());
        let row = |row: SimpleQueryRow| {
            let key = row.try_get("key").ok()??.to_owned();
            Some((key, row.get("row")?.parse().unwrap()))
        };
        self.sql.rows(&set).into_iter().filter_map(row).collect()
    }
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Returns the tables that consist of these rows.
pub(super) fn tables(rows: &Rows) -> Database {
    fn read<T: DeserializeOwned>(row: &Value) -> T {
        serde_json::from_value(row.clone()).unwrap_or_else(|error| panic!("{error}: {row}"))
    }
    let mut tables = Database::default();
    for (key, row) in rows {
        let words: Vec<_> = key.split(' ').collect();
        let number = |place: usize| words[place].parse::<i64>().unwrap();
        match words[0] {
            "run" => drop(tables.set(number(1), Some(read(row)))),
            "attempt" => {
                let attempt = i32::try_from(number(2)).unwrap();
                tables.attempts.insert((number(1), attempt), read(row));
            }
            "definition" => drop(tables.definitions.insert(words[1].to_owned(), read(row))),
            "worker" => drop(tables.workers.insert(words[1].to_owned(), read(row))),
            "kept" => drop(tables.kept.insert(number(1), read(row))),
            "dependency" => drop(tables.dependencies.insert((number(1), number(2)), read(row))),
            "last_run" => tables.last_run = read(row),
            _ => {}
        }
    }
    tables
}

/// Creates a database on the server, works there, and drops it.
pub(super) fn with_database<T>(server: &str, name: &str, work: impl FnOnce(&mut Real) -> T) -> T {
    let name = format!("jobctl_{name}_{}", std::process::id());
    let mut url = Url::parse(server).unwrap();
    url.set_path(&name);
    let admin = Sql(connect(server).into());
    admin.rows(&format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'"));
    let mut real = Real::new(url.as_str());
    let result = work(&mut real);
    drop(real);
    admin.rows(&format!("DROP DATABASE {name} WITH (FORCE)"));
    result
}

/// Tries sequences in several threads. SEQUENCES is their number, as in `make fuzz`, and FIRST is
/// the first one; SEED is the one to replay.
#[expect(clippy::print_stdout, reason = "the progress of a long form")]
pub(super) fn try_sequences(what: &str, attempt: fn(&mut Real, u64) -> Result<(), String>) {
    let Some(server) = server(what) else { return };
    let (first, count) = match number("SEED") {
        Some(seed) => (seed, Some(1)),
        None => (number("FIRST").unwrap_or(0), number("SEQUENCES")),
    };
    let (end, began) = (first + count.unwrap_or(u64::MAX / 2), Instant::now());
    let is_enough = |seed| count.is_none() && seed >= LEAST && began.elapsed() > SHORT;
    let is_over = |seed| seed >= end || is_enough(seed);
    let next = AtomicU64::new(first);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (server, next) = (&server, &next);
            scope.spawn(move || {
                let failure = with_database(server, &format!("{what}_{thread}"), |real| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if is_over(seed) {
                            return None;
                        }
                        if let Err(failure) = attempt(real, seed) {
                            return Some(format!("seed {seed}, {failure}"));
                        }
                        if seed % 500 == 499 {
                            println!("{} sequences in {:?}", seed + 1 - first, began.elapsed());
                        }
                    }
                });
                if let Some(failure) = failure {
                    next.store(end, Ordering::Relaxed);
                    panic!("{failure}");
                }
            });
        }
    });
}

/// The address of the server, if the tests have one.
pub(super) fn server(what: &str) -> Option<String> {
    let server = env::var("JOBCTL_TEST_DATABASE_URL").ok();
    if server.is_none() {
        leave_out(what, "JOBCTL_TEST_DATABASE_URL names no server; use make test");
    }
    server
}
