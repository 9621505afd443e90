//! Finds the processes of a command. The only place that reads the kernel's process table.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process_group};

/// Returns whether a process of the group is alive. A signal also finds dead members until init has
/// collected them, which in a container may be never. A refusal (EPERM, as after sudo) also means
/// that the group has members. In both cases the kernel's process table decides; reading it is
/// slow.
pub(super) fn is_alive(group: Pid) -> bool {
    test_kill_process_group(group) != Err(Errno::SRCH)
        && processes().any(|process| process.group == group.as_raw_pid() && process.is_alive)
}

/// Returns the living descendants of a group's leader in its session but outside of its group.
pub(super) fn strays(leader: Pid) -> Vec<OwnedFd> {
    let leader = leader.as_raw_pid();
    let all: Vec<_> = processes().collect();
    let mut family = vec![leader];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        let children = all.iter().filter(|process| process.parent == parent);
        family.extend(children.map(|process| process.pid));
        next += 1;
    }
    let session = all.iter().find(|process| process.pid == leader).map(|process| process.session);
    all.iter()
        .filter(|process| family.contains(&process.pid) && Some(process.session) == session)
        .filter(|process| process.group != leader && process.is_alive)
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
        // pid (name) state parent group session ...; a name may contain spaces and brackets.
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
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
