//! `import-crontab`: each line becomes a job that `apply` accepts, or a warning.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::cron;
use crate::support::{Finished, Invocation, TestDb, jobctl, leave_out, packages, temp_dir};

fn import(crontab: &str, flags: &[&str]) -> Finished {
    let arguments = ["import-crontab", "-", "--time-zone", "Europe/Berlin"];
    jobctl(arguments.into_iter().chain(flags.iter().copied())).stdin(crontab).run()
}

#[test]
fn a_line_that_ends_with_a_backslash_gets_a_warning() {
    let why = "cron has no continuation lines, and takes the next line for another entry: write \
               both in one line\n";
    let crontab = "# a \\\nPATH=/a:\\\n@daily backup \\\r\n  --all\n@daily a\\b\n";
    let imported = import(crontab, &[]).success().stdout_has("# a \\\n");
    // A comment (line 1) and a backslash within a line (line 5) are harmless.
    for line in [2, 3] {
        assert!(imported.stderr.contains(&format!("-:{line}: {why}")), "{imported}");
    }
    assert_eq!(imported.stderr.matches(why).count(), 2, "{imported}");
}

/// Returns the first line of each job, such as `[jobs.backup]`.
fn first_lines_of_jobs(imported: &Finished) -> Vec<&str> {
    imported.stdout.lines().filter(|line| line.starts_with("[jobs.")).collect()
}

const CRONTAB: &str = "\
# All jobs of the shop

# Paths
PATH = \"/srv/app/bin:/usr/bin\"
MAILTO=ops@example.com

# Exports the orders
30 2 * * 1-5\tcd /srv/app && export-orders >\"orders $(date +\\%F).csv\"
@daily nice -n 10 export-orders --all
0 9 * * * mail -s Hello ana%Dear Ana,%it is 100\\% done
@reboot warm-up
99 * * * * never
nonsense
CRON_TZ=UTC
SHELL=/bin/bash
*/5 * * * * [ -x /usr/bin/check.sh ] && /usr/bin/check.sh
";

const DEFINITIONS: &str = r#"# All jobs of the shop

# Paths

# Line 5: MAILTO has no equivalent: run `jobctl check` from cron, which mails its lines

# Exports the orders
[jobs.export-orders]
shell = "cd /srv/app && export-orders >\"orders $(date +%F).csv\""
env = { PATH = "/srv/app/bin:/usr/bin" }
schedule = "30 2 * * 1-5"
time_zone = "Europe/Berlin"
overlap = "allow"
catch_up = "skip"
max_attempts = 1

[jobs.export-orders-2]
shell = "nice -n 10 export-orders --all"
env = { PATH = "/srv/app/bin:/usr/bin" }
schedule = "@daily"
time_zone = "Europe/Berlin"
overlap = "allow"
catch_up = "skip"
max_attempts = 1

[jobs.mail]
shell = "exec <<'END'\nDear Ana,\nit is 100% done\nEND\nmail -s Hello ana"
env = { PATH = "/srv/app/bin:/usr/bin" }
schedule = "0 9 * * *"
time_zone = "Europe/Berlin"
overlap = "allow"
catch_up = "skip"
max_attempts = 1

# Line 11 is left out: @reboot has no equivalent: keep the line
#     @reboot warm-up

# Line 12 is left out: `99` in the minute field is wrong; allowed are 0 to 59
#     99 * * * * never

# Line 13 is left out: it is neither a variable, nor a schedule and a command
#     nonsense

# Line 14: Debian's cron ignores CRON_TZ, other crons obey it: see the time_zone of the next jobs

[jobs."check.sh"]
shell = ["/bin/bash", "-c", "[ -x /usr/bin/check.sh ] && /usr/bin/check.sh"]
env = { PATH = "/srv/app/bin:/usr/bin" }
schedule = "*/5 * * * *"
time_zone = "UTC"
overlap = "allow"
catch_up = "skip"
max_attempts = 1

"#;

