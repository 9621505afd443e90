//! `jobctl init`: makes the database and this host ready.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::Context;
use clap::{Args, ValueHint};
use rustix::process::geteuid;

use super::env_file::OwnFile;
use super::{DatabaseFlags, crontab_block, env_file, quote};
use crate::connect::{self, Readers, Target};
use crate::execute::{read_crontab, replace_crontab};
use crate::exit::{Exit, Fault};
use crate::files::{self, Note, SETTINGS_LIMIT};
use crate::job::command_text::own_subcommand;
use crate::job::crontab_import::variable;
use crate::print;
use crate::store::{Mode, Store};

/// Set up the database and this host
///
/// Migrates the database and prints the crontab's lines for this host: a tick each
/// minute, a check each five minutes, and a nightly prune. With --crontab, it shows
/// the difference and installs them. Later calls keep --exec and --report; only
/// --remove ends that. Run it as the user whose rights the jobs get. Secrets that
/// jobs need belong in the file that JOBCTL_ENV_FILE names, because cron puts the
/// crontab's variables into its mails. Cron mails the problems that `check` finds;
/// --exec, or JOBCTL_CHECK_WEBHOOK in that file, sends them elsewhere. With
/// --env-file, commands in a new shell find the database, too.
///
///   jobctl init
///   jobctl init --crontab --env-file
///   jobctl init --systemd --exec 'mail -s jobctl ops@example.com'
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Install lines for ticks and checks in the user's crontab, between two markers
    #[arg(long, group = "form")]
    crontab: bool,
    /// Write services and timers of systemd for ticks and checks: the user's, or the system's as
    /// root
    #[arg(long, group = "form")]
    systemd: bool,
    /// Remove what init installed: its lines of the crontab or its systemd units, and the notes
    /// about this database in ~/.local/state/jobctl; the database stays
    #[arg(long, group = "form")]
    remove: bool,
    /// Write the address into ~/.config/jobctl/env, which only you can read. Commands read this
    /// file if no flag or variable names a database
    #[arg(long, conflicts_with = "remove")]
    env_file: bool,
    /// Add a line to the crontab that writes the report page to this file
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["systemd", "remove"]
    )]
    report: Option<PathBuf>,
    /// Let `check` pass its problems to this command, on stdin, when one is new
    #[arg(long, value_name = "COMMAND", conflicts_with = "remove")]
    exec: Option<String>,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

