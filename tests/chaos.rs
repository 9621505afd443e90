//! Real ticks against a PostgreSQL of their own, while processes are killed and stopped, sessions
//! end, the server crashes, answers get lost and tables are locked. Jobs log what they do; the
//! checker proves the promises from that log and the history. A seed makes all random choices.
//! Real time passes, so a seed repeats the kinds and the order of faults, not every interleaving.

mod checker;

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use crate::support::{Invocation, Proxy, Running, TestDb, jobctl, server, temp_dir, wait_until};

/// The time in which all runs must finish after the last fault, on the slowest machine.
const DRAIN: Duration = Duration::from_secs(180);
/// How long the form in `make test` makes faults.
const SHORT: Duration = Duration::from_secs(4);
/// Its seed: it makes most kinds of faults in that time.
const SHORT_SEED: u64 = 23;
/// If this thread sleeps that much too long, the machine stopped the ticks as well. A tick stops
/// its jobs a twelfth of its lease before the lease ends.
const STALL: Duration = Duration::from_millis(250);

// The phases of a test: faults, then their end and the rest of the work, then the end of the ticks.
const FAULTS: u8 = 0;
const DRAINING: u8 = 1;
const OVER: u8 = 2;

/// The job of all definitions; $1 is its kind, $2 how long it may take.
const JOB: &str = r#"
folder=${0%/*}
who="$JOBCTL_RUN_ID $JOBCTL_ATTEMPT $CHAOS_TICK"
log() { read -r up _ </proc/uptime; echo "$up $1 $who$2" >>"$folder/log"; }
finish() { log end " $1"; exit "$1"; }
beat() {
    i=0
    while [ $i -lt "$1" ] && [ -e "$folder/log" ]; do
        sleep 0.1
        log beat
        i=$((i + 1))
    done
}
if [ "$1" = effect ]; then
    trap '' TERM
    log effect " $JOBCTL_IDEMPOTENCY_KEY"
    exit
fi
trap 'log term; finish 143' TERM
log start " $JOBCTL_JOB"
case $1 in
    long) beat $(($2 + JOBCTL_RUN_ID * 7 % $2)) ;;
    transient) beat 2; [ "$JOBCTL_ATTEMPT" -gt 2 ] || finish 75 ;;
    permanent) finish 65 ;;
    timeout) beat 80 ;;
    leaver) beat 20 & ;;
    stubborn) trap 'log term' TERM; beat 30 ;;
    limited | shared) beat 8 ;;
    versioned)
        version=$(tr -cd 0-9)
        log version " ${version:--}"
        beat 4
        ;;
    crash) : >"$folder/crash-$CHAOS_TICK"; beat 40 ;;
    once)
        beat 2
        "$CHAOS_JOBCTL" once "chaos:$JOBCTL_IDEMPOTENCY_KEY" -- sh "$0" effect
        finish $?
        ;;
    *) beat $((JOBCTL_RUN_ID % 8)) ;;
esac
finish 0
"#;

/// The kind, its attempts, its `max_running` (0: no limit), and how often it is enqueued in
/// comparison with the others.
const JOBS: [(&str, u32, u32, u32); 18] = [
    ("short", 6, 0, 6),
    ("long", 4, 0, 8),
    ("transient", 8, 0, 3),
    ("permanent", 3, 0, 1),
    ("timeout", 2, 0, 1),
    ("leaver", 3, 0, 2),
    ("stubborn", 3, 0, 1),
    ("crash", 2, 0, 1),
    ("once", 5, 0, 3),
    ("limited", 5, 1, 6),
    ("shared", 5, 0, 4),
    ("paced", 5, 0, 4),
    ("hasty", 5, 0, 3),
    ("versioned", 5, 0, 4),
    ("guarded", 5, 0, 4),
    ("origin", 5, 0, 5),
    ("following", 5, 0, 0),
    ("appointed", 5, 0, 0),
];

/// Further keys of definitions, which the checker knows by the lines of `RULES`.
const KEYS: [(&str, &str); 6] = [
    ("shared", "max_running_per_share = 1"),
    ("paced", "rate = '5/2s'\nburst = 2"),
    ("hasty", "expires = '2s'"),
    // Some runs of other jobs have this lock, too.
    ("guarded", "lock = 'common'"),
    ("following", "after = ['origin']"),
    // The job of the schedules of applications.
    ("appointed", "catch_up = 'all:50'\noverlap = 'allow'"),
];
const RULES: [&str; 2] = ["share-limit shared 1", "rate paced 400000 2"];

/// Keeps each transition of a run, also after it is pruned.
const TRIGGER: &str = "
CREATE TABLE public.changes (place bigserial, line text);
CREATE TABLE public.effects (key text);
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.changes (line) VALUES (CASE TG_OP
        WHEN 'INSERT' THEN concat_ws(' ', 'insert', NEW.id,
            concat_ws('/', coalesce(NEW.schedule, NEW.job_type), NEW.worker), NEW.max_attempts,
            CASE WHEN NEW.key_scope = 'retained' THEN coalesce(NEW.idempotency_key, '-')
                ELSE '-' END,
            coalesce(extract(epoch FROM NEW.scheduled_for)::bigint::text, '-'), NEW.status)
        WHEN 'DELETE' THEN
            concat_ws(' ', 'change', OLD.id, OLD.status, 'deleted', OLD.attempts,
                OLD.max_attempts || '+' || OLD.uncounted_attempts)
        ELSE concat_ws(' ', 'change', NEW.id, OLD.status, NEW.status, NEW.attempts,
            NEW.max_attempts || '+' || NEW.uncounted_attempts)
    END);
    IF TG_OP = 'UPDATE' AND NEW.status = 'running' AND OLD.status <> 'running' THEN
        INSERT INTO public.changes (line) VALUES (concat_ws(' ', 'claim', NEW.id, NEW.attempts,
            NEW.job_type, coalesce(NEW.share, '-'),
            (extract(epoch FROM NEW.started_at) * 1e6)::bigint,
            coalesce((extract(epoch FROM NEW.expires_at) * 1e6)::bigint::text, '-'),
            coalesce(
                (SELECT lock_name FROM jobctl.job_definitions WHERE name = NEW.job_type),
                NEW.lock,
                '-'
            ),
            coalesce(NEW.worker, '-'), NEW.locked_by));
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION public.note_payload() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.changes (line)
    VALUES (concat_ws(' ', 'payload', NEW.id, coalesce(NEW.payload ->> 'version', '-')));
    RETURN NULL;
END $$;
CREATE FUNCTION public.note_follower() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.changes (line)
    SELECT concat_ws(' ', 'follows', NEW.run_id, NEW.after_id) FROM jobctl.job_runs
    WHERE id = NEW.run_id AND job_type = 'following';
    RETURN NULL;
END $$;
CREATE TRIGGER note_follower AFTER INSERT ON jobctl.job_dependencies
    FOR EACH ROW EXECUTE FUNCTION public.note_follower();
CREATE TRIGGER note_first_payload AFTER INSERT ON jobctl.job_runs FOR EACH ROW
    WHEN (NEW.job_type = 'versioned') EXECUTE FUNCTION public.note_payload();
CREATE TRIGGER note_payload AFTER UPDATE ON jobctl.job_runs FOR EACH ROW
    WHEN (NEW.job_type = 'versioned' AND OLD.payload IS DISTINCT FROM NEW.payload)
    EXECUTE FUNCTION public.note_payload();
CREATE TRIGGER note AFTER INSERT OR DELETE ON jobctl.job_runs
    FOR EACH ROW EXECUTE FUNCTION public.note();
CREATE TRIGGER note_change AFTER UPDATE ON jobctl.job_runs FOR EACH ROW
    WHEN ((OLD.status, OLD.attempts, OLD.locked_by) IS DISTINCT FROM
        (NEW.status, NEW.attempts, NEW.locked_by))
    EXECUTE FUNCTION public.note();
-- The server runs without fsync, but no commit may get lost when it crashes.
ALTER ROLE CURRENT_USER SET synchronous_commit = on;
";

/// What the log gets at its end, see chaos/checker.rs.
const EVIDENCE: [&str; 5] = [
    "SELECT concat_ws(' ', '- waits', run_id, after_id, rule) FROM jobctl.job_dependencies",
    "SELECT '- ' || line FROM public.changes ORDER BY place",
    "SELECT concat_ws(' ', '- run', id, status) FROM jobctl.job_runs ORDER BY id",
    "SELECT concat_ws(' ', '- attempt', run_id, attempt, worker, outcome,
         coalesce(exit_code::text, '-'), (extract(epoch FROM started_at) * 1e6)::bigint,
         (extract(epoch FROM finished_at) * 1e6)::bigint)
     FROM jobctl.job_attempts ORDER BY run_id, attempt",
    "SELECT '- recorded ' || key FROM public.effects",
];

/// SplitMix64: small, and the same on every machine.
struct Random(u64);

impl Random {
    /// Returns a number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let end = u64::try_from(of.len()).unwrap();
        (end > 0).then(|| &of[usize::try_from(self.below(end)).unwrap()])
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

struct Tick {
    name: String,
    worker: usize,
    process: Running<'static>,
    /// Stopped by SIGSTOP until then.
    stopped: Option<Instant>,
    /// Killed, or got SIGTERM perhaps before it catches signals.
    may_crash: bool,
}

struct Chaos {
    seed: u64,
    db: TestDb,
    server: server::Server,
    folder: PathBuf,
    log: File,
    leases: &'static [&'static str],
    /// A proxy for each worker except the first, which reaches the database directly.
    proxies: Vec<Proxy>,
    phase: AtomicU8,
    ticks: Mutex<Vec<Tick>>,
    counts: Mutex<BTreeMap<String, u32>>,
    problems: Mutex<Vec<String>>,
}

impl Chaos {
    /// Returns the random numbers of one thread, which other threads do not use up.
    fn random(&self, thread: u64) -> Random {
        let mut random = Random(self.seed.wrapping_add(thread << 32));
        random.below(2);
        random
    }

    fn is_in(&self, phase: u8) -> bool {
        self.phase.load(SeqCst) == phase
    }

    /// Appends a line to the log, after the time since the boot.
    fn note(&self, line: impl Display) {
        let up = fs::read_to_string("/proc/uptime").unwrap();
        let line = format!("{} {line}\n", up.split(' ').next().unwrap());
        (&self.log).write_all(line.as_bytes()).unwrap();
    }

    /// Counts a fault or an action, for the summary at the end.
    fn count(&self, what: &str) {
        *self.counts.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    fn problem(&self, text: String) {
        self.problems.lock().unwrap().push(text);
    }

    /// Waits, at most until the end of the faults. Returns whether they go on.
    fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while self.is_in(FAULTS) && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
        self.is_in(FAULTS)
    }

    /// Starts ticks of one worker again and again, as cron does.
    fn work(&self, worker: usize) {
        let mut random = self.random(10 + u64::try_from(worker).unwrap());
        let concurrency = (3 + worker).to_string();
        let url = match worker {
            0 => self.db.url(),
            _ => self.proxies[worker - 1].url(),
        };
        let mut next = Instant::now();
        for number in 0.. {
            // At most three ticks of a worker at a time.
            while Instant::now() < next || self.reap(worker) >= 3 {
                if self.is_in(OVER) {
                    return;
                }
                thread::sleep(Duration::from_millis(20));
            }
            let name = format!("{worker}-{number}");
            let [max, grace] =
                [2 + random.below(4), random.below(3)].map(|time| format!("{time}s"));
            let mut tick = jobctl(["tick", "--worker", &format!("w{worker}")])
                .args(["--concurrency", &concurrency, "--lease", random.pick(self.leases).unwrap()])
                .args(["--max-time", &max, "--grace", &grace])
                .env("JOBCTL_DATABASE_URL", &url)
                .env("DATABASE_URL", &url)
                .env("CHAOS_TICK", &name)
                .env("CHAOS_JOBCTL", env!("CARGO_BIN_EXE_jobctl"));
            if random.below(2) == 0 {
                tick = tick.args(["--linger"]);
            }
            let log = File::create(self.folder.join(format!("tick-{name}"))).unwrap();
            self.note(format!("tick {name} w{worker} {concurrency}"));
            let process = tick.stderr_to(log.into()).spawn();
            let tick = Tick { name, worker, process, stopped: None, may_crash: false };
            self.ticks.lock().unwrap().push(tick);
            self.count("ticks");
            next = Instant::now() + random.millis(200, 1500);
        }
    }

    /// Awaits the ended ticks of a worker and returns the number of the others.
    fn reap(&self, worker: usize) -> usize {
        let mut ticks = self.ticks.lock().unwrap();
        for tick in ticks.iter_mut().filter(|tick| tick.worker == worker) {
            // A job asks for this crash.
            if fs::remove_file(self.folder.join(format!("crash-{}", tick.name))).is_ok() {
                self.fault(tick, "crash", Signal::KILL);
            }
        }
        let has_ended = |tick: &mut Tick| tick.worker == worker && !tick.process.is_running();
        let ended: Vec<_> = ticks.extract_if(.., has_ended).collect();
        let left = ticks.iter().filter(|tick| tick.worker == worker).count();
        drop(ticks);
        for tick in ended {
            let ended = tick.process.wait();
            // A tick may fail, for example without its database, but must not crash.
            let is_expected = match ended.status.code() {
                None => tick.may_crash,
                Some(code) => [0, 1, 5].contains(&code),
            };
            let log = fs::read_to_string(self.folder.join(format!("tick-{}", tick.name))).unwrap();
            if !is_expected || log.contains("panicked") {
                self.problem(format!("tick {}: {}\n{log}", tick.name, ended.status));
            }
            self.note(format!("gone {}", tick.name));
        }
        left
    }

    /// Notes the fault before the signal, so that no excused line of a job precedes it.
    fn fault(&self, tick: &mut Tick, what: &str, signal: Signal) {
        if signal != Signal::TERM {
            self.note(format!("fault {}", tick.name));
        }
        tick.may_crash |= signal != Signal::STOP;
        tick.process.signal(signal);
        self.count(what);
    }

    /// Sends signals to ticks.
    fn signal(&self) {
        let mut random = self.random(1);
        while self.wait(random.millis(100, 2500)) {
            let mut ticks = self.ticks.lock().unwrap();
            let now = Instant::now();
            // Let the ticks go on whose stop is over.
            for tick in ticks.iter_mut().filter(|tick| tick.stopped.is_some_and(|end| end < now)) {
                tick.process.signal(Signal::CONT);
                tick.stopped = None;
            }
            // Use up the same random numbers, however many ticks there are.
            let (chosen, kind) = (random.below(1 << 16), random.below(3));
            let length = ticks.len().max(1);
            let Some(tick) = ticks.get_mut(usize::try_from(chosen).unwrap() % length) else {
                continue;
            };
            match kind {
                0 => self.fault(tick, "SIGKILL", Signal::KILL),
                1 => self.fault(tick, "SIGTERM", Signal::TERM),
                _ => {
                    self.fault(tick, "SIGSTOP", Signal::STOP);
                    tick.stopped = Some(now + random.millis(200, 8000));
                }
            }
        }
        for tick in &*self.ticks.lock().unwrap() {
            tick.process.signal(Signal::CONT);
        }
    }

    /// Disturbs the connections to the database.
    fn disturb(&self, worker: usize) {
        let mut random = self.random(20 + u64::try_from(worker).unwrap());
        let proxy = &self.proxies[worker - 1];
        while self.wait(random.millis(100, 1500)) {
            // Freezes are twice as likely.
            let kind = *random.pick(&["delay", "cut", "freeze", "swallow", "freeze"]).unwrap();
            match kind {
                "delay" => proxy.delay(random.millis(5, 300)),
                "cut" => proxy.cut(),
                "freeze" => proxy.freeze(),
                _ => proxy.lose_answer_to(&["COMMIT"]),
            }
            self.count(kind);
            self.wait(random.millis(200, 12_000));
            proxy.delay(Duration::ZERO);
            proxy.lose_answer_to(&[]);
            proxy.restore();
        }
    }

    /// Disturbs the database itself.
    fn damage(&self) {
        let mut random = self.random(2);
        let data = self.server.show("data_directory");
        while self.wait(random.millis(100, 1500)) {
            let kind = *random.pick(&["sessions", "restart", "table lock", "row locks"]).unwrap();
            self.count(kind);
            let statement = match kind {
                "restart" => {
                    self.server.restart_immediately(&data);
                    continue;
                }
                "sessions" => {
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE application_name = 'jobctl'"
                }
                "table lock" => "BEGIN; LOCK TABLE jobctl.job_runs IN ACCESS EXCLUSIVE MODE",
                _ => "BEGIN; SELECT FROM jobctl.job_runs WHERE id % 2 = 0 FOR UPDATE",
            };
            let mut client = self.db.client();
            // Locks last until the session ends.
            if client.batch_execute(statement).is_ok() && statement.starts_with("BEGIN") {
                self.wait(random.millis(200, 5000));
            }
        }
    }

    /// Enqueues by command and by SQL; each key at the same time in both ways.
    fn enqueue(&self, part: u64) {
        let mut random = self.random(part);
        // Each job as often as its weight says.
        let weighted_jobs: Vec<_> = JOBS
            .iter()
            .flat_map(|(kind, .., weight)| vec![*kind; usize::try_from(*weight).unwrap()])
            .collect();
        let (mut schedules, mut appointments) = (0, 0);
        for number in 0.. {
            if !self.wait(random.millis(50, 700)) {
                return;
            }
            // A run that lost its lease starts again soon only if no other runs wait.
            let waiting = "SELECT count(*) < 6 FROM jobctl.job_runs
                 WHERE status IN ('queued', 'failed') AND run_at <= now()";
            if !self.db.try_query(waiting).is_ok_and(|is_idle| is_idle == "t") {
                continue;
            }
            let (job, how) = (*random.pick(&weighted_jobs).unwrap(), random.below(7));
            let key = format!("key-{part}-{number}");
            match how {
                // One key in three sessions at the same time.
                0 => {
                    thread::scope(|scope| {
                        scope.spawn(|| self.enqueue_by_command(job, Some(&key)));
                        scope.spawn(|| self.enqueue_by_sql(job, &key));
                        self.enqueue_by_sql(job, &key);
                    });
                }
                1 => self.enqueue_by_sql(job, &key),
                2 if schedules < 6 => {
                    schedules += u32::from(self.define_schedule(part, schedules));
                }
                3 => self
                    .enqueue_after(job, random.pick(&["--after-any-end", "--or-cancel"]).unwrap()),
                6 if appointments < 3 => {
                    appointments += u32::from(self.schedule_by_sql(part, appointments));
                }
                _ => {
                    let version = format!(r#"{{"version": {}}}"#, random.below(1 << 30));
                    let share = format!("s{}", random.below(2));
                    let worker = random.pick(&["w0", "w1", "w2"]).unwrap();
                    let key = format!("document-{}", random.below(4));
                    let more: &[&str] = match job {
                        "shared" => &["--share", &share],
                        "short" => &["--lock", "common"],
                        "transient" => &["--worker", worker],
                        "versioned" => {
                            let live = ["--key-scope", "live", "--on-conflict", "replace"];
                            &[&[&*version, "--key", &key, "--in", "1s"], &live[..]].concat()
                        }
                        _ => &[],
                    };
                    self.enqueue_with(job, None, more);
                }
            }
        }
    }

    /// Inserts a definition with a schedule, five of whose times have passed. Every third is for
    /// each worker. Returns whether it is known to be stored.
    fn define_schedule(&self, part: u64, number: u32) -> bool {
        let name = format!("every-minute-{part}-{number}");
        let each_worker = number % 3 == 2;
        let insert = format!(
            "INSERT INTO jobctl.job_definitions (name, kind, action, schedule,
                 catch_up, overlap, next_run_at, max_attempts, backoff, each_worker)
             SELECT '{name}', kind, action, '* * * * *', 'all:50', 'allow',
                 date_trunc('minute', now()) - interval '4 minutes', 5,
                 'fixed:200ms', {each_worker}
             FROM jobctl.job_definitions WHERE name = 'short'
             RETURNING extract(epoch FROM next_run_at)::bigint"
        );
        let first = self.db.try_query(&insert);
        // A time may pass before any worker has ticked twice.
        if let Some(first) = first.as_ref().ok().filter(|_| !each_worker) {
            self.note(format!("schedule {name} {first} 5"));
        }
        first.is_ok()
    }

    /// Stores a schedule as an application does; five of its times have passed. Returns whether it
    /// is known to be stored.
    fn schedule_by_sql(&self, part: u64, number: u32) -> bool {
        let name = format!("appointment-{part}-{number}");
        let statements = format!(
            "BEGIN;
             DO $$ BEGIN PERFORM jobctl.schedule('{name}', 'appointed', '* * * * *'); END $$;
             UPDATE jobctl.job_schedules
             SET next_run_at = date_trunc('minute', now()) - interval '4 minutes'
             WHERE name = '{name}'
             RETURNING extract(epoch FROM next_run_at)::bigint;
             COMMIT"
        );
        let first = self.db.try_query(&statements);
        if let Ok(first) = &first {
            self.note(format!("schedule {name} {first} 5"));
            self.count("application schedule");
        }
        first.is_ok()
    }

    /// Enqueues by command, and notes the answer.
    fn enqueue_by_command(&self, job: &str, key: Option<&str>) {
        self.enqueue_with(job, key, &[]);
    }

    /// The same with more flags.
    fn enqueue_with(&self, job: &str, key: Option<&str>, more: &[&str]) {
        let enqueue = self.call(&["enqueue", job]).args(more.iter().copied());
        let enqueue = key.into_iter().fold(enqueue, |call, key| call.args(["--key", key])).run();
        match enqueue.status.code() {
            Some(0) => {
                self.note(format!("answer {} {}", enqueue.stdout.trim(), key.unwrap_or("-")));
            }
            // The database did not answer.
            Some(5) => {}
            _ => self.problem(enqueue.to_string()),
        }
    }

    /// Enqueues a run that waits for two others. They may be deleted meanwhile, or have died.
    fn enqueue_after(&self, job: &str, rule: &str) {
        let others = "SELECT string_agg(id::text, ',')
             FROM (SELECT id FROM jobctl.job_runs ORDER BY status = 'succeeded', random() LIMIT 2)
                 AS other";
        let Ok(others) = self.db.try_query(others) else { return };
        let enqueue = self.call(&["enqueue", job, "--after", &others, rule]).run();
        match enqueue.status.code() {
            Some(0) => self.note(format!("answer {} -", enqueue.stdout.trim())),
            Some(2 | 3 | 5) => {}
            _ => self.problem(enqueue.to_string()),
        }
    }

    /// Enqueues and records an effect in one transaction.
    fn enqueue_by_sql(&self, job: &str, key: &str) {
        let statements = format!(
            "BEGIN;
             INSERT INTO public.effects SELECT '{key}' WHERE jobctl.record_effect('{key}');
             SELECT jobctl.enqueue('{job}', key => '{key}');
             COMMIT"
        );
        if let Ok(id) = self.db.try_query(&statements) {
            self.note(format!("answer {} {key}", id.trim()));
        }
    }

    /// Returns a command that reaches the database without a proxy.
    fn call(&self, arguments: &[&str]) -> Invocation<'static> {
        jobctl(arguments.iter().copied()).env("JOBCTL_DATABASE_URL", &self.db.url())
    }

    /// Executes a command of an operator. Returns whether it succeeded.
    fn act(&self, arguments: &[&str]) -> bool {
        let done = self.call(arguments).run();
        // It may fail, as runs change meanwhile, but not because of a wrong usage or a panic.
        if !matches!(done.status.code(), Some(0 | 1 | 3 | 4 | 5)) {
            self.problem(done.to_string());
        }
        done.status.code() == Some(0)
    }

    /// Acts on runs as an operator does.
    fn operate(&self) {
        let mut random = self.random(3);
        while self.wait(random.millis(200, 1500)) {
            // The command, its flags, and the runs that it may get.
            let (command, flags, condition): (_, &[&str], _) = *random
                .pick(&[
                    ("retry", &[][..], "status IN ('dead', 'cancelled', 'failed', 'queued')"),
                    ("retry", &["--force"], "status = 'running'"),
                    ("cancel", &[], "status IN ('queued', 'failed', 'running')"),
                    ("prune", &[], "status IN ('succeeded', 'dead', 'cancelled')"),
                    ("pause", &[], ""),
                ])
                .unwrap();
            let candidates = match command {
                "pause" => "SELECT name FROM jobctl.job_definitions WHERE schedule IS NOT NULL \
                     ORDER BY name"
                    .to_owned(),
                _ => format!("SELECT id FROM jobctl.job_runs WHERE {condition} ORDER BY id"),
            };
            let Ok(candidates) = self.db.try_query(&candidates) else { continue };
            let candidates: Vec<_> = candidates.lines().collect();
            let Some(chosen) = random.pick(&candidates) else { continue };
            let word = if flags.is_empty() { command } else { "force" };
            self.note(format!("{word} {chosen}"));
            self.count(word);
            self.act(&[&[command, chosen][..], flags].concat());
            if command == "pause" {
                self.wait(random.millis(100, 2000));
                self.act(&["resume", chosen]);
            }
        }
    }

    /// Holds jobs, edits payloads, and acts on many runs at once.
    fn operate_on_many(&self) {
        let mut random = self.random(6);
        let now =
            || self.db.try_query("SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint");
        let archive = self.folder.join("archive");
        let archive = archive.to_str().unwrap();
        while self.wait(random.millis(500, 2500)) {
            let job = random.pick(&JOBS).unwrap().0;
            let kind = *random
                .pick(&["hold", "edit", "cancel all", "retry all", "undo", "archive"])
                .unwrap();
            self.count(kind);
            match kind {
                "hold" => {
                    let held = self.act(&["hold", "--job", job]);
                    let from = now().ok().filter(|_| held);
                    self.wait(random.millis(100, 2000));
                    let until = now();
                    if let (Some(from), Ok(until)) = (from, until) {
                        self.note(format!("held {job} {from} {until}"));
                    }
                    self.act(&["release", "--job", job]);
                }
                "edit" => {
                    let version = format!(r#"{{"version": {}}}"#, random.below(1 << 30));
                    let edit = ["edit", "--all-waiting", "--job", "versioned", "--yes"];
                    self.call(&edit).args(["--payload-file", "-"]).stdin(version).run();
                }
                "cancel all" => drop(self.act(&["cancel", "--all-waiting", "--job", job, "--yes"])),
                "retry all" => {
                    self.note("retry-all");
                    self.act(&["retry", "--all-cancelled", "--job", job, "--yes"]);
                }
                "undo" => self.undo(random.pick(&["retry", "cancel", "edit"]).unwrap()),
                _ => {
                    let prune =
                        ["prune", "--older-than", "12s", "--dead-older-than", "12s", "--yes"];
                    let prune = self.call(&prune).args(["--archive", archive]).spawn();
                    if random.below(2) == 0 {
                        self.wait(random.millis(1, 60));
                        prune.signal(Signal::KILL);
                    }
                    prune.wait();
                }
            }
        }
        // A failed call may have left a hold, which would keep runs from their end.
        let release = "DELETE FROM jobctl.job_holds";
        wait_until("the holds end", || self.db.try_query(release).is_ok());
    }

    /// Undoes the latest operation with this action.
    fn undo(&self, action: &str) {
        let latest = ["trail", "--action", action, "--limit", "1", "--columns", "operation"];
        let latest = self.call(&latest).args(["--format", "tsv"]).run().stdout;
        if !latest.trim().is_empty() {
            self.note("undo");
            self.act(&["undo", latest.trim()]);
        }
    }

    /// Notes when the machine itself stops the ticks.
    fn watch_for_stalls(&self) {
        while !self.is_in(OVER) {
            let before = Instant::now();
            thread::sleep(Duration::from_millis(10));
            if before.elapsed() > STALL {
                self.count("stalls");
                for tick in &*self.ticks.lock().unwrap() {
                    self.note(format!("fault {}", tick.name));
                }
            }
        }
    }

    /// Ends the ticks, which hold no runs.
    fn end_ticks(&self) {
        for tick in &mut *self.ticks.lock().unwrap() {
            tick.may_crash = true;
            tick.process.signal(Signal::TERM);
        }
        let begun = Instant::now();
        while (0..=self.proxies.len()).map(|worker| self.reap(worker)).sum::<usize>() > 0 {
            if begun.elapsed() > DRAIN {
                return self.problem("a tick does not end after SIGTERM".to_owned());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns whether ticks have no work left.
    fn is_drained(&self) -> bool {
        let unfinished = "SELECT FROM jobctl.job_runs
             WHERE status IN ('queued', 'running', 'failed')
             UNION ALL SELECT FROM jobctl.job_definitions
             WHERE next_run_at <= now() AND paused_at IS NULL
             UNION ALL SELECT FROM jobctl.job_schedules WHERE next_run_at <= now()
             UNION ALL SELECT FROM jobctl.following_jobs
             -- Blocked runs about which no tick has decided yet.
             UNION ALL SELECT FROM jobctl.awaited_runs WHERE state = 'due'";
        let is_drained = self.db.try_query(&format!("SELECT NOT EXISTS ({unfinished})"));
        is_drained.is_ok_and(|is_drained| is_drained == "t")
    }

    /// Returns whether the log shows two attempts of a run at the same time.
    fn has_overlap(&self) -> bool {
        let log = fs::read_to_string(self.folder.join("log")).unwrap();
        checker::broken(&log).iter().any(|problem| problem.ends_with(" overlap"))
    }
}

/// Runs the workers and these actions for this time, then the workers alone until `is_over`, and
/// returns the broken promises. `sabotage` is SQL that makes jobctl break a promise, or empty.
#[allow(clippy::print_stderr, reason = "the seed and the numbers of faults are part of the result")]
fn run(
    seed: u64,
    time: Duration,
    sabotage: &str,
    actions: &[fn(&Chaos)],
    is_over: fn(&Chaos) -> bool,
) -> Vec<String> {
    eprintln!("CHAOS_SEED={seed} CHAOS_SECONDS={}", time.as_secs());
    let server = server::start("");
    let db = TestDb::on(&server);
    db.execute(TRIGGER);
    let folder = temp_dir();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("job"), JOB).unwrap();
    let mut definitions = String::new();
    // In the short form, jobs end soon, and lost runs are recovered soon. In the long form, jobs
    // outlast their leases.
    let (length, leases): (_, &[_]) =
        if time > SHORT { (60, &["3s", "4s", "6s"]) } else { (15, &["3s"]) };
    for (kind, attempts, limit, _) in JOBS {
        let job = path("job");
        write!(definitions, "[jobs.{kind}]\nshell = ['sh', {job:?}, '{kind}', '{length}']\n")
            .unwrap();
        write!(definitions, "max_attempts = {attempts}\nbackoff = 'fixed:200ms'\n").unwrap();
        if limit > 0 {
            writeln!(definitions, "max_running = {limit}").unwrap();
        }
        if kind == "timeout" {
            definitions += "timeout = '1s'\n";
        }
        for (_, keys) in KEYS.iter().filter(|(of, _)| *of == kind) {
            writeln!(definitions, "{keys}").unwrap();
        }
    }
    db.apply(&definitions);
    db.execute(sabotage);
    let chaos = Chaos {
        seed,
        proxies: vec![Proxy::to(&db), Proxy::to(&db)],
        db,
        server,
        folder: folder.path().to_owned(),
        log: OpenOptions::new().append(true).create(true).open(path("log")).unwrap(),
        leases,
        phase: AtomicU8::new(FAULTS),
        ticks: Mutex::default(),
        counts: Mutex::default(),
        problems: Mutex::default(),
    };
    for (kind, _, limit, _) in JOBS.iter().filter(|(_, _, limit, _)| *limit > 0) {
        chaos.note(format!("limit {kind} {limit}"));
    }
    RULES.iter().for_each(|rule| chaos.note(rule));
    // One run of each job, except `crash`: after a crash, a run waits for the end of its lease.
    let each = "SELECT jobctl.enqueue(name) FROM jobctl.job_definitions WHERE name <> 'crash'";
    chaos.db.query(each).lines().for_each(|id| chaos.note(format!("answer {id} -")));
    let chaos = &chaos;
    thread::scope(|scope| {
        (0..=chaos.proxies.len()).for_each(|worker| drop(scope.spawn(move || chaos.work(worker))));
        scope.spawn(|| chaos.watch_for_stalls());
        let actions: Vec<_> =
            actions.iter().map(|action| scope.spawn(move || action(chaos))).collect();
        chaos.wait(time);
        chaos.phase.store(DRAINING, SeqCst);
        for action in actions {
            if action.join().is_err() {
                chaos.problem("a thread panicked".to_owned());
            }
        }
        let begun = Instant::now();
        while !is_over(chaos) {
            if begun.elapsed() > DRAIN {
                chaos.problem(format!("not over {DRAIN:?} after the last fault"));
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        chaos.phase.store(OVER, SeqCst);
    });
    chaos.end_ticks();
    for query in EVIDENCE {
        let rows = chaos.db.query(query);
        (&chaos.log).write_all(rows.as_bytes()).unwrap();
        (&chaos.log).write_all(if rows.is_empty() { b"" } else { b"\n" }).unwrap();
    }
    // A prune that was killed may leave a part of a line.
    for line in fs::read_to_string(path("archive")).unwrap_or_default().lines() {
        if let Ok(run) = serde_json::from_str::<serde_json::Value>(line) {
            chaos.note(format!("archived {}", run["id"]));
        }
    }
    let log = fs::read_to_string(path("log")).unwrap();
    let mut problems = std::mem::take(&mut *chaos.problems.lock().unwrap());
    problems.extend(checker::broken(&log));
    let with = |word: &str| log.lines().filter(|line| line.split(' ').nth(1) == Some(word)).count();
    eprintln!(
        "{} runs, {} starts, {:?}",
        with("insert"),
        with("start"),
        chaos.counts.lock().unwrap()
    );
    // A broken promise may leave a running run.
    if !problems.is_empty() {
        chaos.db.allow_running_runs_at_end();
    }
    if !problems.is_empty() && sabotage.is_empty() {
        // The log of the first run with a problem.
        let run =
            problems.iter().find_map(|problem| problem.strip_prefix("run ")?.split(' ').next());
        let lines = log.lines().filter(|line| line.split(' ').nth(2) == run);
        eprintln!("{}\n{}", lines.collect::<Vec<_>>().join("\n"), folder.keep().display());
    }
    problems
}

/// The promises are those of README.md, which the checks in chaos/checker.rs repeat. The faults are
/// the functions in `actions`.
#[test]
fn every_promise_holds_while_everything_fails() {
    let setting = |name| -> Option<u64> {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
        Some(value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
    };
    let seconds = setting("CHAOS_SECONDS");
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let seed = setting("CHAOS_SEED").unwrap_or(if seconds.is_some() { now } else { SHORT_SEED });
    let time = seconds.map_or(SHORT, Duration::from_secs);
    let actions: [fn(&Chaos); 8] = [
        Chaos::signal,
        |chaos| chaos.disturb(1),
        |chaos| chaos.disturb(2),
        Chaos::damage,
        |chaos| chaos.enqueue(4),
        |chaos| chaos.enqueue(5),
        Chaos::operate,
        Chaos::operate_on_many,
    ];
    let problems = run(seed, time, "", &actions, Chaos::is_drained);
    assert!(problems.is_empty(), "CHAOS_SEED={seed}:\n{}", problems.join("\n"));
}

/// A sabotage: the database lets leases end earlier than their holders know. So another tick starts
/// the run while its job still runs.
const SHORT_LEASES: &str = "
CREATE FUNCTION public.shorten() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.locked_until := now() + interval '100 ms';
    RETURN NEW;
END $$;
CREATE TRIGGER shorten BEFORE UPDATE ON jobctl.job_runs FOR EACH ROW
    WHEN (NEW.status = 'running') EXECUTE FUNCTION public.shorten()";

#[test]
fn the_checker_of_the_chaos_test_finds_a_broken_fence() {
    let problems = run(1, SHORT, SHORT_LEASES, &[|chaos| chaos.enqueue(4)], Chaos::has_overlap);
    assert!(problems.iter().any(|problem| problem.contains(" overlap")), "{problems:?}");
}