#[test]
fn each_line_becomes_a_job_or_a_warning() {
    let imported = import(CRONTAB, &[]).exits(1).stdout(DEFINITIONS);
    // A warning for each comment `Line` of the definitions, and one for the guard of the last line.
    let lines: Vec<_> = imported.stderr.lines().collect();
    assert_eq!(lines.len(), 6, "{imported}");
    assert!(lines[1] == "jobctl: -:11: @reboot has no equivalent: keep the line", "{imported}");
    let db = TestDb::new();
    assert_eq!(db.apply(DEFINITIONS).lines().count(), 4);
}

#[test]
fn a_job_reads_the_text_after_a_percent_sign() {
    let db = TestDb::new();
    let crontab = "0 9 * * * cat # the input%Dear Ana,%it is 100\\% done\n";
    db.apply(&import(crontab, &[]).success().stdout);
    let id = db.enqueue(["cat"]);
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.of_attempt(id, 1, "output"), "Dear Ana,\nit is 100% done\n");
}

#[test]
fn a_line_of_the_system_names_its_user() {
    let line =
        "HOME=/srv\n17 * * * * root test -x /bin/a || { cd / && run-parts /etc/cron.hourly; }\n";
    let why = "cron runs the lines of root as that user: give these jobs a queue, and let a \
               crontab of root tick with that --queue\n";
    let imported = import(line, &["--system"]).success().stderr(&format!("jobctl: -:2: {why}"));
    let imported = imported.stdout_has(
        "# Cron runs it as root: give it a queue of that user's ticks.\n[jobs.run-parts]\nshell = ",
    );
    imported.stdout_has("\ncwd = \"/srv\"\n");
}

#[test]
fn a_file_of_the_system_names_users_without_a_flag() {
    if let Some(why) = cron::obstacle() {
        return leave_out("import-crontab of a file in /etc/cron.d", why);
    }
    // In a mount namespace of its own, the test has its own /etc/cron.d and /etc/crontab.
    let steps = r#"
        mount -t tmpfs tmpfs /etc/cron.d
        echo '0 4 * * * root backup' >/etc/cron.d/app
        mount --bind /etc/cron.d/app /etc/crontab
        "$jobctl" import-crontab /etc/crontab
        cd /etc/cron.d && "$jobctl" import-crontab app"#;
    let command = format!("unshare --mount sh -euc '{}'", steps.replace('\'', r"'\''"));
    let done = Invocation::script(&command, None).run().success();
    assert_eq!(done.stdout.matches("[jobs.backup]\nshell = \"backup\"\n").count(), 2, "{done}");
    let assumed = |file| {
        format!(
            "jobctl: the lines of {file} name a user: --system is assumed\n\
             jobctl: {file}:1: cron runs the lines of root as that user: give these jobs a queue, \
             and let a crontab of root tick with that --queue\n"
        )
    };
    done.stderr(&[assumed("/etc/crontab"), assumed("app")].concat());
}

#[test]
fn the_lines_of_init_are_no_jobs() {
    // Lines of other jobs surround those that `init` prints.
    let init = TestDb::new().jobctl(["init"]).run().success().stdout;
    let crontab = format!("0 4 * * * backup\n{init}@reboot warm-up\n0 5 * * * later\n");
    let line = crontab.lines().position(|line| line == "@reboot warm-up").unwrap() + 1;
    let warning = format!("jobctl: -:{line}: @reboot has no equivalent: keep the line\n");
    let imported = import(&crontab, &[]).stderr(&warning);
    assert_eq!(first_lines_of_jobs(&imported), ["[jobs.backup]", "[jobs.later]"]);
    assert!(!imported.stdout.contains("env = "), "{imported}");
}

#[test]
fn every_name_is_valid_and_unique() {
    // A program with the name of a built-in job, and commands without a word for a name.
    let lines = ["/usr/bin/http", "\"$JOB\" ", "42", "./--x", "a/$(b)", "true"];
    let crontab: String = lines.iter().map(|line| format!("@hourly {line}\n")).collect();
    let imported = import(&crontab, &[]).success().stderr("");
    assert_eq!(first_lines_of_jobs(&imported).len(), lines.len(), "{imported}");
    TestDb::new().apply(&imported.stdout);
}

