//! Turns a crontab into a definitions file. Pure.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use cron_zone::Schedule;
use serde_json::{Value, json};

use super::command_text::{
    failing_guard, leaves_process, left_open, own_subcommand, program, skips_overlap,
};
use super::definition_keys::{Overlap, check_name};
use super::stored_definition::{toml, toml_text};

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
    /// A line that cron accepts is not in the file.
    pub(crate) is_incomplete: bool,
}

/// Variables that jobs do not get, and what replaces them.
const NOT_CARRIED: [(&str, &str); 5] = [
    ("MAILTO", "run `jobctl check` from cron, which mails its lines"),
    ("MAILFROM", "set it in the crontab that runs `jobctl check`"),
    ("LOGNAME", "cron sets it itself"),
    ("CONTENT_TYPE", "jobctl sends no mail"),
    ("CONTENT_TRANSFER_ENCODING", "jobctl sends no mail"),
];
/// The most bytes of a command that cron accepts.
const LONGEST_COMMAND: usize = 998;
/// The most lines of a crontab that cron accepts.
const LONGEST_CRONTAB: usize = 10_000;

/// Why a line is not in the file.
struct LeftOut {
    why: String,
    /// Whether cron refuses the whole crontab for this line. Then cron runs no jobs of it, and none
    /// is missing in the file.
    cron_refuses: bool,
}

impl<T: Into<String>> From<T> for LeftOut {
    fn from(why: T) -> Self {
        Self { why: why.into(), cron_refuses: false }
    }
}

/// The reason for a line that makes cron refuse the whole crontab.
fn refused(why: impl Into<String>) -> LeftOut {
    LeftOut { why: why.into(), cron_refuses: true }
}

/// Returns why cron ignores the whole file, if it does.
pub(crate) fn refusal(text: &str) -> Option<String> {
    let count = text.lines().count();
    if count > LONGEST_CRONTAB {
        return Some(format!("cron ignores a file of more than {LONGEST_CRONTAB} lines; split it"));
    }
    let last = text.lines().next_back()?.trim();
    if text.ends_with('\n') || last.is_empty() || last.starts_with('#') {
        return None;
    }
    Some(format!("cron ignores a file whose last line has no newline; end line {count} with one"))
}

/// Turns a crontab into a definitions file.
///
/// - `time_zone`: that of the jobs until a line sets `CRON_TZ`.
/// - `now`: a schedule must fire after this time.
/// - `is_account` returns whether a word is a user of this host, but not a program in this `PATH`.
pub(crate) fn import(
    text: &str,
    owner: Owner,
    time_zone: &str,
    now: DateTime<Utc>,
    is_account: &dyn Fn(&str, Option<&str>) -> bool,
) -> Imported {
    let mut import = Import {
        owner,
        now,
        is_account,
        time_zone: time_zone.to_owned(),
        shell: None,
        environment: BTreeMap::new(),
        names: BTreeMap::new(),
        users: BTreeSet::new(),
        comments: Vec::new(),
        imported: Imported::default(),
    };
    for (number, line) in (1..).zip(text.lines()) {
        import.read_line(number, line.trim_end_matches('\r').trim_start_matches([' ', '\t']));
    }
    import.write_comments();
    import.imported
}

struct Import<'a> {
    owner: Owner,
    now: DateTime<Utc>,
    is_account: &'a dyn Fn(&str, Option<&str>) -> bool,
    time_zone: String,
    /// `SHELL`, unless it is `sh`.
    shell: Option<String>,
    environment: BTreeMap<String, String>,
    /// The last number that was added to each name.
    names: BTreeMap<String, u32>,
    /// The users of a system crontab's jobs.
    users: BTreeSet<String>,
    /// Comments that belong to the next job.
    comments: Vec<String>,
    imported: Imported,
}

