//! The `celeris` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    celeris_cli::run()
}