#[test]
fn a_job_is_named_after_the_program_that_does_the_work() {
    // The command, and the name of its job. Guards, waits and wrappers are left out. The first
    // command is that of Debian's certbot.
    let commands = [
        (
            "test -x /usr/bin/certbot -a \\! -d /run/systemd/system && perl -e 'sleep \
          int(rand(43200))' && certbot -q renew",
            "certbot",
        ),
        (". /etc/profile; nice sleep 5; /usr/bin/backup --all", "backup"),
        ("source /etc/profile && bin/orders", "orders"),
        ("for i in a b; do thumbs $i; done", "thumbs"),
        ("while read -r l; do send $l; done", "send"),
        ("set -e; cd /srv/app; ./mails.sh", "mails.sh"),
        ("env -u TERM LANG=C /srv/app/bin/invoices --all", "invoices"),
        ("/usr/bin/flock -w 5 -n /run/lock/feed.lock /srv/app/bin/feed", "feed"),
        ("(flock -n 9 || exit 1; rotate) 9>/run/lock/rotate", "rotate"),
        ("docker exec -u app -t web php artisan queue:prune", "artisan"),
        ("docker start -a reports", "reports"),
        ("/usr/bin/docker compose exec -T db pg_dump -Fc app", "db"),
        ("sudo -u www-data /usr/bin/php -d memory_limit=1G /srv/thumbs.php", "thumbs.php"),
        ("su - app -c 'cd /srv/app && bin/digest'", "digest"),
        ("timeout -k 5 -s KILL 10m ionice -c 3 vacuum.sh", "vacuum.sh"),
        ("ssh -i /root/.ssh/id app@db1 /srv/dump", "dump"),
    ];
    let crontab: String =
        commands.iter().map(|(command, _)| format!("@daily {command}\n")).collect();
    let imported = import(&crontab, &[]).success();
    let expected = commands.map(|(_, name)| match name.contains('.') {
        true => format!("[jobs.\"{name}\"]"),
        false => format!("[jobs.{name}]"),
    });
    assert_eq!(first_lines_of_jobs(&imported), expected);
}

/// Lines with an input, and what they write to the file `OUT` under cron.
pub(crate) const INPUTS: [(&str, &str); 21] = [
    ("cat >OUT%Dear Ana,%it is 100\\% done", "Dear Ana,\nit is 100% done\n"),
    ("cat >OUT%", ""),
    ("cat >OUT%%", "\n"),
    ("cat >OUT%a%", "a\n"),
    ("cat >OUT% a%%", " a\n\n"),
    ("cat >OUT%a\\\\%b\\\\c\\d", "a\\%b\\\\c\\d\n"),
    ("cat >OUT%$HOME `id` 'a'", "$HOME `id` 'a'\n"),
    ("cat >OUT%END%exit 1%END_2%b", "END\nexit 1\nEND_2\nb\n"),
    ("(cat; echo end) >OUT%a", "a\nend\n"),
    ("{ cat; echo end; } >OUT%a", "a\nend\n"),
    ("cat | tr a b >OUT%a", "b\n"),
    ("cat >OUT & wait%a", ""),
    ("cat >OUT # comment%a", "a\n"),
    ("if cat >OUT; then echo end >>OUT; fi%a", "a\nend\n"),
    ("while read -r line; do echo \"<$line>\"; done >OUT%a%b", "<a>\n<b>\n"),
    ("read -r one; (read -r two; echo $two $one) >OUT%a%b", "b a\n"),
    ("cat /dev/null >OUT; exec cat >>OUT%a", "a\n"),
    ("cat >OUT </dev/null%a", ""),
    ("cat >OUT; echo \\%\\a >>OUT; : \\\\%a", "a\n%a\n"),
    ("awk 'BEGIN { print \"a\\\\b\\tc\" }' >OUT%", "a\u{8}\tc\n"),
    ("cat >OUT;%a", "a\n"),
];