const TICK_SERVICE: &str = "jobctl.service";
const CHECK_SERVICE: &str = "jobctl-check.service";
/// The units, and the templates of their texts.
const UNITS: [(&str, &str); 4] = [
    (TICK_SERVICE, include_str!("jobctl.service")),
    ("jobctl.timer", include_str!("jobctl.timer")),
    (CHECK_SERVICE, include_str!("jobctl-check.service")),
    ("jobctl-check.timer", include_str!("jobctl-check.timer")),
];
/// The words before the values of --exec and --report in the installed lines.
const EXEC: &str = "check --exec ";
const REPORT: &str = "report --output ";
const TIMERS: [&str; 2] = ["jobctl.timer", "jobctl-check.timer"];
const ENABLE: &str = "enable --now jobctl.timer jobctl-check.timer";
const STOP: &str = "stop jobctl.timer jobctl-check.timer jobctl.service";
/// The variables by which a check sends problems, if the file of variables has them.
const SENDERS: [&str; 2] = ["JOBCTL_CHECK_EXEC", "JOBCTL_CHECK_WEBHOOK"];
/// The program by which every cron sends mail.
const SENDMAIL: &str = "/usr/sbin/sendmail";

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<()> {
        if self.remove {
            return self.remove_all(&database.target()?);
        }
        // Make all texts before anything changes, so that a wrong one changes nothing.
        let own_file =
            self.env_file.then(|| OwnFile::with_address(&database.variables(Readers::OnlyUser)?));
        let own_file = own_file.transpose()?;
        let environment = environment(database, own_file.as_ref())?;
        if let Some(command) = &self.exec {
            quote::argument("--exec", command)?;
        }
        // An error counts as an empty crontab: on a host without cron, the lines can be printed.
        let old = read_crontab();
        let text = old.as_deref().unwrap_or_default();
        let (installed, lines) = if self.systemd {
            (read_unit(&unit_folder()?.join(CHECK_SERVICE))?, None)
        } else {
            let installed = crontab_block::in_block(text).collect::<Vec<_>>().join("\n");
            let lines = self.lines(&environment, &installed)?;
            (installed, Some(lines))
        };
        let target = database.target()?;
        migrate(&target)?;
        match own_file {
            Some(own_file) => self.write(own_file, &target)?,
            None => suggest_own_file(database)?,
        }
        for (flag, words, is_given) in
            [("--exec", EXEC, self.exec.is_some()), ("--report", REPORT, self.report.is_some())]
        {
            if !is_given && value(&installed, words).is_some() {
                print::complain(&format!(
                    "the installed {flag} stays; `jobctl init --remove` removes it with all lines"
                ));
            }
        }
        match lines {
            Some(lines) => self.install_lines(old, &environment, &installed, &lines),
            None => self.install_units(text, &environment, &installed),
        }
    }

    /// Removes the units, the crontab's lines and the files in which jobctl remembers this
    /// database.
    fn remove_all(&self, target: &Target) -> anyhow::Result<()> {
        let is_installed = has_units(&unit_folder()?);
        if is_installed {
            self.change_units(None, "")?;
        }
        // A host without cron has no lines to remove.
        let old = read_crontab();
        if !is_installed || old.is_ok() {
            self.change_crontab(old, "")?;
        }
        if let Some(file) = env_file::own_path().filter(|path| path.exists()) {
            let file = file.display();
            let why = "other commands may need the address in it; delete it if none does";
            print::complain(&format!("{file} stays, because {why}"));
        }
        Note::forget(&target.to_string())
            .context("cannot delete what jobctl remembers about this database")
    }

    /// Writes the units, and complains of ticks that the user's crontab starts, too.
    fn install_units(
        &self,
        crontab: &str,
        environment: &[(String, String)],
        installed: &str,
    ) -> anyhow::Result<()> {
        if crontab_block::in_block(crontab).next().is_some() {
            print::complain(
                "the crontab has lines of `jobctl init`, which tick and check, too; remove them \
                 with `crontab -e`",
            );
        }
        complain_of_ticks(crontab);
        self.change_units(Some(environment), installed)?;
        match self.sender(installed) {
            Some(sender) => print::complain(&sends(sender)),
            None => print::complain(
                "problems make jobctl-check.service fail, and its journal has the lines; --exec \
                 sends them to a person",
            ),
        }
        Ok(())
    }

    /// Puts the lines into the crontab that was read as `old`; without --crontab, prints them.
    fn install_lines(
        &self,
        old: io::Result<String>,
        environment: &[(String, String)],
        installed: &str,
        lines: &str,
    ) -> anyhow::Result<()> {
        let text = old.as_deref().unwrap_or_default();
        let is_unsent = variables_above(text).get("MAILTO").is_some_and(String::is_empty);
        match self.sender(installed) {
            Some(sender) => print::complain(&sends(sender)),
            // Print nothing: `complain_of_variables` says that cron sends no mail.
            None if is_unsent => {}
            None if Path::new(SENDMAIL).exists() => print::complain(
                "cron mails problems to MAILTO, or else to this user; --exec sends them elsewhere",
            ),
            None => print::complain(&format!("{LOST}; install a mail program, or add --exec")),
        }
        complain_of_ticks(text);
        complain_of_variables(text, environment);
        if let Some(folder) = unit_folder().ok().filter(|folder| has_units(folder)) {
            print::complain(&format!(
                "{} in {} ticks, too, and one tick a minute is enough; run `jobctl init --remove` \
                 first",
                TIMERS[0],
                folder.display()
            ));
        }
        let block = crontab_block::block(lines);
        if self.crontab {
            return self.change_crontab(old, &block);
        }
        print::complain("nothing is installed; `jobctl init --crontab` adds these lines");
        print::answer(&block)
    }

    /// Returns the command line of the check to install: `check --exec COMMAND` if a command is
    /// given or was installed, or else `without_command`, a check that prints.
    fn check(
        &self,
        without_command: &str,
        installed: &str,
        quote: impl Fn(&str) -> String,
    ) -> String {
        let given = self.exec.as_ref().map(|command| quote(command));
        match given.as_deref().or_else(|| value(installed, EXEC)) {
            Some(command) => format!("{EXEC}{command}"),
            None => without_command.to_owned(),
        }
    }

    /// Returns the flag or the variable by which the installed check sends problems; `None`: it
    /// only prints them.
    fn sender(&self, installed: &str) -> Option<&'static str> {
        if self.exec.is_some() || value(installed, EXEC).is_some() {
            return Some("--exec");
        }
        SENDERS.into_iter().find(|name| env_file::has_set(name))
    }

    /// Returns the crontab's lines for this host. A flag that is not given keeps its installed
    /// value.
    fn lines(&self, environment: &[(String, String)], installed: &str) -> anyhow::Result<String> {
        let program = quote::cron_word(&quote::program()?);
        let variables = environment.iter().map(|(name, value)| quote::cron_variable(name, value));
        let mut lines = variables.collect::<anyhow::Result<Vec<_>>>()?;
        let mut add = |schedule, command: String| {
            lines.push(quote::cron_entry(schedule, &format!("{program} {command}"))?);
            anyhow::Ok(())
        };
        add("* * * * *", "tick --quiet".to_owned())?;
        add("*/5 * * * *", self.check("check --repeat 1h", installed, quote::cron_word))?;
        add("17 3 * * *", "prune".to_owned())?;
        let report =
            self.report.as_ref().map(|file| quote::path("the report", file)).transpose()?;
        let report = report.map(|file| quote::cron_word(&file));
        if let Some(file) = report.as_deref().or_else(|| value(installed, REPORT)) {
            add("*/10 * * * *", format!("{REPORT}{file}"))?;
        }
        Ok(lines.join("\n") + "\n")
    }

    /// Puts this block into the crontab that was read as `old`, or removes it if it is empty.
    fn change_crontab(&self, old: io::Result<String>, block: &str) -> anyhow::Result<()> {
        let old = old.context("cannot read the crontab")?;
        let new = crontab_block::replaced(&old, block).ok_or_else(|| {
            let why = "cannot change the crontab: the line `# END jobctl` is missing; add it";
            Fault::new(Exit::CouldNot, why)
        })?;
        let (done, unchanged) = match block {
            "" => ("the lines are removed from", "the crontab has no lines of `jobctl init`"),
            _ => ("the lines are installed in", "the crontab is up to date"),
        };
        if new == old {
            print::complain(unchanged);
            return Ok(());
        }
        self.confirm("the crontab", &old, &new)?;
        replace_crontab(&new).context("cannot change the crontab")?;
        print::complain(&format!("{done} the crontab"));
        Ok(())
    }

    /// Writes the units with this environment, or removes them if there is none.
    ///
    /// - `installed`: the text of the installed check, whose command stays if none is given.
    fn change_units(
        &self,
        environment: Option<&[(String, String)]>,
        installed: &str,
    ) -> anyhow::Result<()> {
        let folder = unit_folder()?;
        let mut changes = Vec::new();
        for (name, template) in UNITS {
            let path = folder.join(name);
            let old = read_unit(&path)?;
            let check = self.check("check", installed, quote::unit_word);
            // An empty text removes the unit.
            let new = match environment {
                Some(environment) => unit(template, environment, &check)?,
                None => String::new(),
            };
            changes.push((path, old, new));
        }
        changes.retain(|(_, old, new)| old != new);
        if changes.is_empty() {
            print::complain(&format!("the units in {} are up to date", folder.display()));
            return Ok(());
        }
        for (path, old, new) in &changes {
            self.confirm(&path.display().to_string(), old, new)?;
        }
        for (path, _, new) in &changes {
            let written = if new.is_empty() {
                fs::remove_file(path)
            } else {
                files::replace_or_create(path, new.as_bytes())
            };
            written.with_context(|| format!("cannot change {}", path.display()))?;
        }
        let (done, commands): (_, &[&str]) = match environment {
            // Stop a service of the old text, which may run for a day. The timer starts the new
            // one.
            Some(_) if changes.iter().any(|(_, old, _)| !old.is_empty()) => {
                ("written to", &["stop jobctl.service", ENABLE])
            }
            Some(_) => ("written to", &[ENABLE]),
            None => {
                // Remove the links here: `systemctl disable` fails without the unit's file.
                for timer in TIMERS {
                    let _ = fs::remove_file(folder.join("timers.target.wants").join(timer));
                }
                ("removed from", &[STOP])
            }
        };
        let user = if geteuid().is_root() { "" } else { "--user " };
        let commands = ["daemon-reload"].iter().chain(commands);
        let mut commands: Vec<_> =
            commands.map(|words| format!("systemctl {user}{words}")).collect();
        if environment.is_some() && !geteuid().is_root() {
            // Without this, the user's timers stop when the user logs out.
            commands.push("loginctl enable-linger".to_owned());
        }
        print::complain(&format!(
            "the units are {done} {}; run `{}`",
            folder.display(),
            commands.join(" && ")
        ));
        Ok(())
    }

    /// Writes the user's own file, after a confirmation.
    fn write(&self, file: OwnFile, target: &Target) -> anyhow::Result<()> {
        let path = file.path.display();
        let Some(text) = file.new_text else {
            print::complain(&format!("the address in {path} is up to date"));
            return Ok(());
        };
        if !self.yes {
            // The text may contain a password, so it is not shown.
            let verb = if file.has_address { "replace" } else { "write" };
            print::confirm("init", &format!("{verb} the address in {path}: {target}"))?;
        }
        files::replace_private(&file.path, text.as_bytes())
            .with_context(|| format!("cannot write {path}"))?;
        print::complain(&format!(
            "the address is in {path}; commands read it if no flag or variable names a database"
        ));
        Ok(())
    }

    /// Shows the difference, and asks whether to make it, unless --yes is given.
    fn confirm(&self, what: &str, old: &str, new: &str) -> anyhow::Result<()> {
        for line in crontab_block::difference(old, new) {
            print::answer(&format!("{line}\n"))?;
        }
        if self.yes {
            return Ok(());
        }
        print::confirm("init", &format!("change {what}"))
    }
}

