//! Keys that belong to the document's design but that nothing acts on yet. Each is refused with the reason, so that a user learns
//! that the key is right and the feature absent. A row goes when its key is built.

use crate::strict::{Node, Problem, Value};

/// A path pattern (`[]` stands for any item) and why nothing may stand there.
const RESERVED: &[(&str, &str)] = &[
    ("router", "routing is not simulated yet: one pool of one replica receives every request"),
    ("delivery", "delivery delays are not simulated yet: a request reaches its engine at once"),
    ("replications", "a run has one replication; change `seed` for another"),
    ("engine_version", "write `engine: {kind: ..., version: ...}`"),
    ("cluster.storage", "storage is not priced yet"),
    ("cluster.groups[].switch", "every node is taken to reach every other through one switch"),
    ("cluster.groups[].uplink_oversubscription", "every port is taken to have its full rate to every other"),
    ("cluster.groups[].gpus_per_rack", "racks are not simulated yet"),
    ("cluster.groups[].host_memory", "host memory is not accounted for yet"),
    ("workload.clients[].tenant", "no policy or figure reads tenants yet"),
    ("frame.warmup", "no rule finds a warm-up yet; state `measure: {discard_first: ...}`"),
    ("frame.accept", "acceptance conditions are not checked yet"),
];

/// A problem for each reserved key the document uses, in the order of the table.
pub(super) fn find(root: &Node) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (pattern, reason) in RESERVED {
        visit(root, pattern, "", &mut |path| {
            let key = pattern.rsplit('.').next().unwrap_or(pattern);
            problems.push(Problem::new(path, format!("`{key}` is refused: {reason}")));
        });
    }
    problems
}

fn visit(node: &Node, pattern: &str, path: &str, found: &mut impl FnMut(String)) {
    let (head, rest) = pattern.split_once('.').unwrap_or((pattern, ""));
    let (key, each_item) = head.strip_suffix("[]").map_or((head, false), |key| (key, true));
    let Some(entry) = node.as_map().and_then(|map| map.get(key)) else { return };
    let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (&entry.node.value, each_item) {
        (Value::Seq(items), true) => {
            for (index, item) in items.iter().enumerate() {
                visit(item, rest, &format!("{path}[{index}]"), found);
            }
        }
        (_, true) => {}
        (_, false) if rest.is_empty() => found(path),
        (_, false) => visit(&entry.node, rest, &path, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict::{Document, LineEndings};

    #[test]
    fn every_reserved_key_is_found_where_it_stands() {
        for (pattern, reason) in RESERVED {
            let leaf = |text: String, part: &str| match part.strip_suffix("[]") {
                Some(key) => format!("{{{key}: [{text}]}}"),
                None => format!("{{{part}: {text}}}"),
            };
            let text = pattern.split('.').rev().fold("1".to_owned(), leaf);
            let document = Document::parse("f.yaml", text.as_bytes(), LineEndings::Lf).unwrap();
            let found = find(document.root());
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(found[0].path, pattern.replace("[]", "[0]"));
            assert!(found[0].message.contains(reason));
        }
    }

    #[test]
    fn the_same_word_elsewhere_is_not_reserved() {
        let document = Document::parse("f.yaml", b"{pools: [{router: 1}], frame: {stop: {accept: 1}}}", LineEndings::Lf).unwrap();
        assert_eq!(find(document.root()), []);
    }
}