/// Imports a line that follows these variables, and runs the command of its job. A command without
/// a shell of its own runs in this shell.
fn run_imported(line: &str, shell: &str, variables: &str) {
    let imported = import(&format!("{variables}@daily {line}\n"), &[]).success().stderr("").stdout;
    let command = imported.lines().find_map(|line| line.strip_prefix("shell = ")).unwrap();
    let words = match serde_json::from_str(command).unwrap() {
        Value::String(command) => {
            format!("{shell} -c").split(' ').map(str::to_owned).chain([command]).collect()
        }
        list => serde_json::from_value::<Vec<String>>(list).unwrap(),
    };
    let done = Command::new(&words[0]).args(&words[1..]).env("LC_ALL", "C").output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{line} {shell}: {done:?}");
}

#[test]
fn each_shell_passes_the_input_as_cron_does() {
    let folder = temp_dir();
    let out = folder.path().join("out");
    // The shell of the host may be one of three, or the crontab names one.
    let of_host = ["dash", "bash", "busybox sh"].map(|shell| (shell, String::new()));
    let of_crontab = ["/bin/bash", "/bin/dash"].map(|shell| (shell, format!("SHELL={shell}\n")));
    for (shell, variables) in of_host.into_iter().chain(of_crontab) {
        let program = shell.split(' ').next().unwrap();
        if !packages::is_installed(program) {
            leave_out("the input of imported lines", &format!("{program} is not installed"));
            continue;
        }
        for (line, expected) in INPUTS {
            let line = line.replace("OUT", out.to_str().unwrap());
            run_imported(&line, shell, &variables);
            assert_eq!(fs::read_to_string(&out).unwrap(), expected, "{line} {shell}");
            fs::remove_file(&out).unwrap();
        }
    }
}

/// Lines of a user's crontab, and whether Debian's `crontab` accepts them. jobctl imports none.
pub(crate) fn not_imported() -> Vec<(String, bool)> {
    let too_long = |length| format!("@daily {}", "a".repeat(length));
    let accepted = [
        "@reboot warm-up",
        "* * * * *",
        "@daily",
        "0 0 5 * * 1 /srv/backup",
        "0 0 5 * * mon-fri /srv/backup",
        "0 0 5 * * 1 2026 /srv/backup",
        "5; * * * * backup",
        "*x * * * * backup",
        "0~30 * * * * backup",
        "0 0 * * 5#2 backup",
        "* * * * *backup now",
        "0 0 30 2 * backup",
        "@daily root /bin/sh /srv/backup",
        "@daily root test -x /srv/backup",
        "* * * * * jobctl tick --quiet",
        "* * * * * . /etc/jobctl.env && '/opt/my jobctl/bin/jobctl' --database-url a check",
        "@daily tar cf backup-$(date +%F).tar /srv",
        "@daily tar cf \"backup-`date +%F`.tar\" /srv",
        "@daily find /srv -printf '%p'",
        "@daily gzip ${file%.log}",
        "@daily (date +%F; backup)",
    ];
    let refused = [
        "0 5 3 * * * * /srv/backup",
        "0 0 5 * * */2 /srv/backup",
        "@daily * /srv/backup",
        "0 30 5 * * 1 /srv/backup",
        "5/10 * * * * backup",
        "1,,2 * * * * backup",
        "60 * * * * backup",
        "H * * * * backup",
        "0 0 L * * backup",
        "0 0 ? * * backup",
        "-*/15 * * * * backup",
        "@Daily backup",
        "@every 5m backup",
        "* * * * backup",
        "nonsense",
        "NAME=",
        "NAME='a",
        "NAME='a' b",
        "NAME OTHER=a",
        "\u{feff}@daily backup",
        &too_long(999),
        &too_long(1200),
    ];
    let accepted = accepted.into_iter().map(|line| (line.to_owned(), true));
    accepted.chain(refused.into_iter().map(|line| (line.to_owned(), false))).collect()
}

