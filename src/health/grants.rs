//! Checks that roles, triggers and policies match the role matrix of `jobctl grants`.

use super::{Finding, bad, ok, some};
use crate::store::GrantFacts;

/// Returns a finding for each deviation.
pub(crate) fn grants(facts: &[GrantFacts]) -> Vec<Finding> {
    if facts.is_empty() {
        return vec![ok("no role has more privileges than `jobctl grants` gives")];
    }
    facts.iter().map(deviation).collect()
}

fn deviation(GrantFacts { kind, name, has }: &GrantFacts) -> Finding {
    let has = some(has);
    match kind.as_str() {
        "role" if name == "PUBLIC" => {
            bad(format!("PUBLIC, which means every role, has {has}"), "revoke it FROM PUBLIC")
        }
        "role" => bad(
            format!("{name} has {has}, which `jobctl grants` gives to no role"),
            format!(
                "as the schema's owner: jobctl grants --role {name} --as WHAT | psql; \
                 it revokes the rest"
            ),
        ),
        "member" => bad(
            format!("{name} is a member of {has}, which has access to every table"),
            format!("REVOKE {has} FROM {name}"),
        ),
        "unseen" => bad(
            format!(
                "row level security without a policy hides all rows of {name} \
                 from every role but the owner"
            ),
            format!("ALTER TABLE jobctl.{name} DISABLE ROW LEVEL SECURITY"),
        ),
        _ => bad(
            format!("{kind} {name} on {has} does not belong to jobctl and can change what runs"),
            format!(
                "drop it unless you trust it: DROP {} {name} ON jobctl.{has}",
                kind.to_uppercase()
            ),
        ),
    }
}
