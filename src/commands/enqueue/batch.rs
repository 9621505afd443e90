//! A batch: a run a line, and what its runs wait for.

use std::collections::HashMap;
use std::io::{BufRead, Read as _};

use anyhow::Context;

use super::request::{After, Asked, Links, RunRequest, at_line};
use crate::exit::Fault;
use crate::job::payload::PAYLOAD_LIMIT;
use crate::store::{Dependencies, Predecessor};
use crate::text::did_you_mean;

/// The most bytes of a line: the longest payload, and 16 KiB for the other fields.
const LINE_LIMIT: usize = PAYLOAD_LIMIT + 16 * 1024;

/// Reads all runs of a batch before the transaction begins: a slow writer must not keep it open.
/// `complete` adds the values of the flags to each line.
pub(super) fn read(
    mut input: impl BufRead,
    mut complete: impl FnMut(RunRequest) -> RunRequest,
) -> anyhow::Result<Vec<Asked>> {
    let mut runs = Vec::new();
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        // One byte more than allowed, to see whether the line is too long.
        let limit = LINE_LIMIT as u64 + 1;
        let mut rest = input.by_ref().take(limit);
        if rest.read_until(b'\n', &mut text).context("cannot read the batch")? == 0 {
            break;
        }
        let content = text.trim_ascii();
        let read = if text.len() > LINE_LIMIT {
            Err(format!("longer than {} KiB", LINE_LIMIT / 1024))
        } else if content.is_empty() {
            continue;
        } else {
            RunRequest::from_line(content)
        };
        let line = Some(number);
        let request = read.map_err(|why| at_line(line, Fault::usage(why)))?;
        runs.push(complete(request).into_asked(line)?);
    }
    Ok(runs)
}

/// Returns what the runs of a batch wait for. A run is a number: its place in `runs`.
pub(super) fn dependencies(runs: &[Asked]) -> anyhow::Result<Vec<Dependencies>> {
    let fault = |run: usize, why: String| at_line(runs[run].line, Fault::usage(why));
    let line_of = |run: usize| runs[run].line.unwrap_or_default();
    let linked_runs = || {
        let runs = runs.iter().enumerate();
        runs.filter_map(|(run, asked)| Some((run, asked.links.as_deref()?)))
    };
    let mut named = HashMap::new();
    for (run, Links { name, .. }) in linked_runs() {
        if let Some(name) = name
            && let Some(first) = named.insert(name.as_str(), run)
        {
            let first = line_of(first);
            return Err(fault(run, format!("`as`: line {first} is named `{name}`, too")).into());
        }
    }
    // Returns the run with this name, for which `run` waits.
    let in_batch = |run: usize, name: &str| match named.get(name) {
        Some(other) if *other < run => Ok(Predecessor::InBatch(*other)),
        Some(other) if *other == run => Err("a run can't wait for itself".to_owned()),
        Some(later) => Err(format!("line {}, named `{name}`, must come first", line_of(*later))),
        None => {
            let remedy = match name.parse::<i64>() {
                Ok(_) => "; write the id of a run without quotes".to_owned(),
                Err(_) => did_you_mean::suggestion(name, named.keys().copied()),
            };
            Err(format!("no line is named `{name}`{remedy}"))
        }
    };
    let mut dependencies = Vec::new();
    for (run, Links { after, rule, .. }) in linked_runs().filter(|(_, it)| !it.after.is_empty()) {
        let predecessors = after.iter().map(|after| match after {
            After::Id(id) => Ok(Predecessor::Id(*id)),
            After::Name(name) => in_batch(run, name),
        });
        let after = predecessors
            .collect::<Result<_, _>>()
            .map_err(|why| fault(run, format!("`after`: {why}")))?;
        dependencies.push(Dependencies { run, after, rule: *rule });
    }
    Ok(dependencies)
}
