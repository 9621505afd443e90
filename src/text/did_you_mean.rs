//! Suggestions for misspelt words. Pure.

/// Returns the candidate nearest to `word`, if one is near: a third of the candidate's letters may
/// differ, or two letters of a short one.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // Leave out candidates that are less than half as long as the word: they are not near, and to
    // compare a name of a megabyte, which a table may have, would take long.
    let candidates =
        candidates.into_iter().filter(|candidate| word.len() <= 2 * candidate.len() + 2);
    let word = word.to_lowercase();
    candidates
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| {
            *distance <= (candidate.len() / 3).max(2) && *distance < candidate.len()
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// Returns `; did you mean ...?` with the nearest candidate; empty if none is near.
pub(crate) fn suggestion<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    question(nearest(word, candidates))
}

/// Returns `; did you mean ...?` with this word; empty without one.
pub(crate) fn question(meant: Option<&str>) -> String {
    match meant {
        Some(meant) => format!("; did you mean `{meant}`?"),
        None => String::new(),
    }
}

/// Names of keys in other tools, and jobctl's keys for them. The first of these keys that is
/// allowed in the place is suggested.
const OF_OTHERS: [(&str, &[&str]); 26] = [
    ("cmd command exec program run script shell", &["shell", "command"]),
    ("cron every interval crontab", &["schedule"]),
    ("max_retries retries retry tries attempts", &["max_attempts"]),
    ("tz timezone", &["time_zone"]),
    ("chdir dir directory workdir working_dir working_directory", &["cwd"]),
    ("environment envs variables", &["env"]),
    ("max_runtime timeout_s timeout_sec timeout_seconds", &["timeout"]),
    ("concurrency max_concurrency max_instances parallelism", &["max_running"]),
    ("retry_backoff retry_delay retry_interval", &["backoff"]),
    ("ttl expires_at expire", &["expires", "expires_in"]),
    ("retention", &["keep"]),
    ("args arguments data params", &["payload", "json"]),
    ("body json", &["payload"]),
    ("input", &["stdin", "payload"]),
    ("on_error on_failure", &["on_dead"]),
    ("after_script on_complete on_finish", &["on_end"]),
    ("disabled paused", &["enabled"]),
    ("jitter", &["spread"]),
    ("uri url webhook", &["url", "http"]),
    ("delay", &["in"]),
    ("at scheduled_at start_at", &["run_at"]),
    ("cron_jobs crons schedules task tasks", &["jobs"]),
    ("name kind task type", &["job"]),
    ("dedupe_key unique_key", &["key"]),
    ("depends_on needs requires", &["after"]),
    ("tenant", &["share"]),
];

/// Returns `; did you mean ...?` for an unknown key: with the key of jobctl for one of another
/// tool, or with the nearest known key; empty if there is none.
pub(crate) fn key_suggestion<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    let key = word.to_lowercase().replace('-', "_");
    let of_others = OF_OTHERS.iter().filter(|(others, _)| others.split(' ').any(|it| it == key));
    let counterpart = of_others
        .flat_map(|(_, ours)| ours.iter())
        .find(|ours| known.clone().into_iter().any(|known| known == **ours));
    match counterpart {
        Some(ours @ &"max_attempts") => {
            format!("; did you mean `{ours}`, which counts the first attempt, too?")
        }
        Some(ours) => question(Some(ours)),
        None => suggestion(word, known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_word_is_suggested_and_other_words_are_not() {
        let words = ["schedule", "shell", "http"];
        assert_eq!(nearest("shedule", words), Some("schedule"));
        assert_eq!(nearest("Shel", words), Some("shell"));
        assert_eq!(nearest("htpt", words), Some("http"));
        assert_eq!(nearest("payload", words), None);
    }

    #[test]
    fn a_word_of_a_megabyte_is_not_compared() {
        let word = "x".repeat(1 << 20);
        assert_eq!(nearest(&word, std::iter::repeat_n("a_name_of_some_length", 10_000)), None);
    }
}
