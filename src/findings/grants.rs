//! Checks that roles, triggers and policies match the role matrix of `jobctl grants`.

use super::{Finding, some};
use crate::store::GrantFacts;

const CHECK: &str = "grants";

/// Returns a finding for each deviation.
pub(crate) fn grants(facts: &[GrantFacts]) -> Vec<Finding> {
    if facts.is_empty() {
        return vec![Finding::ok(CHECK, "no role may do more than `jobctl grants` says")];
    }
    facts.iter().map(finding).collect()
}

fn finding(GrantFacts { kind, name, has }: &GrantFacts) -> Finding {
    let has = some(has);
    let (found, remedy) = match kind.as_str() {
        "role" if name == "PUBLIC" => {
            (format!("PUBLIC, which is every role, has {has}"), "revoke it FROM PUBLIC".to_owned())
        }
        "role" => (
            format!("{name} has {has}, which no role of `jobctl grants` has"),
            format!("as the schema's owner: jobctl grants --role {name} --as WHAT | psql; it revokes the rest"),
        ),
        "member" => {
            (format!("{name} is a member of {has}, which reaches every table"), format!("REVOKE {has} FROM {name}"))
        }
        "unseen" => (
            format!("row level security without a policy hides all rows of {name} from every role but the owner"),
            format!("ALTER TABLE jobctl.{name} DISABLE ROW LEVEL SECURITY"),
        ),
        _ => (
            format!("{kind} {name} on {has} was not made by jobctl and can change what runs"),
            format!("drop it unless you trust it: DROP {} {name} ON jobctl.{has}", kind.to_uppercase()),
        ),
    };
    Finding::bad(CHECK, found, remedy)
}
