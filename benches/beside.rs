//! Measures what another application of the same server feels: the latency of pgbench's updates and
//! reads, at a fixed rate, beside jobctl and alone.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Scale;
use crate::database::Database;
use crate::peers::{self, Neighbour};
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
const UNFINISHED: &str = "SELECT count(*) FROM jobctl.job_runs WHERE finished_at IS NULL";
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
    /// A peer's program enqueues this many jobs in a second, and starts `true` for each.
    Peer(Neighbour, usize),
}

pub fn beside(scale: Scale) -> Vec<Measured> {
    let (rounds, lasts) = (scale.of(3, 1), Duration::from_secs(scale.of(10, 2) as u64));
    let database = Database::new();
    let size = scale.of(10, 1).to_string();
    process::time(pgbench(&database, &["--initialize", "--quiet", "--scale", &size]));
    let [some, many] = RATES;
    let mut cases = vec![
        (Beside::Idle, "an idle tick with --linger".to_owned()),
        (Beside::Runs(some), format!("{some} enqueues and runs a second")),
        (Beside::Enqueues(some), format!("{some} enqueues a second")),
        (Beside::Processes(some), format!("{some} bare processes a second")),
        (Beside::Runs(many), format!("{many} enqueues and runs a second")),
        (Beside::Enqueues(many), format!("{many} enqueues a second")),
        (Beside::Processes(many), format!("{many} bare processes a second")),
    ];
    let of_peer = |rate: usize, it: Neighbour| {
        (Beside::Peer(it, rate), format!("{rate} enqueues and jobs a second of {}", it.peer.name))
    };
    cases.extend(RATES.iter().flat_map(|rate| peers::neighbours().map(|it| of_peer(*rate, it))));
    let mut measured = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        let alone = latencies(&database, Beside::Nothing, lasts).unwrap();
        for ((case, _), pairs) in cases.iter().zip(&mut measured) {
            let beside = latencies(&database, *case, lasts);
            pairs.extend(beside.map(|beside| (beside, alone)));
        }
    }
    let measured = cases.into_iter().zip(measured).filter(|(_, pairs)| !pairs.is_empty());
    measured.map(|((case, what), pairs)| row(case, &what, &pairs)).collect()
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

/// Returns the median of pgbench's latencies and the 99th percentile, in milliseconds. `None`: the
/// peer is not installed.
fn latencies(database: &Database, beside: Beside, lasts: Duration) -> Option<[f64; 2]> {
    let peer = match beside {
        Beside::Peer(neighbour, rate) => Some(peers::work(neighbour.peer, database, rate)?),
        _ => None,
    };
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
    let jobs = match beside {
        Beside::Runs(rate) => Some(("jobctl", rate, UNFINISHED)),
        Beside::Peer(Neighbour { peer, unfinished, .. }, rate) => {
            Some((peer.name, rate, unfinished))
        }
        Beside::Nothing | Beside::Idle | Beside::Enqueues(_) | Beside::Processes(_) => None,
    };
    if let Some((what, rate, unfinished)) = jobs {
        let all = rate * lasts.as_secs() as usize;
        let behind = usize::try_from(database.number(unfinished)).unwrap();
        if behind > all / 10 {
            eprintln!("{what} is {behind} of about {all} jobs behind");
        }
    }
    drop((tick, peer));
    if let Beside::Peer(Neighbour { schema, .. }, _) = beside {
        database.execute([&format!("DROP SCHEMA {schema} CASCADE")]);
    }
    database.execute(["TRUNCATE jobctl.job_runs, jobctl.job_attempts", "CHECKPOINT"]);
    Some(latencies)
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
