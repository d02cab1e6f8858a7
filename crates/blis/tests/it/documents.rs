//! Every command that README.md and the user guide show runs, and shows what they say it does.

use crate::harness::{Bench, CHAT, show};
use crate::scoring::{MEASURED, SWEEP};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn document(name: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}/{name}")).unwrap()
}

/// The arguments of each line of the shell blocks that starts with one of the ways to call the program.
fn commands(text: &str) -> Vec<Vec<String>> {
    let blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    let calls = blocks.flat_map(str::lines).filter_map(|line| line.strip_prefix("blis ").or(line.strip_prefix("cargo run --release -- ")));
    calls.map(|call| words(call.split("  #").next().unwrap_or(call))).collect()
}

/// Splits at blanks outside single quotes, as a shell does.
fn words(line: &str) -> Vec<String> {
    let quoted = line.split('\'').enumerate().flat_map(|(index, part)| {
        let whole = index % 2 == 1;
        if whole { vec![part] } else { part.split_whitespace().collect() }
    });
    quoted.map(str::to_owned).collect()
}

/// Runs the commands in a folder with a copy of the example scenarios and a made-up measured sweep.
fn run_all(test: &str, name: &str, at_least: usize) {
    let commands = commands(&document(name));
    assert!(commands.len() >= at_least, "{name} shows {} commands", commands.len());
    let bench = Bench::new(test, CHAT);
    for folder in ["scenarios", "scenarios/data"] {
        for entry in std::fs::read_dir(format!("{ROOT}/{folder}")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = format!("{folder}/{}", path.file_name().unwrap().to_str().unwrap());
                bench.write(&name, &std::fs::read(path).unwrap());
            }
        }
    }
    bench.write("units.jsonl", SWEEP.as_bytes());
    bench.write("measured.jsonl", MEASURED.as_bytes());
    for command in commands {
        let output = bench.blis(&command.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(output.status.success(), "{command:?}: {}", show(&output));
    }
}

#[test]
fn every_command_of_the_readme_runs() {
    run_all("readme", "README.md", 2);
}

#[test]
fn every_command_of_the_guide_runs() {
    run_all("guide", "docs/guide.md", 15);
}

/// Figures of the README may differ by so much from the program's before it must be brought up to date.
const STALE: f64 = 0.05;

#[test]
fn the_readme_shows_what_the_program_prints() {
    let readme = document("README.md");
    let block = readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("README.md shows the output of a run");
    let output = Bench::new("readme_output", CHAT).blis(&["run", &format!("{ROOT}/scenarios/quickstart.yaml")]);
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in block.lines().filter(|line| !line.trim().is_empty() && line.trim() != "...") {
        assert!(printed.lines().any(|real| alike(real, line)), "README.md shows {line:?}; the program prints\n{printed}");
    }
}

/// Whether two lines have the same words, and numbers that are close.
fn alike(one: &str, other: &str) -> bool {
    let number = |word: &str| word.replace([',', '%'], "").parse::<f64>().ok();
    let close = |(one, other): (&str, &str)| match (number(one), number(other)) {
        (Some(one), Some(other)) => (one - other).abs() <= STALE * one.abs().max(other.abs()),
        (None, None) => one == other,
        (Some(_), None) | (None, Some(_)) => false,
    };
    one.split_whitespace().count() == other.split_whitespace().count() && one.split_whitespace().zip(other.split_whitespace()).all(close)
}

#[test]
fn lines_are_alike_when_their_numbers_are_close() {
    assert!(alike("ttft  ms  32.19  2,000", "ttft ms 31.97 2,000"));
    assert!(!alike("ttft  ms  32.19", "ttft  ms  42.19"));
    assert!(!alike("ttft  ms  32.19", "ttft  s  32.19"));
    assert!(!alike("ttft  ms  32.19", "ttft  ms"));
}
