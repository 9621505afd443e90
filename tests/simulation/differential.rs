//! Compares the model of the database with PostgreSQL: random operations go through the model and,
//! by the tick's own code, through the SQL. After each one, every answer and every row must be the
//! same.
//!
//! In the test's database, `now()` and `clock_timestamp()` read a clock which only the test moves.
//! So times are equal to the microsecond, and leases expire without waiting.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use chrono::{DateTime, Utc};
use postgres::SimpleQueryMessage;
use postgres::SimpleQueryRow;
use serde::Serialize;
use serde_json::{Value, json};
use url::Url;

use super::database::{Database, Hold, Session, Spec, Write, first_fire};
use super::left_out::leave_out;
use crate::connect::{Client, INTERRUPTED_LIMIT, Target, Wait};
use crate::exit::Exit;
use crate::job::action::JobKind;
use crate::job::attempt::HistoryOutcome;
use crate::job::enqueue::{AfterRule, EnqueueResult, KeyScope};
use crate::job::failure::ErrorType;
use crate::job::next_status::NextStatus;
use crate::job::seen_ticks::SeenTicks;
use crate::job::status::{HoldScope, Status};
use crate::schedule::due::{self, FirePlan};
use crate::store::{
    self, Accepted, Applied, ApplyMode, ApplyTerms, Cause, Claim, ClaimFilter, Dependencies, Edit,
    FencingToken, Finish, HoldTarget, Holder, Keep, Kind, Lane, NewRun, Position, Predecessor,
    RetryTerms, Store, Timeouts, Unlisted,
};
use crate::tick::request::{Answer, AnswerTimeout, Request};
use crate::tick::timing::Timing;
use crate::tick::{self, Bounds, Plan};
use crate::upkeep::{FailedClaim, Wake, Woken, tick_id};

/// The first time of the clock, in microseconds.
const BEGINNING: i64 = 1_800_000_000_000_000;
const STEPS: usize = 40;
const LEASE: Duration = Duration::from_secs(60);
/// How long a statement waits for a locked row, if it must fail then.
const LOCK: Duration = Duration::from_millis(20);
/// The fewest sequences to compare if their number is not given.
const LEAST: u64 = 60;
/// How long to compare sequences then.
const SHORT: Duration = Duration::from_secs(12);
const THREADS: usize = 2;
/// Workers and their ticks; the last tick has crashed.
const TICKS: [(&str, &str); 4] = [("a", "a1"), ("b", "b1"), ("a", "a2"), ("a", "")];
const JOBS: [&str; 3] = ["d1", "d2", "d3"];
const WHAT: &str = "lease expired: its worker crashed, hung or lost the database";

/// The fake clock, and the triggers that reject writes.
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
/// A vacuum that truncates an emptied table locks it for longer than a statement waits here.
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
/// How long a claim right lasts.
const RIGHT: Duration = Duration::from_secs(15);
const RESET: &str = "
    DELETE FROM jobctl.job_runs;
    DELETE FROM jobctl.job_attempts;
    DELETE FROM jobctl.job_definitions;
    DELETE FROM jobctl.job_workers;
    DELETE FROM jobctl.job_locked_runs;
    DELETE FROM jobctl.job_holds;
    DELETE FROM jobctl.job_dependencies;
    DELETE FROM jobctl.job_events;
    DELETE FROM jobctl.job_figures;
    DELETE FROM public.refused;
    SELECT setval('jobctl.job_runs_id_seq', 1, false),
        setval('jobctl.job_definitions_id_seq', 1, false)";
const ROWS: &str = "
    SELECT 'run ' || id AS key, to_jsonb(run)
        - '{payload_bytes, enqueued_by, live_output, settled_at, created_at}'::text[]
        || jsonb_build_object('timeout', extract(epoch FROM timeout), 'payload',
            payload::text) AS row
    FROM jobctl.job_runs AS run
    UNION ALL SELECT 'attempt ' || run_id || ' ' || attempt, to_jsonb(it) - '{run_id, attempt,
        exit_code, cause, incident, signal, http_status, output, output_bytes,
        output_truncated}'::text[]
    FROM jobctl.job_attempts AS it
    UNION ALL SELECT 'definition ' || name, to_jsonb(definition) - '{action_bytes, payload_bytes,
        usual_least, usual_most,
        most_fires, most_running, most_at_once, rate_interval, is_limited, has_hooks, created_at,
        updated_at}'::text[] || jsonb_build_object('timeout', extract(epoch FROM timeout),
            'spread', extract(epoch FROM spread), 'expires', extract(epoch FROM expires),
            'keep', extract(epoch FROM keep), 'keep_dead', extract(epoch FROM keep_dead))
    FROM jobctl.job_definitions AS definition
    UNION ALL SELECT 'worker ' || worker, jsonb_build_object('last_tick_at', last_tick_at,
        'ticking_since', ticking_since, 'queues', queues, 'claiming', CASE WHEN claiming_tick IS NOT
        NULL THEN jsonb_build_array(claiming_tick, claiming_until) END)
    FROM jobctl.job_workers
    UNION ALL SELECT 'kept ' || run_id || ' ' || attempt, to_jsonb(kept) - '{run_id, attempt,
        started_at}'::text[]
    FROM jobctl.job_locked_runs AS kept
    UNION ALL SELECT 'dependency ' || after_id || ' ' || run_id,
        to_jsonb(it) - '{after_id, run_id}'::text[]
    FROM jobctl.job_dependencies AS it
    UNION ALL SELECT 'holds', jsonb_agg(jsonb_build_array(scope, name, held_until, run_id)
        ORDER BY scope, name, held_until, run_id)
    FROM jobctl.job_holds HAVING count(*) > 0";

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    fn of<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }

    fn maybe<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        self.percent(50).then(|| self.of(from))
    }
}

