//! Runs the code blocks of README.md and docs/. CONTRIBUTING.md has the rules for blocks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, fs};

use crate::cron;
use crate::support::http_server::HttpServer;
use crate::support::{Invocation, TestDb, leave_out, packages, temp_dir};

/// Languages of blocks that are no code.
const TEXT: [&str; 2] = ["text", "mermaid"];

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the files in these folders of `sql`, sorted, without their endings.
pub fn sql_files(folders: &[&str]) -> Vec<String> {
    let names = folders.iter().flat_map(|folder| {
        let files = fs::read_dir(root().join("sql").join(folder)).unwrap();
        files.map(move |file| {
            let path = file.unwrap().path();
            format!("{folder}/{}", path.file_stem().unwrap().to_str().unwrap())
        })
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// The names of the migrations in their order, as `migrate` prints them. The table of versions has
/// no version of its own.
pub fn migrations() -> Vec<String> {
    let files = sql_files(&["migrations"]).into_iter();
    let names = files.map(|file| file["migrations/".len()..].to_owned());
    names.filter(|name| !name.starts_with("0000")).collect()
}

/// What `migrate` prints in an empty database.
pub fn all_migrations() -> String {
    migrations().iter().map(|name| format!("{name}\n")).collect()
}

/// One test a page, so that a filter can name it.
macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        $(#[test]
        fn $name() {
            check_page($path);
        })*

        #[test]
        fn every_page_has_a_test() {
            let mut pages = vec!["README.md".to_owned()];
            pages.extend(files(&root().join("docs")).iter().filter_map(|path| {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
                name.ends_with(".md").then(|| name.to_owned())
            }));
            pages.sort();
            let mut tested = [$($path),*];
            tested.sort();
            assert_eq!(pages, tested, "add new pages to `pages!`");
        }
    };
}

pages! {
    architecture: "docs/internals/architecture.md",
    bounds: "docs/internals/bounds.md",
    comparison: "docs/comparison.md",
    effects: "docs/effects.md",
    enqueue: "docs/enqueue.md",
    faq: "docs/faq.md",
    from_cron: "docs/from-cron.md",
    guide: "docs/guide.md",
    hooks: "docs/hooks.md",
    json: "docs/json.md",
    monitoring: "docs/monitoring.md",
    operations: "docs/operations.md",
    performance: "docs/performance.md",
    performance_figures: "docs/internals/performance-figures.md",
    performance_reasons: "docs/internals/performance-reasons.md",
    readme: "README.md",
    reference: "docs/reference.md",
    schedules: "docs/schedules.md",
    schema: "docs/schema.md",
    schema_internals: "docs/internals/schema.md",
    security: "docs/security.md",
    simulation: "docs/internals/simulation.md",
    testing: "docs/internals/testing.md",
    tls: "docs/internals/tls.md",
}

/// A fenced block: its language, the words after it, and its text.
struct Block<'a> {
    line: usize,
    language: &'a str,
    tags: &'a str,
    text: Vec<&'a str>,
}

/// Returns the fenced blocks of a page.
fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().zip(1..);
    while let Some((fence, line)) = lines.next() {
        if let Some(info) = fence.strip_prefix("```") {
            let (language, tags) = info.split_once(' ').unwrap_or((info, ""));
            let text = lines.by_ref().map(|(line, _)| line).take_while(|line| *line != "```");
            blocks.push(Block { line: line + 1, language, tags, text: text.collect() });
        }
    }
    blocks
}

impl Block<'_> {
    /// The file that a comment in the first two lines names: `# jobs.toml`, `-- report.sql`.
    fn file(&self) -> Option<&str> {
        self.text.iter().take(2).find_map(|line| {
            let name = line.strip_prefix("# ").or_else(|| line.strip_prefix("-- "))?;
            let is_path = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
            let is_file =
                name.contains(['.', '/']) && !name.ends_with('.') && name.chars().all(is_path);
            if is_file { Some(name) } else { None }
        })
    }
}

/// A command of a page. `output` is what the page shows; without it only success counts.
struct Step<'a> {
    line: usize,
    command: String,
    output: Option<Vec<&'a str>>,
}

