//! Tokens to statements.

use std::collections::BTreeMap;

use super::lexer::{Kind, Place, Token, is_reserved, tokens};
use super::{alter, table, types};
use crate::model::{CreateKeyspace, DdlStatement, DropKeyspace, DropTable, DropType, TruncateTable};
use crate::{Error, Result};

/// The statements of `text`, in order. A table without a keyspace gets that of the USE before it.
///
/// # Errors
/// [`Error::Invalid`] whose subject is the line and column.
pub fn parse(text: &str) -> Result<Vec<DdlStatement>> {
    let mut parser = Parser { tokens: tokens(text)?, next: 0, keyspace: None };
    let mut statements = Vec::new();
    loop {
        while parser.accept_symbol(';') {}
        if parser.token().kind == Kind::End {
            return Ok(statements);
        }
        statements.extend(parser.statement()?);
        if parser.token().kind != Kind::End && !parser.accept_symbol(';') {
            return Err(parser.unexpected("';' or the end of the text"));
        }
    }
}

/// A place among the tokens, and the keyspace in use.
pub(super) struct Parser {
    tokens: Vec<Token>,
    next: usize,
    keyspace: Option<String>,
}

impl Parser {
    /// One statement; USE leaves none.
    fn statement(&mut self) -> Result<Option<DdlStatement>> {
        if self.accept_word("use") {
            self.keyspace = Some(self.name("the name of a keyspace")?);
            return Ok(None);
        }
        if self.accept_word("truncate") {
            self.accept_word("table");
            let (keyspace, name) = self.table_name()?;
            return Ok(Some(DdlStatement::TruncateTable(TruncateTable { keyspace, name })));
        }
        if self.accept_word("alter") {
            let what = "TABLE or TYPE (of keyspaces and indexes nothing can be altered yet)";
            return Ok(Some(match self.one_of(&["table", "type"], what)? {
                "table" => DdlStatement::AlterTable(alter::alter_table(self)?),
                _ => DdlStatement::AlterType(alter::alter_type(self)?),
            }));
        }
        let creates = self.accept_word("create");
        if !creates && !self.accept_word("drop") {
            return Err(self.unexpected("CREATE, ALTER, DROP, TRUNCATE or USE (other statements are not there yet)"));
        }
        let what = "KEYSPACE, TABLE or TYPE (indexes, views and functions are not there yet)";
        let statement = match (creates, self.one_of(&["keyspace", "table", "type"], what)?) {
            (true, "keyspace") => DdlStatement::CreateKeyspace(self.create_keyspace()?),
            (true, "type") => DdlStatement::CreateType(types::create_type(self)?),
            (true, _) => DdlStatement::CreateTable(table::create_table(self)?),
            (false, "keyspace") => {
                let if_exists = self.if_exists()?;
                DdlStatement::DropKeyspace(DropKeyspace { name: self.name("the name of a keyspace")?, if_exists })
            }
            (false, "type") => {
                let if_exists = self.if_exists()?;
                let (keyspace, name) = self.name_in_keyspace("the name of a type")?;
                DdlStatement::DropType(DropType { keyspace, name, if_exists })
            }
            (false, _) => {
                let if_exists = self.if_exists()?;
                let (keyspace, name) = self.table_name()?;
                DdlStatement::DropTable(DropTable { keyspace, name, if_exists })
            }
        };
        Ok(Some(statement))
    }