impl Import<'_> {
    /// Reads one line, without the blanks before it.
    fn read_line(&mut self, number: usize, line: &str) {
        if line.ends_with('\\') && !line.starts_with('#') {
            let why = "cron has no continuation lines, and takes the next line for another entry: \
                       write both in one line";
            self.imported.warnings.push((number, why.to_owned()));
        }
        if line.is_empty() {
            // Comments above an empty line are about the file, not about the next job.
            self.write_comments();
        } else if let Some(comment) = line.strip_prefix('#') {
            self.comments.push(format!("#{}", without_control(comment)));
        } else if line.contains(['\0', char::REPLACEMENT_CHARACTER]) {
            self.imported.is_incomplete = true;
            self.leave_out(number, "it is not UTF-8 text; convert the file", line);
        } else if let Some((name, value)) = variable(line) {
            self.set_variable(number, &name, value);
        } else if let Err(LeftOut { why, cron_refuses }) = self.job(number, line) {
            self.imported.is_incomplete |= !cron_refuses;
            self.leave_out(number, &why, line);
        }
    }

    /// Sets a variable for the jobs of the next lines, or warns if jobs can't have it.
    fn set_variable(&mut self, number: usize, name: &str, value: String) {
        // Comments above a variable are not about the next job.
        self.write_comments();
        if let Some((_, instead)) = NOT_CARRIED.iter().find(|(known, _)| *known == name) {
            if !value.is_empty() {
                self.leave_out(number, &format!("{name} has no equivalent: {instead}"), "");
            }
            return;
        }
        match name {
            "CRON_TZ" => {
                let why = "Debian's cron ignores CRON_TZ, other crons obey it: see the \
                           time_zone of the next jobs";
                self.leave_out(number, why, "");
                self.time_zone = value;
            }
            "SHELL" => {
                let is_usual = matches!(value.as_str(), "/bin/sh" | "/usr/bin/sh");
                self.shell = Some(value).filter(|_| !is_usual);
            }
            _ => {
                self.environment.insert(name.to_owned(), value);
            }
        }
    }

    /// Reads a line with a job, and writes the job. Fails if the line can't be a job.
    fn job(&mut self, number: usize, line: &str) -> Result<(), LeftOut> {
        let words = if line.starts_with('@') { 1 } else { 5 };
        let (schedule, rest) = split_words(line, words).ok_or_else(|| {
            refused(if line.ends_with('=') {
                "cron refuses a variable without a value; write `\"\"`"
            } else {
                "it is neither a variable, nor a schedule and a command"
            })
        })?;
        self.check_schedule(&schedule)?;
        let (user, command) = match self.owner {
            Owner::User => (None, rest),
            Owner::System => split_words(rest, 1)
                .map(|(user, command)| (Some(user), command))
                .ok_or_else(|| refused("the user is missing"))?,
        };
        match &user {
            Some(user) => check_user(user)?,
            None => self.check_first_word(command)?,
        }
        let (command, input) = checked_command(command)?;
        self.warn_of_command(number, &command);
        if let Some(user) = &user
            && self.users.insert(user.clone())
        {
            let why = format!(
                "cron runs the lines of {user} as that user: give these jobs a queue, and let a \
                 crontab of {user} tick with that --queue"
            );
            self.imported.warnings.push((number, why));
        }
        self.write_job(&schedule, user.as_deref(), &command, input.as_deref());
        Ok(())
    }

    /// Refuses a schedule that jobctl can't run as cron does, or that never fires.
    fn check_schedule(&self, schedule: &str) -> Result<(), LeftOut> {
        if schedule == "@reboot" {
            return Err("@reboot has no equivalent: keep the line".into());
        }
        let check = || {
            let read = Schedule::parse(schedule, &self.time_zone)?;
            if read.extends_cron() {
                return Err(format!(
                    "cron does not support `L`, `#` and `@every`; this line has `{schedule}`"
                ));
            }
            read.first(self.now)?;
            Ok(())
        };
        check().map_err(|why| LeftOut { why, cron_refuses: !cron_accepts(schedule) })
    }

    /// Warns of a command that does something else as a job than under cron.
    fn warn_of_command(&mut self, number: usize, command: &str) {
        if leaves_process(command) {
            let why = "jobctl ends what `&` leaves running when the job ends: end the line with \
                       `; wait`, or remove an `&` at its end";
            self.imported.warnings.push((number, why.to_owned()));
        }
        if let Some(why) = failing_guard(command) {
            self.imported.warnings.push((number, why));
        }
    }

    /// Appends a job to the definitions file, with the keys that make it behave as under cron.
    fn write_job(
        &mut self,
        schedule: &str,
        user: Option<&str>,
        command: &str,
        input: Option<&str>,
    ) {
        let name = self.unique_name(command);
        let overlap = if skips_overlap(command) { Overlap::Skip } else { Overlap::Allow };
        let mut keys = vec![("shell", self.shell_key(command, input))];
        if !self.environment.is_empty() {
            keys.push(("env", json!(self.environment)));
        }
        // Cron starts commands in the folder HOME.
        keys.extend(self.environment.get("HOME").map(|home| ("cwd", json!(home))));
        keys.extend([
            ("schedule", json!(schedule)),
            ("time_zone", json!(self.time_zone)),
            // Cron starts a command again while it runs, forgets missed times, and never retries.
            ("overlap", json!(overlap)),
            ("catch_up", json!("skip")),
            ("max_attempts", json!(1)),
        ]);
        let file = &mut self.imported.file;
        for comment in self.comments.drain(..) {
            file.extend([&comment, "\n"]);
        }
        if let Some(user) = user {
            let user = without_control(user);
            file.extend(["# Cron runs it as ", &user, ": give it a queue of that user's ticks.\n"]);
        }
        file.extend(["[jobs.", &quoted(&name), "]\n"]);
        for (key, value) in keys {
            file.extend([key, " = ", &toml(&value), "\n"]);
        }
        file.push('\n');
    }

    /// Returns the value of a job's key `shell`: its command with this input, in the crontab's
    /// `SHELL`.
    fn shell_key(&self, command: &str, input: Option<&str>) -> Value {
        match (&self.shell, input.map(redirection)) {
            (None, None) => json!(command),
            // Redirect the shell's own input before the command: a redirection after the command
            // would be wrong if the command is a list, ends in a comment or redirects its input.
            (None, Some(input)) => json!(format!("exec {input}\n{command}")),
            (Some(shell), None) => json!([shell, "-c", command]),
            // Let sh read the here-document, because not each SHELL has here-documents.
            (Some(shell), Some(input)) => {
                json!(["/bin/sh", "-c", format!("exec \"$0\" -c \"$1\" {input}"), shell, command])
            }
        }
    }

    /// Checks that the command of a user's crontab does not begin with a sixth field or with a
    /// user, as in a system crontab.
    fn check_first_word(&self, command: &str) -> Result<(), LeftOut> {
        let mut words = command.split([' ', '\t']).filter(|word| !word.is_empty());
        let (word, next) = (words.next().unwrap_or_default(), words.next());
        if is_field(word) && (next.is_some() || word.starts_with('*')) {
            let why = format!("the command begins with `{word}`: cron has five fields, not more");
            return Err(LeftOut { why, cron_refuses: word.starts_with('*') });
        }
        let is_command = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_alphabetic() || "/.[({\"'$~".contains(c))
        };
        let path = self.environment.get("PATH").map(String::as_str);
        if next.is_some_and(is_command) && (self.is_account)(word, path) {
            return Err(format!(
                "`{word}` is a user, not a program; add --system, or write the program's path"
            )
            .into());
        }
        Ok(())
    }

    /// Warns of a line that has no equivalent in the file, and writes a comment about it. `line` is
    /// empty for a variable.
    fn leave_out(&mut self, number: usize, why: &str, line: &str) {
        self.imported.warnings.push((number, why.to_owned()));
        self.write_comments();
        let file = &mut self.imported.file;
        // Only a job is left out: a variable stays in the crontab.
        let suffix = if line.is_empty() { "" } else { " is left out" };
        file.extend([&format!("# Line {number}{suffix}: "), &*without_control(why), "\n"]);
        if !line.is_empty() {
            file.extend(["#     ", &without_control(line), "\n"]);
        }
        file.push('\n');
    }

    /// Writes the comments that belong to no job.
    fn write_comments(&mut self) {
        if !self.comments.is_empty() {
            self.imported.file.extend([&self.comments.join("\n"), "\n\n"]);
            self.comments.clear();
        }
    }

    /// Returns a name for a job: that of the first program of its command that does the work. Adds
    /// a number if another job has this name.
    fn unique_name(&mut self, command: &str) -> String {
        let mut name: String = program(command).chars().take(50).collect();
        if check_name(&name).is_err() {
            name = format!("job-{name}").trim_end_matches('-').to_owned();
        }
        // Thousands of lines may have the same program, so go on after its last number.
        let mut number = self.names.get(&name).copied().unwrap_or_default() + 1;
        let mut unique = if number == 1 { name.clone() } else { format!("{name}-{number}") };
        // The program of another line may have this name and number as its own name.
        while self.names.contains_key(&unique) {
            number += 1;
            unique = format!("{name}-{number}");
        }
        self.names.insert(unique.clone(), 1);
        self.names.insert(name, number);
        unique
    }
}