#[test]
fn a_line_that_only_jobctl_leaves_out_sets_the_exit_status() {
    for (line, is_accepted) in not_imported() {
        let imported = import(&format!("{line}\n"), &[]).exits(i32::from(is_accepted));
        let imported = imported.complains_once().stdout_has("# Line 1 is left out: ");
        assert_eq!(first_lines_of_jobs(&imported), [""; 0], "{line}");
    }

    // Cron sets LOGNAME itself, and lets a crontab set USER. So only USER is imported.
    let imported = import("LOGNAME=bob\nUSER=bob\n@daily true\n", &[]);
    imported.stdout_has("env = { USER = \"bob\" }").stderr_has("LOGNAME has no equivalent");
    // The longest command that cron reads.
    let imported = import(&format!("@daily {}\nMAILTO=\"\"\n", "a".repeat(998)), &[]);
    assert_eq!(first_lines_of_jobs(&imported.success().stderr("")).len(), 1);
}

#[test]
fn a_file_that_cron_ignores_is_not_imported() {
    let too_long = "#\n".repeat(10_001);
    // The crontab, and the end of the error.
    for (crontab, cause) in [
        ("# Jobs\n@daily a\n@daily b", "whose last line has no newline; end line 3 with one"),
        ("NAME=a", "end line 1 with one"),
        (&too_long, "of more than 10000 lines"),
    ] {
        let refused = import(crontab, &[]).exits(1).stdout("").complains_once();
        refused.stderr_has("jobctl: cannot import `-`: cron ignores a file ").stderr_has(cause);
    }
    // After its last newline, a file may have a comment or blanks. It may have 10,000 lines.
    for crontab in ["@daily a\n# b", "@daily a\n\t", &"@daily a\n".repeat(10_000)] {
        import(crontab, &[]).success().stderr("");
    }
    import("", &[]).success().stdout("").stderr("");
}

#[test]
fn a_job_that_leaves_a_process_is_imported_with_a_warning() {
    let why = "jobctl ends what `&` leaves running when the job ends: end the line with \
               `; wait`, or remove an `&` at its end";
    // When these commands end, a process of theirs may still run.
    let leaves = [
        "(sleep 3; echo late >f) &",
        "nohup a >/dev/null 2>&1 &",
        "a & b",
        "a&",
        "a '&' &",
        "sh -c 'sleep 3 &'",
        "su - app -c \"nohup a &\"",
        "nohup bash -lc 'a & b' >f",
        "a & wait; b &",
        "echo $((1 & 3)); a &",
    ];
    // These commands leave no process: they wait for it, or their `&` is another operator, quoted,
    // or in a comment.
    let waits = [
        "a && b",
        "a >f 2>&1",
        "a &>f",
        "a |& b",
        "a '& b'",
        "a \\& b",
        "a # &",
        "a & wait",
        "sh -c 'a & wait'",
        "tar -c 'a & b'",
        "curl -o c 'http://a/?b=1&c=2'",
        "echo $((RANDOM & 3))",
        "a; b & wait $!",
    ];
    let crontab: String =
        leaves.iter().chain(&waits).map(|command| format!("@daily {command}\n")).collect();
    let warnings: String =
        (1..=leaves.len()).map(|line| format!("jobctl: -:{line}: {why}\n")).collect();
    // Only the first lines of the crontab get the warning, and all lines become jobs.
    let imported = import(&crontab, &[]).success().stderr(&warnings);
    assert_eq!(first_lines_of_jobs(&imported).len(), leaves.len() + waits.len());
}

/// Runs a command as a job does. The commands of these tests guard by files and processes that do
/// not exist, so each guard fails.
fn succeeds(command: &str) -> bool {
    let done = Command::new("bash").args(["-c", command]).output().unwrap();
    done.status.success()
}

