//! Measures the most frequent commands, an empty tick and an enqueue. The reference is psql, which
//! connects, sends one statement and ends.

use crate::Scale;
use crate::database::Database;
use crate::process::{peak_memory, time};
use crate::table::{Goal, Measured, median};

/// Pairs that only warm up the caches.
const WARM_UP: usize = 5;

pub fn empty_tick(scale: Scale) -> Vec<Measured> {
    let database = Database::new();
    let tick = || database.jobctl(["tick"]);
    let pair = || {
        let mut psql = database.psql();
        psql.args(["-Atc", "select 1"]);
        (tick().run(), time(psql))
    };
    vec![
        Measured {
            what: "empty tick / psql -XAtc 'select 1'".to_owned(),
            goal: Goal::AtMost(1.0),
            ..pairs(scale.of(200, 60), pair)
        },
        Measured {
            what: "empty tick, peak memory".to_owned(),
            figures: String::new(),
            value: peak_memory(tick()),
            unit: " MiB",
            goal: Goal::AtMost(12.0),
        },
    ]
}

pub fn enqueue(scale: Scale) -> Vec<Measured> {
    const COMMAND: &str = r#"{"command": ["send-invoice", "4711"]}"#;
    let database = Database::new();
    let pair = || {
        let mut psql = database.psql();
        psql.arg("-qc").arg(format!(
            "insert into jobctl.job_runs (job_type, payload) values ('shell', '{COMMAND}')"
        ));
        (database.jobctl(["enqueue", "shell", COMMAND]).run(), time(psql))
    };
    vec![Measured {
        what: "enqueue of one run / psql -Xc 'insert ...'".to_owned(),
        goal: Goal::AtMost(1.0),
        ..pairs(scale.of(200, 60), pair)
    }]
}

/// Returns the median ratio of jobctl's time to its reference's. Both run in turn, so that other
/// load on the machine affects both.
pub fn pairs(
    count: usize,
    pair: impl Fn() -> (std::time::Duration, std::time::Duration),
) -> Measured {
    for _ in 0..WARM_UP {
        pair();
    }
    let times: Vec<_> = (0..count)
        .map(|_| pair())
        .map(|(ours, other)| [ours, other].map(|one| one.as_secs_f64()))
        .collect();
    let of = |index: usize| median(times.iter().map(|pair| pair[index]).collect()) * 1e3;
    Measured {
        what: String::new(),
        figures: format!("{:.2} ms and {:.2} ms, medians of {count}", of(0), of(1)),
        value: median(times.iter().map(|[ours, other]| ours / other).collect()),
        unit: "",
        goal: Goal::None,
    }
}
