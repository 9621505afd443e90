//! `jobctl grants`: prints what a role needs, and changes nothing.

use clap::{Args, ValueEnum};

use super::Database;
use crate::exit::Exit;
use crate::print;

/// Print the GRANT statements for a role; changes nothing
///
///   jobctl grants --role app --as enqueuer | psql app
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The role's name, without SQL's quotes
    #[arg(long, value_name = "ROLE", value_parser = role)]
    role: String,
    /// Which set of privileges
    #[arg(long, value_name = "WHAT")]
    r#as: Part,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Part {
    /// Enqueues runs of definitions and reads nothing
    Enqueuer,
    /// Ticks
    Worker,
    /// Looks after the jobs: sees everything, retries, cancels, pauses
    Operator,
    /// Sees how the jobs are doing, but no payload and no output
    Viewer,
}

impl Arguments {
    pub(crate) fn run(self, _: &Database) -> anyhow::Result<Exit> {
        let grants = match self.r#as {
            Part::Enqueuer => include_str!("../../sql/grants/enqueuer.sql"),
            Part::Worker => include_str!("../../sql/grants/worker.sql"),
            Part::Operator => include_str!("../../sql/grants/operator.sql"),
            Part::Viewer => include_str!("../../sql/grants/viewer.sql"),
        };
        print::answer(&grants.replace("{role}", &self.role))?;
        Ok(Exit::Done)
    }
}

/// Checks a role's name and writes it as SQL does, in quotes unless it is plain.
fn role(text: &str) -> Result<String, String> {
    let first = |c: char| c.is_ascii_lowercase() || c == '_';
    let is_plain = text.starts_with(first) && text.chars().all(|c| first(c) || c.is_ascii_digit());
    match text {
        // Not a role, but everybody; in quotes too.
        "public" => Err("is everybody; name a role".to_owned()),
        _ if !(1..=63).contains(&text.len()) || text.chars().any(char::is_control) => {
            Err("a role's name has 1 to 63 bytes and no control characters".to_owned())
        }
        _ if is_plain => Ok(text.to_owned()),
        _ => Ok(format!("\"{}\"", text.replace('"', "\"\""))),
    }
}
