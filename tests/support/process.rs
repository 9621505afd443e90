//! The state of processes, from /proc. A zombie counts as dead.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::Invocation;

struct Stat {
    pid: i32,
    state: char,
    parent: i32,
    group: i32,
}

/// Returns all processes of this machine.
fn all() -> Vec<Stat> {
    let read = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path().join("stat")).ok()?;
        // pid (name) state parent group ...; a name may contain any byte.
        let (pid, rest) = text.split_once(' ')?;
        let mut fields = rest.rsplit_once(')')?.1.split_ascii_whitespace();
        Some(Stat {
            pid: pid.parse().ok()?,
            state: fields.next()?.chars().next()?,
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(read).collect()
}

pub fn is_alive(pid: i32) -> bool {
    all().iter().any(|process| process.pid == pid && process.state != 'Z')
}

/// Returns how many processes of a group are alive.
pub fn living_in_group(group: i32) -> usize {
    all().iter().filter(|process| process.group == group && process.state != 'Z').count()
}

/// Returns how many children of a process have ended and were not waited for.
pub fn zombies_of(parent: i32) -> usize {
    all().iter().filter(|process| process.parent == parent && process.state == 'Z').count()
}

/// Runs a command without root's right to read other processes.
pub fn unprivileged(command: Invocation<'_>) -> Invocation<'_> {
    if !rustix::process::geteuid().is_root() {
        return command;
    }
    command.after("exec setpriv --bounding-set -all,+dac_override --inh-caps -all \"$0\" \"$@\"")
}

/// Kills a process that is not a child of the test.
pub fn kill(pid: i32) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
}