/// Returns the commands of a console block, which begin with `$ `, with their outputs. After a
/// backslash and inside of a here-document, a command goes on in the next line.
fn steps_of_console<'a>(block: &Block<'a>) -> Vec<Step<'a>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = block.text.iter().zip(block.line..).peekable();
    while let Some((line, number)) = lines.next() {
        if let Some(first) = line.strip_prefix("$ ") {
            let mut command = first.to_owned();
            let end = first.split_once("<<").map(|(_, end)| end.trim_matches('\'').to_owned());
            while end.is_some() && command.lines().last() != end.as_deref()
                || command.ends_with('\\')
            {
                let (next, _) = lines.next().expect("the command is complete");
                command = format!("{command}\n{next}");
            }
            steps.push(Step { line: number, command, output: Some(Vec::new()) });
        } else {
            let step = steps.last_mut().expect("a console block begins with `$ `");
            step.output.get_or_insert_default().push(line);
        }
    }
    steps
}

/// Returns what a block does in the shell of its page. JSON is only parsed.
fn steps<'a>(block: &Block<'a>, number: usize) -> Vec<Step<'a>> {
    let Block { line, language, tags, .. } = *block;
    if let Some(reason) = tags.strip_prefix("no-run") {
        assert!(!reason.trim().is_empty(), "line {line}: say why: ```{language} no-run REASON");
        return Vec::new();
    }
    let text = block.text.join("\n");
    let step = |command| Step { line, command, output: None };
    let write = |name: &str| {
        let make = format!("mkdir -p \"$(dirname {name})\" && cat >{name} <<'END_OF_FILE'");
        step(format!("{make}\n{text}\nEND_OF_FILE\n{{ [ {language} != sh ] || chmod +x {name}; }}"))
    };
    let own_name = format!(".block{number}");
    match (language, block.file()) {
        ("console", _) => steps_of_console(block),
        ("sh", None) => vec![step(text)],
        ("toml", name) => {
            let name = name.unwrap_or(&own_name);
            vec![write(name), step(format!("jobctl apply --dry-run {name}"))]
        }
        (_, Some(name)) => vec![write(name)],
        ("sql", None) => {
            let run = "psql -X --quiet --set ON_ERROR_STOP=1 --file";
            let single = if text.contains("COMMIT") { "" } else { "--single-transaction" };
            let run = step(format!("{run} {own_name} {single} \"$DATABASE_URL\""));
            vec![write(&own_name), run]
        }
        ("crontab", None) => {
            let lines = format!("grep -vE '^(#|[A-Z_]+=|$)' {own_name}");
            let times = "awk '{ print /^@/ ? $1 : $1 \" \" $2 \" \" $3 \" \" $4 \" \" $5 }'";
            let check = "xargs -I {} jobctl next --count 1 --schedule {}";
            vec![write(&own_name), step(format!("{lines} | {times} | {check}"))]
        }
        ("json", None) => {
            let values = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
            let bad = values.filter_map(Result::err).next();
            assert!(bad.is_none(), "line {line}: no JSON: {bad:?}");
            Vec::new()
        }
        (language, None) if TEXT.contains(&language) => Vec::new(),
        (_, None) => panic!("line {line}: ```{language} does not run: add `no-run REASON`"),
    }
}

/// Replaces times, durations and versions by `#`, and several blanks by one. Such a word is the
/// name of a day, or begins with a digit and is neither a number, such as `7` or `1/10`, nor an
/// incident.
fn normalized(line: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-:.+_/".contains(c);
    // The id of an incident begins a line, as 17.2.
    let is_id = |word: &str| {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        line.trim_start().starts_with(word)
            && word.split_once('.').is_some_and(|(run, attempt)| digits(run) && digits(attempt))
    };
    let is_time = |word: &str| {
        ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"].contains(&word)
            || word.starts_with(|c: char| c.is_ascii_digit())
                && !word.contains(['_', '/'])
                && word.contains(|c: char| !c.is_ascii_digit())
                && !is_id(word)
    };
    let words = line.split_inclusive(|c| !is_word(c)).map(|part| {
        let word = part.trim_end_matches(|c| !is_word(c)).trim_end_matches(['.', ':']);
        if is_time(word) { format!("#{}", &part[word.len()..]) } else { part.to_owned() }
    });
    let mut line = words.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ");
    while line.contains("# #") {
        line = line.replace("# #", "#");
    }
    line.replace("# ago", "now")
}

