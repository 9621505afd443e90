//! Finds out what a shell command of a crontab does, as far as its text shows that. Pure.

/// Programs that start another one, as `nice -n 5 backup`: their name, the letters of the options
/// that have a value, and how many words of their own come before the other program.
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
/// Guards: programs whose failure is the answer "no", not an error. With the beginning of a word
/// without which the program is not a guard, as `kill -0`.
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

/// Returns the words of each simple command. Ignores quotes, so it also finds the commands within
/// them.
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
    // A preparation can also follow a wrapper: `nice sleep 5; /usr/bin/a`.
    let program = simple_commands(command)
        .filter(|words| !words.first().is_some_and(|word| prepares(word)))
        .filter_map(|words| working_program(&words))
        .find(|program| !prepares(program));
    let program = program.unwrap_or_default();
    program.chars().filter(|c| c.is_ascii_alphanumeric() || "_.-".contains(*c)).collect()
}

/// Returns the program that does the work of a simple command: not a wrapper such as `nice`, but
/// the program that it starts. If there is only a wrapper, returns the last of its own words, as
/// the container of `docker start app`.
fn working_program<'a>(words: &[&'a str]) -> Option<&'a str> {
    let is_program = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic());
    // Of the wrapper that was found last.
    let (mut options_with_value, mut own_words_left, mut last_own_word) = ("", 0, None);
    let mut is_value_of_option = false;
    for word in words {
        if std::mem::take(&mut is_value_of_option) || word.contains('=') {
            continue;
        }
        if let Some(option) = word.strip_prefix('-') {
            let letter = option.chars().next_back().filter(|_| !option.starts_with('-'));
            is_value_of_option = letter.is_some_and(|letter| options_with_value.contains(letter));
            continue;
        }
        let word = file_name(word);
        if own_words_left > 0 {
            own_words_left -= 1;
            last_own_word = Some(word).filter(is_program);
        } else if let Some((_, options, own)) = WRAPPERS.iter().find(|(name, ..)| *name == word) {
            (options_with_value, own_words_left) = (options, *own);
        } else if is_program(&word) {
            return Some(word);
        }
    }
    last_own_word
}

/// Returns the subcommand if the command calls `jobctl tick`, `check` or `doctor`. Such a command
/// can't be a job, because it starts the jobs or watches them.
pub(crate) fn own_subcommand(command: &str) -> Option<&str> {
    let is_not_for_jobs = |word: &&str| ["tick", "check", "doctor"].contains(word);
    simple_commands(command).find_map(|words| {
        words.into_iter().skip_while(|word| file_name(word) != "jobctl").find(is_not_for_jobs)
    })
}

/// Returns whether the command does nothing, and fails, while the same command runs: it is called
/// by `flock -n` or `run-one`.
pub(super) fn skips_overlap(command: &str) -> bool {
    simple_commands(command).any(|words| {
        words.iter().enumerate().any(|(place, word)| match file_name(word) {
            "flock" => has_option_nonblock(&words[place + 1..]),
            "run-one" => true,
            _ => false,
        })
    })
}

/// Returns whether the options at the beginning of the arguments of `flock` have `-n`, `--nonblock`
/// or `--nb`. Long options may be shortened, and an option's value may be a number.
fn has_option_nonblock(arguments: &[&str]) -> bool {
    let is_option_or_number =
        |word: &&&str| word.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    arguments.iter().take_while(is_option_or_number).any(|option| match option.strip_prefix("--") {
        Some(long) => long.starts_with("nonb") || long.starts_with("nb"),
        None => option.starts_with('-') && option.contains('n'),
    })
}

