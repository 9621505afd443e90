//! Checks whether the tables are fast: by their indexes, by vacuum, and without old snapshots.

use super::{Finding, bad, first_three, names, ok, unknown, warn};
use crate::job::thresholds::TICK_OVERDUE;
use crate::store::{HolderFacts, IndexFacts, SessionFacts, SnapshotFacts, TableFacts};
use crate::text::duration;
use crate::text::plural;

/// A snapshot is old if more transactions than this began after it. In a busy queue, this many
/// transactions leave about as many dead row versions.
const TRANSACTIONS: i32 = 100_000;
/// Up to this many dead rows are no problem, even in a small table.
const DEAD_ROWS: i64 = 10_000;
/// A table up to this size in bytes is fast to read, even if it is mostly empty.
const BIG: i64 = 64 << 20;
/// A row of a table's heap has fewer bytes than this: PostgreSQL stores longer values out of line.
const LONGEST_ROW: i64 = 4096;

/// Judges whether all indexes exist and can be used.
pub(crate) fn indexes(facts: &[IndexFacts]) -> Finding {
    let missing = names(facts, |index| index.valid.is_none(), |index| &index.name);
    if !missing.is_empty() {
        return bad(
            format!("missing: {}", first_three(&missing)),
            "create them CONCURRENTLY, as in sql/migrations",
        );
    }
    let invalid = names(facts, |index| index.valid == Some(false), |index| &index.name);
    if let Some(first) = invalid.first() {
        let remedy = format!("REINDEX INDEX CONCURRENTLY jobctl.{first}");
        return bad(format!("not valid: {}", first_three(&invalid)), remedy);
    }
    let scans = facts.iter().map(|index| index.scans).sum();
    ok(format!("all {} indexes are valid, scanned {}", facts.len(), plural::of(scans, "time")))
}

/// Judges whether dead rows are removed soon.
pub(crate) fn vacuum(session: &SessionFacts, tables: &[TableFacts]) -> Finding {
    if !session.autovacuum {
        return bad("autovacuum or track_counts is off", "turn both on for the server");
    }
    let excluded = names(tables, |table| table.left_alone, |table| &table.name);
    if let Some(first) = excluded.first() {
        return bad(
            format!("autovacuum is off for {}", first_three(&excluded)),
            format!("ALTER TABLE jobctl.{first} RESET (autovacuum_enabled)"),
        );
    }
    let vacuumed = |table: &TableFacts| match table.vacuumed_ago {
        Some(ago) => format!("last vacuumed {} ago", duration::show(ago)),
        None => "never vacuumed".to_owned(),
    };
    let is_bloated = |table: &&TableFacts| table.dead > DEAD_ROWS && table.dead > table.live / 5;
    if let Some(table) = tables.iter().find(is_bloated) {
        let TableFacts { name, dead, live, .. } = table;
        return warn(
            format!("{name} has {dead} dead rows and {live} live rows, {}", vacuumed(table)),
            format!("end old snapshots, see `snapshots`; then VACUUM jobctl.{name}"),
        );
    }
    let dead = tables.iter().map(|table| table.dead).sum();
    let of_runs = match tables.iter().find(|table| table.name == "job_runs") {
        Some(runs) => vacuumed(runs),
        None => "missing".to_owned(),
    };
    ok(format!("{}; job_runs {of_runs}", plural::of(dead, "dead row")))
}

/// Judges whether a table takes much more room than its rows need.
pub(crate) fn sizes(tables: &[TableFacts], indexes: &[IndexFacts]) -> Finding {
    let sizes: Vec<_> =
        tables.iter().map(|table| format!("{} {}", table.name, table.size)).collect();
    let sizes = first_three(&sizes);
    let is_mostly_empty = |table: &&TableFacts| {
        table.heap_bytes > BIG && table.heap_bytes / table.live.max(1) > LONGEST_ROW
    };
    if let Some(table) = tables.iter().find(is_mostly_empty) {
        let (name, rows) = (&table.name, plural::of(table.live, "row"));
        return warn(
            format!("{sizes}; {name} is mostly empty: {rows}"),
            format!("VACUUM (FULL) jobctl.{name} at a quiet time, because it locks the table"),
        );
    }
    let key_indexes = indexes.iter().filter(|index| index.name.ends_with("_key"));
    let keys = key_indexes.map(|index| index.entries).sum();
    ok(format!("{sizes}; about {}", plural::of(keys, "idempotency key")))
}

