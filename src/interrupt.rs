//! Ctrl-C: asks the work to stop between two steps, and ends the program within a second if it does not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Exit code after an interrupt, as shells have it (128 + SIGINT).
pub const CODE: u8 = 130;

/// How long the work has to stop by itself and clean up. What it leaves when it is cut off is what a killed
/// program leaves: nothing that is taken for whole.
const GRACE: Duration = Duration::from_millis(800);

/// Installs the handler. Where the system refuses it, Ctrl-C ends the program at once.
pub fn install() {
    let _ = ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(i32::from(CODE));
        }
        crate::terminal::write_error(
            "\nstopping; the same command goes on with what is left, or begins again",
        );
        std::thread::spawn(|| {
            std::thread::sleep(GRACE);
            std::process::exit(i32::from(CODE));
        });
    });
}

/// Whether Ctrl-C was pressed.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}