/// Asserts that each command is imported with this warning, and that the warning is right: a run of
/// the command fails.
#[track_caller]
fn assert_warned_of_failing_runs(commands: &[&str], warning: &str) {
    for command in commands {
        let line = format!("@daily {}\n", command.replace('%', "\\%"));
        let imported = import(&line, &[]).success().complains_once();
        imported.stderr_has("jobctl: -:1: each time ").stderr_has(warning);
        assert!(!succeeds(command), "{command}");
    }
}

#[test]
fn a_guard_whose_failure_would_fail_the_run_is_imported_with_a_warning() {
    // The guard of each command fails, so the command does nothing, and its exit status is not 0.
    let skips = [
        "[ -e /nosuch ] && true",
        "test $(date +%u) = 8 && true",
        "/usr/bin/test -e /nosuch && true",
        "[[ -e /nosuch || 1 = 2 ]] && true",
        "(( 0 )) && true",
        "pgrep -x nosuch >/dev/null 2>&1 && true",
        "! true && true",
        "command -v nosuch >/dev/null && true",
        "echo a | grep -q b && true",
        "find /dev/null -name nosuch | grep . && true",
        "ls /nosuch 2>/dev/null && true",
        "cd / && A=1 test -e /nosuch && true # comment",
        "test -e /nosuch && true; # comment",
        "(test -e /nosuch) && true",
        "(test -e /nosuch && true) >/dev/null 2>&1",
        "{ test -e /nosuch && true; }",
        "sh -c 'test -e /nosuch && true'",
        "[ -e / ] && [ -e /nosuch ] && true",
        "test -e /nosuch || test -e /nosuch && true",
        "[ -e /nosuch ] && true || exit 2",
        "for f in /nosuch*; do [ -e \"$f\" ] && true; done",
        "[ -e /nosuch ] && if [ -e / ]; then true; fi",
        "if [ -e / ]; then [ -e /nosuch ] && true; else true; fi",
        "if [ -e /nosuch ]; then true; else [ -e /nosuch ] && true; fi",
    ];
    let remedy = "write `if GUARD; then COMMAND; fi` instead of `GUARD && COMMAND`";
    assert_warned_of_failing_runs(&skips, remedy);
    // The warning names the guard.
    let guard = "@daily cd /srv && ! /usr/bin/pgrep x && y\n";
    import(guard, &[]).stderr_has("each time the guard `! /usr/bin/pgrep` fails, the run is dead");
}

#[test]
fn a_guard_that_exits_with_a_failure_is_imported_with_a_warning() {
    let exits = [
        "test -e /nosuch || exit 1; true",
        "[ -e /nosuch ] || exit; true",
        "pgrep nosuch | grep x || exit 1; true",
        "ls / | grep -q . && exit 3; true",
        "sh -c '[ -e / ] && exit 1; true'",
    ];
    let remedy = ", the run is dead: write `exit 0` instead of `exit";
    assert_warned_of_failing_runs(&exits, remedy);
    let guard = "@daily pidof x >/dev/null && exit 1; x\n";
    import(guard, &[]).stderr_has("the guard `pidof` succeeds, the run is dead: write `exit 0`");
}

#[test]
fn a_grep_that_finds_no_line_at_the_end_of_a_command_is_imported_with_a_warning() {
    let filters =
        ["echo a | grep b", "egrep -v a /dev/null", "[ -e / ] || true; echo a | grep -c b"];
    let remedy = "finds no line, the run is dead: end the command with `|| test $? = 1`";
    assert_warned_of_failing_runs(&filters, remedy);
}

