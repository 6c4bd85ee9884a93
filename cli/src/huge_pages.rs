//! Huge pages for what RocksDB allocates.
//!
//! An insertion into a memtable follows pointers all over it, and with pages of 4 KiB nearly every step misses the
//! processor's address cache as well: measured, a tenth of a node's time under a stream of observations. The usual kernel
//! gives huge pages to memory that asks for them, and glibc asks if it is told so before the process begins. So a node
//! begins anew, as the same process, with that said.

/// Begins the process anew with the tunable set, unless it is set, to whatever value. Where that fails, the node runs as
/// it is.
///
/// The caller guarantees that nothing has begun that would be cut off: no thread, no open store.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn ask_for() {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    const VARIABLE: &str = "GLIBC_TUNABLES";
    const TUNABLE: &str = "glibc.malloc.hugetlb";

    let given = std::env::var(VARIABLE).unwrap_or_default();
    if given.contains(TUNABLE) {
        return;
    }
    let separator = if given.is_empty() { "" } else { ":" };
    let mut arguments = std::env::args_os();
    let mut again = Command::new("/proc/self/exe");
    again.arg0(arguments.next().unwrap_or_default()).args(arguments);
    let error = again.env(VARIABLE, format!("{given}{separator}{TUNABLE}=1")).exec();
    tracing::debug!(%error, "cannot begin anew to ask for huge pages; the node runs without");
}

/// Elsewhere the system decides.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn ask_for() {}