/// Returns the command of a line, and its input if it has one. Fails if the command can't be a job.
fn checked_command(text: &str) -> Result<(String, Option<String>), LeftOut> {
    let length = text.len();
    if length > LONGEST_COMMAND {
        return Err(refused(format!(
            "cron refuses a command of more than {LONGEST_COMMAND} bytes, and this one has \
             {length}; put it into a script"
        )));
    }
    let (command, input) = split_input(text);
    let command = command.trim();
    if command.is_empty() {
        return Err("the command is missing".into());
    }
    if let Some(subcommand) = own_subcommand(command) {
        return Err(format!("`jobctl {subcommand}` can't be a job: keep the line").into());
    }
    if input.is_some()
        && let Some(open) = left_open(command)
    {
        let why =
            format!("a bare `%` ends the command before its closing `{open}`: was `\\%` meant?");
        return Err(why.into());
    }
    Ok((command.to_owned(), input))
}

/// Checks the sixth word of a line of a system crontab, which must be a user.
fn check_user(user: &str) -> Result<(), LeftOut> {
    let is_name = user.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if is_name && !user.contains('/') && !is_field(user) {
        return Ok(());
    }
    Err(format!("`{user}` is not a user; if the lines name no users, omit --system").into())
}

/// Returns whether a word can be a sixth field of a schedule, as other crons have it: the day of
/// the week, or a year.
fn is_field(word: &str) -> bool {
    let is_number = word.chars().all(|c| c.is_ascii_digit() || "*/,-?#L".contains(c));
    !word.is_empty() && (is_number || Schedule::parse(&format!("0 0 * * {word}"), "UTC").is_ok())
}

