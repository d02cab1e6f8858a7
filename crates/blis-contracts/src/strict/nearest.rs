//! Nearest-name hints, shared by every place that refuses a name: keys, values, models, chips, flags.

/// The candidate a misspelt name most likely meant: the fewest edits, ties to the first candidate.
///
/// Case and the choice between `-`, `_` and `.` cost nothing, and words left out or added at the end less than an edit. None when more than a third of the name would have to change.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(name);
    let limit = (folded.chars().count() / 3).max(1);
    // In half edits: words left out weigh less than a misspelling, words added more than one.
    let distance = |candidate: &str| {
        let other = fold(candidate);
        let edits = 2 * strsim::damerau_levenshtein(&folded, &other);
        match (begins_with_words_of(&other, &folded), begins_with_words_of(&folded, &other)) {
            (true, _) => edits.min(1),
            (_, true) => edits.min(3),
            (false, false) => edits,
        }
    };
    candidates
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, _)| *distance <= 2 * limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Whether one name is the other with words added, as `a100_sxm` is `a100`.
fn begins_with_words_of(long: &str, short: &str) -> bool {
    short.len() > 1 && long.strip_prefix(short).is_some_and(|rest| rest.starts_with('_'))
}

/// The hint for an unknown name: the nearest candidate, else the whole list where it is short enough to read.
pub fn did_you_mean(name: &str, candidates: &[&str]) -> Option<String> {
    const READABLE: usize = 16;
    if let Some(candidate) = nearest(name, candidates.iter().copied()) {
        return Some(format!("did you mean `{candidate}`?"));
    }
    match candidates {
        [] => None,
        [only] => Some(format!("the only one here is `{only}`")),
        several if several.len() <= READABLE => Some(format!("known here: {}", several.join(", "))),
        _ => None,
    }
}

/// Long names are cut: no name of ours is longer, and the distance costs the product of both lengths.
fn fold(name: &str) -> String {
    const LONGEST: usize = 128;
    let plain = |c: char| if matches!(c, '-' | '.') { '_' } else { c.to_ascii_lowercase() };
    name.chars().take(LONGEST).map(plain).collect()
}
