//! Checks that the pages name files, headings, columns, functions and fields that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::docs::{files, root};
use crate::support::{TestDb, temp_dir};

/// Returns the names and the type of an item such as "- `queue`, `share`: text; its meaning".
fn fields(line: &str) -> Option<(impl Iterator<Item = &str>, &str)> {
    let (names, rest) = line.strip_prefix("- `")?.split_once("`: ")?;
    Some((names.split("`, `"), rest.split(';').next()?))
}

/// Returns the columns on the pages of the schema, each as `TABLE.COLUMN TYPE`.
fn columns(page: &str) -> Vec<String> {
    let mut columns = Vec::new();
    let mut table = "";
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("### `jobctl.") {
            table = title.trim_end_matches('`');
        } else if let Some((names, kind)) = fields(line) {
            columns.extend(names.map(|name| format!("{table}.{name} {kind}")));
        }
    }
    columns.sort();
    columns
}

/// Returns the text of docs/schema.md and docs/internals/schema.md.
fn schema_pages() -> String {
    ["docs/schema.md", "docs/internals/schema.md"]
        .map(|page| fs::read_to_string(root().join(page)).unwrap())
        .concat()
}

/// Returns all Markdown files of the repository's folder and of docs/, with their text outside of
/// code blocks.
fn pages() -> Vec<(PathBuf, String)> {
    let top = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    let pages = top.chain(files(&root().join("docs")));
    let pages = pages.filter(|path| path.extension() == Some("md".as_ref()));
    let with_text = pages.map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let outside: Vec<_> = text.split("\n```").step_by(2).collect();
        (path, outside.join("\n"))
    });
    with_text.collect()
}

/// Returns the anchor of a heading, as GitHub forms it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn every_file_that_a_page_names_exists() {
    let folders = ["src", "tests", "sql", "crates", "benches", "examples", "man", "docs", ".ci"];
    let all: Vec<_> = folders.iter().flat_map(|folder| files(&root().join(folder))).collect();
    // The log of changes names files of the past.
    for (page, text) in pages().iter().filter(|(page, _)| !page.ends_with("CHANGELOG.md")) {
        for word in text.split('`').skip(1).step_by(2) {
            // Capital letters are placeholders, as in NAME.rs.
            let is_path = word
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c));
            let is_code = word.ends_with(".rs") || word.ends_with(".sql");
            let in_folder = folders
                .iter()
                .any(|folder| word.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')));
            if is_path && (is_code || in_folder) {
                let exists =
                    root().join(word).exists() || all.iter().any(|path| path.ends_with(word));
                assert!(exists, "{}: {word}", page.display());
            }
        }
    }
}

/// The names in the picture have no backticks, and leave out `src/` and `sql/`.
#[test]
fn every_file_in_the_picture_of_the_architecture_exists() {
    let text = fs::read_to_string(root().join("docs/internals/architecture.md")).unwrap();
    let picture = text.split("```").nth(1).unwrap();
    let folders = ["crates", "sql", "src"].map(|folder| files(&root().join(folder))).concat();
    let all: Vec<_> = folders.iter().map(|path| path.to_str().unwrap()).collect();
    let words = picture.split(|c: char| !c.is_ascii_alphanumeric() && !"_-./".contains(c));
    let is_file = |word: &&str| [".rs", ".sql", "/"].iter().any(|end| word.ends_with(end));
    let names: Vec<_> = words.filter(is_file).map(|word| format!("/{word}")).collect();
    let is_missing = |name: &&String| {
        let is_folder = name.ends_with('/');
        !all.iter().any(|path| if is_folder { path.contains(*name) } else { path.ends_with(*name) })
    };
    let missing: Vec<_> = names.iter().filter(is_missing).collect();
    assert!(names.len() > 30 && missing.is_empty(), "{missing:?} of {names:?}");
}

#[test]
fn every_link_between_pages_leads_to_a_heading() {
    let pages = pages();
    for (page, text) in &pages {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            // A link has a file, a heading of the same page, or both.
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let broken = format!("{}: {target}", page.display());
            let linked = fs::canonicalize(linked).unwrap_or_else(|_| panic!("{broken}"));
            let same = |path: &PathBuf| fs::canonicalize(path).unwrap() == linked;
            if let Some((_, text)) =
                pages.iter().find(|(path, _)| same(path)).filter(|_| !heading.is_empty())
            {
                let headings = text.lines().filter(|line| line.starts_with('#'));
                let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#').trim()));
                assert!(anchors.any(|anchor| anchor == heading), "{broken}");
            }
        }
    }
}

