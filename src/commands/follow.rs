//! `jobctl show --follow`: prints the output of a running job as its worker sends it.

use std::thread;
use std::time::Duration;

use crate::print;
use crate::store::{Result, StoredOutput};

/// Workers send output with their heartbeats, which are rarer.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Prints what an attempt prints until it ends. If the run waits, follows its next attempt. `read`
/// returns the output of an attempt so far, by default of the newest; `None`: the run was deleted.
pub(super) fn follow(
    first: StoredOutput,
    mut read: impl FnMut(Option<i32>) -> Result<Option<StoredOutput>>,
) -> anyhow::Result<()> {
    let mut next = |attempt| {
        thread::sleep(POLL_INTERVAL);
        read(attempt)
    };
    let ended = first.attempt;
    let mut stored = first;
    if stored.waiting {
        while stored.attempt == ended && !stored.live {
            if !stored.waiting {
                return Ok(());
            }
            let Some(found) = next(None)? else { return Ok(()) };
            stored = found;
        }
    }
    let (followed, mut printed) = (stored.attempt, String::new());
    loop {
        let output = stored.output.unwrap_or_default();
        print::answer(&added(&printed, &output, stored.live))?;
        if !stored.live {
            return Ok(());
        }
        printed = output;
        let Some(found) = next(followed)? else { return Ok(()) };
        stored = found;
    }
}

/// Returns what an output has more than before. Both may lack the beginning. A stored output has
/// stderr after stdout, so it may be another text.
fn added(before: &str, output: &str, live: bool) -> String {
    if let Some(at) = output.find(before) {
        return output[at + before.len()..].to_owned();
    }
    let mut ends = before.char_indices().map(|(start, _)| &before[start..]);
    let gap = if live { "[bytes left out]" } else { "--- the stored output ---" };
    match ends.find(|end| output.starts_with(end)) {
        Some(end) => output[end.len()..].to_owned(),
        None => format!("\n{gap}\n{output}"),
    }
}

#[cfg(test)]
mod tests {
    use super::added;

    #[test]
    fn only_the_added_text_is_printed() {
        let live = |before, output| added(before, output, true);
        assert_eq!(live("", "a\n"), "a\n");
        assert_eq!(live("a\n", "a\nb\n"), "b\n");
        assert_eq!(live("a\n", "a\n"), "");
        // The beginning was dropped meanwhile.
        assert_eq!(live("abc", "bcd"), "d");
        assert_eq!(live("a€", "€b"), "b");
        assert_eq!(live("abc", "xyz"), "\n[bytes left out]\nxyz");
        assert_eq!(added("abc", "xyz", false), "\n--- the stored output ---\nxyz");
    }
}
