//! Ctrl-C: the first one asks the work to stop between two steps, the second one ends the program.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Exit code after an interrupt, as shells have it.
const INTERRUPTED_CODE: i32 = 130;

/// Installs the handler. Where the system refuses it, Ctrl-C ends the program at once.
pub fn install() {
    let _ = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(INTERRUPTED_CODE);
        }
        eprintln!("\nstopping; press Ctrl-C again to stop at once");
    });
}

/// Whether Ctrl-C was pressed.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}