#[derive(Debug)]
enum Operation {
    Tick(usize, Request),
    Enqueue(Vec<NewRun>, Vec<Dependencies>),
    Retry(Vec<i64>, Vec<Status>, RetryTerms),
    Cancel(Vec<i64>, Vec<Status>),
    Edit(Vec<i64>, Vec<Status>, Edit),
    Remove(Vec<i64>, Vec<Status>),
    Pause(String),
    Resume(String),
    Hold(HoldTarget, Option<Duration>),
    Release(HoldTarget),
    Apply(Vec<Spec>, Unlisted, bool),
    Recover(Vec<(i64, i32, Duration)>),
    Fire(Vec<FirePlan>),
    /// Another session locks these rows until `Unlock`.
    Lock(Vec<i64>, Vec<String>, Vec<String>),
    Unlock,
    /// From now on a trigger rejects this write.
    Refuse(i64, Write),
    RefuseJob(String),
    /// Both wait for a lock of this run; then they go on in this order.
    Race(i64, Box<[Operation; 2]>),
}

/// A session for raw statements.
struct Sql(RefCell<Client>);

impl Sql {
    fn rows(&self, text: &str) -> Vec<SimpleQueryRow> {
        let interrupted = AtomicBool::default();
        let mut wait = Wait::new(INTERRUPTED_LIMIT * 60, &interrupted, INTERRUPTED_LIMIT);
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
    Target::resolve(Some(url), &|_| None)
        .unwrap()
        .connect(|| ())
        .wait(&AtomicBool::default())
        .unwrap()
}

fn said<T: Debug>(answer: store::Result<T>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{:?}", error.kind),
    }
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

fn said_of(answer: Answer) -> String {
    match answer {
        Answer::Wake { woken, is_searching } => {
            let woken =
                woken.map(|woken| Woken { took: Duration::ZERO, longest: Duration::ZERO, ..woken });
            format!("{} {is_searching}", said(woken))
        }
        Answer::Renew(renewed) => said(renewed.map(|mut renewed| {
            renewed.sort_by_key(|(claim, _)| *claim);
            renewed
        })),
        Answer::Step(Err((error, _))) => format!("{:?}", error.kind),
        Answer::Step(Ok(step)) => {
            let recorded: BTreeMap<_, _> = step.recorded.into_iter().collect();
            format!("{recorded:?} {:?} {:#?}", sorted(step.locked), step.taken)
        }
        Answer::Store(left) => said(left),
        Answer::Leave(done) => said(done),
        Answer::Prune => String::new(),
    }
}

fn actions(answer: store::Result<Vec<store::OperationResult>>) -> String {
    said(answer.map(|answers| sorted(answers.iter().map(|it| format!("{it:?}")).collect())))
}

/// Makes the request again: requests are not `Clone`.
fn again(request: &Request) -> Request {
    match request {
        Request::Wake(asked) => Request::Wake(Wake {
            keeps_right: asked.keeps_right,
            right: asked.right,
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
struct Tick {
    database: tick::database::Database,
    plan: Plan,
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
        let filter = filter(&mut Random(0));
        let worker = String::new();
        Self {
            database: tick::database::Database::over(connect(url), Arc::default()),
            plan: Plan {
                worker,
                filter,
                concurrency: 100,
                bounds,
                keep: None,
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

fn timeouts(lock: Duration) -> Timeouts {
    Timeouts { lock, ..Timeouts::USUAL }
}

/// The session that performs an operation.
enum Party<'a> {
    Tick(&'a mut Tick),
    Operator(&'a mut Store),
}

impl Party<'_> {
    fn perform(self, operation: &Operation) -> String {
        let store = match (self, operation) {
            (Self::Tick(tick), Operation::Tick(_, request)) => {
                return said_of(tick.perform(again(request)));
            }
            (Self::Operator(store), _) => store,
            (Self::Tick(_), _) => unreachable!(),
        };
        let cause = Cause { host_user: "ana@web1".to_owned(), ..Cause::default() };
        let act = |operation: &store::Operation, ids: &[i64], from: &[Status]| {
            let answers = store.operate(operation, ids.to_vec(), from, &cause, false);
            actions(answers.map(|(answers, _)| answers))
        };
        match operation {
            Operation::Enqueue(runs, dependencies) => {
                let runs: Vec<_> = runs.iter().map(NewRun::encode).collect();
                said(store.enqueue(&runs, dependencies, |_| ()))
            }
            Operation::Retry(ids, from, terms) => act(&store::Operation::Retry(*terms), ids, from),
            Operation::Cancel(ids, from) => act(&store::Operation::Cancel, ids, from),
            Operation::Edit(ids, from, edit) => {
                act(&store::Operation::Edit(edit.clone()), ids, from)
            }
            Operation::Remove(ids, from) => act(&store::Operation::Remove, ids, from),
            Operation::Pause(name) => said(store.pause(name.clone(), cause)),
            Operation::Resume(name) => {
                // As `jobctl resume`.
                let found = store.list_schedules(Some(name.clone())).unwrap().pop();
                let next = |it: &due::Scheduled| {
                    let schedule = it.schedule.as_ref().filter(|_| it.enabled)?;
                    first_fire(schedule, &it.time_zone, it.now)
                };
                said(match found {
                    Some(found) => store.resume(found.clone(), next(&found), &cause),
                    None => Ok(None),
                })
            }
            Operation::Hold(target, lasts) => {
                said(store.hold(vec![target.clone()], *lasts, cause).map(|until| until[0]))
            }
            Operation::Release(target) => {
                said(store.end_holds(vec![target.clone()], cause).map(|ended| ended.len()))
            }
            Operation::Apply(specs, others, takes_over) => {
                let names = specs.iter().map(|spec| spec.name.clone()).collect();
                let file = specs.first().map(|spec| spec.file.clone()).unwrap_or_default();
                let specs = specs.clone();
                // As `jobctl apply`.
                let rows = move |now| {
                    let row = |spec: &Spec| {
                        let mut row = serde_json::to_value(spec).unwrap();
                        let next = spec.schedule.as_ref().filter(|_| spec.enabled);
                        let next = next.and_then(|it| first_fire(it, &spec.time_zone, now));
                        row["next_run_at"] = next.map_or(Value::Null, |it| it.to_rfc3339().into());
                        row
                    };
                    specs.iter().map(row).collect()
                };
                let terms = ApplyTerms {
                    file,
                    unlisted: *others,
                    takes_over: *takes_over,
                    mode: ApplyMode::Change,
                };
                let applied = store.apply(names, rows, terms, cause);
                let is_refused = |applied: &Applied| {
                    !applied.wrong_hooks.is_empty() || !applied.foreign.is_empty()
                };
                if applied.as_ref().is_ok_and(is_refused) {
                    return format!("{:?}", Kind::Data);
                }
                said(applied.map(|applied| {
                    let changed = applied.changed.into_iter().map(|(name, ..)| name);
                    let ended = applied.ended.into_iter().map(|ended| ended.name);
                    (sorted(changed.collect()), sorted(ended.collect()))
                }))
            }
            Operation::Recover(expired) => {
                let recovered = store.recover(expired, WHAT);
                said(recovered.map(|mut rows| {
                    rows.sort_by_key(|recovered| recovered.id);
                    rows
                }))
            }
            Operation::Fire(plans) => said(store.fire(plans.clone()).map(sorted)),
            _ => unreachable!(),
        }
    }
}

/// The test's database on the server.
struct Real {
    ticks: Vec<Tick>,
    operators: [Store; 2],
    sql: Sql,
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
    fn reset(&mut self, sessions: &[Session]) {
        self.locker.rows("ROLLBACK");
        for (tick, session) in self.ticks.iter_mut().zip(sessions) {
            let end = || Wake {
                keeps_right: false,
                right: RIGHT,
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
            tick.plan.keep = session.keep;
        }
        self.sql.rows(RESET);
    }

    fn perform(&mut self, operation: &Operation) -> String {
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
                String::new()
            }
            Operation::Unlock => {
                self.locker.rows("ROLLBACK");
                String::new()
            }
            Operation::Refuse(run, write) => {
                self.sql.rows(&format!("INSERT INTO public.refused VALUES ({run}, '{write:?}')"));
                String::new()
            }
            Operation::RefuseJob(job) => {
                self.sql.rows(&format!("INSERT INTO public.refused VALUES (0, '{job}')"));
                String::new()
            }
            Operation::Race(run, both) => self.race(*run, both),
            _ => Party::Operator(&mut self.operators[0]).perform(operation),
        }
    }

    /// Performs both at the same time. The first waits for a lock of the run before the second
    /// begins.
    fn race(&mut self, run: i64, both: &[Operation; 2]) -> String {
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
            let order = if waiting == 2 && other.is_finished() { "swapped " } else { "" };
            locker.rows("ROLLBACK");
            format!("{order}{} {}", one.join().unwrap(), other.join().unwrap())
        });
        for tick in &mut self.ticks[..2] {
            tick.timing.timeouts = timeouts(LOCK);
        }
        self.operators.iter_mut().for_each(|store| store.set_timeouts(timeouts(LOCK)));
        said
    }

    /// Reads all rows, and then sets the clock.
    fn rows(&self, next: DateTime<Utc>) -> Rows {
        let set =
            format!("EXECUTE rows; SELECT setval('public.clock', {})", next.timestamp_micros());
        let row = |row: SimpleQueryRow| {
            let key = row.try_get("key").ok()??.to_owned();
            Some((key, normal(row.get("row")?.parse().unwrap())))
        };
        self.sql.rows(&set).into_iter().filter_map(row).collect()
    }
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// All rows of a database.
type Rows = BTreeMap<String, Value>;

fn rows_of(model: &Database) -> Rows {
    fn row(key: String, row: &impl Serialize) -> (String, Value) {
        (key, normal(serde_json::to_value(row).unwrap()))
    }
    let runs = model.runs.iter().map(|(id, it)| row(format!("run {id}"), it));
    let attempts = model.attempts.iter();
    let attempts = attempts.map(|((id, attempt), it)| row(format!("attempt {id} {attempt}"), it));
    let definitions = model.definitions.iter();
    let definitions = definitions.map(|(name, it)| row(format!("definition {name}"), it));
    let workers = model.workers.iter().map(|(name, it)| row(format!("worker {name}"), it));
    let kept = model.kept.values();
    let kept = kept.map(|it| row(format!("kept {} {}", it.claim.id, it.claim.attempt), it));
    let mut holds: Vec<_> = model
        .holds
        .iter()
        .map(|Hold { target: HoldTarget { scope, name }, until, run }| {
            (scope.as_str(), name.as_str(), until.is_none(), until, run)
        })
        .collect();
    holds.sort_unstable();
    let holds: Vec<_> = holds.into_iter().map(|it| json!([it.0, it.1, it.3, it.4])).collect();
    let holds = (!holds.is_empty()).then(|| row("holds".to_owned(), &holds));
    let dependencies = model.dependencies.iter();
    let dependencies =
        dependencies.map(|((after, run), it)| row(format!("dependency {after} {run}"), it));
    let rows = runs.chain(attempts).chain(definitions).chain(workers).chain(kept).chain(holds);
    rows.chain(dependencies).collect()
}

/// Writes times and numbers in one way.
fn normal(value: Value) -> Value {
    match value {
        Value::String(text) => match DateTime::parse_from_rfc3339(&text) {
            Ok(time) => time.timestamp_micros().into(),
            Err(_) => Value::String(text),
        },
        Value::Number(number) => number.as_f64().into(),
        Value::Array(items) => items.into_iter().map(normal).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, it)| (key, normal(it))).collect(),
        value => value,
    }
}

/// Returns the rows that differ.
fn differing(model: &Rows, real: &Rows) -> String {
    let keys: BTreeSet<_> = model.keys().chain(real.keys()).collect();
    let differing = keys.into_iter().filter(|key| model.get(*key) != real.get(*key));
    let text = |rows: &Rows, key| rows.get(key).map_or("none".to_owned(), Value::to_string);
    let show = |key| format!("{key}\n  model {}\n  real  {}\n", text(model, key), text(real, key));
    differing.map(show).collect()
}

fn run_of_lane(priority: i32) -> NewRun {
    let payload = "{}".to_owned();
    NewRun { job_type: "shell".to_owned(), payload, priority: Some(priority), ..NewRun::default() }
}

fn filter(random: &mut Random) -> ClaimFilter {
    let some = |chance: bool, words: &[&str]| {
        words.iter().filter(|_| chance).map(|word| (*word).to_owned()).collect()
    };
    ClaimFilter {
        queues: some(random.percent(10), &["default", "y"]),
        excluded_jobs: some(random.percent(10), &["shell"]),
        excluded_kinds: if random.percent(10) { vec![JobKind::Http] } else { Vec::new() },
        excluded_runs: Vec::new(),
        only_run: if random.percent(5) { random.maybe(&[1, 2, 3, 5, 8]) } else { None },
        lease: LEASE,
    }
}

/// One sequence of operations.
struct Sequence {
    random: Random,
    model: Database,
    sessions: Vec<Session>,
    /// All claims so far, by the tick that made them.
    claims: Vec<(usize, FencingToken)>,
    positions: Vec<Position>,
    last_lane: Option<Lane>,
    /// Computed from schedules earlier; by now they may have fired.
    plans: Vec<FirePlan>,
    last: Option<(usize, Request)>,
}

impl Sequence {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let own = tick_id::new();
        let host = own.split('.').next().unwrap_or_default();
        let crashed = format!("{host}.5000000.0");
        let session = |(worker, tick): &(&str, &str)| {
            let tick = if tick.is_empty() { crashed.clone() } else { (*tick).to_owned() };
            let holder = Holder { worker: (*worker).to_owned(), tick };
            let mut session =
                Session::new(holder, filter(&mut random), Timing::of(LEASE), Instant::now());
            session.dead.insert(crashed.clone());
            let hours = |count: u64| Duration::from_secs(3600 * count);
            session.keep = Some(Keep { ended: hours(1), dead: hours(24) });
            session
        };
        Self {
            sessions: TICKS.iter().map(session).collect(),
            random,
            model: Database::new(DateTime::from_timestamp_micros(BEGINNING).unwrap()),
            claims: Vec::new(),
            positions: Vec::new(),
            last_lane: None,
            plans: Vec::new(),
            last: None,
        }
    }

    fn next_time(&mut self) -> DateTime<Utc> {
        const SECOND: u64 = 1_000_000;
        let longest = match self.random.below(100) {
            0..8 => 1,
            8..70 => SECOND,
            70..86 => 20 * SECOND,
            86..94 => 120 * SECOND,
            94..98 => 7200 * SECOND,
            _ => 3 * 86400 * SECOND,
        };
        self.model.now + Duration::from_micros(self.random.below(longest))
    }

    fn operation(&mut self, seed: u64, step: usize) -> Operation {
        let random = &mut self.random;
        let mut index = random.below(TICKS.len() as u64) as usize;
        let mut kind = match step {
            0 => 85,
            1..6 => 64,
            6 => 42,
            _ => random.below(100),
        };
        // Mostly a tick that has something to do.
        let has_right = |session: &Session| {
            let row = self.model.workers.get(&session.holder.worker);
            row.and_then(|row| row.claiming.as_ref())
                .is_some_and(|(it, until)| *it == session.holder.tick && *until > self.model.now)
        };
        let holds = |(index, claim): &&(usize, FencingToken)| {
            let worker = Some(&self.sessions[*index].holder.worker);
            let run = self.model.runs.get(&claim.id).filter(|run| run.locked_by.as_ref() == worker);
            run.is_some_and(|run| run.started_at == Some(claim.claimed_at))
        };
        let claiming = self.sessions.iter().position(has_right);
        let holding = self.claims.iter().rfind(holds).map(|(index, _)| *index);
        if kind < 42 && random.percent(80) {
            let wanted = if kind < 16 { claiming } else { holding.or(claiming) };
            match wanted {
                Some(wanted) => index = wanted,
                None => kind = 42,
            }
        }
        let tick = |request| Operation::Tick(index, request);
        match kind {
            0..26 => tick(self.step(index)),
            26..39 => {
                let mut claims = self.tokens(index);
                let parts = if self.random.percent(30) { 2 } else { 1 };
                let kept = claims.split_off(claims.len() / parts);
                tick(Request::Renew { claims, kept })
            }
            39..42 => {
                let tokens = self.tokens(index).into_iter();
                tick(Request::Store(tokens.map(|claim| (claim, "output".to_owned())).collect()))
            }
            42..64 if !(56..60).contains(&kind) => {
                let own_claims = self.tokens(index);
                let random = &mut self.random;
                let keeps_right = random.percent(50);
                let lasts = if random.percent(10) { Duration::ZERO } else { RIGHT };
                let until = Instant::now() + 1000 * lasts;
                let error = || store::Error::new(Kind::Data, Exit::CouldNot, "no");
                let failed_claim =
                    (kind >= 60).then(|| FailedClaim { error: error(), goes_on: kind == 63 });
                let (right, slow) = (RIGHT, None);
                tick(Request::Wake(Wake {
                    keeps_right,
                    right,
                    own_claims,
                    until,
                    failed_claim,
                    slow,
                }))
            }
            56..58 => tick(Request::Leave { slow: None }),
            58..60 => tick(Request::Prune),
            // More lanes than a claim looks at.
            64..72 if (seed % 200, step) == (0, 5) => {
                Operation::Enqueue((0..1003).map(run_of_lane).collect(), Vec::new())
            }
            64..72 => {
                // The last id does not exist.
                let ids: Vec<_> = self.model.runs.keys().copied().chain([1_000_000]).collect();
                let after = self.random.percent(50).then(|| {
                    let rules = [AfterRule::Success, AfterRule::AnyEnd, AfterRule::OrCancel];
                    let mut after: Vec<_> = (0..=self.random.below(2))
                        .map(|_| Predecessor::Id(self.random.of(&ids)))
                        .collect();
                    after.dedup_by_key(|it| format!("{it:?}"));
                    Dependencies { run: 0, after, rule: self.random.of(&rules) }
                });
                Operation::Enqueue(vec![self.new_run()], after.into_iter().collect())
            }
            72..77 => {
                let cancelled_now = random.percent(30);
                let terms = RetryTerms { cancelled_now, unsettled: random.percent(50) };
                Operation::Retry(self.ids(), self.statuses(), terms)
            }
            77..79 => Operation::Cancel(self.ids(), self.statuses()),
            79..81 => {
                let edit = Edit {
                    priority: random.maybe(&[0, 1]),
                    after: random.maybe(&[0.0, 1.0, 60.0]),
                    max_attempts: random.maybe(&[1, 3]),
                    ..Edit::default()
                };
                Operation::Edit(self.ids(), self.statuses(), edit)
            }
            81..82 => Operation::Remove(self.ids(), self.statuses()),
            82..83 => Operation::Pause(random.of(&JOBS).to_owned()),
            83..84 => {
                let (scope, name) = random.of(&[
                    (HoldScope::Job, "shell"),
                    (HoldScope::Job, "d1"),
                    (HoldScope::Queue, "default"),
                    (HoldScope::Queue, "x"),
                    (HoldScope::Worker, "a"),
                    (HoldScope::All, ""),
                ]);
                let target = HoldTarget { scope, name: name.to_owned() };
                match random.below(5) {
                    0..2 => Operation::Hold(target, random.maybe(&[Duration::from_secs(2)])),
                    _ => Operation::Release(target),
                }
            }
            84..85 => Operation::Resume(random.of(&JOBS).to_owned()),
            85..88 => {
                let count = if step == 0 { 3 } else { 1 + random.below(3) as usize };
                let file = random.of(&["", "", "billing"]);
                let specs = JOBS[..count].iter().map(|name| spec(random, name));
                let specs = specs.map(|spec| Spec { file: file.to_owned(), ..spec }).collect();
                let unlisted = random.of(&[Unlisted::Disable, Unlisted::Remove]);
                Operation::Apply(specs, unlisted, random.percent(50))
            }
            88..91 => {
                let expired = self.model.runs.values().filter(|run| run.status == Status::Running);
                let expired = expired.map(|run| (run.id, run.attempts, Duration::from_secs(7)));
                let mut expired: Vec<_> = expired.collect();
                expired.iter_mut().for_each(|run| run.1 -= i32::from(random.percent(10)));
                Operation::Recover(expired)
            }
            91..93 => {
                let (plans, _) = due::plan_fires(self.model.due_schedules());
                let plans = if self.random.percent(50) {
                    std::mem::replace(&mut self.plans, plans)
                } else {
                    plans
                };
                Operation::Fire(plans)
            }
            93..97 => match seed % 3 {
                0 => self.race(),
                1 if self.model.locked.len() + self.model.locked_workers.len() > 0 => {
                    Operation::Unlock
                }
                1 => Operation::Lock(
                    self.ids(),
                    self.random.maybe(&JOBS).into_iter().map(str::to_owned).collect(),
                    self.random.maybe(&["a"]).into_iter().map(str::to_owned).collect(),
                ),
                _ if self.random.percent(20) => {
                    Operation::RefuseJob(self.random.of(&JOBS).to_owned())
                }
                _ => {
                    let writes = [Write::Claim, Write::Renewal, Write::Result, Write::Other];
                    Operation::Refuse(self.ids()[0], self.random.of(&writes))
                }
            },
            _ => match &self.last {
                // As after a lost answer, or as by another tick.
                Some((last, request)) => {
                    let index = if random.percent(70) { *last } else { index };
                    Operation::Tick(index, again(request))
                }
                None => tick(Request::Leave { slow: None }),
            },
        }
    }

    /// Two operations on one run that wait for its lock.
    fn race(&mut self) -> Operation {
        let running = self.model.runs.values().filter(|run| run.status == Status::Running);
        let running: Vec<_> = running.map(|run| run.id).collect();
        let run = if running.is_empty() { self.ids()[0] } else { self.random.of(&running) };
        let both = [0, 1].map(|index| {
            let claims = self.claims.iter().filter(|(_, claim)| claim.id == run);
            let claims: Vec<_> = claims.map(|(_, claim)| *claim).collect();
            match self.random.below(5) {
                0 => Operation::Retry(vec![run], Status::ALL.to_vec(), RetryTerms::default()),
                1 => Operation::Cancel(vec![run], self.statuses()),
                2 => Operation::Remove(vec![run], Status::ALL.to_vec()),
                _ if claims.is_empty() => Operation::Cancel(vec![run], Status::ALL.to_vec()),
                _ => {
                    let results = vec![self.finish(*claims.last().unwrap())];
                    let (kept, unstarted) = (Vec::new(), Vec::new());
                    let (claim, skips_locked) = (None, false);
                    let step = Request::Step { results, kept, unstarted, claim, skips_locked };
                    Operation::Tick(index, step)
                }
            }
        });
        Operation::Race(run, Box::new(both))
    }

    fn ids(&mut self) -> Vec<i64> {
        let known: Vec<_> = self.model.runs.keys().copied().collect();
        let count = 1 + self.random.below(3);
        let mut id = || if known.is_empty() { 1 } else { self.random.of(&known) };
        let ids: BTreeSet<_> = (0..count).map(|_| id()).collect();
        ids.into_iter().collect()
    }

    fn statuses(&mut self) -> Vec<Status> {
        let all = Status::ALL.to_vec();
        if self.random.percent(70) { all } else { vec![self.random.of(&all)] }
    }

    /// Claims of this tick, mostly; some are not valid.
    fn tokens(&mut self, index: usize) -> Vec<FencingToken> {
        let random = &mut self.random;
        let mut tokens = BTreeSet::new();
        for (owner, mut claim) in self.claims.iter().rev().copied().take(8) {
            if random.percent(if owner == index { 70 } else { 8 }) {
                claim.attempt += i32::from(random.percent(3));
                claim.claimed_at += Duration::from_micros(u64::from(random.percent(3)));
                tokens.insert(claim);
            }
        }
        tokens.into_iter().collect()
    }

    fn step(&mut self, index: usize) -> Request {
        let results = if self.random.percent(60) { self.tokens(index) } else { Vec::new() };
        let results: Vec<_> = results.into_iter().map(|token| self.finish(token)).collect();
        let (kept, results): (Vec<_>, Vec<_>) =
            results.into_iter().partition(|_| self.random.percent(5));
        let unstarted = if self.random.percent(25) { self.tokens(index) } else { Vec::new() };
        let random = &mut self.random;
        let mut after = BTreeMap::new();
        for position in &self.positions {
            after.insert((position.queue.clone(), position.priority), position.clone());
        }
        let lane = [("default".to_owned(), 0), ("x".to_owned(), 1)];
        let lane = self.last_lane.clone().unwrap_or(random.of(&lane));
        let claim = (results.is_empty() || random.percent(60)).then(|| Claim {
            at_most: 1 + random.below(5) as i32,
            free_threads: random.of(&[0, 1, 2, 5, 5, 5]),
            bytes: if random.percent(15) { 1 + random.below(20) as i64 } else { 1 << 20 },
            after: random.percent(12).then(|| after.into_values().collect()),
            after_lane: random
                .percent(if self.last_lane.is_some() { 50 } else { 8 })
                .then_some(lane),
            after_definition: None,
            after_shares: Vec::new(),
            release_right: random.percent(30),
            limits: random.percent(85),
        });
        Request::Step { results, kept, unstarted, claim, skips_locked: random.percent(50) }
    }

    fn finish(&mut self, token: FencingToken) -> Finish {
        let random = &mut self.random;
        let (status, outcome, error_type) = random.of(&[
            (Status::Succeeded, HistoryOutcome::Succeeded, None),
            (Status::Failed, HistoryOutcome::Failed, Some(ErrorType::ExitCode)),
            (Status::Failed, HistoryOutcome::LeaseExpired, Some(ErrorType::LeaseExpired)),
            (Status::Dead, HistoryOutcome::Failed, Some(ErrorType::Timeout)),
            (Status::Queued, HistoryOutcome::Interrupted, Some(ErrorType::Interrupted)),
            (Status::Queued, HistoryOutcome::Snoozed, Some(ErrorType::ExitCode)),
            (Status::Cancelled, HistoryOutcome::Cancelled, Some(ErrorType::Cancelled)),
        ]);
        let error = error_type.map(|it| format!("{it} {}", random.below(2)));
        let wait = Duration::from_millis(random.below(100_000));
        let ended_ago = Duration::from_millis(random.below(2000));
        Finish {
            token,
            next_status: NextStatus { status, outcome, wait, error_type, error },
            detail: random.maybe(&["more".to_owned()]),
            exit_code: None,
            signal: None,
            http_status: None,
            output: None,
            output_bytes: 0,
            output_truncated: false,
            started_ago: ended_ago + Duration::from_millis(random.below(9000)),
            ended_ago,
        }
    }

    fn new_run(&mut self) -> NewRun {
        let random = &mut self.random;
        let job_type = random.of(&["shell", "shell", "d1", "d2", "d3"]).to_owned();
        let text = |it: Option<&str>| it.map(str::to_owned);
        let key = random.percent(35).then(|| random.of(&["k1", "k2"]));
        let payloads: &[_] = if key.is_some() && random.percent(90) {
            &["{}"]
        } else {
            &["{}", "{\"n\": 1}", "[1, 22, 333]"]
        };
        let at = self.model.now - Duration::from_secs(60);
        let run_at = if random.percent(30) {
            Some(at + Duration::from_micros(random.below(90_000_000)))
        } else {
            None
        };
        NewRun {
            job_type,
            payload: random.of(payloads).to_owned(),
            queue: text(random.maybe(&["x", "y"])),
            priority: random.maybe(&[0, 1]),
            run_at,
            after: if run_at.is_none() { random.maybe(&[0.0, 0.25, 5.0]) } else { None },
            max_attempts: random.maybe(&[1, 2, 3]),
            timeout: random.maybe(&[30.0]),
            backoff: text(random.maybe(&["fixed:1s", "list:2s,5m"])),
            expires_in: random.maybe(&[1.0, 20.0, 3600.0]).filter(|_| run_at.is_none()),
            share: text(random.maybe(&["a", "b", "B", "ä"])),
            key: text(key),
            key_scope: key
                .and_then(|_| random.maybe(&[KeyScope::Live, KeyScope::Live, KeyScope::Retained])),
            ..NewRun::default()
        }
    }

    fn on_model(&mut self, operation: &Operation) -> String {
        let model = &mut self.model;
        match operation {
            Operation::Tick(index, request) => {
                let session = &mut self.sessions[*index];
                session.now = Instant::now();
                let answer = model.perform(session, request, &mut || 0.5);
                if let Answer::Step(Ok(step)) = &answer {
                    self.last_lane.clone_from(&step.taken.last_lane);
                    for run in &step.taken.claimed {
                        self.claims.push((*index, run.token()));
                        self.positions.extend(run.position.clone());
                    }
                }
                self.last = Some((*index, again(request)));
                said_of(answer)
            }
            Operation::Enqueue(runs, dependencies) => {
                let mut answers: Vec<_> = runs.iter().map(|run| model.enqueue(run)).collect();
                for Dependencies { run, after, rule } in dependencies {
                    let Some(Accepted { id: Some(id), result: EnqueueResult::Enqueued, .. }) =
                        answers[*run].clone().accepted_run()
                    else {
                        continue;
                    };
                    let id_of = |after: &Predecessor| match after {
                        Predecessor::Id(id) => *id,
                        Predecessor::InBatch(_) => unreachable!(),
                    };
                    let after: Vec<_> = after.iter().map(id_of).collect();
                    if let Some(refused) = model.wait_for(id, &after, *rule) {
                        model.set(id, None);
                        answers[*run] = refused;
                    }
                }
                format!("{answers:?}")
            }
            Operation::Retry(ids, from, terms) => actions(model.retry(ids, from, *terms)),
            Operation::Cancel(ids, from) => actions(model.cancel(ids, from)),
            Operation::Edit(ids, from, edit) => actions(model.edit(ids, from, edit)),
            Operation::Remove(ids, from) => actions(model.remove(ids, from)),
            Operation::Pause(name) => said(model.pause(name)),
            Operation::Resume(name) => said(model.resume(name)),
            Operation::Hold(target, lasts) => {
                format!("{:?}", model.hold(target.clone(), *lasts))
            }
            Operation::Release(target) => format!("{:?}", model.end_holds(target)),
            Operation::Apply(specs, others, takes_over) => {
                said(model.apply(specs, *others, *takes_over))
            }
            Operation::Recover(expired) => said(model.recover(expired)),
            Operation::Fire(plans) => said(model.fire_planned(plans).map(sorted)),
            Operation::Lock(runs, definitions, workers) => {
                model.locked.extend(runs.iter().filter(|id| model.runs.contains_key(id)));
                model.locked_definitions.extend(definitions.iter().cloned());
                model.locked_definitions.retain(|name| model.definitions.contains_key(name));
                model.locked_workers.extend(workers.iter().cloned());
                model.locked_workers.retain(|name| model.workers.contains_key(name));
                String::new()
            }
            Operation::Unlock => {
                model.locked.clear();
                model.locked_definitions.clear();
                model.locked_workers.clear();
                String::new()
            }
            Operation::Refuse(run, write) => {
                model.refused.insert((*run, *write));
                String::new()
            }
            Operation::RefuseJob(job) => {
                model.refused_jobs.insert(job.clone());
                String::new()
            }
            Operation::Race(..) => unreachable!(),
        }
    }

    /// A wake draws the waits of recovered runs at random: takes those that are possible.
    fn adopt_waits(&mut self, real: &Rows) {
        for run in self.model.runs.values_mut() {
            // A recovered run may expire in the same wake.
            let is_recovered =
                matches!(run.error_type.as_deref(), Some("lease_expired" | "expired"))
                    && run.failed_at == Some(self.model.now)
                    && run.updated_at == self.model.now;
            let real = real.get(&format!("run {}", run.id)).filter(|_| is_recovered);
            let real = real.and_then(|row| row["run_at"].as_i64());
            let Some(real) = real.and_then(DateTime::from_timestamp_micros) else { continue };
            let [wait, drawn] = [run.run_at, real].map(|at| (at - run.updated_at).as_seconds_f64());
            if (drawn - wait).abs() <= 0.2 * wait + 1e-6 {
                run.run_at = real;
            }
        }
    }
}

/// Runs a sequence. Returns the number of steps and of rows at its end, or what differs.
fn compare(real: &mut Real, seed: u64) -> Result<(), String> {
    let mut sequence = Sequence::new(seed);
    real.reset(&sequence.sessions);
    real.rows(sequence.model.now);
    for step in 0..STEPS {
        let operation = sequence.operation(seed, step);
        let real_said = real.perform(&operation);
        let (model_said, real_said) = match &operation {
            Operation::Race(_, both) => {
                let (first, second, said) = match real_said.strip_prefix("swapped ") {
                    Some(said) => (1, 0, said),
                    None => (0, 1, &*real_said),
                };
                let mut model = [String::new(), String::new()];
                model[first] = sequence.on_model(&both[first]);
                model[second] = sequence.on_model(&both[second]);
                (model.join(" "), said.to_owned())
            }
            _ => (sequence.on_model(&operation), real_said),
        };
        let next = sequence.next_time();
        let rows = real.rows(next);
        if matches!(operation, Operation::Tick(_, Request::Wake(_))) {
            sequence.adopt_waits(&rows);
        }
        let differing = differing(&rows_of(&sequence.model), &rows);
        let excluded = |filter: &ClaimFilter| filter.excluded_runs.clone();
        let model_excluded: Vec<_> =
            sequence.sessions.iter().map(|it| excluded(&it.filter)).collect();
        let real_excluded: Vec<_> = real.ticks.iter().map(|it| excluded(&it.plan.filter)).collect();
        if model_said != real_said || !differing.is_empty() || model_excluded != real_excluded {
            return Err(format!(
                "seed {seed}, step {step}: {operation:?}\nmodel: {model_said}\nreal:  {real_said}\n\
                {differing}excluded: {model_excluded:?} {real_excluded:?}"
            ));
        }
        sequence.model.now = next;
    }
    Ok(())
}

/// SEQUENCES is their number, as in `make simulate`; SEED is the one to replay.
#[test]
#[expect(clippy::print_stdout, reason = "the progress of a long form")]
fn the_model_and_postgres_answer_alike() {
    let Ok(server) = env::var("JOBCTL_TEST_DATABASE_URL") else {
        let why = "JOBCTL_TEST_DATABASE_URL names no server; use make test";
        return leave_out("the comparison of the simulated database with PostgreSQL", why);
    };
    let number = |name: &str| env::var(name).ok().map(|it| it.parse().unwrap());
    let (first, count) = match number("SEED") {
        Some(seed) => (seed, Some(1)),
        None => (0, number("SEQUENCES")),
    };
    let (end, began) = (first + count.unwrap_or(u64::MAX / 2), Instant::now());
    let is_enough = |seed| count.is_none() && seed >= LEAST && began.elapsed() > SHORT;
    let is_over = |seed| seed >= end || is_enough(seed);
    let next = AtomicU64::new(first);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (server, next) = (&server, &next);
            scope.spawn(move || {
                let name = format!("jobctl_differential_{}_{thread}", std::process::id());
                let mut url = Url::parse(server).unwrap();
                url.set_path(&name);
                let admin = Sql(connect(server).into());
                admin.rows(&format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'"));
                let mut real = Real::new(url.as_str());
                let mut failure = None;
                while failure.is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if is_over(seed) {
                        break;
                    }
                    failure = compare(&mut real, seed).err();
                    if seed % 500 == 499 {
                        println!("{} sequences in {:?}", seed + 1 - first, began.elapsed());
                    }
                }
                drop(real);
                admin.rows(&format!("DROP DATABASE {name} WITH (FORCE)"));
                if let Some(failure) = failure {
                    next.store(end, Ordering::Relaxed);
                    panic!("{failure}");
                }
            });
        }
    });
}

