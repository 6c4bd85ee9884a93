//! Hosts, origins and URLs as they are written in the configuration.

use celeris_model::address::without_login;
use serde::Serializer;

use crate::hosts::without_port;

/// Writes addresses without the passwords that they may have.
pub(super) fn serialize<S: Serializer>(addresses: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(addresses.iter().map(|address| without_login(address)))
}

/// Whether `host` is a name, an IPv4 address, or an IPv6 address in brackets, without a port.
pub(super) fn is_host(host: &str) -> bool {
    let name = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    !name.is_empty() && !name.contains(['/', ' ', '*', '[', ']']) && (name != host || !name.contains(':'))
}

/// Whether `origin` has the form in which browsers send the `Origin` header.
pub(super) fn is_origin(origin: &str) -> bool {
    let own_ports = [("https://", ":443"), ("http://", ":80")];
    own_ports.iter().any(|(scheme, own_port)| {
        origin.strip_prefix(scheme).is_some_and(|site| {
            let Some(host) = without_port(site.as_bytes()) else { return false };
            let (host, port) = site.split_at(host.len());
            is_host(host)
                && (port.is_empty() || port[1..].parse::<u16>().is_ok())
                && port != *own_port
                && !site.contains(char::is_uppercase)
        })
    })
}

/// Whether `url` is `http://` or `https://` with host and port, and nothing behind.
pub(super) fn is_base_url(url: &str) -> bool {
    let site = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or_default();
    let Some(host) = without_port(site.as_bytes()) else { return false };
    let (host, port) = site.split_at(host.len());
    is_host(host) && (port.is_empty() || port[1..].parse::<u16>().is_ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_origins_that_no_request_can_have_are_refused() {
        for host in ["celeris.example", "10.0.0.7", "[::1]", "LOCALHOST"] {
            assert!(is_host(host), "{host}");
        }
        for host in ["", "celeris.example:443", "[::1]:80", "::1", "http://celeris.example", "*.example", "[]"] {
            assert!(!is_host(host), "{host}");
        }
        for origin in ["https://app.example", "http://localhost:3000", "https://[::1]:8443", "http://[::1]"] {
            assert!(is_origin(origin), "{origin}");
        }
        let never = [
            "app.example",
            "https://App.example",
            "https://app.example:443",
            "http://app.example:80",
            "https://app.example/",
            "https://app.example:port",
            "ftp://app.example",
            "https://",
            "null",
        ];
        for origin in never {
            assert!(!is_origin(origin), "{origin}");
        }
    }
}
