//! What keeps the tables fast: indexes, vacuum, and nobody in its way.

use super::{Finding, some};
use crate::count;
use crate::duration;
use crate::patience::PATIENCE;
use crate::store::{HolderFacts, IndexFacts, SequenceFacts, SessionFacts, SnapshotFacts, TableFacts};

/// Versions of rows that a busy queue leaves behind while a snapshot of that age is held.
const TRANSACTIONS: i32 = 100_000;
/// Fewer dead rows are no reason to worry, however small the table is.
const DEAD_ROWS: i64 = 10_000;
/// A smaller table is read in a blink, however little is in it.
const BIG: i64 = 64 << 20;
/// What is longer is stored out of line: a row of the heap never takes so much.
const LONGEST_ROW: i64 = 4096;

pub(crate) fn indexes(facts: &[IndexFacts]) -> Finding {
    const CHECK: &str = "indexes";
    let missing: Vec<_> = facts.iter().filter(|index| index.valid.is_none()).map(|index| index.name.as_str()).collect();
    if !missing.is_empty() {
        return Finding::bad(
            CHECK,
            format!("missing: {}", some(&missing)),
            "create them again as sql/migrations has them, CONCURRENTLY",
        );
    }
    let broken: Vec<_> = facts.iter().filter(|index| index.valid == Some(false)).map(|i| i.name.as_str()).collect();
    if let [first, ..] = broken[..] {
        let remedy = format!("REINDEX INDEX CONCURRENTLY jobctl.{first}");
        return Finding::bad(CHECK, format!("not valid: {}", some(&broken)), remedy);
    }
    let scans: i64 = facts.iter().map(|index| index.scans).sum();
    Finding::ok(CHECK, format!("all {} there and valid, scanned {}", facts.len(), count::of(scans, "time")))
}

/// `behind` are the sequences that would return ids that their tables already have.
pub(crate) fn sequences(behind: &[SequenceFacts]) -> Finding {
    const CHECK: &str = "sequences";
    match behind {
        [] => Finding::ok(CHECK, "each is ahead of its table"),
        [sequence, ..] => {
            let names: Vec<_> = behind.iter().map(|sequence| sequence.name.as_str()).collect();
            let remedy = format!("as the schema's owner: {}", sequence.setval);
            Finding::bad(CHECK, format!("behind the table: {}", some(&names)), remedy)
        }
    }
}

pub(crate) fn vacuum(session: &SessionFacts, tables: &[TableFacts]) -> Finding {
    const CHECK: &str = "vacuum";
    if !session.autovacuum {
        return Finding::bad(CHECK, "autovacuum or track_counts is off", "turn both on for the server");
    }
    let alone: Vec<_> = tables.iter().filter(|table| table.left_alone).map(|table| table.name.as_str()).collect();
    if let [first, ..] = alone[..] {
        return Finding::bad(
            CHECK,
            format!("autovacuum is off for {}", some(&alone)),
            format!("ALTER TABLE jobctl.{first} RESET (autovacuum_enabled)"),
        );
    }
    if let Some(table) = tables.iter().find(|table| table.dead > DEAD_ROWS && table.dead > table.live / 5) {
        let when = table.vacuumed_ago.map_or_else(|| "never".to_owned(), |ago| duration::show(ago) + " ago");
        return Finding::warn(
            CHECK,
            format!("{}: {} dead rows beside {} live ones, vacuumed {when}", table.name, table.dead, table.live),
            format!("see who holds a snapshot, then VACUUM jobctl.{}", table.name),
        );
    }
    let dead: i64 = tables.iter().map(|table| table.dead).sum();
    let runs = tables.iter().find(|table| table.name == "job_runs").and_then(|table| table.vacuumed_ago);
    let when =
        runs.map_or_else(|| "not vacuumed yet".to_owned(), |ago| format!("vacuumed {} ago", duration::show(ago)));
    Finding::ok(CHECK, format!("{}; job_runs {when}", count::of(dead, "dead row")))
}

pub(crate) fn sizes(tables: &[TableFacts], indexes: &[IndexFacts]) -> Finding {
    const CHECK: &str = "size";
    let keys: i64 = indexes.iter().filter(|index| index.name.ends_with("_key")).map(|index| index.entries).sum();
    let all: Vec<_> = tables.iter().map(|table| format!("{} {}", table.name, table.size)).collect();
    let all = some(&all);
    let bloated =
        tables.iter().find(|table| table.heap_bytes > BIG && table.heap_bytes / table.live.max(1) > LONGEST_ROW);
    match bloated {
        Some(table) => Finding::warn(
            CHECK,
            format!("{all}; {} is mostly empty: {}", table.name, count::of(table.live, "row")),
            format!("VACUUM (FULL) jobctl.{} in a quiet minute: it locks the table", table.name),
        ),
        None => Finding::ok(CHECK, format!("{all}; about {} taken", count::of(keys, "key"))),
    }
}