/// Reads `NAME = value` as Debian's cron does, without quotes around the name and the value;
/// `None`: the line is something else.
pub(crate) fn variable(line: &str) -> Option<(String, String)> {
    let (name, rest) = match unquote(line) {
        Unquoted::Closed(name, rest) => (name, rest),
        Unquoted::Unclosed => return None,
        Unquoted::Bare => line.split_at(line.find(|c: char| c == '=' || c.is_ascii_whitespace())?),
    };
    let value = rest.trim_start().strip_prefix('=')?.trim();
    let value = match unquote(value) {
        Unquoted::Closed(once, "") => match unquote(once) {
            // Cron drops a second pair of quotes, too.
            Unquoted::Closed(twice, "") => twice,
            _ => once,
        },
        Unquoted::Bare if !value.is_empty() => value,
        _ => return None,
    };
    if name.is_empty() || name.contains('=') {
        return None;
    }
    Some((name.to_owned(), value.to_owned()))
}

/// A text whose first character may be a quote.
enum Unquoted<'a> {
    /// The text between the quotes, and the rest.
    Closed(&'a str, &'a str),
    /// The quote has no end.
    Unclosed,
    /// The text does not begin with a quote.
    Bare,
}

fn unquote(text: &str) -> Unquoted<'_> {
    let Some(quote) = text.chars().next().filter(|c| "\"'".contains(*c)) else {
        return Unquoted::Bare;
    };
    match text[1..].split_once(quote) {
        Some((inner, rest)) => Unquoted::Closed(inner, rest),
        None => Unquoted::Unclosed,
    }
}

/// Splits a line after its first `count` words, and joins these with one blank; `None`: the line
/// has fewer words.
fn split_words(line: &str, count: usize) -> Option<(String, &str)> {
    let (mut words, mut rest) = (Vec::new(), line);
    for _ in 0..count {
        let (word, others) = rest.split_at(rest.find([' ', '\t']).unwrap_or(rest.len()));
        words.push(Some(word).filter(|word| !word.is_empty())?);
        rest = others.trim_start_matches([' ', '\t']);
    }
    Some((words.join(" "), rest))
}

/// Returns whether cron accepts a schedule. If not, cron ignores the whole crontab.
fn cron_accepts(schedule: &str) -> bool {
    let read = if schedule.starts_with('@') {
        schedule.to_owned()
    } else {
        schedule.split(' ').map(read_by_cron).collect::<Vec<_>>().join(" ")
    };
    Schedule::parse(&read, "UTC").is_ok_and(|schedule| !schedule.extends_cron())
}

