//! The site of a summary: what its files hold, and how a browser sees it where one is installed.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use blis_score::Input;
use blis_score::dashboard::{build, read_summary};
use blis_score::summary::Summary;

use crate::fixture::{predictions, summary};

/// A folder of the test's own, empty, under the build's folder.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(fs::remove_dir_all(&folder));
    folder
}

/// Errors that differ from sweep to sweep and grow with concurrency.
fn made_up() -> Summary {
    summary(&predictions(|number, concurrency| 0.9 + 0.03 * f64::from(u32::try_from(number).unwrap()) + f64::from(concurrency) / 1000.0))
}

fn input(summary: &Summary) -> Input {
    Input::of("summary.json", serde_json::to_string_pretty(summary).unwrap())
}

#[test]
fn a_summary_is_read_back_as_it_was_written() {
    let summary = made_up();
    assert_eq!(read_summary(&input(&summary)).unwrap(), summary);
}

#[test]
fn the_page_holds_everything_and_asks_nobody() {
    let folder = folder("site");
    build(&input(&made_up()), &folder).unwrap();
    let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["LICENSES.txt", "index.html", "summary.json"]);
    let page = fs::read_to_string(folder.join("index.html")).unwrap();
    assert!(!page.contains("<link rel=\"stylesheet\"") && !page.contains("src=\"http"));
    assert!(page.contains("default-src 'none'"));
    let data = page.split_once("id=\"summary\">").unwrap().1.split_once("</script>").unwrap().0;
    assert!(!data.contains('<'), "a text of the summary could end the block of data");
    assert_eq!(serde_json::from_str::<Summary>(data).unwrap(), made_up());
}

#[test]
fn a_summary_of_another_version_is_refused_and_nothing_is_written() {
    let folder = folder("refused");
    let mut value = serde_json::to_value(made_up()).unwrap();
    value["schema"] = 2.into();
    let error = build(&Input::of("summary.json", value.to_string()), &folder).unwrap_err();
    assert_eq!(error.to_string(), "summary.json:1: is a summary of version 2; this program reads version 3");
    let error = build(&Input::of("summary.json", "{\"schema\": 3, \"kind\": \"ScoreSummary\""), &folder).unwrap_err();
    assert!(error.to_string().starts_with("summary.json:1: EOF"), "{error}");
    assert!(!folder.exists());
}

#[test]
fn a_browser_draws_the_charts_and_shows_the_summarys_numbers() {
    let tools = ["node", "chromium", "chromedriver"];
    let missing: Vec<_> = tools.into_iter().filter(|tool| Command::new(tool).arg("--version").output().is_err()).collect();
    if !missing.is_empty() {
        writeln!(std::io::stderr(), "skipped the dashboard in a browser: {} not installed", missing.join(", ")).unwrap();
        return;
    }
    let refused: Vec<_> = predictions(|_, _| 1.0).into_iter().filter(|line| line["grade"] == "G5").collect();
    for (name, summary) in [("browsed", made_up()), ("browsed_refusals", summary(&refused))] {
        let folder = folder(name);
        build(&input(&summary), &folder).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("web/test/page.mjs");
        let run = Command::new("node").arg(script).arg(&folder).output().unwrap();
        assert!(run.status.success(), "{name}: {}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    }
}
