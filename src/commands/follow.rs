//! `jobctl show --follow`: prints the output of a running job as its worker sends it.

use std::thread;
use std::time::Duration;

use crate::job::status::Status;
use crate::print;
use crate::store::{Result, StoredOutput};

/// Workers send output with their heartbeats, which are rarer.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Prints what an attempt prints until it ends. If the run waits, follows its next attempt. `read`
/// returns the output so far; `None` means that the run was deleted.
pub(super) fn follow(
    first: StoredOutput,
    mut read: impl FnMut() -> Result<Option<StoredOutput>>,
) -> anyhow::Result<()> {
    let is_waiting =
        |stored: &StoredOutput| matches!(stored.status, Status::Queued | Status::Failed);
    let waits_after = is_waiting(&first).then_some(first.attempt);
    let (mut stored, mut printed) = (first, String::new());
    loop {
        if !(is_waiting(&stored) && waits_after == Some(stored.attempt)) {
            let output = stored.output.unwrap_or_default();
            print::answer(added(&printed, &output))?;
            if stored.status != Status::Running {
                return Ok(());
            }
            printed = output;
        }
        thread::sleep(POLL_INTERVAL);
        let Some(next) = read()? else { return Ok(()) };
        stored = next;
    }
}

/// Returns what an output has more than before. Both may lack the beginning.
fn added<'a>(before: &str, output: &'a str) -> &'a str {
    if let Some(at) = output.find(before) {
        return &output[at + before.len()..];
    }
    let ends = before.char_indices().map(|(start, _)| &before[start..]);
    let kept = ends.filter(|end| output.starts_with(end)).map(str::len).next();
    &output[kept.unwrap_or_default()..]
}

#[cfg(test)]
mod tests {
    use super::added;

    #[test]
    fn only_the_added_text_is_printed() {
        assert_eq!(added("", "a\n"), "a\n");
        assert_eq!(added("a\n", "a\nb\n"), "b\n");
        assert_eq!(added("a\n", "a\n"), "");
        // The beginning was dropped meanwhile.
        assert_eq!(added("abc", "bcd"), "d");
        assert_eq!(added("a€", "€b"), "b");
        assert_eq!(added("abc", "xyz"), "xyz");
    }
}
