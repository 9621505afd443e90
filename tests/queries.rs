//! The query files: each one is valid against the schema, explained and used.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::TestDb;

fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/queries");
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    assert!(files.len() > 15, "{files:?}");
    files
}

/// All Rust below a folder, file by file.
fn source(folder: &Path) -> Vec<(PathBuf, String)> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match path.is_dir() {
        true => source(&path),
        false => vec![(path.clone(), fs::read_to_string(path).unwrap())],
    };
    paths.flat_map(of).collect()
}

#[test]
fn each_query_file_is_one_statement_that_the_schema_knows() {
    let db = TestDb::new();
    let mut client = db.client();
    for (name, text) in files() {
        if let Err(error) = client.prepare(&text) {
            panic!("{name}: {error:?}");
        }
        assert!(
            !text.contains(';') || text.lines().all(|line| line.starts_with("--") || !line.contains(';')),
            "{name}"
        );
    }
}

#[test]
fn each_query_file_starts_with_what_it_does_and_names_its_parameters() {
    for (name, text) in files() {
        let (header, body): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("--"));
        assert!(header.first().is_some_and(|line| text.starts_with(line) && line.len() > 10), "{name} has no header");
        let (header, body) = (header.join("\n"), body.join("\n"));
        for number in 1..=20 {
            let parameter = format!("${number}");
            let mentions = |text: &str| {
                let mut after =
                    text.match_indices(&parameter).map(|(at, _)| text[at + parameter.len()..].chars().next());
                after.any(|next| next.is_none_or(|next| !next.is_ascii_digit()))
            };
            assert_eq!(mentions(&header), mentions(&body), "{name}: {parameter}");
        }
    }
}

#[test]
fn each_query_file_is_used_and_only_where_queries_may_be() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let may = ["store", "connect"].map(|folder| src.join(folder));
    let (those, others): (Vec<_>, Vec<_>) =
        source(&src).into_iter().partition(|(path, _)| may.iter().any(|folder| path.starts_with(folder)));
    assert!(others.len() > 50, "{others:?}");
    for (name, _) in files() {
        let uses = [format!("query!(\"{}\")", name.trim_end_matches(".sql")), format!("sql/queries/{name}")];
        let is_used = those.iter().any(|(_, text)| uses.iter().any(|word| text.contains(word)));
        assert!(is_used, "{name} is used by nobody");
    }
    for (path, text) in others {
        for word in ["sql/queries", "query_typed", "batch_execute", "simple_query"] {
            assert!(!text.contains(word), "{} has a `{word}`", path.display());
        }
    }
}
