//! What a shell command of a crontab does, as far as its text tells. Pure.

/// Programs that start another one: their name, the options that have a value, and the number of
/// their own words before the other program.
const WRAPPERS: [(&str, &str, usize); 42] = [
    ("bash", "O", 0),
    ("bundle", "", 1),
    ("chronic", "", 0),
    ("chroot", "", 1),
    ("dash", "", 0),
    ("do", "", 0),
    ("docker", "efuvwp", 2),
    ("docker-compose", "efuvwp", 2),
    ("else", "", 0),
    ("env", "uSC", 0),
    ("eval", "", 0),
    ("exec", "a", 0),
    ("flock", "wEc", 1),
    ("ionice", "cn", 0),
    ("java", "p", 0),
    ("kubectl", "nc", 2),
    ("nice", "n", 0),
    ("node", "r", 0),
    ("nohup", "", 0),
    ("npm", "", 1),
    ("npx", "p", 0),
    ("perl", "I", 0),
    ("php", "dc", 0),
    ("podman", "efuvwp", 2),
    ("poetry", "", 1),
    ("python", "WX", 0),
    ("python3", "WX", 0),
    ("ruby", "I", 0),
    ("run-one", "", 0),
    ("runuser", "ugs", 0),
    ("setpriv", "", 0),
    ("setsid", "", 0),
    ("sh", "", 0),
    ("ssh", "iopFlJ", 1),
    ("su", "sg", 1),
    ("sudo", "ugCpDR", 0),
    ("systemd-cat", "tp", 0),
    ("systemd-run", "pu", 0),
    ("then", "", 0),
    ("time", "fo", 0),
    ("timeout", "sk", 0),
    ("true", "", 0),
];
/// Programs whose option `-c` has a script.
const SHELLS: [&str; 7] = ["bash", "dash", "ksh", "runuser", "sh", "su", "zsh"];
/// First words of commands that only prepare the job, as in `[ -x /usr/bin/a ] && /usr/bin/a`.
const PREPARATIONS: [&str; 20] = [
    ".", "[", "[[", "cd", "command", "exit", "export", "for", "if", "mkdir", "set", "sleep",
    "source", "test", "trap", "ulimit", "umask", "unset", "until", "while",
];
/// Programs that fail although nothing is wrong, because they report an answer, and the beginning
/// of a word without which they do something else.
const GUARDS: [(&str, &str); 22] = [
    ("[", ""),
    ("[[", ""),
    ("cmp", ""),
    ("command", "-v"),
    ("diff", ""),
    ("egrep", ""),
    ("expr", ""),
    ("fgrep", ""),
    ("fuser", ""),
    ("grep", ""),
    ("kill", "-0"),
    ("ls", ""),
    ("mountpoint", ""),
    ("on_ac_power", ""),
    ("pg_isready", ""),
    ("pgrep", ""),
    ("pidof", ""),
    ("ping", ""),
    ("systemctl", "is-"),
    ("test", ""),
    ("type", ""),
    ("which", ""),
];

/// Returns the words of each simple command, also of those within quotes.
fn simple_commands(command: &str) -> impl Iterator<Item = Vec<&str>> {
    let separators = |c: char| c.is_whitespace() || "(){}<>\"'`$".contains(c);
    command
        .split(['&', '|', ';', '{', '\n'])
        .map(move |command| command.split(separators).filter(|word| !word.is_empty()).collect())
}

/// Returns a word without the folders before it.
fn file_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or_default()
}

/// Returns the file name of the first program that is neither a wrapper nor a preparation, without
/// characters that a job's name may not have.
pub(super) fn program(command: &str) -> String {
    let prepares = |word: &str| PREPARATIONS.contains(&word);
    // After a wrapper, too: `nice sleep 5; /usr/bin/a`.
    let program = simple_commands(command)
        .filter(|words| !words.first().is_some_and(|word| prepares(word)))
        .filter_map(|words| working_program(&words))
        .find(|program| !prepares(program));
    let program = program.unwrap_or_default();
    program.chars().filter(|c| c.is_ascii_alphanumeric() || "_.-".contains(*c)).collect()
}