/// Returns whether the command, or a script within it as in `sh -c '...'`, starts a process with
/// `&` that it does not wait for.
pub(super) fn leaves_process(command: &str) -> bool {
    // The text after the last `&` that starts a process.
    let mut after_last_start = None;
    let mut script_leaves_process = false;
    // Within an arithmetic `((`, `&` is an operator. The number of open brackets after the first
    // `(` of it; `usize::MAX` outside.
    let mut arithmetic_depth = usize::MAX;
    read_by_shell(command, |open, before, c, index| {
        if open.len() < arithmetic_depth {
            arithmetic_depth = usize::MAX;
        }
        let (until, after) = (&command[..index], &command[index + c.len_utf8()..]);
        match c {
            '(' if before == '(' => arithmetic_depth = arithmetic_depth.min(open.len()),
            // A script, as in `sh -c 'SCRIPT'`.
            '\'' | '"' if open.is_empty() && is_script_option(until) => {
                let script = after.split_once(c).map_or(after, |(script, _)| script);
                script_leaves_process |= leaves_process(script);
            }
            '&' => {
                // A part of `&&`, `>&`, `<&`, `|&`, `;&` or `&>`.
                let is_of_operator = "&><|;".contains(before) || after.starts_with(['&', '>']);
                let is_quoted = open.contains(&'\'') || open.contains(&'"');
                if !is_of_operator && !is_quoted && arithmetic_depth == usize::MAX {
                    after_last_start = Some(after);
                }
            }
            _ => {}
        }
    });
    let waits = |rest| simple_commands(rest).any(|words| words.first() == Some(&"wait"));
    script_leaves_process || after_last_start.is_some_and(|rest| !waits(rest))
}

/// What the exit status of a command or of a part of it depends on.
#[derive(Clone, Copy, Default)]
struct ExitStatus<'a> {
    /// The guard, if it alone decides whether the command fails.
    guard: Option<&'a str>,
    /// Whether the command also has work, which it skips if the guard fails.
    skips: bool,
    /// A program such as `grep` in the last part, which fails if it finds no line to print.
    filter: Option<&'a str>,
}

/// An `if` or a loop of which the end is not read yet.
#[derive(Default)]
struct OpenBlock<'a> {
    /// The status of the parts before the block, and the operator after them.
    before: (ExitStatus<'a>, &'a str),
    /// The status of the last branch before an `elif` or `else` that skips work.
    branch: ExitStatus<'a>,
}

impl<'a> ExitStatus<'a> {
    /// Returns the exit status of `self OPERATOR part`.
    fn join(self, operator: &str, part: Self) -> Self {
        match operator {
            // Work after a guard is skipped if the guard fails.
            "&&" => Self {
                guard: self.guard.or(part.guard),
                skips: self.skips || part.skips || self.guard.is_some() && part.guard.is_none(),
                ..part
            },
            // The whole fails only if both fail.
            "||" => Self { guard: self.guard.and(part.guard), ..part },
            _ => part,
        }
    }

    /// Returns the exit status of a part of a command. The part may have operators only within
    /// brackets or within the script of a shell; then the exit status is that of this inner
    /// command.
    fn of_part(part: &'a str, why: &mut Option<String>) -> Self {
        let begins_script = |(index, c): &(usize, char)| {
            matches!(c, '\'' | '"') && is_script_option(&part[..*index])
        };
        let inner = match part.as_bytes().first() {
            // A subshell: `((` would be arithmetic.
            Some(b'(') if !part.starts_with("((") => part[1..].rsplit_once(')'),
            Some(b'{') => part[1..].rsplit_once('}'),
            // A script, as in `sh -c 'SCRIPT'`.
            _ => {
                let script = part.char_indices().find(begins_script);
                script.and_then(|(index, quote)| part[index + 1..].rsplit_once(quote))
            }
        };
        if let Some((command, _)) = inner {
            return Self::of(command, why);
        }
        of_guard(part).unwrap_or_default()
    }

