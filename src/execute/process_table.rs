//! Finds the processes of a command. The only place that reads the kernel's process table.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process_group};

/// Returns whether a process of the group is alive.
pub(super) fn is_alive(group: Pid) -> bool {
    // Reading the process table is slow, so first ask whether the group has any members.
    if test_kill_process_group(group) == Err(Errno::SRCH) {
        return false;
    }
    // Members may be dead: the kernel keeps them until init has collected them, which in a
    // container may be never. Any other error, such as EPERM after sudo, says nothing about them.
    processes().any(|process| process.group == group.as_raw_pid() && process.is_alive)
}

/// Returns the living descendants of a group's leader that are in its session, but outside of its
/// group, as pidfds.
pub(super) fn strays(leader: Pid) -> Vec<OwnedFd> {
    let leader = leader.as_raw_pid();
    let all: Vec<_> = processes().collect();
    let Some(session) = all.iter().find(|process| process.pid == leader).map(|it| it.session)
    else {
        return Vec::new();
    };
    // The leader, then its children, then theirs.
    let mut family = vec![leader];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        let children = all.iter().filter(|process| process.parent == parent);
        family.extend(children.map(|process| process.pid));
        next += 1;
    }
    all.iter()
        .filter(|process| family.contains(&process.pid) && process.is_alive)
        .filter(|process| process.session == session && process.group != leader)
        .filter_map(|process| pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok())
        .collect()
}

/// A row of the kernel's process table.
struct ProcessEntry {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    is_alive: bool,
}

/// Returns all processes of this host, or of its container.
fn processes() -> impl Iterator<Item = ProcessEntry> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // The line is: pid (name) state parent group session ... The name may contain spaces and
        // brackets, so read from the last bracket on.
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut fields = after_name.split_ascii_whitespace();
        // A zombie (Z) or dead process (X) has ended.
        let is_alive = !matches!(fields.next()?, "Z" | "X");
        let mut number = || fields.next()?.parse().ok();
        Some(ProcessEntry {
            pid,
            parent: number()?,
            group: number()?,
            session: number()?,
            is_alive,
        })
    })
}
