//! Prints the figures as a table and as JSON.

use std::time::Duration;

use serde_json::json;

/// One line of the table.
pub struct Measured {
    pub what: String,
    /// The results of jobctl and of its reference, with their units.
    pub figures: String,
    /// The figure that the goal is about, usually jobctl's result divided by the reference's.
    pub value: f64,
    pub unit: &'static str,
    pub goal: Goal,
}

/// The goal for a figure.
#[derive(Clone, Copy)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// No goal: a peer, for comparison.
    None,
}

impl Measured {
    fn verdict(&self) -> &'static str {
        match self.goal {
            Goal::AtMost(goal) if self.value <= goal => "met",
            Goal::AtLeast(goal) if self.value >= goal => "met",
            Goal::None => "",
            _ => "MISSED",
        }
    }

    fn goal(&self) -> String {
        match self.goal {
            Goal::AtMost(goal) => format!("<= {goal}"),
            Goal::AtLeast(goal) => format!(">= {goal}"),
            Goal::None => String::new(),
        }
    }
}

pub fn print_header() {
    println!(
        "{:<9} {:<62} {:>10} {:>9}  {:<7} figures",
        "name", "what", "measured", "goal", "verdict"
    );
}

pub fn print_row(name: &str, row: &Measured) {
    let value = format!("{:.2}{}", row.value, row.unit);
    println!(
        "{name:<9} {:<62} {value:>10} {:>9}  {:<7} {}",
        row.what,
        row.goal(),
        row.verdict(),
        row.figures
    );
}

pub fn json(measured: &[(&str, Measured)]) -> String {
    let rows: Vec<_> = measured
        .iter()
        .map(|(name, row)| {
            json!({
                "name": name, "what": row.what, "figures": row.figures, "value": row.value,
                "unit": row.unit.trim(), "goal": row.goal(), "verdict": row.verdict(),
            })
        })
        .collect();
    serde_json::to_string_pretty(&rows).unwrap() + "\n"
}

/// Returns the median.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Returns the figure that `part` per cent of the sorted figures do not exceed.
pub fn percentile(sorted: &[f64], part: usize) -> f64 {
    sorted[(sorted.len() * part / 100).min(sorted.len() - 1)]
}

/// Returns the rate per second.
#[expect(clippy::cast_precision_loss, reason = "a count")]
pub fn rate(count: usize, took: Duration) -> String {
    format!("{:.0}/s", count as f64 / took.as_secs_f64())
}
