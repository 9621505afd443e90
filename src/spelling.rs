//! What somebody who misspelt a word may have meant. Pure.

/// The candidate nearest to `word`, if one is near: a third of its letters may be wrong, at least two.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(2) && *distance < candidate.len())
        .min()
        .map(|(_, candidate)| candidate)
}

/// `; did you mean ...?`, or nothing.
pub(crate) fn suggestion<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        let words = ["schedule", "shell", "http"];
        assert_eq!(nearest("shedule", words), Some("schedule"));
        assert_eq!(nearest("Shel", words), Some("shell"));
        assert_eq!(nearest("htpt", words), Some("http"));
        assert_eq!(nearest("payload", words), None);
    }
}