#[test]
fn guards_that_do_not_fail_the_run_and_failures_on_purpose_are_imported_without_a_warning() {
    // These commands succeed although their guard fails.
    let succeeding = [
        "[ -e /nosuch ] || true",
        "test -e /nosuch || { cd / && true; }",
        "if [ -e /nosuch ]; then false; fi",
        "if [ -e /nosuch ] && [ -e / ]; then false; fi",
        "[ -e /nosuch ] && false || true",
        "[ -e /nosuch ] && false; true",
        "[ -e /nosuch ] && false & wait",
        "[ -e /nosuch ] || exit 0; false",
        "[ -e / ] && exit; false",
        "while ! [ -e / ]; do sleep 1; done; true",
        "echo a | grep b | cat",
        "echo a | grep b || true",
        "echo a | grep b || test $? = 1",
        "[ -e /nosuch ] | cat && true",
        "case a in b) [ -e /nosuch ] && false ;; esac",
        "echo '[ -e /nosuch ] && x'",
        "echo \"$(test -e /nosuch && echo x)\"",
        "pgrep -x nosuch >/dev/null || true",
        ". /dev/null && mkdir -p / && true",
    ];
    // These commands fail on purpose: they say that something is wrong.
    let failing = [
        "cd /nosuch && true",
        "false && true",
        "false || exit 1",
        "true && [ -e /nosuch ]",
        "[ -e /nosuch ]",
        "echo a | grep -q b",
        "test -e /nosuch || { echo missing; exit 1; }",
        "flock -n /nosuch/lock true",
    ];
    for (commands, expected) in [(&succeeding[..], true), (&failing, false)] {
        for command in commands {
            import(&format!("@daily {command}\n"), &[]).success().stderr("");
            assert_eq!(succeeds(command), expected, "{command}");
        }
    }
}

#[test]
fn each_user_of_a_system_crontab_and_cron_tz_are_named() {
    let crontab =
        "@daily root a\n@daily www-data b\n@daily root c\nCRON_TZ=Asia/Tokyo\n@daily root d\n";
    let of = |user: &str| {
        format!(
            "cron runs the lines of {user} as that user: give these jobs a queue, and let a \
             crontab of {user} tick with that --queue"
        )
    };
    let zone =
        "Debian's cron ignores CRON_TZ, other crons obey it: see the time_zone of the next jobs";
    // The line of the warning, and the warning. Each user is named once.
    let lines = [(1, of("root")), (2, of("www-data")), (4, zone.to_owned())];
    let lines = lines.map(|(line, why)| format!("jobctl: -:{line}: {why}\n")).concat();
    let imported = import(crontab, &["--system"]).success().stderr(&lines);
    imported.stdout_has("time_zone = \"Asia/Tokyo\"\n");
}

#[test]
fn a_warning_names_the_cause() {
    let crontab = "\
        0 5 3 * * * * /srv/backup\n\
        @daily root cd /srv && ./backup\n\
        * * * * * jobctl check --quiet\n\
        @daily tar cf $(date +%F).tar /srv\n\
        NAME=\n";
    let causes = "\
        jobctl: -:1: the command begins with `*`: cron has five fields, not more\n\
        jobctl: -:2: `root` is a user, not a program; add --system, or write the program's path\n\
        jobctl: -:3: `jobctl check` can't be a job: keep the line\n\
        jobctl: -:4: a bare `%` ends the command before its closing `)`: was `\\%` meant?\n\
        jobctl: -:5: cron refuses a variable without a value; write `\"\"`\n";
    import(crontab, &[]).exits(1).stderr(causes);

    // In a crontab of the system, the first word of each command must be a user.
    let system = "@daily /srv/backup --all\n0 5 3 * * * * root backup\n0 0 5 * * 1 root backup\n";
    let cause = "is not a user; if the lines name no users, omit --system\n";
    let causes = ["/srv/backup", "*", "1"].iter().zip(1..);
    let causes: String =
        causes.map(|(word, line)| format!("jobctl: -:{line}: `{word}` {cause}")).collect();
    import(system, &["--system"]).exits(1).stderr(&causes);
}