#[test]
fn the_schema_pages_name_every_column_with_its_type() {
    let db = TestDb::new();
    // Domains are shown as the type that they restrict.
    let found = db.query(
        "SELECT string_agg(
            relname || '.' || attname || ' ' || replace(
                format_type(coalesce(nullif(typbasetype, 0), atttypid), NULL),
                'timestamp with time zone',
                'timestamptz'
            ),
            ',' ORDER BY (relname || '.' || attname || ' ') COLLATE \"C\"
        )
        FROM pg_attribute
        JOIN pg_class AS relation ON relation.oid = attrelid
        JOIN pg_type ON pg_type.oid = atttypid
        WHERE relnamespace = 'jobctl'::regnamespace AND relkind IN ('r', 'v')
            AND attnum > 0 AND NOT attisdropped",
    );
    let found: Vec<_> = found.split(',').map(str::to_owned).collect();
    let page = schema_pages();
    let (_, views_and_tables) = page.split_once("\n## Views\n").unwrap();
    assert_eq!(columns(views_and_tables), found);
}

#[test]
fn the_schema_pages_name_every_function_and_the_arguments_of_enqueue() {
    let db = TestDb::new();
    let page = schema_pages();
    let names = db.query(
        "SELECT string_agg(DISTINCT proname, ',') FROM pg_proc
        WHERE pronamespace = 'jobctl'::regnamespace",
    );
    for name in names.split(',') {
        assert!(page.contains(&format!("`jobctl.{name}")), "{name}");
    }
    let arguments = db.query(
        "SELECT string_agg(name || ' ' || type, ',' ORDER BY name)
        FROM pg_proc, unnest(proargnames, proargtypes::oid[]::regtype[]::text[]) AS a (name, type)
        WHERE proname = 'enqueue' AND pronamespace = 'jobctl'::regnamespace",
    );
    for argument in arguments.replace("timestamp with time zone", "timestamptz").split(',') {
        let (name, kind) = argument.split_once(' ').unwrap();
        assert!(page.contains(&format!("\n- `{name}`: {kind}; ")), "{argument}");
    }
}

/// Returns the fields of each output as `OUTPUT: FIELD`. A line with this `title` begins an output,
/// and `fields` returns the fields that a line names.
fn outputs(text: &str, title: &str, fields: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let mut outputs = Vec::new();
    let mut output = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix(title) {
            output = name.replace('`', "").split(" (").next().unwrap().to_owned();
        } else if !output.is_empty() {
            outputs.extend(fields(line).iter().map(|field| format!("{output}: {field}")));
        }
    }
    outputs
}

#[test]
fn the_json_page_names_every_field_in_order() {
    let page = fs::read_to_string(root().join("docs/json.md")).unwrap();
    let (page, _) = page.split_once("## Input").unwrap();
    let on_page = outputs(page, "## `jobctl ", |line| {
        fields(line).map_or_else(Vec::new, |(names, _)| names.map(str::to_owned).collect())
    });
    let found = fs::read_to_string(root().join("tests/interfaces.txt")).unwrap();
    let found = outputs(&found, "jobctl ", |line| {
        let field = line.strip_prefix("  ").and_then(|line| line.split_once(": "));
        field.map(|(name, _)| name.to_owned()).into_iter().collect()
    });
    assert_eq!(on_page, found);
}

#[test]
fn the_reference_names_every_key_of_a_definition() {
    let page = fs::read_to_string(root().join("docs/reference.md")).unwrap();
    let (_, after) = page.split_once("## Definitions file\n").unwrap();
    let (section, _) = after.split_once("\n## ").unwrap();
    let (definition, http) = section.split_once("| key of `http` |").unwrap();
    let named = |part: &str| -> BTreeSet<String> {
        // The first cell of a row names one or more keys in backticks.
        let cells = part.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
        let keys = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        keys.map(str::to_owned).collect()
    };
    let db = TestDb::new();
    let folder = temp_dir();
    // The error about an unknown key lists all keys.
    let known = |job: &str| -> BTreeSet<String> {
        fs::write(folder.path().join("jobs.toml"), job).unwrap();
        let rejected = db.jobctl(["apply", "jobs.toml"]).current_dir(folder.path()).run().exits(2);
        let (_, keys) = rejected.stderr.split_once("known are ").unwrap();
        keys.trim().split(", ").map(str::to_owned).collect()
    };
    assert_eq!(named(definition), known("[jobs.a]\nshell = 'true'\nzzz = 1\n"));
    assert_eq!(named(http), known("[jobs.a]\nhttp = { url = 'http://a', zzz = 1 }\n"));
}