/// Returns the program of a simple command that does the work, so no wrapper such as `nice`; if
/// there is none, the last word of a wrapper, as the container of `docker start app`.
fn working_program<'a>(words: &[&'a str]) -> Option<&'a str> {
    let is_program = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic());
    let (mut with_value, mut own, mut is_value, mut last) = ("", 0, false, None);
    for word in words {
        if std::mem::take(&mut is_value) || word.contains('=') {
            continue;
        }
        if let Some(option) = word.strip_prefix('-') {
            let letter = option.chars().next_back().filter(|_| !option.starts_with('-'));
            is_value = letter.is_some_and(|letter| with_value.contains(letter));
            continue;
        }
        let word = file_name(word);
        if own > 0 {
            own -= 1;
            last = Some(word).filter(is_program);
        } else if let Some((_, options, words)) = WRAPPERS.iter().find(|(name, ..)| *name == word) {
            (with_value, own) = (options, *words);
        } else if is_program(&word) {
            return Some(word);
        }
    }
    last
}

/// Returns the subcommand of jobctl that can't be a job: it wakes the jobs, or watches them.
pub(crate) fn own_subcommand(command: &str) -> Option<&str> {
    let watches = |word: &&str| ["tick", "check", "doctor"].contains(word);
    simple_commands(command).find_map(|words| {
        words.into_iter().skip_while(|word| file_name(word) != "jobctl").find(watches)
    })
}

/// Returns whether the command fails while another one has its lock. Cron ignores that failure.
pub(super) fn skips_overlap(command: &str) -> bool {
    let gives_up = |words: &[&str]| match words.split_first() {
        Some((&word, words)) if file_name(word) == "flock" => words
            .iter()
            .take_while(|word| word.starts_with(|c: char| c == '-' || c.is_ascii_digit()))
            .any(|option| match option.strip_prefix("--") {
                Some(long) => ["nonb", "nb"].iter().any(|o| long.starts_with(o)),
                None => option.starts_with('-') && option.contains('n'),
            }),
        Some((&word, _)) => file_name(word) == "run-one",
        None => false,
    };
    simple_commands(command).any(|words| (0..words.len()).any(|from| gives_up(&words[from..])))
}

/// Returns whether the command, or a script within it as in `sh -c '...'`, starts a process with
/// `&` that it does not wait for.
pub(super) fn leaves_process(command: &str) -> bool {
    let (mut last, mut arithmetic, mut script_leaves) = (None, usize::MAX, false);
    read_by_shell(command, |open, before, c, index| {
        if open.len() < arithmetic {
            arithmetic = usize::MAX;
        }
        let (until, after) = (&command[..index], &command[index + c.len_utf8()..]);
        match c {
            // Until `((` is closed, `&` is an operator.
            '(' if before == '(' => arithmetic = arithmetic.min(open.len()),
            '\'' | '"' if open.is_empty() && is_script_option(until) => {
                let script = after.split_once(c).map_or(after, |(script, _)| script);
                script_leaves |= leaves_process(script);
            }
            '&' => {
                let is_other = "&><|;".contains(before) || after.starts_with(['&', '>']);
                let is_quoted = open.contains(&'\'') || open.contains(&'"');
                if !is_other && !is_quoted && arithmetic == usize::MAX {
                    last = Some(after);
                }
            }
            _ => {}
        }
    });
    let waits = |rest| simple_commands(rest).any(|words| words.first() == Some(&"wait"));
    script_leaves || last.is_some_and(|rest| !waits(rest))
}

/// What the exit status of a command or of a part of it depends on.
#[derive(Clone, Copy, Default)]
struct ExitStatus<'a> {
    /// The guard whose answer alone makes the command fail.
    guard: Option<&'a str>,
    /// After that guard, there is work that it skips.
    skips: bool,
    /// The last part prints the lines that it finds, and fails if there are none.
    filter: Option<&'a str>,
}

impl<'a> ExitStatus<'a> {
    /// Returns the exit status of `self OPERATOR part`.
    fn join(self, operator: &str, part: Self) -> Self {
        match operator {
            "&&" => Self {
                guard: self.guard.or(part.guard),
                skips: self.skips || part.skips || self.guard.is_some() && part.guard.is_none(),
                ..part
            },
            "||" => Self { guard: self.guard.and(part.guard), ..part },
            _ => part,
        }
    }