/// Returns whether a printed line is the shown one. In that, `…` stands for any text.
fn line_matches(shown: &str, printed: &str) -> bool {
    let mut pieces = shown.split('…');
    let Some(mut rest) = printed.strip_prefix(pieces.next().unwrap_or_default()) else {
        return false;
    };
    for piece in pieces {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        rest = after;
    }
    rest.is_empty() || shown.ends_with('…')
}

/// Returns whether the printed lines are the shown ones, where a line `...` stands for any lines.
fn matches(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed
            .split_first()
            .is_some_and(|(line, others)| line_matches(first, line) && matches(rest, others)),
    }
}

impl Step<'_> {
    /// Describes how the output differs from the page. With `--from`, times are compared, too.
    fn problem(&self, status: &str, printed: &str) -> Option<String> {
        let Some(shown) = &self.output else {
            return (status != "0").then(|| format!("exit status {status}"));
        };
        let lines = |text: &str| -> Vec<String> {
            let exact = self.command.contains("--from");
            let blanks = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let line = |line: &str| {
                // A progress line is cleared before the next one.
                let line = line.rsplit("\x1b[K").next().unwrap_or_default();
                if exact { blanks(line) } else { normalized(line) }
            };
            text.lines().map(line).filter(|line| !line.is_empty()).collect()
        };
        let shown = shown.join("\n");
        (!matches(&lines(&shown), &lines(printed))).then(|| format!("the page shows:\n{shown}"))
    }
}

/// Returns a script that runs all commands in one shell. It prints `\x1e` before the output of each
/// command, and `\x1e` before its exit status.
fn script(steps: &[Step]) -> String {
    let mut script = "stty cols 104\nprintf '\\036'\n".to_owned();
    for (number, Step { command, .. }) in steps.iter().enumerate() {
        let source = format!("cat >.step{number} <<'END_OF_STEP'\n{command}\nEND_OF_STEP");
        script += &format!("{source}\n. ./.step{number}\nprintf '\\036%d\\036' $?\n");
    }
    script
}

