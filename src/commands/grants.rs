//! `jobctl grants`: prints what a role needs, and changes nothing.

use clap::{Args, ValueEnum};

use super::DatabaseFlags;
use crate::print;
use crate::text::plain::is_plain;

/// Print the GRANT statements for a role; changes nothing
///
/// The statements first revoke all privileges of the role in the schema.
///
///   jobctl grants --role app --as enqueuer | psql "$DATABASE_URL"
///   jobctl grants --role oncall --as viewer enqueuer | psql "$DATABASE_URL"
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The role's name, without SQL's quotes
    #[arg(long, value_name = "ROLE", value_parser = role)]
    role: String,
    /// Which sets of privileges
    #[arg(long, value_name = "WHAT", num_args = 1.., value_delimiter = ',', required = true)]
    r#as: Vec<GrantSet>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GrantSet {
    /// Enqueues runs of definitions and reads nothing
    Enqueuer,
    /// Records effects in SQL; combine it with other sets
    Effects,
    /// Runs `jobctl tick`
    Worker,
    /// Looks after the jobs: sees everything, retries, cancels, pauses
    Operator,
    /// Sees how the jobs are doing, but no payload and no output
    Viewer,
}

impl GrantSet {
    fn sql(self) -> &'static str {
        match self {
            Self::Enqueuer => include_str!("../../sql/grants/enqueuer.sql"),
            Self::Effects => include_str!("../../sql/grants/effects.sql"),
            Self::Worker => include_str!("../../sql/grants/worker.sql"),
            Self::Operator => include_str!("../../sql/grants/operator.sql"),
            Self::Viewer => include_str!("../../sql/grants/viewer.sql"),
        }
    }
}

impl Arguments {
    pub(crate) fn run(self, _: &DatabaseFlags) -> anyhow::Result<()> {
        let revokes = include_str!("../../sql/grants/nothing.sql");
        // One transaction: a worker that ticks meanwhile never loses its privileges.
        let statements = format!("BEGIN;\n{revokes}{}COMMIT;\n", sql(&self.r#as));
        print::answer(&statements.replace("{role}", &self.role))
    }
}

/// Returns the GRANT statements of each set, with which `doctor` compares the actual privileges. A
/// role may have only a part of the first set. The last set is that of a worker that prunes, see
/// docs/security.md.
pub(super) fn matrix() -> Vec<String> {
    let sets = [
        GrantSet::Viewer,
        GrantSet::Enqueuer,
        GrantSet::Effects,
        GrantSet::Worker,
        GrantSet::Operator,
    ];
    let pruner = GrantSet::Worker.sql().to_owned() + include_str!("../../sql/grants/pruner.sql");
    sets.into_iter().map(|set| set.sql().to_owned()).chain([pruner]).collect()
}

/// Returns the GRANT statements of these sets.
fn sql(sets: &[GrantSet]) -> String {
    sets.iter().map(|set| set.sql()).collect()
}

/// Checks a role's name and quotes it for SQL, because it may be a reserved word.
fn role(text: &str) -> Result<String, String> {
    match text {
        // No role can have one of these two names, even in quotes.
        "public" => Err("SQL reserves `public` for every role; name one role".to_owned()),
        "none" => {
            Err("SQL reserves `none`, so no role has this name; name another role".to_owned())
        }
        _ if !(1..=63).contains(&text.len()) || !is_plain(text) => {
            Err("a role's name has 1 to 63 bytes and no control or invisible characters".to_owned())
        }
        _ => Ok(format!("\"{}\"", text.replace('"', "\"\""))),
    }
}
