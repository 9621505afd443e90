//! Turns a crontab into a definitions file. Pure.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::definition::check_name;
use super::definition_keys::toml;
use crate::schedule::Schedule;

/// Whose crontab it is.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Owner {
    /// A user's crontab: the command follows the schedule.
    User,
    /// A system crontab: a user's name stands between the schedule and the command.
    System,
}

/// A definitions file, and the lines that need a person.
#[derive(Default)]
pub(crate) struct Imported {
    pub(crate) file: String,
    /// Line numbers from 1, and why the line needs a person.
    pub(crate) warnings: Vec<(usize, String)>,
    pub(crate) jobs: Vec<ImportedJob>,
}

/// A line that became a job.
pub(crate) struct ImportedJob {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) name: String,
    /// As in the crontab.
    pub(crate) schedule: String,
    pub(crate) time_zone: String,
}

/// Variables that are no part of a job's environment, and what replaces them.
const NOT_CARRIED: [(&str, &str); 4] = [
    ("MAILTO", "run `jobctl check` from cron, which mails its lines"),
    ("MAILFROM", "set it in the crontab that runs `jobctl check`"),
    ("CONTENT_TYPE", "jobctl sends no mail"),
    ("CONTENT_TRANSFER_ENCODING", "jobctl sends no mail"),
];
/// Words of a command that say nothing about its purpose.
const WRAPPERS: [&str; 18] = [
    "bash", "chronic", "exec", "flock", "ionice", "nice", "nohup", "perl", "php", "python",
    "python3", "ruby", "run-one", "sh", "sudo", "then", "timeout", "true",
];
/// First words of commands that only prepare the job, as in `[ -x /usr/bin/a ] && /usr/bin/a`.
const PREPARATIONS: [&str; 10] =
    [".", "[", "[[", "cd", "command", "export", "if", "sleep", "test", "umask"];

/// Reads a crontab. `time_zone` holds for the jobs until a line sets `CRON_TZ`. A schedule must
/// fire after `now`.
pub(crate) fn import(text: &str, owner: Owner, time_zone: &str, now: DateTime<Utc>) -> Imported {
    let mut import = Import {
        owner,
        now,
        time_zone: time_zone.to_owned(),
        shell: None,
        environment: BTreeMap::new(),
        names: BTreeSet::new(),
        comments: Vec::new(),
        imported: Imported::default(),
    };
    for (number, line) in (1..).zip(text.lines()) {
        import.line(number, line.trim_end_matches('\r').trim_start());
    }
    import.write_comments();
    import.imported
}

struct Import {
    owner: Owner,
    now: DateTime<Utc>,
    time_zone: String,
    /// `SHELL`, unless it is `sh`.
    shell: Option<String>,
    environment: BTreeMap<String, String>,
    names: BTreeSet<String>,
    /// Comments that belong to the next job.
    comments: Vec<String>,
    imported: Imported,
}

impl Import {
    fn line(&mut self, number: usize, line: &str) {
        if line.is_empty() {
            // A comment apart from a job is about the file.
            self.write_comments();
        } else if let Some(comment) = line.strip_prefix('#') {
            self.comments.push(format!("#{}", without_control(comment)));
        } else if let Some((name, value)) = variable(line) {
            self.set(number, &name, value);
        } else if let Err(why) = self.job(number, line) {
            self.leave_out(number, &why, line);
        }
    }

    fn set(&mut self, number: usize, name: &str, value: String) {
        // The comment before a variable is not about the next job.
        self.write_comments();
        if let Some((_, instead)) = NOT_CARRIED.iter().find(|(known, _)| *known == name) {
            if !value.is_empty() {
                self.leave_out(number, &format!("{name} has no equivalent: {instead}"), "");
            }
            return;
        }
        match name {
            "CRON_TZ" => self.time_zone = value,
            "SHELL" => {
                let is_usual = matches!(value.as_str(), "/bin/sh" | "/usr/bin/sh");
                self.shell = Some(value).filter(|_| !is_usual);
            }
            _ => {
                self.environment.insert(name.to_owned(), value);
            }
        }
    }

