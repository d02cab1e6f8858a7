//! What becomes of a run that the user interrupts: exit code 130, and no unfinished file.
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
    use signal_hook::consts::SIGINT;
    use signal_hook::iterator::Signals;

    // Without a handler the signal's own default ends the program, which is right too.
    let Ok(mut signals) = Signals::new([SIGINT]) else { return };
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            leave();
        }
    });
}

/// Watches for an interrupt until the program ends.
#[cfg(not(unix))]
pub(crate) fn watch() {}

/// Removes what is unfinished and ends the program.
#[cfg(unix)]
#[expect(clippy::exit, reason = "the thread that simulates is not asked to stop: nothing it holds outlives the program")]
fn leave() {
    const INTERRUPTED: i32 = 130;
    // Kept until the end, so that no file is begun or completed meanwhile.
    let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    for partial in unfinished.iter() {
        // Nobody is left to tell, and the name says that the file is partial.
        let _ = std::fs::remove_file(partial);
    }
    std::process::exit(INTERRUPTED);
}
