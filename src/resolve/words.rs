//! Small helpers to say things.

/// `a`, `a or b`, `a, b or c`.
pub(super) fn list(items: &[String], conjunction: &str) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} {conjunction} {last}", rest.join(", ")),
    }
}

/// As [`list`], but no more than `limit` items: the rest is counted.
pub(super) fn short_list(items: &[String], limit: usize, conjunction: &str) -> String {
    if items.len() <= limit {
        return list(items, conjunction);
    }
    let more = items.len() - limit;
    format!("{} and {more} more", items[..limit].join(", "))
}

/// `1 version`, `2 versions`.
pub(super) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// The names nearest to `name`, best first, at most three.
pub(super) fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
    let mut scored: Vec<(f64, &str)> = names
        .into_iter()
        .map(|other| (strsim::jaro_winkler(name, other), other))
        .filter(|(score, other)| *score > 0.88 && *other != name)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.dedup();
    scored.truncate(3);
    scored.into_iter().map(|(_, other)| other).collect()
}