    /// Takes one of these words, or says what is expected.
    fn one_of(&mut self, words: &[&'static str], expected: &str) -> Result<&'static str> {
        match words.iter().find(|word| self.accept_word(word)) {
            Some(word) => Ok(word),
            None => Err(self.unexpected(expected)),
        }
    }

    fn create_keyspace(&mut self) -> Result<CreateKeyspace> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.name("the name of a keyspace")?;
        let mut replication = None;
        let mut more = self.accept_word("with");
        while more {
            let place = self.place();
            let option = self.name("the name of an option")?;
            if option != "replication" {
                return Err(place.error(format!(
                    "found the option {option}, expected replication (durability is an option of tables)"
                )));
            }
            self.expect_symbol('=')?;
            if replication.replace(self.replication()?).is_some() {
                return Err(place.error("replication is given twice"));
            }
            more = self.accept_word("and");
        }
        Ok(CreateKeyspace { name, replication: replication.unwrap_or_default(), if_not_exists })
    }

    /// `{'region': copies, ...}`
    fn replication(&mut self) -> Result<BTreeMap<String, u32>> {
        let mut replication = BTreeMap::new();
        self.expect_symbol('{')?;
        while !self.accept_symbol('}') {
            let place = self.place();
            let region = self.text("the name of a region in single quotes")?;
            if region == "class" || region == "replication_factor" {
                return Err(place.error(format!(
                    "found '{region}', expected the name of a region: there are no strategies, copies are counted for \
                     each region, as in {{'local': 3}}"
                )));
            }
            self.expect_symbol(':')?;
            let count_place = self.place();
            let copies = self.number("the number of copies")?;
            if copies == 0 {
                return Err(count_place.error(format!(
                    "found 0 copies in '{region}', expected 1 or more; leave out regions that hold none"
                )));
            }
            if replication.insert(region, copies).is_some() {
                return Err(place.error("the region is given twice"));
            }
            if !self.accept_symbol(',') && self.token().kind != Kind::Symbol('}') {
                return Err(self.unexpected("',' or '}'"));
            }
        }
        Ok(replication)
    }

    pub(super) fn if_not_exists(&mut self) -> Result<bool> {
        if !self.accept_word("if") {
            return Ok(false);
        }
        self.expect_word("not")?;
        self.expect_word("exists")?;
        Ok(true)
    }

    pub(super) fn if_exists(&mut self) -> Result<bool> {
        if !self.accept_word("if") {
            return Ok(false);
        }
        self.expect_word("exists")?;
        Ok(true)
    }

    /// `keyspace.table`, or `table` in the keyspace in use.
    pub(super) fn table_name(&mut self) -> Result<(String, String)> {
        self.name_in_keyspace("the name of a table")
    }

    /// `keyspace.name`, or `name` in the keyspace in use.
    pub(super) fn name_in_keyspace(&mut self, what: &str) -> Result<(String, String)> {
        let place = self.place();
        let first = self.name(what)?;
        if self.accept_symbol('.') {
            return Ok((first, self.name(what)?));
        }
        match &self.keyspace {
            Some(keyspace) => Ok((keyspace.clone(), first)),
            None => Err(place.error(format!("found {first}, expected KEYSPACE.{first}, or USE KEYSPACE; before it"))),
        }
    }

    /// `keyspace.name`, or `name` in `keyspace`.
    pub(super) fn qualified_name(&mut self, what: &str, keyspace: &str) -> Result<(String, String)> {
        let first = self.name(what)?;
        if self.accept_symbol('.') { Ok((first, self.name(what)?)) } else { Ok((keyspace.to_owned(), first)) }
    }

    /// A name: as written if quoted, else in lower case.
    pub(super) fn name(&mut self, what: &str) -> Result<String> {
        let name = match &self.token().kind {
            Kind::Quoted(name) if !name.is_empty() => name.clone(),
            Kind::Word(word) => word.to_ascii_lowercase(),
            _ => return Err(self.unexpected(what)),
        };
        if matches!(self.token().kind, Kind::Word(_)) && is_reserved(&name) {
            return Err(self.unexpected(&format!("{what} (that word is CQL's own; to use it as a name, quote it)")));
        }
        self.next += 1;
        Ok(name)
    }

    pub(super) fn text(&mut self, what: &str) -> Result<String> {
        let Kind::Text(text) = &self.token().kind else { return Err(self.unexpected(what)) };
        let text = text.clone();
        self.next += 1;
        Ok(text)
    }

    pub(super) fn number(&mut self, what: &str) -> Result<u32> {
        let Kind::Number(digits) = &self.token().kind else { return Err(self.unexpected(what)) };
        let number = digits.parse().map_err(|_| self.unexpected(&format!("{what}, 0 to {}", u32::MAX)))?;
        self.next += 1;
        Ok(number)
    }

    /// Whether the next token is the word (given in lower case), in whatever case.
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(&self.token().kind, Kind::Word(found) if found.eq_ignore_ascii_case(word))
    }

    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.next += usize::from(found);
        found
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Result<()> {
        if self.accept_word(word) { Ok(()) } else { Err(self.unexpected(&word.to_ascii_uppercase())) }
    }

    pub(super) fn accept_symbol(&mut self, symbol: char) -> bool {
        let found = self.token().kind == Kind::Symbol(symbol);
        self.next += usize::from(found);
        found
    }

    pub(super) fn expect_symbol(&mut self, symbol: char) -> Result<()> {
        if self.accept_symbol(symbol) { Ok(()) } else { Err(self.unexpected(&format!("'{symbol}'"))) }
    }

    /// The next token. The last one, the end of the text, is never passed: nobody accepts it.
    pub(super) fn token(&self) -> &Token {
        &self.tokens[self.next]
    }

    pub(super) fn place(&self) -> Place {
        self.token().place
    }

    /// The next token is not what it should be.
    pub(super) fn unexpected(&self, expected: &str) -> Error {
        let Token { kind, place } = self.token();
        place.error(format!("found {kind}, expected {expected}"))
    }
}
