//! Measures what another application of the same server feels: the latency of pgbench's updates and
//! reads, at a fixed rate, beside jobctl and alone.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Scale;
use crate::database::Database;
use crate::process;
use crate::table::{Goal, Measured, median, percentile};
use crate::wait;

/// The transactions of pgbench in a second.
const RATE: &str = "100";
/// Runs per second.
const RATES: [usize; 2] = [100, 800];
const SCRIPT: &str = "\\set aid random(1, 100000 * :scale)
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
";
/// Threads that start bare processes, and jobs that run at a time.
const THREADS: usize = 8;
const TRUE: &str = r#"{"command": ["true"]}"#;

/// What runs beside pgbench.
#[derive(Clone, Copy)]
enum Beside {
    Nothing,
    /// A tick with `--linger` that finds nothing.
    Idle,
    /// An application enqueues this many runs in a second, and nothing starts them.
    Enqueues(usize),
    /// An application enqueues this many runs of `true` in a second, and a tick starts them.
    Runs(usize),
    /// Threads start `true` this many times in a second, without a database.
    Processes(usize),
}

pub fn beside(scale: Scale) -> Vec<Measured> {
    let (rounds, lasts) = (scale.of(3, 1), Duration::from_secs(scale.of(10, 2) as u64));
    let database = Database::new();
    let size = scale.of(10, 1).to_string();
    process::time(pgbench(&database, &["--initialize", "--quiet", "--scale", &size]));
    let [some, many] = RATES;
    let cases = [
        (Beside::Idle, "an idle tick with --linger".to_owned()),
        (Beside::Runs(some), format!("{some} enqueues and runs a second")),
        (Beside::Enqueues(some), format!("{some} enqueues a second")),
        (Beside::Processes(some), format!("{some} bare processes a second")),
        (Beside::Runs(many), format!("{many} enqueues and runs a second")),
        (Beside::Enqueues(many), format!("{many} enqueues a second")),
        (Beside::Processes(many), format!("{many} bare processes a second")),
    ];
    let mut measured = cases.clone().map(|_| Vec::new());
    for _ in 0..rounds {
        let alone = latencies(&database, Beside::Nothing, lasts);
        for ((case, _), pairs) in cases.iter().zip(&mut measured) {
            pairs.push((latencies(&database, *case, lasts), alone));
        }
    }
    cases.into_iter().zip(measured).map(|((case, what), pairs)| row(case, &what, &pairs)).collect()
}

fn row(case: Beside, what: &str, pairs: &[([f64; 2], [f64; 2])]) -> Measured {
    let middle = |of: fn(&([f64; 2], [f64; 2])) -> f64| median(pairs.iter().map(of).collect());
    let [beside, alone] = [
        [middle(|it| it.0[0]), middle(|it| it.0[1])],
        [middle(|it| it.1[0]), middle(|it| it.1[1])],
    ];
    Measured {
        what: format!("pgbench, 99 %: beside {what} / alone"),
        figures: format!(
            "50 and 99 %: {:.1} and {:.1} ms; alone {:.1} and {:.1} ms; medians of {}",
            beside[0],
            beside[1],
            alone[0],
            alone[1],
            pairs.len()
        ),
        value: middle(|(beside, alone)| beside[1] / alone[1]),
        unit: "",
        goal: match case {
            Beside::Idle => Goal::AtMost(1.3),
            Beside::Runs(rate) if rate == RATES[0] => Goal::AtMost(1.3),
            _ => Goal::None,
        },
    }
}

/// Returns the median of pgbench's latencies and the 99th percentile, in milliseconds.
fn latencies(database: &Database, beside: Beside, lasts: Duration) -> [f64; 2] {
    let tick = matches!(beside, Beside::Idle | Beside::Runs(_)).then(|| {
        let threads = THREADS.to_string();
        let tick = ["tick", "--linger", "--concurrency", &threads, "--max-time", "10m"];
        database.jobctl(tick).lingers()
    });
    let latencies = thread::scope(|scope| {
        if let Beside::Runs(rate) | Beside::Enqueues(rate) = beside {
            let payload = |_| TRUE.to_owned();
            scope.spawn(move || wait::enqueue(database, rate, lasts, "shell", payload));
        }
        if let Beside::Processes(rate) = beside {
            (0..THREADS).for_each(|thread| {
                scope.spawn(move || start_processes(rate, thread, lasts));
            });
        }
        run(database, lasts)
    });
    if let Beside::Runs(rate) = beside {
        let enqueued = rate * lasts.as_secs() as usize;
        let done =
            database.number("SELECT count(*) FROM jobctl.job_runs WHERE status = 'succeeded'");
        let behind = enqueued.saturating_sub(usize::try_from(done).unwrap());
        if behind > enqueued / 10 {
            eprintln!("the tick is {behind} of {enqueued} runs behind");
        }
    }
    drop(tick);
    database.execute(["TRUNCATE jobctl.job_runs, jobctl.job_attempts", "CHECKPOINT"]);
    latencies
}

fn run(database: &Database, lasts: Duration) -> [f64; 2] {
    let folder = tempfile::tempdir().unwrap();
    let (script, log) = (folder.path().join("script"), folder.path().join("log"));
    std::fs::write(&script, SCRIPT).unwrap();
    let seconds = lasts.as_secs().to_string();
    let (script, prefix) = (script.to_str().unwrap(), log.to_str().unwrap());
    let options = ["--no-vacuum", "--protocol", "prepared", "--client", "2", "--rate", RATE];
    let more = ["--time", &seconds, "--log", "--log-prefix", prefix, "--file", script];
    process::time(pgbench(database, &[&options[..], &more].concat()));
    let mut latencies = Vec::new();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        if path.to_str().unwrap().starts_with(prefix) {
            // A line has the client, the number of the transaction, and its microseconds.
            let lines = std::fs::read_to_string(path).unwrap();
            let took = |line: &str| line.split(' ').nth(2).unwrap().parse::<f64>().unwrap() / 1e3;
            latencies.extend(lines.lines().map(took));
        }
    }
    latencies.sort_by(f64::total_cmp);
    [50, 99].map(|part| percentile(&latencies, part))
}

/// Starts the processes of one of the threads.
fn start_processes(rate: usize, thread: usize, lasts: Duration) {
    let started = Instant::now();
    for number in (thread..).step_by(THREADS) {
        let at = Duration::from_secs_f64(number as f64 / rate as f64);
        if at > lasts {
            break;
        }
        thread::sleep(at.saturating_sub(started.elapsed()));
        assert!(Command::new("true").stdin(Stdio::null()).status().unwrap().success());
    }
}

/// Returns pgbench for this database.
fn pgbench(database: &Database, arguments: &[&str]) -> Command {
    let mut command = process::of_server("pgbench");
    command.args(arguments).arg(&database.url).stderr(Stdio::null());
    command
}