    /// Returns the exit status of a part of a command. It has operators only in brackets or in a
    /// script, if any.
    fn of_part(part: &'a str, why: &mut Option<String>) -> Self {
        let is_quote = |(index, c): &(usize, char)| {
            matches!(c, '\'' | '"') && is_script_option(&part[..*index])
        };
        let within = match part.as_bytes().first() {
            Some(b'(') if !part.starts_with("((") => part[1..].rsplit_once(')'),
            Some(b'{') => part[1..].rsplit_once('}'),
            _ => { part.char_indices().find(is_quote) }
                .and_then(|(index, quote)| part[index + 1..].rsplit_once(quote)),
        };
        if let Some((command, _)) = within {
            return Self::of(command, why);
        }
        of_guard(part).unwrap_or_default()
    }

    /// Returns the exit status of a whole command. `why` becomes the reason why an `exit` makes it
    /// fail.
    fn of(command: &'a str, why: &mut Option<String>) -> Self {
        // The lists around an `if` or a loop, with the branches before an `else`.
        let mut outer = Vec::new();
        let (mut status, mut operator) = (Self::default(), ";");
        let mut before_pipe = (status, operator);
        for (mut part, next) in parts(command) {
            let found = loop {
                let (word, rest) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
                match word {
                    "if" | "for" | "until" | "while" => {
                        outer.push((status, operator, Self::default()));
                    }
                    "elif" | "else" => {
                        if let Some((.., branches)) = outer.last_mut().filter(|_| status.skips) {
                            *branches = status;
                        }
                    }
                    "do" | "then" => {}
                    "done" | "fi" => {
                        let body = status;
                        let branches;
                        (status, operator, branches) = outer.pop().unwrap_or_default();
                        break if branches.skips { branches } else { body };
                    }
                    _ => break Self::of_part(part, why),
                }
                (status, operator, part) = (Self::default(), ";", rest.trim_start());
            };
            if operator.starts_with('|') && operator != "||" {
                (status, operator) = before_pipe;
            }
            if why.is_none() && part.split_whitespace().next() == Some("exit") {
                *why = status.why_exit_fails(operator, part);
            }
            before_pipe = (status, operator);
            status = status.join(operator, found);
            if next == "&" {
                // The shell does not wait for this part.
                status = Self::default();
            }
            operator = next;
        }
        status
    }

    /// Returns why this `exit` makes the command fail although nothing is wrong.
    fn why_exit_fails(self, operator: &str, exit: &str) -> Option<String> {
        let (guard, given) = (self.guard?, exit.split_whitespace().nth(1));
        let answer = match operator {
            "||" if self.skips && given != Some("0") => return Some(why_work_is_skipped(guard)),
            "||" if given != Some("0") => "fails",
            "&&" if !self.skips && given.is_some_and(|status| status != "0") => "succeeds",
            _ => return None,
        };
        let instead = "write `exit 0` instead of";
        Some(format!("each time the guard `{guard}` {answer}, the run is dead: {instead} `{exit}`"))
    }
}

/// Returns why a guard makes a command fail that should only skip its work.
fn why_work_is_skipped(guard: &str) -> String {
    format!(
        "each time the guard `{guard}` fails, the run is dead: write \
         `if GUARD; then COMMAND; fi` instead of `GUARD && COMMAND`"
    )
}

/// Returns why the command fails although nothing is wrong, and how to change it. Cron ignores that
/// failure.
pub(super) fn failing_guard(command: &str) -> Option<String> {
    let mut exits = None;
    let status = ExitStatus::of(command, &mut exits);
    let filter = || {
        let filter = status.filter?;
        Some(format!(
            "each time `{filter}` finds no line, the run is dead: end the command with \
             `|| test $? = 1`"
        ))
    };
    exits.or_else(|| status.guard.filter(|_| status.skips).map(why_work_is_skipped)).or_else(filter)
}

