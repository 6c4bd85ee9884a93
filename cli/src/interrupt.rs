//! What a command does at ^C, or when it is asked to end.

use std::io::Write;
use std::process::exit;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// The exit codes after ^C and SIGTERM, as shells expect them.
const INTERRUPTED: i32 = 130;
const TERMINATED: i32 = 143;

/// From now on, ^C or SIGTERM runs `last`, prints the message that it returns, and ends the process.
pub fn at_interrupt(last: impl FnOnce() -> String + Send + 'static) {
    std::thread::spawn(move || {
        let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
        let signalled = runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            tokio::select! {
                interrupted = tokio::signal::ctrl_c() => interrupted.map(|()| INTERRUPTED),
                _ = terminate.recv() => Ok(TERMINATED),
            }
        });
        let Ok(code) = signalled else { return };
        let message = last();
        // The message is all that is left to do; a closed terminal does not matter.
        let _ = writeln!(std::io::stderr(), "celeris: {message}");
        exit(code);
    });
}
