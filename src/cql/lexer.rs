//! Text to tokens, each with its place.
//!
//! ```text
//! word      letter, then letters, digits, _          kept as written; whoever takes it for a name folds it
//! quoted    "..."   with "" for a quote              a name whose case counts
//! text      '...'   with '' for a quote
//! number    -, digits
//! comment   -- or // to the end of the line, /* to */
//! ```

use std::fmt;

use crate::{Error, Result};

/// A place in the text, both counted from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    line: usize,
    column: usize,
}

impl Place {
    /// An error at this place.
    pub(super) fn error(self, reason: impl Into<String>) -> Error {
        Error::invalid(self.to_string(), reason)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A token and where it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) place: Place,
}

/// What a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Word(String),
    Quoted(String),
    Text(String),
    Number(String),
    Symbol(char),
    End,
}

/// As it is named in an error.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Word(word) => write!(f, "{}", shortened(word)),
            Kind::Quoted(name) => write!(f, "\"{}\"", shortened(name)),
            Kind::Text(text) => write!(f, "the text '{}'", shortened(text)),
            Kind::Number(digits) => write!(f, "{}", shortened(digits)),
            Kind::Symbol(symbol) => write!(f, "'{symbol}'"),
            Kind::End => write!(f, "the end of the text"),
        }
    }
}

/// An error must not repeat a whole file.
fn shortened(text: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// The tokens of `text`; the last one is [`Kind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token>> {
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lexer = Lexer { rest: text, place: Place { line: 1, column: 1 } };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks()?;
        let place = lexer.place;
        let kind = lexer.token()?;
        let ended = kind == Kind::End;
        tokens.push(Token { kind, place });
        if ended {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
    place: Place,
}

impl Lexer<'_> {
    fn token(&mut self) -> Result<Kind> {
        let Some(first) = self.rest.chars().next() else { return Ok(Kind::End) };
        let negative = first == '-' && self.rest[1..].starts_with(|c: char| c.is_ascii_digit());
        match first {
            '\'' => self.enclosed('\'', "text").map(Kind::Text),
            '"' => self.enclosed('"', "name").map(Kind::Quoted),
            'A'..='Z' | 'a'..='z' => Ok(Kind::Word(self.run(is_word_char))),
            _ if negative || first.is_ascii_digit() => self.number(),
            _ => {
                self.bump();
                Ok(Kind::Symbol(first))
            }
        }
    }

    fn number(&mut self) -> Result<Kind> {
        let place = self.place;
        let mut digits = String::from(if self.accept("-") { "-" } else { "" });
        digits += &self.run(is_word_char);
        if digits.bytes().skip(1).all(|digit| digit.is_ascii_digit()) {
            return Ok(Kind::Number(digits));
        }
        Err(place.error(format!(
            "found {}, expected a number or a name (names that begin with a digit need quotes)",
            shortened(&digits)
        )))
    }

    /// What stands between two quotes; a doubled quote stands for one.
    fn enclosed(&mut self, quote: char, what: &str) -> Result<String> {
        let place = self.place;
        self.bump();
        let mut content = String::new();
        while let Some(c) = self.bump() {
            if c != quote {
                content.push(c);
            } else if self.rest.starts_with(quote) {
                self.bump();
                content.push(quote);
            } else {
                return Ok(content);
            }
        }
        Err(place.error(format!("the {what} that begins here has no closing {quote}")))
    }

    /// Skips white space and comments.
    fn skip_blanks(&mut self) -> Result<()> {
        loop {
            let place = self.place;
            if self.rest.starts_with(char::is_whitespace) {
                self.run(char::is_whitespace);
            } else if self.accept("--") || self.accept("//") {
                self.run(|c| c != '\n');
            } else if self.accept("/*") {
                while !self.accept("*/") {
                    if self.bump().is_none() {
                        return Err(place.error("the comment that begins here has no closing */"));
                    }
                }
            } else {
                return Ok(());
            }
        }
    }

    fn run(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let mut run = String::new();
        while let Some(c) = self.rest.chars().next().filter(|c| belongs(*c)) {
            self.bump();
            run.push(c);
        }
        run
    }

    fn accept(&mut self, symbols: &str) -> bool {
        let found = self.rest.starts_with(symbols);
        if found {
            for _ in symbols.chars() {
                self.bump();
            }
        }
        found
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        match c {
            '\n' => self.place = Place { line: self.place.line + 1, column: 1 },
            _ => self.place.column += 1,
        }
        Some(c)
    }
}

/// Whether a word may go on with `c`.
fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether `name`, written without quotes, is read as itself: a lower-case word that CQL does not keep for itself.
pub(super) fn is_plain_name(name: &str) -> bool {
    let plain = name.chars().all(|c| is_word_char(c) && !c.is_ascii_uppercase());
    plain && name.starts_with(|c: char| c.is_ascii_lowercase()) && !is_reserved(name)
}

/// Whether CQL keeps `word` (in lower case) for itself.
pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.contains(&word)
}

/// The words that CQL does not take as names unless they are quoted.
const RESERVED: [&str; 62] = [
    "add",
    "allow",
    "alter",
    "and",
    "apply",
    "asc",
    "authorize",
    "batch",
    "begin",
    "by",
    "columnfamily",
    "create",
    "default",
    "delete",
    "desc",
    "describe",
    "drop",
    "entries",
    "execute",
    "from",
    "full",
    "grant",
    "if",
    "in",
    "index",
    "infinity",
    "insert",
    "into",
    "is",
    "keyspace",
    "limit",
    "materialized",
    "mbean",
    "mbeans",
    "modify",
    "nan",
    "norecursive",
    "not",
    "null",
    "of",
    "on",
    "or",
    "order",
    "primary",
    "rename",
    "replace",
    "revoke",
    "schema",
    "select",
    "set",
    "table",
    "to",
    "token",
    "truncate",
    "unlogged",
    "unset",
    "update",
    "use",
    "using",
    "view",
    "where",
    "with",
];