/// Settings by which systemd gives a command of root the same variables (LOGNAME, HOME) and the
/// same folder as cron. The user's systemd does so without them.
const ACCOUNT: &str = "User=root\nWorkingDirectory=-~\n";
/// The shell that cron names in each command's environment.
const SHELL: &str = "Environment=SHELL=/bin/sh";

/// Brings the schema of the database up to date, and prints the applied migrations.
fn migrate(target: &Target) -> anyhow::Result<()> {
    let store = Store::connect(target)?;
    // Migrate only if something is missing: a worker's login may not migrate.
    let missing = store.missing_migrations(Mode::Inspect)?;
    let applied = if missing.is_empty() { Vec::new() } else { store.migrate()? };
    let names: Vec<_> = applied.iter().map(|migration| migration.name).collect();
    print::complain(&if names.is_empty() {
        format!("the schema in {target} is up to date")
    } else {
        format!("migrated {target}: {}", names.join(", "))
    });
    Ok(())
}

/// Suggests the user's own file to a person at a terminal, if it is missing and variables name the
/// database now: a new shell may lack these.
fn suggest_own_file(database: &DatabaseFlags) -> anyhow::Result<()> {
    let Some(path) = env_file::own_path().filter(|path| !path.exists()) else { return Ok(()) };
    if io::stderr().is_terminal() && !database.variables(Readers::OnlyUser)?.is_empty() {
        let path = path.display();
        print::complain(&format!(
            "a new shell may not know this address; `jobctl init --env-file` writes it into {path}"
        ));
    }
    Ok(())
}

