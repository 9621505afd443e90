//! Every query file fits the schema, has a header, and is used.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Role, TestDb};

/// Returns the name of every query, as in `query!`, and its text.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/queries");
    let named = |(path, text): (PathBuf, String)| {
        let name = path.strip_prefix(&folder).unwrap().with_extension("");
        (name.to_str().unwrap().to_owned(), text)
    };
    let mut files: Vec<_> = source(&folder).into_iter().map(named).collect();
    files.sort();
    assert!(files.len() > 15, "{files:?}");
    files
}

/// Returns all files below a folder, with their text.
fn source(folder: &Path) -> Vec<(PathBuf, String)> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files_at = |path: PathBuf| {
        if path.is_dir() {
            return source(&path);
        }
        let text = fs::read_to_string(&path).unwrap();
        vec![(path, text)]
    };
    paths.flat_map(files_at).collect()
}

#[test]
fn each_query_file_is_one_statement_that_fits_the_schema() {
    let db = TestDb::new();
    let mut client = db.client();
    for (name, text) in files() {
        if let Err(error) = client.prepare(&text) {
            panic!("{name}: {error:?}");
        }
        // Only comments have a semicolon.
        assert!(
            !text.contains(';')
                || text.lines().all(|line| line.starts_with("--") || !line.contains(';')),
            "{name}"
        );
    }
}

#[test]
fn each_query_file_has_a_header_that_names_its_parameters() {
    for (name, text) in files() {
        let (header, body): (Vec<_>, Vec<_>) =
            text.lines().partition(|line| line.starts_with("--"));
        assert!(
            header.first().is_some_and(|line| text.starts_with(line) && line.len() > 10),
            "{name} has no header"
        );
        let (header, body) = (header.join("\n"), body.join("\n"));
        // The header names each parameter of the statement, and no other. A query has at most 24.
        for number in 1..=24 {
            let parameter = format!("${number}");
            // `$1` does not stand for `$12`.
            let mentions = |text: &str| {
                let mut after = text
                    .match_indices(&parameter)
                    .map(|(at, _)| text[at + parameter.len()..].chars().next());
                after.any(|next| next.is_none_or(|next| !next.is_ascii_digit()))
            };
            assert_eq!(mentions(&header), mentions(&body), "{name}: {parameter}");
        }
    }
}

#[test]
fn each_query_file_is_used_and_other_modules_run_no_sql() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    // Only these two folders may run SQL.
    let with_sql = ["store", "connect"].map(|folder| src.join(folder));
    let (allowed, others): (Vec<_>, Vec<_>) = source(&src)
        .into_iter()
        .partition(|(path, _)| with_sql.iter().any(|folder| path.starts_with(folder)));
    assert!(others.len() > 50, "{others:?}");
    // A macro may have the name on its next line.
    let without_blanks = |text: &String| text.split_whitespace().collect::<String>();
    let allowed: Vec<_> = allowed.iter().map(|(_, text)| without_blanks(text)).collect();
    for (name, _) in files() {
        let uses = [format!("!(\"{name}\""), format!("sql/queries/{name}.sql")];
        let is_used = allowed.iter().any(|text| uses.iter().any(|word| text.contains(word)));
        assert!(is_used, "{name} is not used");
    }
    for (path, text) in others {
        for word in ["sql/queries", "query_typed", "batch_execute", "simple_query"] {
            assert!(!text.contains(word), "{} has a `{word}`", path.display());
        }
    }
}

/// Queries that read what a viewer must not see: payloads, keys, commands, outputs and logins.
const NOT_FOR_VIEWERS: [&str; 15] = [
    "look/attempts_with_text",
    "look/columns",
    "look/group_dead",
    "look/key_holder",
    "look/list_attempts",
    "look/list_definitions",
    "look/list_failures",
    "look/list_ids",
    "look/list_runs",
    "look/output",
    "look/read_payload",
    "look/results",
    "look/sequences_behind",
    "look/show",
    "report/may_read_outputs",
];

/// If a viewer may not read a query, this test names the columns that the grant lacks. It finds
/// them with a view of the query, because PostgreSQL keeps the columns that a view reads.
#[test]
fn a_viewer_may_read_each_column_of_the_queries_of_its_commands() {
    let db = TestDb::new();
    let viewer = Role::granted(&db, "viewer");
    let (mut owner, mut reader) = (db.client(), viewer.client());
    let is_read = |name: &str| ["look/", "report/"].iter().any(|folder| name.starts_with(folder));
    for (name, text) in files().into_iter().filter(|(name, _)| is_read(name)) {
        // EXPLAIN checks the privileges without reading anything. It needs values for the
        // parameters.
        let query =
            (1..=24).rev().fold(text, |query, number| query.replace(&format!("${number}"), "NULL"));
        let is_denied = reader.batch_execute(&format!("EXPLAIN {query}")).is_err();
        if is_denied == NOT_FOR_VIEWERS.contains(&&*name) {
            continue;
        }
        // The query is denied and not in the list, or the other way round. Name the columns.
        let view = format!("CREATE TEMP VIEW reads AS SELECT 1 FROM ({query}) AS query");
        owner.batch_execute(&view).unwrap();
        let missing = owner.query_one(
            "SELECT string_agg(DISTINCT format('%s.%s', it.attrelid::regclass, it.attname), ', ')
             FROM pg_depend AS reads
             JOIN pg_rewrite AS rule ON rule.oid = reads.objid
             JOIN pg_attribute AS it
                 ON (it.attrelid, it.attnum) = (reads.refobjid, reads.refobjsubid)
             WHERE rule.ev_class = 'reads'::regclass
                 AND reads.refclassid = 'pg_class'::regclass
                 AND NOT has_column_privilege($1::text, it.attrelid, it.attnum, 'SELECT')",
            &[&viewer.name()],
        );
        let missing: Option<String> = missing.unwrap().get(0);
        panic!(
            "{name}: a viewer may not read {missing:?}; grant it in sql/grants/viewer.sql, or \
             list the query in NOT_FOR_VIEWERS"
        );
    }
}
