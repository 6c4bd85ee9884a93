//! Paths in Rust sources that begin with `crate` or `super`, found without a parser of the whole
//! language.
//!
//! Comments, literals and items under `#[cfg(test)]` are skipped. Paths built by macros and `mod`
//! blocks within a file are not followed.

/// A path that leads out of its module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path<'a> {
    /// The line, from 1.
    pub line: usize,
    /// How many modules it goes up; `None` if it begins with `crate`.
    pub up: Option<usize>,
    /// The names below that; `*` for all.
    pub names: Vec<&'a str>,
}

/// An import: the path as written, without a leading `crate` or `self`, and the name that it has
/// here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import<'a> {
    pub names: Vec<&'a str>,
    pub name: &'a str,
}

/// Returns all paths of a source that begin with `crate` or `super`.
#[must_use]
pub fn paths(source: &str) -> Vec<Path<'_>> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    for start in 0..tokens.len() {
        if start > 0 && tokens[start - 1].is("::") {
            continue;
        }
        let mut place = start;
        while tokens.get(place).is_some_and(|token| token.is("super"))
            && tokens.get(place + 1).is_some_and(|token| token.is("::"))
        {
            place += 2;
        }
        let up = (place - start) / 2;
        let is_crate = up == 0 && tokens[start].is("crate") && tokens.get(start + 1).is_some_and(|next| next.is("::"));
        if up == 0 && !is_crate {
            continue;
        }
        let mut trees = Vec::new();
        read_tree(&tokens, if is_crate { start + 2 } else { place }, &[], &mut trees);
        let (line, up) = (tokens[start].line, (!is_crate).then_some(up));
        found.extend(trees.into_iter().map(|import| Path { line, up, names: import.names }));
    }
    found
}

/// Returns the imports of a source.
#[must_use]
pub fn imports(source: &str) -> Vec<Import<'_>> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    for start in (0..tokens.len()).filter(|start| tokens[*start].is("use")) {
        let relative = tokens.get(start + 1).is_some_and(|token| token.is("crate") || token.is("self"));
        read_tree(&tokens, if relative { start + 3 } else { start + 1 }, &[], &mut found);
    }
    found
}

/// Whether a source defines a type of this name.
#[must_use]
pub fn defines(source: &str, name: &str) -> bool {
    tokens(source).windows(2).any(|pair| (pair[0].is("struct") || pair[0].is("enum")) && pair[1].is(name))
}

/// Reads the tree of names at `place`, such as `a::{b, c::d as e}`; returns the place behind it.
fn read_tree<'a>(tokens: &[Token<'a>], mut place: usize, before: &[&'a str], found: &mut Vec<Import<'a>>) -> usize {
    let mut names = before.to_vec();
    while let Some(token) = tokens.get(place) {
        if token.is("{") {
            place += 1;
            while let Some(token) = tokens.get(place).filter(|token| !token.is("}")) {
                place = if token.is(",") { place + 1 } else { read_tree(tokens, place, &names, found).max(place + 1) };
            }
            return place + 1;
        }
        if !token.is_name() && !token.is("*") {
            break;
        }
        // `a::{self}` is `a`.
        if !token.is("self") {
            names.push(token.text);
        }
        place += 1;
        if !tokens.get(place).is_some_and(|token| token.is("::")) {
            break;
        }
        place += 1;
    }
    let Some(mut name) = names.last().copied() else { return place };
    if let (Some(renamed), Some(alias)) = (tokens.get(place), tokens.get(place + 1))
        && renamed.is("as")
    {
        (name, place) = (alias.text, place + 2);
    }
    found.push(Import { names, name });
    place
}

/// A name, a number, `::`, or any other character.
#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

impl Token<'_> {
    fn is(&self, text: &str) -> bool {
        self.text == text
    }

    fn is_name(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

fn tokens(source: &str) -> Vec<Token<'_>> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), source, 1);
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest);
        let (text, behind) = if length > 0 {
            rest.split_at(length)
        } else {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            let name = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
            let length = if name > 0 {
                name
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            tokens.push(Token { text: &rest[..length], line });
            rest.split_at(length)
        };
        line += text.matches('\n').count();
        rest = behind;
    }
    without_tests(&tokens)
}

