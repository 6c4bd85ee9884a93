//! What a command does at ^C.

use std::io::Write;
use std::process::exit;

use tokio::runtime::Builder;

/// The exit code after ^C, as shells expect it.
const INTERRUPTED: i32 = 130;

/// From now on, ^C runs `last`, prints the message that it returns, and ends the process.
pub fn at_interrupt(last: impl FnOnce() -> String + Send + 'static) {
    std::thread::spawn(move || {
        let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
        if runtime.block_on(tokio::signal::ctrl_c()).is_err() {
            return;
        }
        let message = last();
        // The message is all that is left to do; a closed terminal does not matter.
        let _ = writeln!(std::io::stderr(), "celeris: {message}");
        exit(INTERRUPTED);
    });
}