    /// Returns the exit status of a whole command. Sets `why` if an `exit` in it makes it fail
    /// although nothing is wrong.
    fn of(command: &'a str, why: &mut Option<String>) -> Self {
        let mut open_blocks: Vec<OpenBlock<'a>> = Vec::new();
        // The status of the parts so far, and the operator after them.
        let (mut status, mut operator) = (Self::default(), ";");
        // The same before the last part: of a pipe, only the last command counts.
        let mut before_pipe = (status, operator);
        for (mut part, next) in parts(command) {
            // Read the shell's words at the beginning of the part, and then its command.
            let found = loop {
                let (word, rest) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
                match word {
                    "if" | "for" | "until" | "while" => {
                        let before = (status, operator);
                        open_blocks.push(OpenBlock { before, branch: Self::default() });
                    }
                    "elif" | "else" => {
                        if let Some(block) = open_blocks.last_mut().filter(|_| status.skips) {
                            block.branch = status;
                        }
                    }
                    "do" | "then" => {}
                    // The whole block is a part of the list around it.
                    "done" | "fi" => {
                        let last_branch = status;
                        let OpenBlock { before, branch } = open_blocks.pop().unwrap_or_default();
                        (status, operator) = before;
                        break if branch.skips { branch } else { last_branch };
                    }
                    _ => break Self::of_part(part, why),
                }
                // After such a word, a new list of commands begins.
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
    let mut why_exit_fails = None;
    let status = ExitStatus::of(command, &mut why_exit_fails);
    if why_exit_fails.is_some() {
        return why_exit_fails;
    }
    if let Some(guard) = status.guard.filter(|_| status.skips) {
        return Some(why_work_is_skipped(guard));
    }
    let filter = status.filter?;
    Some(format!(
        "each time `{filter}` finds no line, the run is dead: end the command with `|| test $? = 1`"
    ))
}

/// Returns the exit status of a command that is a guard; `None`: it is not. The name of the guard
/// is its first word or words.
fn of_guard(command: &str) -> Option<ExitStatus<'_>> {
    let guard = |name| ExitStatus { guard: Some(name), ..ExitStatus::default() };
    // An arithmetic expression, which fails if its value is 0.
    if command.starts_with("((") {
        return Some(guard("(("));
    }
    // A negation is named with its command, as in `! test`.
    if command.starts_with("! ") {
        let first_two = command.split_inclusive(char::is_whitespace).take(2);
        return Some(guard(command[..first_two.map(str::len).sum()].trim_end()));
    }
    // A test of `$?` judges the command before it.
    if command.contains("$?") {
        return None;
    }
    let words = simple_commands(command).next()?;
    // The guard may be the first word after variables, or come after wrappers.
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
        // In `>&`, `>|`, `<&` and `&>`, the character belongs to a redirection.
        let is_redirected = c == '&' && (before == '<' || rest.starts_with("&>"));
        // Within `[[ ... ]]`, it belongs to the condition.
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

/// Returns whether the text ends with a shell's option whose value is a script, as in `sh -c `. The
/// script follows.
fn is_script_option(text: &str) -> bool {
    if !text.ends_with([' ', '\t']) {
        return false;
    }
    let words = simple_commands(text).last().unwrap_or_default();
    let has_option = words.last().is_some_and(|word| word.starts_with('-') && word.ends_with('c'));
    has_option && words.iter().any(|word| SHELLS.contains(&file_name(word)))
}

/// Returns the character that is missing at the end of the command, because it must close a quote,
/// a parenthesis or a brace.
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
            // Within single quotes, nothing is special but their end.
            (Some('\''), _) if c != '\'' => {}
            // A backslash escapes the next character.
            (_, '\\') => {
                characters.next();
            }
            (Some(closes), _) if closes == c => {
                closing.pop();
            }
            // A second backquote ends the command of the first one, with everything that is open in
            // it.
            (_, '`') if closing.contains(&'`') => {
                while closing.pop().is_some_and(|open| open != '`') {}
            }
            (_, '`') => closing.push(c),
            // Within double quotes, only `$(` and `${` open a bracket.
            (_, '(') if within != Some('"') || before == '$' => closing.push(')'),
            (_, '{') if within != Some('"') || before == '$' => closing.push('}'),
            (Some('"'), _) => {}
            (_, '\'' | '"') => closing.push(c),
            // The rest is a comment.
            (_, '#') if before.is_whitespace() || ";&|(".contains(before) => break,
            _ => {}
        }
        before = c;
    }
    closing.last().copied()
}