/// Bytes of white space, a comment or a literal at the start of `text`; 0 if it starts with none.
fn skipped(text: &str) -> usize {
    let to_end = |end: Option<usize>| end.unwrap_or(text.len());
    if text.starts_with(char::is_whitespace) {
        return to_end(text.find(|c: char| !c.is_whitespace()));
    }
    if text.starts_with("//") {
        return to_end(text.find('\n'));
    }
    if text.starts_with("/*") {
        return to_end(text.find("*/").map(|end| end + 2));
    }
    let literal = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - literal.len();
    if let Some(raw) = literal.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = prefix + 1 + hashes + 1;
            return to_end(text[body..].find(&close).map(|end| body + end + close.len()));
        }
    }
    if literal.starts_with('"') {
        return prefix + quoted(literal, '"').unwrap_or(literal.len());
    }
    // A lifetime has no closing quote after its first character.
    let mut characters = literal.chars();
    match (characters.next(), characters.next(), characters.next()) {
        (Some('\''), Some('\\'), _) | (Some('\''), _, Some('\'')) => {
            prefix + quoted(literal, '\'').unwrap_or(literal.len())
        }
        _ => 0,
    }
}

/// Bytes of a literal in quotes, with escapes.
fn quoted(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (place, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return Some(place + 1),
            _ => {}
        }
    }
    None
}

/// Leaves out the items under `#[cfg(test)]`.
fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut place = 0;
    while place < tokens.len() {
        let here = &tokens[place..];
        let is_test = here.len() > ATTRIBUTE.len() && here.iter().zip(ATTRIBUTE).all(|(token, text)| token.is(text));
        if is_test {
            place = behind_item(tokens, place + ATTRIBUTE.len());
        } else {
            kept.push(tokens[place]);
            place += 1;
        }
    }
    kept
}

/// The place behind an item: its `;` or closing brace, outside of other brackets.
fn behind_item(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(start) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return place + 1;
                }
            }
            ";" if depth == 0 => return place + 1,
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths as text: `crate` or a number of `super`, then the names.
    fn found(source: &str) -> Vec<String> {
        let text = |path: Path| {
            let start = path.up.map_or_else(|| "crate".to_owned(), |up| vec!["super"; up].join("::"));
            format!("{}: {start}::{}", path.line, path.names.join("::"))
        };
        paths(source).into_iter().map(text).collect()
    }

    #[test]
    fn paths_are_found_in_imports_and_expressions() {
        let source = "use crate::a::{self, b::C, d::*};\nuse super::super::e as f;\n\
                      fn g(x: crate::h::I<'_>) { crate::j::k::<u8>(); self::l() }\n\
                      pub(crate) mod m;\npub(super) fn n(c: char) { c == ':' }";
        let expected = [
            "1: crate::a",
            "1: crate::a::b::C",
            "1: crate::a::d::*",
            "2: super::super::e",
            "3: crate::h::I",
            "3: crate::j::k",
        ];
        assert_eq!(found(source), expected);
    }

    #[test]
    fn comments_literals_and_tests_contain_no_paths() {
        let source = "//! crate::a\n/* crate::b */ const C: &str = \"crate::c \\\" crate::d\";\n\
                      const E: &str = r#\"crate::e \" crate::f\"#; const G: char = '\"';\n\
                      #[cfg(test)]\nuse crate::h::I;\n\
                      #[cfg(test)]\n#[allow(dead_code)]\nmod tests { use crate::j; fn k() { crate::l() } }\n\
                      use crate::m;";
        assert_eq!(found(source), ["9: crate::m"]);
    }

    #[test]
    fn imports_have_the_name_that_they_have_here() {
        let imports: Vec<(String, &str)> = imports("pub use a::{B, c::D as E};\nuse crate::f::G;\nmod h;")
            .into_iter()
            .map(|import| (import.names.join("::"), import.name))
            .collect();
        let expected = [("a::B", "B"), ("a::c::D", "E"), ("f::G", "G")];
        assert_eq!(imports, expected.map(|(path, name)| (path.to_owned(), name)));
    }
}
