//! Host names, as in the `Host` header.

use std::net::IpAddr;

/// Formats an address as a host.
pub fn host_of(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// The host without its port; `None` if the part after it is not a port.
pub fn without_port(host: &[u8]) -> Option<&[u8]> {
    let end = if host.first() == Some(&b'[') {
        host.iter().position(|byte| *byte == b']').map(|bracket| bracket + 1)
    } else {
        host.iter().position(|byte| *byte == b':')
    };
    let (host, port) = host.split_at(end.unwrap_or(host.len()));
    (port.is_empty() || (port[0] == b':' && port[1..].iter().all(u8::is_ascii_digit))).then_some(host)
}