/// Returns the variables that a tick needs: PATH for the jobs, and the address or the file with it.
fn environment(
    database: &DatabaseFlags,
    own_file: Option<&OwnFile>,
) -> anyhow::Result<Vec<(String, String)>> {
    let path = env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".to_owned());
    // Name each folder once: cron limits the length of a line, and nested shells repeat folders.
    let mut seen = HashSet::new();
    let folders: Vec<_> = path.split(':').filter(|folder| seen.insert(*folder)).collect();
    let mut environment = vec![("PATH".to_owned(), folders.join(":"))];
    let own_file = own_file.map(|file| file.path.as_path());
    let file = env_file::path().or(own_file);
    if let Some(file) = file {
        let file = quote::path(env_file::VARIABLE, file)?;
        environment.push((env_file::VARIABLE.to_owned(), file));
    }
    // The own file gets the whole address; another file may lack it.
    if file.is_none() || file != own_file {
        environment.extend(database.variables(Readers::Others)?);
    }
    Ok(environment)
}

/// Returns the quoted value that follows the words of a flag in the installed lines.
fn value<'t>(installed: &'t str, words: &str) -> Option<&'t str> {
    installed.lines().find_map(|line| Some(line.split_once(&format!(" {words}"))?.1))
}

/// Returns the text of a unit; empty if it is not installed.
fn read_unit(path: &Path) -> anyhow::Result<String> {
    match files::open(path).and_then(|file| files::read_text(file, SETTINGS_LIMIT)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read.with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Returns the folder of the user's units, or of the system's as root.
fn unit_folder() -> anyhow::Result<PathBuf> {
    if geteuid().is_root() {
        return Ok(PathBuf::from("/etc/systemd/system"));
    }
    let config = files::config_folder();
    let config = config.context("cannot find the folder of the units: HOME is not set")?;
    Ok(config.join("systemd/user"))
}

/// Whether `init` has written its units into this folder.
fn has_units(folder: &Path) -> bool {
    folder.join(TICK_SERVICE).exists()
}

/// Returns a sentence about what sends problems, and when.
fn sends(sender: &str) -> String {
    format!(
        "{sender} sends problems when they are new; if that fails, the next check sends them again"
    )
}

/// Fills in the template of a unit.
fn unit(template: &str, environment: &[(String, String)], check: &str) -> anyhow::Result<String> {
    let lines = environment.iter().map(|(name, value)| quote::unit_variable(name, value));
    let lines = lines.collect::<anyhow::Result<Vec<_>>>()?.join("\n");
    let program = quote::unit_quoted(&quote::program()?);
    let account = format!("{}{SHELL}", if geteuid().is_root() { ACCOUNT } else { "" });
    // Replace all placeholders in one pass: a text of the user may look like a placeholder.
    let mut filled = String::new();
    for part in template.split_inclusive(['{', '}']) {
        filled += match part {
            "program}" => &program,
            "check}" => check,
            "account}" => &account,
            "environment}" => &lines,
            text => text.trim_end_matches('{'),
        };
    }
    Ok(filled)
}

const LOST: &str = "cron can't mail the lines of `check` and `tick`, because there is no \
                    /usr/sbin/sendmail";

const UNSENT: &str = "cron mails no line of `check` and `tick`, because the crontab sets MAILTO \
                      to nothing";

/// Returns why cron mails no lines of jobctl. `None`: it mails them, the crontab starts no jobctl,
/// or a check sends problems in another way.
pub(super) fn lost_mail() -> Option<&'static str> {
    // `mails`: whether cron mails the output of the next lines, by MAILTO above them.
    let (mut has_line, mut is_unsent, mut mails) = (false, false, true);
    for line in read_crontab().ok()?.lines().map(str::trim_start) {
        if SENDERS.iter().any(|sender| line.contains(sender) && !line.starts_with('#')) {
            return None;
        }
        if let Some((name, value)) = variable(line) {
            if name == env_file::VARIABLE
                && SENDERS.iter().any(|sender| env_file::sets(&value, sender))
            {
                return None;
            }
            if name == "MAILTO" {
                mails = !value.is_empty();
            }
        } else if let Some(subcommand) = subcommand_of_line(line) {
            if subcommand == "check"
                && [" --exec", " --webhook"].iter().any(|flag| line.contains(flag))
            {
                return None;
            }
            has_line = true;
            is_unsent |= !mails;
        }
    }
    if is_unsent {
        Some(UNSENT)
    } else if has_line && !Path::new(SENDMAIL).exists() {
        Some(LOST)
    } else {
        None
    }
}

/// Returns the subcommand of jobctl that a line of the crontab starts, such as `tick`.
fn subcommand_of_line(line: &str) -> Option<&str> {
    own_subcommand(line).filter(|_| !line.trim_start().starts_with('#'))
}

/// Returns the variables that cron gives to the lines in the block of `init`: those above it.
fn variables_above(text: &str) -> BTreeMap<String, String> {
    let lines = crontab_block::before_block(text);
    lines.filter_map(|line| variable(line.trim_start())).collect()
}

/// Complains of ticks outside the block of `init`.
fn complain_of_ticks(text: &str) {
    let outside = crontab_block::without_block(text).unwrap_or_default();
    let is_tick = |line: &str| subcommand_of_line(line) == Some("tick");
    for (number, _) in (1..).zip(outside.lines()).filter(|(_, line)| is_tick(line)) {
        print::complain(&format!(
            "line {number} of the crontab ticks, too; remove it, because one tick a minute is \
             enough"
        ));
    }
}

/// Complains of variables above the block of `init` that change what its lines do. The block itself
/// sets the variables `block`, which override those above it.
fn complain_of_variables(text: &str, block: &[(String, String)]) {
    let above = variables_above(text);
    let is_overridden = |name: &str| {
        let overrides = |set: &str| set == name || set == super::VARIABLE && name == "DATABASE_URL";
        block.iter().any(|(set, _)| overrides(set))
    };
    for (name, value) in above.into_iter().filter(|(name, _)| !is_overridden(name)) {
        let is_address = connect::is_of_address(&name);
        let warning = match name.as_str() {
            "MAILTO" if value.is_empty() => UNSENT.to_owned(),
            "HOME" if env::var("HOME").as_ref() != Ok(&value) => {
                format!("the crontab sets HOME: ticks read {value}/.pgpass, not yours")
            }
            "SHELL" if value != "/bin/sh" => {
                format!("the crontab sets SHELL={value}, also for ticks and jobs")
            }
            "TZ" => format!("the crontab sets TZ={value}, also for ticks and jobs"),
            // Do not print the value, which may contain a password.
            _ if is_address || name.starts_with("JOBCTL_") => {
                format!(
                    "the crontab sets {name}, also for ticks; if it is not meant for them, move \
                     it below their lines"
                )
            }
            _ => continue,
        };
        print::complain(&warning);
    }
}
