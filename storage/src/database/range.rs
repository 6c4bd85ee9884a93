//! Ranges of keys.

/// Sorts after every key.
const END: &[u8] = &[0xff; 8];

/// Keys from `from` up to, not including, `to`.
#[derive(Debug, Clone)]
pub(crate) struct KeyRange {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Vec<u8>,
}

impl KeyRange {
    pub(crate) fn prefix(prefix: Vec<u8>) -> Self {
        Self { to: after_prefix(prefix.clone()), from: prefix }
    }

    pub(crate) fn from(from: Vec<u8>) -> Self {
        Self { from, to: END.to_vec() }
    }

    /// The keys of this range after `key`.
    pub(crate) fn after(self, mut key: Vec<u8>) -> Self {
        key.push(0);
        Self { from: key, to: self.to }
    }
}

/// The least key greater than every key that begins with `prefix`.
pub(crate) fn after_prefix(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if let Some(next) = last.checked_add(1) {
            prefix.push(next);
            return prefix;
        }
    }
    unreachable!("a prefix begins with the length of a text or number, which is below 0xff")
}
