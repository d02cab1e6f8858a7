//! What becomes of a run that a signal ends: no unfinished file, and exit code 130 for Ctrl-C, 143 for a request to end.
//!
//! A run changes nothing outside itself until its files are complete, so there is nothing else to undo. Left out: systems without
//! Unix signals, whose own handling of Ctrl-C ends the program.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Files being written.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Notes that a file is being written.
pub(crate) fn begun(partial: &Path) {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).push(partial.to_owned());
}

/// Notes that a file is no longer being written.
pub(crate) fn ended(partial: &Path) {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| path != partial);
}

/// Watches for an interrupt until the program ends.
#[cfg(unix)]
pub(crate) fn watch() {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    // Without a handler the signal's own default ends the program, which is right too.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            leave(signal);
        }
    });
}

/// Watches for an interrupt until the program ends.
#[cfg(not(unix))]
pub(crate) fn watch() {}

/// Removes what is unfinished and ends the program.
#[cfg(unix)]
#[expect(clippy::exit, reason = "the thread that simulates is not asked to stop: nothing it holds outlives the program")]
fn leave(signal: i32) {
    /// What a shell reports of a program that a signal ended, less the signal.
    const ENDED_BY_SIGNAL: i32 = 128;
    // Kept until the end, so that no file is begun or completed meanwhile.
    let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    for partial in unfinished.iter() {
        // Nobody is left to tell, and the name says that the file is partial.
        let _ = std::fs::remove_file(partial);
    }
    std::process::exit(ENDED_BY_SIGNAL + signal);
}
