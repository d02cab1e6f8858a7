//! The dashboard: a summary as one page that needs nothing else.
//!
//! Data, program and style are inside the page, so it opens from a disk as from a server, offline, and asks nobody for anything; its
//! content policy says so to the browser. The program is built from `web/` and committed as `web/dist/`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::jsonl::{Input, InputError};
use crate::output::{OutputError, write_whole};
use crate::summary::{SCHEMA, Summary};

const PAGE: &str = include_str!("../web/dist/index.html");
const STYLE: &str = include_str!("../web/dist/dashboard.css");
const PROGRAM: &str = include_str!("../web/dist/dashboard.js");
/// Licences of the libraries inside the program.
const LICENSES: &str = include_str!("../web/dist/LICENSES.txt");

/// A site that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// The summary.
    #[error(transparent)]
    Summary(#[from] InputError),
    /// The site's folder.
    #[error("{}: {error}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// One of its files.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Reads a summary. One of another version is refused by name, before its fields are looked at.
pub fn read_summary(input: &Input) -> Result<Summary, InputError> {
    let raw: Value = input.document()?;
    let version = &raw["schema"];
    if version.is_null() {
        return Err(input.at(1, format!("states no `schema`; a summary of version {SCHEMA} is wanted")));
    }
    if *version != SCHEMA {
        return Err(input.at(1, format!("is a summary of version {version}; this program reads version {SCHEMA}")));
    }
    input.document()
}

/// Writes the site of a summary into a folder, which is made where it is missing: the page, the
/// summary beside it as it was given, and the licences of the libraries that draw it.
pub fn build(input: &Input, folder: &Path) -> Result<(), DashboardError> {
    let summary = read_summary(input)?;
    std::fs::create_dir_all(folder).map_err(|error| DashboardError::Folder { path: folder.to_owned(), error })?;
    write_whole(&folder.join("summary.json"), input.text())?;
    write_whole(&folder.join("LICENSES.txt"), LICENSES)?;
    write_whole(&folder.join("index.html"), &page(&summary))?;
    Ok(())
}

/// The page of a summary.
pub fn page(summary: &Summary) -> String {
    // No tag can end a block of data in which `<` is spelt otherwise; JSON has it in texts only.
    let data = serde_json::to_string(summary).expect("a summary is JSON").replace('<', "\\u003c");
    PAGE.split_inclusive("-->")
        .map(|part| match part.rsplit_once("<!--") {
            Some((before, "style-->")) => format!("{before}<style>{STYLE}</style>"),
            Some((before, "data-->")) => format!("{before}<script type=\"application/json\" id=\"summary\">{data}</script>"),
            Some((before, "program-->")) => format!("{before}<script>{PROGRAM}</script>"),
            Some(_) | None => part.to_owned(),
        })
        .collect()
}
