//! Addresses of servers as people may see them.

/// An address without the user and the password, or the token, that it may have: `nats://…@host:4222`.
#[must_use]
pub fn without_login(address: &str) -> String {
    let begin = address.find("://").map_or(0, |place| place + 3);
    match address.rfind('@') {
        Some(end) if end >= begin => format!("{}…{}", &address[..begin], &address[end..]),
        _ => address.to_owned(),
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
            ("", ""),
        ] {
            assert_eq!(without_login(address), shown);
        }
        let text = "line 2:\n  nats = [\"nats://a:secret@h1\", \"nats://secret@h2\"]\n";
        assert_eq!(without_logins(text), "line 2:\n  nats = [\"nats://…@h1\", \"nats://…@h2\"]\n");
    }
}