/// Returns a field as `Schedule` must read it to accept what cron accepts. Removes text that cron
/// ignores, as in `5;`. A range becomes its two ends, because cron accepts ranges that run
/// backwards.
fn read_by_cron(field: &str) -> String {
    /// Splits a text after its first word.
    fn word(text: &str) -> (&str, &str) {
        text.split_at(text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len()))
    }
    /// If the text begins with this sign, splits it after the word that follows.
    fn word_after(sign: char, text: &str) -> (Option<&str>, &str) {
        let found = text.strip_prefix(sign).map(word);
        found.map_or((None, text), |(word, rest)| (Some(word), rest))
    }
    let (mut items, mut rest) = (Vec::new(), Some(field));
    while let Some(text) = rest {
        let (first, last, after) = match text.strip_prefix('*') {
            Some(after) => ("*", None, after),
            None => {
                let (first, after) = word(text);
                let (last, after) = word_after('-', after);
                (first, last, after)
            }
        };
        let (step, after) = word_after('/', after);
        items.push(match (last, step) {
            (None, None) => first.to_owned(),
            (None, Some(step)) => format!("{first}/{step}"),
            (Some(last), None) => format!("{first},{last}"),
            (Some(last), Some(step)) => format!("{first},{last},*/{step}"),
        });
        rest = after.strip_prefix(',');
    }
    items.join(",")
}

/// Splits a line of a crontab at the first bare `%` into the command and its input. Cron ends the
/// input with a newline, unless it is empty.
///
/// In the command, `\%` is a `%` and `\\` is a `\`. In the input, `\%` is a `%`, even after a `\`,
/// and each other `%` is the end of a line.
fn split_input(line: &str) -> (String, Option<String>) {
    let mut command = String::new();
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match (c, characters.as_str().chars().next()) {
            ('%', _) => {
                // A NUL stands for an escaped `%`; no line of a crontab has one.
                let with_nul = characters.as_str().replace("\\%", "\0");
                let mut input = with_nul.replace('%', "\n").replace('\0', "%");
                if !input.is_empty() && !input.ends_with('\n') {
                    input.push('\n');
                }
                return (command, Some(input));
            }
            ('\\', Some('%' | '\\')) => command.extend(characters.next()),
            // Keep another backslash, and the next character, whatever it is.
            ('\\', next) => {
                characters.next();
                command.push(c);
                command.extend(next);
            }
            _ => command.push(c),
        }
    }
    (command, None)
}

/// Returns the shell's redirection of stdin from this text.
fn redirection(input: &str) -> String {
    if input.is_empty() {
        return "</dev/null".to_owned();
    }
    // No line of the input may be the word that ends the here-document.
    let mut end = "END".to_owned();
    let mut number = 1;
    while input.lines().any(|line| line == end) {
        number += 1;
        end = format!("END_{number}");
    }
    format!("<<'{end}'\n{input}{end}")
}

/// Returns a name as a key of a TOML table: a dot would begin a table within it.
fn quoted(name: &str) -> String {
    if name.contains('.') { toml_text(name) } else { name.to_owned() }
}

/// Replaces control characters by blanks, because TOML does not allow them in comments.
fn without_control(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
#[path = "../../crates/cron-zone/src/cron_daemon.rs"]
mod cron_daemon;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cron_accepts_what_its_daemon_accepts(
            place in 0..5_usize,
            parts in prop::collection::vec(
                prop::sample::select(&[
                    "*", "-", "/", ",", "~", ";", "#", "x", "0", "2", "7", "30", "60", "99", "mon",
                    "SUN", "jan", "L", "W",
                ][..]),
                0..8,
            ),
        ) {
            let mut fields = ["*"; 5].map(str::to_owned);
            fields[place] = parts.concat();
            let schedule = fields.join(" ");
            let is_accepted = cron_daemon::accepts(&schedule);
            prop_assert_eq!(cron_accepts(&schedule), is_accepted, "{}", schedule);
            let read = Schedule::parse(&schedule, "UTC");
            let is_read = read.is_ok_and(|schedule| !schedule.extends_cron());
            prop_assert!(is_accepted || !is_read, "cron refuses {}", schedule);
        }
    }

    #[test]
    fn cron_ignores_a_tail_and_accepts_a_range_that_runs_backwards() {
        for accepted in ["5;", "*x", "0~30", "**", "1-2-7", "30-10", "30-10/2,5", "*/5/2", "*/90"] {
            assert!(cron_accepts(&format!("{accepted} * * * *")), "{accepted}");
        }
        for refused in
            ["", "5/10", "*/0", "*/5x", "1,", "1,,2", "30-", "30-60", "-*/15", "?", "L", "LW"]
        {
            assert!(!cron_accepts(&format!("{refused} * * * *")), "{refused}");
        }
        for (schedule, is_accepted) in [
            ("@daily", true),
            ("@Daily", false),
            ("@every 5m", false),
            ("* * * *", false),
            ("* * * * 1#1", true),
            ("* * * * 1L", false),
        ] {
            assert_eq!(cron_accepts(schedule), is_accepted, "{schedule}");
        }
    }
}
