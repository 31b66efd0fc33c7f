//! Directive: a line of a configuration of nginx, and the block behind it.
//!
//! ```text
//!   limit_req zone=api burst=5;        name, words
//!   location /api { .. }               name, words, block
//! ```
//!
//! Words are split as nginx splits them: quotes only count at the start of a word, a backslash
//! keeps the next character, `${` opens no block. Blocks of Lua are skipped.

use std::iter::once;
use std::ops::Range;

use crate::config::{Findings, codes, error, shown};
use crate::import::limits::Writer;

/// Maximum size of a file in bytes, which is that of the command line too.
const MAX_BYTES: usize = 2 << 20;
/// Beginning of a message of `nginx -T`, which a terminal shows between the files.
const MESSAGE: &str = "nginx: ";
/// Maximum depth of blocks within one another.
const MAX_DEPTH: usize = 32;

/// A directive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) words: Vec<String>,
    /// Line of the text, from 1.
    pub(super) line: usize,
    /// Directives of its block.
    pub(super) block: Option<Vec<Self>>,
}

impl Directive {
    /// Returns the value of `NAME=VALUE` among the words.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut words = self.words.iter();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the words that are none of these, and no `NAME=VALUE` of these.
    pub(super) fn others(&self, known: &[&str]) -> Vec<&String> {
        let is_known = |word: &&String| {
            let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
            known.contains(&name)
        };
        self.words.iter().filter(|word| !is_known(word)).collect()
    }

    /// Returns the directives of its block; none without one.
    pub(super) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Returns true if its block answers every request by `return`, before nginx counts it.
    pub(super) fn answers(&self) -> bool {
        let is_return = |step: &Self| step.name == "return";
        let is_step =
            |step: &&Self| matches!(&step.name[..], "return" | "rewrite" | "break" | "if");
        let mut steps = self.inner().iter().filter(is_step);
        let first = steps.find(|step| step.name != "if" || !step.inner().iter().all(is_return));
        first.is_some_and(is_return)
    }

    /// Notes what a policy does not express of it.
    pub(super) fn unsupported(&self, why: &str, writer: &mut Writer) {
        writer.unsupported(&format!("line {}: {}: {why}", self.line, self.name));
    }

    /// Returns true if its name is one of these words.
    pub(super) fn is_one_of(&self, names: &str) -> bool {
        names.split(' ').any(|name| name == self.name)
    }

    /// Returns true for `NAME on;`.
    pub(super) fn is_on(&self) -> bool {
        self.words.first().is_some_and(|word| word == "on")
    }
}

/// Returns the directives of this name.
pub(super) fn named<'d>(
    block: &'d [Directive],
    name: &'static str,
) -> impl Iterator<Item = &'d Directive> {
    block.iter().filter(move |directive| directive.name == name)
}

/// Returns all directives of a block, each before those within it.
pub(super) fn flat(block: &[Directive]) -> Vec<&Directive> {
    let with_inner = |directive| once(directive).chain(flat(Directive::inner(directive)));
    block.iter().flat_map(with_inner).collect()
}

/// Reads the directives of a text; `None` if it cannot be read, which is reported.
pub(super) fn parse(text: &str, out: &Findings<'_>) -> Option<Vec<Directive>> {
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes", text.len());
        error(codes::TOO_LARGE, out.at(0..0), message, "at most 2 MiB");
        return None;
    }
    let mut reader = Reader {
        text,
        at: 0,
        line: 1,
    };
    match reader.block(0) {
        Ok(directives) => Some(directives),
        Err((at, label)) => {
            let message = "this is not a configuration of nginx";
            error(codes::NGINX_SYNTAX, out.at(at), message, label)
                .help("`nginx -t` shows the same mistake");
            None
        }
    }
}

/// Place of a mistake, and its description.
type Mistake = (Range<usize>, String);

enum Token {
    Word(String),
    /// `;`
    End,
    /// `{`
    Open,
    /// `}`
    Close,
    /// End of the text.
    Nothing,
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl Reader<'_> {
    /// Reads directives up to the end of their block, or of the text.
    fn block(&mut self, depth: usize) -> Result<Vec<Directive>, Mistake> {
        let mut directives = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let mut line = self.line;
        loop {
            let start = self.at;
            let token = self.token()?;
            if words.is_empty() {
                line = self.line;
            }
            let here = start..self.at;
            let wrong = |label: &str| Err((here.clone(), label.to_owned()));
            let is_lua = |word: &String| word.ends_with("_by_lua_block");
            let block = match token {
                Token::Word(word) => {
                    words.push(word);
                    continue;
                }
                Token::End => None,
                Token::Open if depth >= MAX_DEPTH => {
                    return wrong(&format!("more than {MAX_DEPTH} blocks within one another"));
                }
                Token::Open if words.first().is_some_and(is_lua) => {
                    self.skip_block()?;
                    Some(Vec::new())
                }
                Token::Open => Some(self.block(depth + 1)?),
                Token::Close if !words.is_empty() => {
                    return wrong("a directive before it has no `;`");
                }
                Token::Close if depth == 0 => return wrong("no block is open here"),
                Token::Nothing if depth > 0 => return wrong("the text ends within a block"),
                Token::Nothing if !words.is_empty() => {
                    return wrong("the text ends within a directive");
                }
                Token::Close | Token::Nothing => return Ok(directives),
            };
            if words.is_empty() {
                return wrong("expected the name of a directive");
            }
            directives.push(Directive {
                name: words.remove(0),
                words: std::mem::take(&mut words),
                line,
                block,
            });
        }
    }

