//! The `# HELP` lines of the metrics, from the page that documents them.

/// A table row has a metric in its first cell and the meaning in its last one.
const PAGE: &str = include_str!("../../docs/reference/metrics.md");

/// Puts the meaning of each metric before its type.
pub fn with_help(text: &str) -> String {
    let mut helped = String::with_capacity(text.len() * 2);
    for line in text.lines() {
        let name = line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').next());
        if let Some((name, meaning)) = name.and_then(|name| Some((name, meaning(name)?))) {
            helped.extend(["# HELP ", name, " ", &meaning, "\n"]);
        }
        helped.extend([line, "\n"]);
    }
    helped
}

/// The meaning of a metric as plain text; `None` if the page does not have it.
fn meaning(name: &str) -> Option<String> {
    let row = PAGE.lines().find(|row| {
        row.strip_prefix("| `").and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with("` |"))
    })?;
    let cell = row.trim_end_matches(" |").rsplit(" | ").next()?;
    Some(without_links(cell).replace('`', ""))
}

/// Markdown text with its links replaced by their texts.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((label, target)) = link.split_once("](") else { break };
        plain.extend([before, label]);
        rest = target.split_once(')').map_or("", |(_, behind)| behind);
    }
    plain + rest
}
