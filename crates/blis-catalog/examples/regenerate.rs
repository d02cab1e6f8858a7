//! Writes every `graph.yaml` of the catalog anew, or with `--check` says which differ.
//!
//! `cargo run -p blis-catalog --example regenerate -- VENDOR_CONFIGS [--check]`, where the folder holds the files that each
//! `model.yaml` names: those of the pinned package its `source` states.
#![expect(clippy::print_stdout, reason = "an example's output is what it is for")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use blis_catalog::{derive_catalog_model, write_graph};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let check = arguments.iter().any(|argument| argument == "--check");
    let vendor = arguments.iter().find(|argument| *argument != "--check").map(PathBuf::from);
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../catalog/models");
    let mut faults = 0;
    let mut directories: Vec<PathBuf> = fs::read_dir(models).into_iter().flatten().flatten().map(|item| item.path()).collect();
    directories.sort();
    for directory in directories {
        let path = directory.join("graph.yaml");
        match derive_catalog_model(&directory, vendor.as_deref()) {
            Err(error) => {
                faults += 1;
                println!("{}: {error}", directory.display());
            }
            Ok(graph) => {
                let text = write_graph(&graph);
                if fs::read_to_string(&path).ok().as_ref() == Some(&text) {
                    continue;
                }
                let done = if check { Err("differs".to_owned()) } else { fs::write(&path, text).map_err(|error| error.to_string()) };
                faults += u32::from(done.is_err());
                println!("{}: {}", path.display(), done.err().unwrap_or_else(|| "written".to_owned()));
            }
        }
    }
    if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