/// Dead rows that anybody could still see can't be taken away, and the claim reads over them.
pub(crate) fn snapshots(session: &SessionFacts, facts: &SnapshotFacts) -> Finding {
    const CHECK: &str = "snapshots";
    let is_old = |holder: &&HolderFacts| {
        holder.transactions >= TRANSACTIONS || holder.held_for.is_some_and(|length| length >= PATIENCE)
    };
    if let Some(holder) = facts.holders.iter().find(is_old) {
        let length = holder.held_for.map(|length| format!(" for {}", duration::show(length))).unwrap_or_default();
        let state = holder.state.as_deref().map(|state| format!(", {state},")).unwrap_or_default();
        return Finding::warn(
            CHECK,
            format!(
                "{} {}{state} keeps dead rows{length}, {} transactions long",
                holder.kind, holder.name, holder.transactions
            ),
            remedy(holder),
        );
    }
    if !facts.sees_all {
        return Finding::unknown(
            CHECK,
            "what other roles' sessions hold is hidden from this one",
            format!("GRANT pg_read_all_stats TO {}", session.role),
        );
    }
    match facts.holders.iter().filter_map(|holder| holder.held_for).max() {
        Some(oldest) => Finding::ok(CHECK, format!("the oldest is held for {}", duration::show(oldest))),
        None => Finding::ok(CHECK, "none is held"),
    }
}

fn remedy(holder: &HolderFacts) -> String {
    let name = holder.name.split(' ').next().unwrap_or_default();
    match holder.kind.as_str() {
        "session" => format!("see what it does; pg_terminate_backend({name}) ends it"),
        "prepared transaction" => format!("COMMIT PREPARED or ROLLBACK PREPARED '{}'", holder.name),
        _ => format!("if nobody reads it any more, pg_drop_replication_slot('{name}')"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::findings::{Verdict, tests};

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
    fn dead_rows_count_where_they_are_many_and_a_fifth() {
        let verdict = |live, dead| vacuum(&session(), &[table(0, live, dead)]).verdict;
        assert_eq!(verdict(0, 10_000), Verdict::Ok);
        assert_eq!(verdict(0, 10_001), Verdict::Warn);
        assert_eq!(verdict(100_000, 20_000), Verdict::Ok);
        assert_eq!(verdict(100_000, 20_001), Verdict::Warn);
        let off = SessionFacts { autovacuum: false, ..session() };
        assert_eq!(vacuum(&off, &[]).verdict, Verdict::Bad);
    }

    #[test]
    fn a_big_table_with_little_in_it_is_told() {
        let verdict = |heap_bytes, live| sizes(&[table(heap_bytes, live, 0)], &[]).verdict;
        assert_eq!(verdict(BIG, 0), Verdict::Ok);
        assert_eq!(verdict(BIG + 1, 0), Verdict::Warn);
        assert_eq!(verdict(10 * BIG, 10 * BIG / LONGEST_ROW), Verdict::Ok);
    }

    #[test]
    fn an_old_snapshot_is_told_with_who_holds_it_and_how_it_ends() {
        let found = |sees_all, holders: &[HolderFacts]| {
            let finding = snapshots(&session(), &SnapshotFacts { sees_all, holders: holders.to_vec() });
            (finding.verdict, finding.remedy.unwrap_or_default())
        };
        assert_eq!(found(true, &[]).0, Verdict::Ok);
        assert_eq!(found(true, &[holder("session", "7 psql of me", Some(299), 99_999)]).0, Verdict::Ok);
        assert_eq!(found(false, &[]), (Verdict::Unknown, "GRANT pg_read_all_stats TO app".to_owned()));
        let told = |kind, name, held_for, transactions| {
            let (verdict, remedy) = found(false, &[holder(kind, name, held_for, transactions)]);
            assert_eq!(verdict, Verdict::Warn);
            remedy
        };
        assert!(told("session", "7 psql of me", Some(300), 1).contains("pg_terminate_backend(7)"));
        assert!(told("session", "7 psql of me", Some(0), 100_000).contains("pg_terminate_backend(7)"));
        assert!(told("prepared transaction", "a b", Some(300), 1).ends_with("PREPARED 'a b'"));
        assert!(told("replication slot", "slot_1", None, 100_000).ends_with("('slot_1')"));
    }
}
