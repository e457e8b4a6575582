//! Progress of long work on standard error, and Ctrl-C as its end.

use std::sync::Mutex;

use fmindex::Progress;
use indicatif::ProgressBar;

use crate::{interrupt, terminal};

/// Shows the stages of long work on standard error.
#[derive(Default)]
pub struct Shown {
    bar: Mutex<Option<ProgressBar>>,
}

impl Shown {
    fn bar(&self) -> std::sync::MutexGuard<'_, Option<ProgressBar>> {
        self.bar
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        if let Some(bar) = self.bar().take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Shown {
    fn stage(&self, name: &'static str, total: u64) {
        self.clear();
        *self.bar() = Some(terminal::bar(name, total, false));
    }

    fn advance(&self, done: u64) {
        if let Some(bar) = self.bar().as_ref() {
            bar.set_position(done);
        }
    }

    fn interrupted(&self) -> bool {
        interrupt::interrupted()
    }
}
