//! Nothing in the repository depends on the machine it was written on: no paths of one, no hosts of package mirrors.

use super::tree::{File, Tree};
use super::{Check, Finding};

pub(super) const CHECK: Check = Check { name: "machine", run: check };

/// Folders at the root of somebody's machine.
const FOLDERS: &[&str] = &["work", "root", "farm"];

/// How the hosts of package mirrors begin.
const HOSTS: &[&str] = &["registry", "proxy", "index", "files"];

fn check(tree: &Tree) -> Vec<Finding> {
    tree.spoken().filter(|file| !is_lock(file)).flat_map(check_file).collect()
}

/// Lock files name the source of each package; their tools write them.
fn is_lock(file: &File) -> bool {
    file.has_extension("lock") || file.name() == "package-lock.json"
}

fn check_file(file: &File) -> Vec<Finding> {
    let text = &file.text;
    let mut findings = Vec::new();
    for folder in FOLDERS.iter().map(|name| format!("/{name}/")) {
        for (at, _) in text.match_indices(&folder) {
            let inside_a_path = text[..at].ends_with(|c: char| c.is_alphanumeric() || "_.-~*}/".contains(c));
            if !inside_a_path {
                findings.push(Finding::at(file, text, at, format!("`{folder}` is a path of one machine")));
            }
        }
    }
    for host in HOSTS.iter().map(|name| format!("://{name}.")) {
        for (at, _) in text.match_indices(&host) {
            findings.push(Finding::at(file, text, at, format!("`{host}` is the host of a mirror")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn paths_and_hosts_of_a_machine_are_found_in_any_file() {
        for planted in ["cd /work/main", "\"/root/.cache\"", "https://registry.example/x", "(/farm/data)"] {
            assert_eq!(count("notes.md", planted), 1, "{planted}");
        }
    }

    #[test]
    fn paths_inside_other_paths_and_lock_files_pass() {
        for innocent in ["docs/work/plan", "https://example.org/root/x", "$HOME/work/x", "network/root/"] {
            assert_eq!(count("notes.md", innocent), 0, "{innocent}");
        }
        assert_eq!(count("x/package-lock.json", "https://registry.example/x"), 0);
    }
}
