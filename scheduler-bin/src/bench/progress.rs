//! How far a measurement is, on a terminal's standard error; and the wish to end it early.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two lines.
const PAUSE: Duration = Duration::from_millis(100);

/// Set once, by Ctrl-C; measurements look at it between two decisions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks everybody to end.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether to end.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One line that is written over and over; nothing where standard error is no terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    is_terminal: bool,
    title: String,
    written: Option<Instant>,
}

impl Progress {
    /// Nothing written yet.
    pub(crate) fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), title: String::new(), written: None }
    }

    /// What the next lines begin with.
    pub(crate) fn begin(&mut self, title: String) {
        self.title = title;
        self.written = None;
        self.say("");
    }

    /// Writes the title and `text`, unless the last line is too young.
    pub(crate) fn say(&mut self, text: &str) {
        if !self.is_terminal || self.written.is_some_and(|written| written.elapsed() < PAUSE) {
            return;
        }
        self.written = Some(Instant::now());
        // Whoever closed standard error does not read it.
        let _ = write!(io::stderr(), "\r\x1b[K{}{text}", self.title);
    }

    /// Wipes the line.
    pub(crate) fn clear(&mut self) {
        if self.is_terminal && self.written.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