    /// Writes the job of a line. An error says why the line can't be a job.
    fn job(&mut self, number: usize, line: &str) -> Result<(), String> {
        let words = if line.starts_with('@') { 1 } else { 5 };
        let (schedule, rest) = split_words(line, words)
            .ok_or("it is neither a variable, nor a schedule and a command")?;
        let (user, command) = match self.owner {
            Owner::User => (None, rest),
            Owner::System => split_words(rest, 1)
                .map(|(user, command)| (Some(user), command))
                .ok_or("the command after the user is missing")?,
        };
        if schedule == "@reboot" {
            return Err("@reboot has no equivalent: keep the line".to_owned());
        }
        Schedule::parse(&schedule, &self.time_zone)?.first(self.now)?;
        let (command, input) = split_input(command);
        let command = command.trim();
        if command.is_empty() {
            return Err("the command is missing".to_owned());
        }
        let name = self.name(command);
        // Cron passes the text after a `%` to the command.
        let command = match input {
            Some(input) => format!("{{ {command}\n}} <<'END_OF_INPUT'\n{input}\nEND_OF_INPUT"),
            None => command.to_owned(),
        };
        let command = match &self.shell {
            Some(shell) => json!([shell, "-c", command]),
            None => json!(command),
        };
        let mut keys = vec![("shell", command)];
        if !self.environment.is_empty() {
            keys.push(("env", json!(self.environment)));
        }
        // Cron starts jobs in this folder.
        keys.extend(self.environment.get("HOME").map(|home| ("cwd", json!(home))));
        keys.extend([
            ("schedule", json!(schedule)),
            ("time_zone", json!(self.time_zone)),
            // Cron starts a job again while it runs, forgets missed times, and never retries.
            ("overlap", json!("allow")),
            ("catch_up", json!("skip")),
            ("max_attempts", json!(1)),
        ]);
        let file = &mut self.imported.file;
        for comment in self.comments.drain(..) {
            file.extend([&comment, "\n"]);
        }
        if let Some(user) = user {
            let user = without_control(&user);
            file.extend(["# Cron runs it as ", &user, ": let a crontab of that user tick.\n"]);
        }
        file.extend(["[jobs.", &quoted(&name), "]\n"]);
        for (key, value) in keys {
            file.extend([key, " = ", &toml(&value), "\n"]);
        }
        file.push('\n');
        let time_zone = self.time_zone.clone();
        self.imported.jobs.push(ImportedJob { line: number, name, schedule, time_zone });
        Ok(())
    }

    /// Keeps the line as a comment.
    fn leave_out(&mut self, number: usize, why: &str, line: &str) {
        self.imported.warnings.push((number, why.to_owned()));
        self.write_comments();
        let file = &mut self.imported.file;
        file.extend([&format!("# Line {number} is left out: "), &*without_control(why), "\n"]);
        if !line.is_empty() {
            file.extend(["#     ", &without_control(line), "\n"]);
        }
        file.push('\n');
    }

    fn write_comments(&mut self) {
        if !self.comments.is_empty() {
            self.imported.file.extend([&self.comments.join("\n"), "\n\n"]);
            self.comments.clear();
        }
    }

    /// Returns a unique name, from the first program of the command that does the work.
    fn name(&mut self, command: &str) -> String {
        let mut name: String = program(command).chars().take(50).collect();
        if check_name(&name).is_err() {
            name = format!("job-{name}").trim_end_matches('-').to_owned();
        }
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        let unique = names.find(|name| !self.names.contains(name)).unwrap_or(name);
        self.names.insert(unique.clone());
        unique
    }
}

/// Returns the file name of the first program that is neither a wrapper nor a preparation, without
/// characters that a job's name may not have.
fn program(command: &str) -> String {
    let commands = command.split(['&', '|', ';', '{', '\n']);
    let prepares = |word: &str| PREPARATIONS.contains(&word);
    let is_work = |command: &&str| command.split_whitespace().next().is_some_and(|w| !prepares(w));
    let file = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let is_program = |word: &String| {
        word.starts_with(|c: char| c.is_ascii_alphabetic())
            && !word.contains('=')
            && !WRAPPERS.contains(&word.as_str())
    };
    let separators = |c: char| c.is_whitespace() || "(){}<>\"'`$".contains(c);
    // After a wrapper, too: `nice sleep 5; /usr/bin/a`.
    let program = commands
        .filter(is_work)
        .filter_map(|command| command.split(separators).map(file).find(is_program))
        .find(|program| !prepares(program));
    let program = program.unwrap_or_default();
    program.chars().filter(|c| c.is_ascii_alphanumeric() || "_.-".contains(*c)).collect()
}

/// Reads `NAME = value`; blanks and matching quotes around both are dropped, as in cron.
fn variable(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let unquoted = |text: &str| {
        let text = text.trim();
        let inner = ['"', '\'']
            .iter()
            .find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote).map(str::to_owned));
        inner.unwrap_or_else(|| text.to_owned())
    };
    let name = unquoted(name);
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| (name, unquoted(value)))
}

/// Splits after this many words. Blanks between the words become one.
fn split_words(line: &str, count: usize) -> Option<(String, &str)> {
    let (mut words, mut rest) = (Vec::new(), line);
    for _ in 0..count {
        let (word, others) = rest.split_once([' ', '\t'])?;
        words.push(word);
        rest = others.trim_start();
    }
    (!rest.is_empty()).then(|| (words.join(" "), rest))
}

/// Splits at the first bare `%`. In the input, further ones are ends of lines; `\%` is a `%`.
fn split_input(command: &str) -> (String, Option<String>) {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let mut characters = command.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\\' if characters.peek() == Some(&'%') => part.extend(characters.next()),
            '%' => parts.push(std::mem::take(&mut part)),
            c => part.push(c),
        }
    }
    parts.push(part);
    let command = parts.remove(0);
    (command, Some(parts.join("\n")).filter(|_| !parts.is_empty()))
}

fn quoted(name: &str) -> String {
    if name.contains('.') { Value::from(name).to_string() } else { name.to_owned() }
}

/// TOML allows no control characters in comments.
fn without_control(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
