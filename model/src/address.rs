//! Addresses of servers as people may see them.

/// An address without the user and the password, or the token, that it may have: `nats://…@host:4222`. A query may have a
/// token too: `nats://host?…`.
#[must_use]
pub fn without_login(address: &str) -> String {
    let (scheme, rest) = address.split_at(address.find("://").map_or(0, |place| place + 3));
    let (login, server) = rest.split_at(rest.rfind('@').unwrap_or(0));
    let server = match server.split_once('?') {
        Some((server, query)) if !query.is_empty() => format!("{server}?…"),
        _ => server.to_owned(),
    };
    match login {
        "" => format!("{scheme}{server}"),
        // What follows may belong to the query.
        login if login.contains('?') => format!("{scheme}…"),
        _ => format!("{scheme}…{server}"),
    }
}

/// A text whose words may be such addresses, in quotes or not.
#[must_use]
pub fn without_logins(text: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || c == '"';
    text.split_inclusive(is_end).map(without_login).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_passwords_and_tokens_are_left_out() {
        for (address, shown) in [
            ("nats://10.0.0.1:4222", "nats://10.0.0.1:4222"),
            ("nats://user:pass,w'ord@[::1]:4222", "nats://…@[::1]:4222"),
            ("tls://token@a.example", "tls://…@a.example"),
            ("user:password@10.0.0.1:9092", "…@10.0.0.1:9092"),
            ("nats://user:p@ss@host", "nats://…@host"),
            ("nats://user:p/w@host", "nats://…@host"),
            ("nats://user:p?w@host", "nats://…"),
            ("nats://host:4222?token=secret", "nats://host:4222?…"),
            ("nats://host:4222?token=sec@ret", "nats://…"),
            ("nats://a:b@host?token=secret", "nats://…@host?…"),
            ("where?", "where?"),
            ("", ""),
        ] {
            assert_eq!(without_login(address), shown);
        }
        let text = "line 2:\n  nats = [\"nats://a:secret@h1\", \"nats://secret@h2\"]\n";
        assert_eq!(without_logins(text), "line 2:\n  nats = [\"nats://…@h1\", \"nats://…@h2\"]\n");
    }
}