/// Judges whether an old snapshot prevents the removal of dead rows. Vacuum leaves the rows that
/// the snapshot can still see, and each claim must read them.
pub(crate) fn snapshots(session: &SessionFacts, facts: &SnapshotFacts) -> Finding {
    let is_old = |holder: &&HolderFacts| {
        holder.transactions >= TRANSACTIONS
            || holder.held_for.is_some_and(|age| age >= TICK_OVERDUE)
    };
    if let Some(holder) = facts.holders.iter().find(is_old) {
        let HolderFacts { kind, name, transactions, .. } = holder;
        let state = holder.state.as_deref().map(|state| format!(", {state},")).unwrap_or_default();
        let held_for = holder.held_for;
        let age = held_for.map(|age| duration::show(age) + " and ").unwrap_or_default();
        return warn(
            format!(
                "{kind} {name}{state} prevents the removal of dead rows, \
                 for {age}{transactions} transactions"
            ),
            remedy(holder),
        );
    }
    if !facts.sees_all {
        return unknown(
            "this role cannot see the snapshots of other roles' sessions",
            format!(
                "GRANT pg_read_all_stats TO {}",
                format_args!("\"{}\"", session.role.replace('"', "\"\""))
            ),
        );
    }
    ok(match facts.holders.iter().filter_map(|holder| holder.held_for).max() {
        Some(oldest) => format!("the oldest snapshot is {} old", duration::show(oldest)),
        None => "no session holds a snapshot".to_owned(),
    })
}

/// Returns how to end the session, transaction or slot that prevents the removal of dead rows.
fn remedy(holder: &HolderFacts) -> String {
    let name = holder.name.split(' ').next().unwrap_or_default();
    match holder.kind.as_str() {
        "session" => format!("check what it does; pg_terminate_backend({name}) ends it"),
        "prepared transaction" => format!("COMMIT PREPARED or ROLLBACK PREPARED '{}'", holder.name),
        _ => format!("if it has no reader any more, pg_drop_replication_slot('{name}')"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::health::{Severity, tests};

    fn table(heap_bytes: i64, live: i64, dead: i64) -> TableFacts {
        TableFacts {
            name: "job_runs".to_owned(),
            size: "1 MB".to_owned(),
            heap_bytes,
            live,
            dead,
            vacuumed_ago: Some(Duration::from_secs(180)),
            left_alone: false,
        }
    }

    fn holder(kind: &str, name: &str, held_for: Option<u64>, transactions: i32) -> HolderFacts {
        HolderFacts {
            kind: kind.to_owned(),
            name: name.to_owned(),
            state: Some("idle in transaction".to_owned()),
            held_for: held_for.map(Duration::from_secs),
            transactions,
        }
    }

    fn session() -> SessionFacts {
        tests::session(1)
    }

    #[test]
    fn dead_rows_are_found_if_they_are_many_and_a_fifth_of_the_rows() {
        let verdict = |live, dead| vacuum(&session(), &[table(0, live, dead)]).severity;
        assert_eq!(verdict(0, 10_000), Severity::Ok);
        assert_eq!(verdict(0, 10_001), Severity::Warn);
        assert_eq!(verdict(100_000, 20_000), Severity::Ok);
        assert_eq!(verdict(100_000, 20_001), Severity::Warn);
        let off = SessionFacts { autovacuum: false, ..session() };
        assert_eq!(vacuum(&off, &[]).severity, Severity::Bad);
    }

    #[test]
    fn a_big_table_with_few_rows_is_found() {
        let verdict = |heap_bytes, live| sizes(&[table(heap_bytes, live, 0)], &[]).severity;
        assert_eq!(verdict(BIG, 0), Severity::Ok);
        assert_eq!(verdict(BIG + 1, 0), Severity::Warn);
        assert_eq!(verdict(10 * BIG, 10 * BIG / LONGEST_ROW), Severity::Ok);
    }

    #[test]
    fn an_old_snapshot_is_found_with_its_holder_and_a_remedy() {
        let found = |sees_all, holders: &[HolderFacts]| {
            let finding =
                snapshots(&session(), &SnapshotFacts { sees_all, holders: holders.to_vec() });
            (finding.severity, finding.remedy.unwrap_or_default())
        };
        assert_eq!(found(true, &[]).0, Severity::Ok);
        assert_eq!(
            found(true, &[holder("session", "7 psql of me", Some(299), 99_999)]).0,
            Severity::Ok
        );
        assert_eq!(
            found(false, &[]),
            (Severity::Unknown, "GRANT pg_read_all_stats TO \"app\"".to_owned())
        );
        let remedy = |kind, name, held_for, transactions| {
            let (verdict, remedy) = found(false, &[holder(kind, name, held_for, transactions)]);
            assert_eq!(verdict, Severity::Warn);
            remedy
        };
        assert!(
            remedy("session", "7 psql of me", Some(300), 1).contains("pg_terminate_backend(7)")
        );
        assert!(
            remedy("session", "7 psql of me", Some(0), 100_000).contains("pg_terminate_backend(7)")
        );
        assert!(remedy("prepared transaction", "a b", Some(300), 1).ends_with("PREPARED 'a b'"));
        assert!(remedy("replication slot", "slot_1", None, 100_000).ends_with("('slot_1')"));
    }
}