/// Runs the commands of a page, and asserts that each prints what the page shows.
fn check_page(path: &str) {
    let page = fs::read_to_string(root().join(path)).unwrap();
    let blocks = blocks(&page);
    let steps: Vec<_> =
        blocks.iter().enumerate().flat_map(|(number, block)| steps(block, number)).collect();
    if steps.is_empty() {
        return;
    }
    for program in ["psql", "script"] {
        if !packages::is_installed(program) {
            return leave_out(path, &format!("{program} is not installed"));
        }
    }
    let under_cron = blocks.iter().any(|block| block.tags == "cron");
    if let Some(why) = cron::obstacle().filter(|_| under_cron) {
        return leave_out(path, why);
    }
    // A page that migrates begins with an empty database.
    let migrates = steps
        .iter()
        .any(|step| step.command == "jobctl migrate" || step.command.contains("jobctl init"));
    let db = if migrates { TestDb::empty() } else { TestDb::new() };
    let roles = page.split("CREATE ROLE ").skip(1).map(|rest| rest.split([' ', ';']).next());
    let drop_roles: String =
        roles.flatten().map(|role| format!("DROP ROLE IF EXISTS {role};")).collect();
    // Roles belong to the whole server, so pages that create some run one at a time.
    static ROLES: Mutex<()> = Mutex::new(());
    let _lock =
        page.contains("CREATE ROLE ").then(|| ROLES.lock().unwrap_or_else(PoisonError::into_inner));
    db.execute(&drop_roles);
    let (server, folder) = (HttpServer::start(), temp_dir());
    let home = folder.path().to_str().unwrap();
    let (url, http) = (db.url(), server.url(""));
    let host = rustix::system::uname();
    // What pages show, and what stands for it here. The host's name is only in outputs.
    let names = [
        ("postgres://app@localhost/app", url.as_str()),
        ("https://app.example", &http),
        ("/srv/app", home),
        ("web1", host.nodename().to_str().unwrap()),
    ];
    let script =
        names[..3].iter().fold(script(&steps), |text, (doc, here)| text.replace(doc, here));
    fs::write(folder.path().join(".page"), script).unwrap();

    let bin = Path::new(env!("CARGO_BIN_EXE_jobctl")).parent().unwrap().to_str().unwrap();
    let servers = std::env::var("PG_BIN").unwrap_or_default();
    let search = format!("{bin}:{servers}:{}", std::env::var("PATH").unwrap());
    let run = "timeout --kill-after 5 200 script -qec 'bash .page' /dev/null </dev/null";
    let run = if under_cron { cron::beside(run, folder.path()) } else { run.to_owned() };
    let page_run = Invocation::script(&run, Some(&db)).current_dir(folder.path());
    let environment =
        [("HOME", home), ("PATH", &search), ("DATABASE_URL", &url), ("LANG", "C.UTF-8")];
    let environment = environment.into_iter().chain([
        ("TZ", "UTC"),
        ("NO_COLOR", "1"),
        ("PAGER", "cat"),
        ("SUDO_USER", "ana"),
        ("XDG_STATE_HOME", home),
    ]);
    let page_run = environment.fold(page_run, |run, (name, value)| run.env(name, value));
    let page_run = page_run.env_remove("XDG_CONFIG_HOME");
    let finished = page_run.spawn().wait_within(Duration::from_secs(240));
    let mut output = finished.stdout.replace("\r\n", "\n");
    // The first tick at a terminal says so, if the tests run as root.
    let of_root = " warn  this tick runs jobs as root; Ctrl-C stops it\n";
    while let Some(at) = output.find(of_root) {
        output.replace_range(at - "2026-11-23T02:43:17Z".len()..at + of_root.len(), "");
    }
    let output = names.iter().fold(output, |text, (doc, here)| text.replace(here, doc));
    // For each command, its output and its exit status.
    let parts: Vec<_> = output.split('\x1e').skip(1).collect();

    let (mut problems, mut lines) =
        (Vec::new(), page.lines().map(str::to_owned).collect::<Vec<_>>());
    // From the end, so that an updated output does not move the lines of the steps before.
    for (step, part) in steps.iter().zip(parts.chunks(2)).rev() {
        let [printed, status] = part else { panic!("{path}:{}: no end", step.line) };
        let Some(problem) = step.problem(status, printed) else { continue };
        let (line, command) = (step.line, &step.command);
        problems.push(format!("{path}:{line}: {command}\n{problem}\nit printed:\n{printed}"));
        if let Some(shown) = &step.output {
            let first = line - 1 + command.lines().count();
            let printed = printed.trim_end().lines().map(|line| line.trim_end().to_owned());
            lines.splice(first..first + shown.len(), printed);
        }
    }
    if !problems.is_empty() && std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join(path), lines.join("\n") + "\n").unwrap();
    }
    problems.reverse();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(parts.len(), 2 * steps.len() + 1, "{path}: not all ran\n{}", finished.stderr);
    drop(db);
    TestDb::empty().execute(&drop_roles);
}

/// Returns the files in a folder and in the folders below it.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// A page shows an output as it was printed once. Another day, the times and durations in it
/// differ, so `check_page` ignores them, and it ignores what a page marks: a line `...` stands for
/// any lines, and `…` for the rest of a line. All else must be the same.
#[test]
fn only_times_durations_and_marked_parts_of_an_output_may_differ() {
    let is_same = |command: &str, shown: &'static str, printed: &str| {
        let output = Some(shown.lines().collect());
        Step { line: 1, command: command.to_owned(), output }.problem("0", printed).is_none()
    };
    let accepts = |command: &str, shown: &'static str, printed: &str| {
        assert!(is_same(command, shown, printed), "{command}: {printed}");
    };
    let rejects = |command: &str, shown: &'static str, printed: &str| {
        assert!(!is_same(command, shown, printed), "{command}: {printed}");
    };
    // Another time and duration, but not another id.
    let log = "2026-11-21T06:34:11Z info  run 1 shell attempt 1/10: succeeded after 211ms";
    let later = "2026-11-22T06:34:11.123Z info run 1 shell attempt 1/10: succeeded after 1m 2s";
    accepts("tick", log, later);
    rejects("tick", log, &log.replace("run 1", "run 2"));
    // Another duration, day and width of a column.
    accepts("next", "in 9h  Tue 2026-11-24 02:00", "in 23h Wed 2026-11-25 02:00");
    // With `--from`, the times do not depend on the day, so they must be the same.
    rejects("next --from X", "At 02:30", "At 02:31");
    // Two lines and a name that the page does not show, with and without a mark for the lines.
    accepts("show", "ended 5m ago\n...\nuser …", "ended now\na\nb\nuser app");
    rejects("show", "ended 5m ago\nuser …", "ended now\na\nb\nuser app");
    // A line too many, and a missing line.
    rejects("enqueue", "1", "1\n2");
    rejects("enqueue", "", "1");
    rejects("enqueue", "1", "");
}