    fn token(&mut self) -> Result<Token, Mistake> {
        self.skip_blanks();
        let start = self.at;
        let Some(first) = self.next() else {
            return Ok(Token::Nothing);
        };
        match first {
            ';' => Ok(Token::End),
            '{' => Ok(Token::Open),
            '}' => Ok(Token::Close),
            '"' | '\'' => self.quoted(first, start),
            _ => {
                self.at = start;
                Ok(Token::Word(self.bare()))
            }
        }
    }

    fn quoted(&mut self, quote: char, start: usize) -> Result<Token, Mistake> {
        let mut word = String::new();
        while let Some(c) = self.next() {
            match c {
                c if c == quote => return Ok(Token::Word(word)),
                '\\' => self.escape(&mut word),
                c => word.push(c),
            }
        }
        let shown = shown(&word);
        Err((start..start + 1, format!("{quote}{shown} has no end")))
    }

    fn bare(&mut self) -> String {
        let mut word = String::new();
        let mut after_dollar = false;
        while let Some(c) = self.peek() {
            let ends = c.is_ascii_whitespace() || c == ';' || c == '{' && !after_dollar;
            if ends {
                break;
            }
            self.next();
            after_dollar = c == '$';
            if c == '\\' {
                self.escape(&mut word);
            } else {
                word.push(c);
            }
        }
        word
    }

    /// Reads the character behind a backslash, which stays except before quotes and blanks.
    fn escape(&mut self, word: &mut String) {
        match self.next() {
            Some(c @ ('"' | '\'' | '\\')) => word.push(c),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(c) => word.extend(['\\', c]),
            None => word.push('\\'),
        }
    }

    fn skip_blanks(&mut self) {
        while let Some(c) = self.peek() {
            let (before, rest) = self.text.split_at(self.at);
            let begins = before.is_empty() || before.ends_with('\n');
            if c == '#' || begins && rest.starts_with(MESSAGE) {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.next();
                }
            } else if c.is_ascii_whitespace() || c == '\u{feff}' {
                self.next();
            } else {
                break;
            }
        }
    }

    /// Skips a block of Lua, in which braces come in pairs, except in texts and comments.
    fn skip_block(&mut self) -> Result<(), Mistake> {
        let start = self.at;
        let mut depth = 1_usize;
        while let Some(c) = self.next() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                '"' | '\'' => drop(self.quoted(c, start)?),
                '-' if self.peek() == Some('-') => while self.next().is_some_and(|c| c != '\n') {},
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err((start..start, "this block has no end".to_owned()))
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        self.line += usize::from(c == '\n');
        Some(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let out = Findings::new(text);
        match parse(text, &out) {
            Some(directives) => Ok(written(&directives)),
            None => Err(out.finish().remove(0).label),
        }
    }

    fn written(directives: &[Directive]) -> String {
        let one = |directive: &Directive| {
            let words = directive.words.join("|");
            let block = directive.block.as_deref().map(written);
            let block = block.map_or(String::new(), |block| format!("{{{block}}}"));
            format!("{}:{}({words}){block}", directive.line, directive.name)
        };
        directives.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_are_split_as_nginx_splits_them() {
        for (text, expected) in [
            ("a b;", "1:a(b)"),
            ("# c\na  'b c' \"d;\\\"\" ; e;", "2:a(b c|d;\") 2:e()"),
            ("a ${b}c;", "1:a(${b}c)"),
            ("a { b; c {} }", "1:a(){1:b() 1:c(){}}"),
            ("a x#y \\;z;", "1:a(x#y|\\;z)"),
            (
                "set_by_lua_block $x { if x then { } end \"}\" -- it's }\n } a;",
                "1:set_by_lua_block($x){} 2:a()",
            ),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("a", "the text ends within a directive"),
            ("a { b;", "the text ends within a block"),
            ("}", "no block is open here"),
            ("a { b }", "a directive before it has no `;`"),
            (";", "expected the name of a directive"),
            ("a 'b", "'b has no end"),
            (&"a {".repeat(40), "more than 32 blocks within one another"),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()), "{text}");
        }
    }
}