/// Returns the exit status of a command if it is a guard, which is named by its first word or
/// words.
fn of_guard(command: &str) -> Option<ExitStatus<'_>> {
    let guard = |name| ExitStatus { guard: Some(name), ..ExitStatus::default() };
    if command.starts_with("((") {
        return Some(guard("(("));
    }
    if command.starts_with("! ") {
        let first_two = command.split_inclusive(char::is_whitespace).take(2);
        return Some(guard(command[..first_two.map(str::len).sum()].trim_end()));
    }
    // A test of `$?` judges the command before it.
    if command.contains("$?") {
        return None;
    }
    let words = simple_commands(command).next()?;
    let first = words.iter().copied().find(|word| !word.contains('='));
    let name =
        [first, working_program(&words)].into_iter().flatten().map(file_name).find(|name| {
            let has = |start: &str| words.iter().any(|word| word.starts_with(start));
            GUARDS.iter().any(|(guard, start)| guard == name && has(start))
        })?;
    let is_quiet = |word: &&str| match word.strip_prefix('-') {
        Some(option) => option == "-quiet" || !option.starts_with('-') && option.contains('q'),
        None => false,
    };
    let prints_lines = name.ends_with("grep") && name != "pgrep" && !words.iter().any(is_quiet);
    Some(ExitStatus { filter: prints_lines.then_some(name), ..guard(name) })
}

/// Returns the parts of a command between its operators, each with the operator after it.
fn parts(command: &str) -> Vec<(&str, &str)> {
    let (mut parts, mut start) = (Vec::new(), 0);
    read_by_shell(command, |open, before, c, index| {
        if !open.is_empty() || index < start || !"&|;\n".contains(c) {
            return;
        }
        let (part, rest) = command[start..].split_at(index - start);
        let is_redirected = c == '&' && (before == '<' || rest.starts_with("&>"));
        let is_condition = part.contains("[[ ") && !part.contains(" ]]");
        if before == '>' || is_redirected || is_condition {
            return;
        }
        let is_double = rest.starts_with("|&") || rest[1..].starts_with(c);
        let operator = &rest[..1 + usize::from(is_double)];
        parts.push((part.trim(), operator));
        start = index + operator.len();
    });
    parts.push((command[start..].trim(), ""));
    parts.retain(|(part, _)| !part.is_empty() && !part.starts_with('#'));
    parts
}

/// Returns whether the text ends with a shell's option whose value is a script, as in `sh -c`.
fn is_script_option(text: &str) -> bool {
    let Some(words) = simple_commands(text).last().filter(|_| text.ends_with([' ', '\t'])) else {
        return false;
    };
    let is_option = |word: &&&str| word.starts_with('-') && word.ends_with('c');
    words.last().filter(is_option).is_some()
        && words.iter().any(|word| SHELLS.contains(&file_name(word)))
}

/// Returns the character that must close a quote, a parenthesis or a brace of the command.
pub(super) fn left_open(command: &str) -> Option<char> {
    read_by_shell(command, |_, _, _, _| ())
}

/// Reads a command as a shell does, up to a comment. Calls `see` for each character that is not
/// escaped, with the quotes and brackets that are still to be closed, the character before it, and
/// its index. Returns the quote or bracket that is missing at the end of the command.
fn read_by_shell(command: &str, mut see: impl FnMut(&[char], char, char, usize)) -> Option<char> {
    let mut closing = Vec::new();
    let mut before = ' ';
    let mut characters = command.char_indices();
    while let Some((index, c)) = characters.next() {
        see(&closing, before, c, index);
        let within = closing.last().copied();
        match (within, c) {
            (Some('\''), _) if c != '\'' => {}
            (_, '\\') => {
                characters.next();
            }
            (Some(closes), _) if closes == c => {
                closing.pop();
            }
            (_, '`') if closing.contains(&'`') => {
                while closing.pop().is_some_and(|open| open != '`') {}
            }
            (_, '`') => closing.push(c),
            (_, '(') if within != Some('"') || before == '$' => closing.push(')'),
            (_, '{') if within != Some('"') || before == '$' => closing.push('}'),
            (Some('"'), _) => {}
            (_, '\'' | '"') => closing.push(c),
            // A comment.
            (_, '#') if before.is_whitespace() || ";&|(".contains(before) => break,
            _ => {}
        }
        before = c;
    }
    closing.last().copied()
}