/// Most hooks are `d1`, which few definitions lack. Few are wrong, because then nothing is applied.
fn hook(random: &mut Random, name: &str) -> Option<String> {
    match random.below(100) {
        0 => Some("none".to_owned()),
        1 => Some("d2".to_owned()),
        2..30 if name != "d1" => Some("d1".to_owned()),
        _ => None,
    }
}

fn spec(random: &mut Random, name: &str) -> Spec {
    let rate = if random.percent(30) { Some(random.of(&["2/3s", "7/1s", "1/2m"])) } else { None };
    let rate = rate.map(str::to_owned);
    let schedules = ["* * * * *", "*/5 * * * *", "0 * * * *"];
    Spec {
        name: name.to_owned(),
        kind: random.of(&JobKind::ALL),
        action: Value::from("true"),
        payload: random.of(&[Value::from(7), Value::from("text")]),
        schedule: random.maybe(&schedules).map(str::to_owned),
        time_zone: random.of(&["UTC", "Europe/Berlin"]).to_owned(),
        catch_up: random.of(&["skip", "one", "all", "all:3"]).to_owned(),
        overlap: random.of(&["allow", "skip", "queue"]).to_owned(),
        max_running: random.maybe(&[1, 2]),
        rate: rate.clone(),
        burst: rate.and_then(|_| random.maybe(&[1, 3])),
        max_running_per_share: random.maybe(&[1, 2]),
        max_waiting: None,
        when_full: "refuse".to_owned(),
        snooze: random.of(&["run", "job"]).to_owned(),
        pass_result: false,
        max_attempts: 1 + random.below(3) as i32,
        timeout: random.maybe(&[10.0]),
        max_age: None,
        max_lag: None,
        alert_after: 3,
        usual: None,
        expires: random.maybe(&[2.0, 600.0]),
        keep: random.maybe(&[60.0, 1e6]),
        keep_dead: random.maybe(&[0.0, 1e6]),
        backoff: random.of(&["fixed:1s", "exponential:1m..30m"]).to_owned(),
        priority: random.below(2) as i32,
        queue: random.of(&["default", "x"]).to_owned(),
        spread: random.of(&[0.0, 300.0]),
        on_dead: hook(random, name),
        on_success: hook(random, name),
        on_end: hook(random, name),
        file: String::new(),
        enqueuers: None,
        enqueue_may_set: Vec::new(),
        enabled: random.percent(90),
    }
}
