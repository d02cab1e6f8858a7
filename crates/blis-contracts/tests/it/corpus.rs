//! Every file of `tests/corpus` is a scenario with something wrong; beside it stands what the user is told.

use std::fs;
use std::path::{Path, PathBuf};

use blis_contracts::scenario::Scenario;
use blis_contracts::strict::{Document, DocumentErrors, LineEndings, MAX_BYTES, MAX_VALUES};

/// Fewer files than this means that the corpus was not found.
const LEAST: usize = 60;

fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

fn load(name: &str, bytes: &[u8]) -> Result<Scenario, DocumentErrors> {
    let document = Document::parse(name, bytes, LineEndings::LfOrCrLf)?;
    Scenario::load(&document)
}

#[test]
fn every_malformed_document_is_refused_with_its_place() {
    let files = corpus();
    assert!(files.len() >= LEAST, "{} documents", files.len());
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../corpus");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for path in files {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let name = path.file_name().unwrap().to_str().unwrap();
            let Err(errors) = load(name, &fs::read(&path).unwrap()) else { panic!("{name} was accepted") };
            assert!(errors.0.iter().all(|error| error.file == name && !error.message.is_empty()));
            insta::assert_snapshot!(stem, errors.to_string());
        }
    });
}

#[test]
fn a_document_of_a_hundred_megabytes_is_refused_before_it_is_parsed() {
    let bytes = vec![b'['; 100_000_000];
    let error = load("large.yaml", &bytes).unwrap_err();
    assert_eq!(error.to_string(), "large.yaml: the document has more than 16777216 bytes (16 MiB), the most a document may have");
}

#[test]
fn the_limit_on_size_is_exact() {
    let refusal = |size: usize| {
        let mut bytes = "\u{feff}".as_bytes().to_vec();
        bytes.resize(size, b' ');
        Document::parse("f.yaml", &bytes, LineEndings::Lf).unwrap_err().message
    };
    assert!(refusal(MAX_BYTES).contains("byte order mark"));
    assert!(refusal(MAX_BYTES + 1).contains("more than 16777216 bytes"));
}

#[test]
fn a_document_of_too_many_values_is_refused() {
    let refusal = |text: &str| Document::parse("f.yaml", text.as_bytes(), LineEndings::Lf).unwrap_err().message;
    let flow = refusal(&format!("[{}", ",".repeat(MAX_VALUES)));
    assert_eq!(flow, "the document has more than 262144 commas and opening brackets, so too many values");
    assert_eq!(refusal(&"- 0\n".repeat(MAX_VALUES + 1)), "the document holds more than 262144 values");
}

#[test]
fn a_file_that_is_not_there_is_one_error() {
    let error = Document::open(Path::new("no/such/scenario.yaml"), LineEndings::LfOrCrLf).unwrap_err();
    assert!(error.to_string().starts_with("no/such/scenario.yaml: cannot be read: "), "{error}");
}