/// Returns the words of a page between backticks.
fn code_words(page: &str) -> impl Iterator<Item = &str> {
    page.split('`').skip(1).step_by(2)
}

#[test]
fn the_page_about_tests_names_all_defects_and_only_tests_that_exist() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let [page, variants, checker] =
        ["docs/internals/testing.md", "tests/simulation/variants.rs", "tests/chaos/checker.rs"]
            .map(read);
    // In backticks, the page names tests (with `::`), planted defects (in capitals) and checks of
    // the chaos test (with `_`).
    let list = Command::new(env::current_exe().unwrap()).arg("--list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let tests: BTreeSet<_> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let named: Vec<_> = code_words(&page).filter(|word| word.contains("::")).collect();
    let missing: Vec<_> = named.iter().filter(|name| !tests.contains(**name)).collect();
    assert!(
        missing.is_empty(),
        "docs/internals/testing.md names tests that don't exist: {missing:?}"
    );

    // A line of the list of defects has a name, a number of seeds and a sentence.
    let defects = variants.lines().filter_map(|line| {
        let [name, seeds, what] = line.trim().splitn(3, ' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        (seeds.parse::<u32>().is_ok() && what.starts_with('"')).then_some(name)
    });
    let defects: BTreeSet<_> = defects.collect();
    let is_defect =
        |word: &&str| word.chars().all(char::is_alphanumeric) && word.contains(char::is_uppercase);
    assert_eq!(code_words(&page).filter(is_defect).collect::<BTreeSet<_>>(), defects);

    // Each check is a method that is called as `log.NAME();`.
    let checks = checker.lines().filter_map(|line| line.trim().strip_prefix("log."));
    let checks: BTreeSet<_> = checks.filter_map(|call| call.strip_suffix("();")).collect();
    let is_check = |word: &&str| word.contains('_') && !word.contains(['/', ':']);
    let known: BTreeSet<_> = code_words(&page).filter(is_check).collect();
    assert_eq!(known, checks);

    // The defects of the sequences have sentences as names.
    let sequences = read("tests/simulation/sequences.rs");
    let (_, list) = sequences.split_once("\ndefects! {").unwrap();
    let list = list.split_once("\n}").unwrap().0;
    let planted: Vec<_> = list
        .lines()
        .filter_map(|line| line.strip_prefix("    \"")?.split_once("\" in "))
        .map(|(name, _)| format!("\"{name}\""))
        .collect();
    let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let unnamed: Vec<_> = planted.iter().filter(|name| !words.contains(*name)).collect();
    assert!(unnamed.is_empty(), "docs/internals/testing.md does not name {unnamed:?}");

    // The pages say these numbers.
    let hundreds = tests.len() / 100;
    let more_than = format!("More than {},{}00 tests", hundreds / 10, hundreds % 10);
    for (path, count) in [
        ("docs/internals/testing.md", more_than),
        ("docs/internals/testing.md", format!("{} planted defects", defects.len())),
        ("docs/internals/simulation.md", format!("lists {} defects", defects.len())),
        ("docs/internals/testing.md", format!("the sequences have {}", planted.len())),
        ("docs/internals/simulation.md", format!("lists {} defects of the schema", planted.len())),
    ] {
        assert!(read(path).contains(&count), "{path} does not say: {count}");
    }
}