/// `daemon` is a user of Debian and of other systems. A command that begins with a user may be a
/// line of the system's crontab.
#[test]
fn a_user_is_not_a_program_unless_such_a_program_exists() {
    let folder = temp_dir();
    fs::write(folder.path().join("daemon"), "").unwrap();
    let crontab = "@daily daemon /srv/a\n@daily daemon -x /srv/a\n@daily daemon >a 2>&1\n\
                   @daily daemon\n@daily nosuchuser /srv/a\n";
    // Only the first line looks like one of the system: a user and then a program.
    let imported = import(crontab, &[]).exits(1).stderr_has("-:1: `daemon` is a user");
    assert_eq!(first_lines_of_jobs(&imported.complains_once()).len(), 4);
    // With the program `daemon` in PATH, the first line is a command, too.
    let path = format!("PATH=/usr/bin:{}\n", folder.path().display());
    import(&(path + crontab), &[]).success().stderr("");
}

#[test]
fn bytes_that_are_not_utf8_concern_only_their_line() {
    let crontab = b"# F\xfcr alle\n@daily backup # f\xfcr alle\n@daily a\n@daily b\0\n";
    let arguments = ["import-crontab", "-", "--time-zone", "UTC"];
    let imported = jobctl(arguments).stdin(*crontab).run().exits(1);
    let cause = "it is not UTF-8 text; convert the file\n";
    let imported =
        imported.stderr(&[2, 4].map(|line| format!("jobctl: -:{line}: {cause}")).concat());
    assert_eq!(first_lines_of_jobs(&imported), ["[jobs.a]"]);
    imported.stdout_has("# F\u{fffd}r alle\n");
}

#[test]
fn a_lock_that_fails_becomes_a_skipped_overlap() {
    // With these, a second run does nothing while the first one runs. The others wait, or have no
    // lock.
    let skipped = [
        "flock -n /run/a.lock a",
        "/usr/bin/flock -xn /run/a.lock a",
        "cd /srv && nice flock --nonblock /run/a.lock -c 'a; b'",
        "(flock -E 0 -n 9 || exit 1; a) 9>/run/a.lock",
        "run-one a",
    ];
    let allowed = [
        "flock /run/a.lock a -n",
        "flock --timeout 5 /run/a.lock a",
        "flock -w 0.5 /run/a.lock a",
        "a -n flock",
        "a flock",
    ];
    for (commands, overlap) in [(&skipped[..], "skip"), (&allowed[..], "allow")] {
        let crontab: String = commands.iter().map(|it| format!("@daily {it}\n")).collect();
        let imported = import(&crontab, &[]).success().stderr("").stdout;
        let found = imported.matches(&format!("\noverlap = \"{overlap}\"\n")).count();
        assert_eq!(found, commands.len(), "{imported}");
    }
}

#[test]
fn variables_are_read_as_cron_reads_them() {
    let crontab = "A-B = a b \n'C' =\"'c'\"\nD=\" d \"\nE=''\nF=f=1 # f\n@daily a\n";
    let env = r#"env = { A-B = "a b", C = "c", D = " d ", E = "", F = "f=1 # f" }"#;
    import(crontab, &[]).success().stderr("").stdout_has(env);
}

#[test]
fn the_time_zone_is_that_of_the_host() {
    let folder = temp_dir();
    let crontab = folder.path().join("crontab");
    fs::write(&crontab, "@daily backup\n").unwrap();
    let import = jobctl(["import-crontab", crontab.to_str().unwrap()]).env("TZ", "Asia/Tokyo");
    import.run().success().stderr("").stdout_has("\ntime_zone = \"Asia/Tokyo\"\n");
    jobctl(["import-crontab", "/nowhere"]).run().exits(1).complains_once();
}

#[test]
fn control_characters_of_a_crontab_leave_a_file_that_apply_reads() {
    let controls: String =
        (1..=0x9f).filter_map(char::from_u32).filter(|c| c.is_control()).collect();
    let controls = controls.replace(['\n', '\r'], "");
    let crontab = format!("# {controls}\nA={controls}x\n@daily echo '{controls}'\n");
    let imported = import(&crontab, &[]).stdout;
    TestDb::new().apply(&imported);
}
