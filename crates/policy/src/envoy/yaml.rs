//! YAML: a document as a tree of nodes with their places.
//!
//! ```text
//!   text --events--> nodes, bounded in depth and number --aliases, merges--> tree
//! ```
//!
//! The reader of a scalar decides what it means: `value: 1.10` is the text as written, and only a
//! field that requires a number parses one. Aliases are copied, and each copy counts as new
//! nodes, so a file cannot unfold into more nodes than it may hold.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};

use crate::config::{Findings, Spot, codes, error, shown, warning};

/// Maximum size of a file in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Maximum depth of lists and tables within one another.
const MAX_DEPTH: usize = 64;
/// Maximum number of keys and values of a file, aliases unfolded.
const MAX_NODES: usize = 250_000;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct YamlNode<'t> {
    /// Bytes of the text; of an alias, where it is used.
    pub(super) at: Spot<'t>,
    pub(super) content: Content<'t>,
}

#[derive(Clone, Debug)]
pub(super) enum Content<'t> {
    /// Written without quotes: a number, a flag, nothing, or a text.
    Plain(String),
    /// Quoted, and so always a text.
    Quoted(String),
    List(Vec<YamlNode<'t>>),
    Table(Vec<Field<'t>>),
}

/// A name and a value.
type Field<'t> = (YamlNode<'t>, YamlNode<'t>);

impl YamlNode<'_> {
    /// Returns the text of a scalar, however it is written.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Plain(text) | Content::Quoted(text) => Some(text),
            Content::List(_) | Content::Table(_) => None,
        }
    }

    /// Returns the value of a field of a table.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Content::Table(fields) = &self.content else {
            return None;
        };
        let mut fields = fields.iter();
        let (_, value) = fields.find(|(key, _)| key.text() == Some(name))?;
        Some(value)
    }

    /// Returns true for `~`, `null`, or no value at all.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Plain(text) if is_null(text))
    }

    /// Returns the kind of value, for a message.
    pub(super) fn kind(&self) -> &'static str {
        match &self.content {
            Content::Plain(text) if is_null(text) => "nothing",
            Content::Plain(text) if flag(text).is_some() => "a boolean",
            Content::Plain(text) if is_number(text) => "a number",
            Content::Plain(_) | Content::Quoted(_) => "a string",
            Content::List(_) => "a list",
            Content::Table(_) => "a table",
        }
    }
}

pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Reads a plain scalar as a flag, by the rules of YAML 1.1.
pub(super) fn flag(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => {
            Some(true)
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => {
            Some(false)
        }
        _ => None,
    }
}

/// Returns true if a plain scalar is a number: it starts like one and `f64` can parse it.
pub(super) fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+', '.']);
    digits.starts_with(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok()
}

/// Parses the first document of `text`; `None` if it cannot be read.
pub(super) fn parse<'t>(text: &'t str, out: &'t Findings<'t>) -> Option<YamlNode<'t>> {
    let start = out.at(0..0);
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes", text.len());
        let label = "at most 1 MiB (1,048,576 bytes)";
        error(codes::TOO_LARGE, start, message, label)
            .help("split the domain over several files, with merge_domains = true");
        return None;
    }
    let mut reader = YamlReader {
        events: Parser::new_from_str(text),
        places: ByteOffsets::new(text),
        anchors: HashMap::new(),
        room: MAX_NODES,
        start,
    };
    reader.document()
}

/// Its functions return `None` where it stops, after it added a finding.
struct YamlReader<'t> {
    events: Parser<'t, StrInput<'t>>,
    places: ByteOffsets,
    anchors: HashMap<usize, YamlNode<'t>>,
    /// Number of nodes that may still come.
    room: usize,
    start: Spot<'t>,
}

impl<'t> YamlReader<'t> {
    fn document(&mut self) -> Option<YamlNode<'t>> {
        let mut document = None;
        loop {
            let (event, at) = self.next()?;
            match event {
                Event::DocumentStart(_) if document.is_some() => {
                    let message = "a file is one document; the rest is not read";
                    let label = "the second document starts here";
                    warning(codes::ENVOY_DOCUMENT, at, message, label)
                        .help("move it to a file of its own");
                    break;
                }
                Event::StreamEnd => break,
                Event::Nothing
                | Event::StreamStart
                | Event::DocumentStart(_)
                | Event::DocumentEnd => {}
                event => document = Some(self.node(event, at, 0)?),
            }
        }
        let nothing = || YamlNode {
            at: self.start,
            content: Content::Plain(String::new()),
        };
        Some(document.unwrap_or_else(nothing))
    }

    fn next(&mut self) -> Option<(Event<'t>, Spot<'t>)> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Some((event, self.start.of(self.places.range(span)))),
            Some(Err(mistake)) => {
                let at = self.places.byte(mistake.marker().index());
                let label = shown(mistake.info());
                let at = self.start.of(at..at);
                error(codes::ENVOY_YAML, at, "this is not YAML", label)
                    .help("check indentation, quotes and brackets around here");
                None
            }
            None => Some((Event::StreamEnd, self.start)),
        }
    }

    fn node(&mut self, event: Event<'t>, at: Spot<'t>, depth: usize) -> Option<YamlNode<'t>> {
        self.take(1, at)?;
        if depth > MAX_DEPTH {
            let message = "the file is nested too deeply";
            let label = format!("more than {MAX_DEPTH} lists and tables within one another");
            error(codes::ENVOY_BOUNDS, at, message, label)
                .help("use fewer levels: a descriptor needs no more than a call has entries");
            return None;
        }
        let (anchor, content, end) = match event {
            Event::Alias(id) => return self.alias(id, at),
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !is_text(tag.as_deref(), at);
                let text = text.into_owned();
                let content = if plain {
                    Content::Plain(text)
                } else {
                    Content::Quoted(text)
                };
                (anchor, content, at)
            }
            Event::SequenceStart(anchor, tag) => {
                is_text(tag.as_deref(), at);
                let (list, end) = self.list(depth)?;
                (anchor, Content::List(list), end)
            }
            Event::MappingStart(anchor, tag) => {
                is_text(tag.as_deref(), at);
                let (table, end) = self.table(depth)?;
                (anchor, Content::Table(table), end)
            }
            // By the grammar of events no other can stand where a value does.
            _ => (0, Content::Plain(String::new()), at),
        };
        let at = at.to(end);
        let node = YamlNode { at, content };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Some(node)
    }

    fn list(&mut self, depth: usize) -> Option<(Vec<YamlNode<'t>>, Spot<'t>)> {
        let mut list = Vec::new();
        loop {
            let (event, at) = self.next()?;
            if event == Event::SequenceEnd {
                return Some((list, at));
            }
            list.push(self.node(event, at, depth + 1)?);
        }
    }

    fn table(&mut self, depth: usize) -> Option<(Vec<Field<'t>>, Spot<'t>)> {
        let mut table: Vec<Field<'t>> = Vec::new();
        let mut merged = Vec::new();
        let mut seen: HashSet<String> = HashSet::new();
        let end = loop {
            let (event, at) = self.next()?;
            if event == Event::MappingEnd {
                break at;
            }
            let key = self.node(event, at, depth + 1)?;
            let (event, at) = self.next()?;
            let value = self.node(event, at, depth + 1)?;
            match &key.content {
                Content::Plain(text) if text == "<<" => merged.push(value),
                Content::Plain(text) | Content::Quoted(text) => {
                    if seen.insert(text.clone()) {
                        table.push((key, value));
                    } else {
                        let message = format!("`{}` is set twice", shown(text));
                        error(codes::DUPLICATE_FIELD, key.at, message, "set above already")
                            .help("keep one of the two");
                    }
                }
                _ => table.push((key, value)),
            }
        };
        for source in merged {
            merge(source, &mut table, &mut seen);
        }
        Some((table, end))
    }

    /// Returns a copy of the node that the anchor names.
    fn alias(&mut self, id: usize, at: Spot<'t>) -> Option<YamlNode<'t>> {
        let Some(node) = self.anchors.get(&id) else {
            let message = "an anchor contains itself";
            error(codes::ENVOY_YAML, at, message, "used within itself")
                .help("write the value out in place of the alias");
            return None;
        };
        let size = size(node);
        self.take(size, at)?;
        let content = self.anchors[&id].content.clone();
        Some(YamlNode { at, content })
    }

    fn take(&mut self, nodes: usize, at: Spot<'t>) -> Option<()> {
        if let Some(room) = self.room.checked_sub(nodes) {
            self.room = room;
            return Some(());
        }
        let message = "the file holds too many values";
        let label = format!("more than {MAX_NODES} keys and values, aliases unfolded");
        error(codes::ENVOY_BOUNDS, at, message, label)
            .help("split the domain over several files, with merge_domains = true");
        None
    }
}

/// Merges `<<: *base`: adds the fields of another table that this one does not set itself.
fn merge<'t>(source: YamlNode<'t>, table: &mut Vec<Field<'t>>, seen: &mut HashSet<String>) {
    match source.content {
        Content::Table(fields) => {
            let mut is_new = |text: &str| seen.insert(text.to_owned());
            let fields = fields.into_iter();
            table.extend(fields.filter(|(key, _)| key.text().is_some_and(&mut is_new)));
        }
        Content::List(sources) if sources.iter().all(is_table) => {
            for source in sources {
                merge(source, table, seen);
            }
        }
        _ => {
            let message = "`<<` merges tables only";
            let label = "expected a table or a list of tables";
            error(codes::TYPE, source.at, message, label)
                .help("write the name of an anchored table, as in <<: *base");
        }
    }
}

/// Returns true if a tag makes a scalar a text; reports tags with another meaning.
fn is_text(tag: Option<&Tag>, at: Spot<'_>) -> bool {
    let Some(tag) = tag else {
        return false;
    };
    let known = ["str", "int", "float", "bool", "null", "seq", "map"];
    if !tag.is_yaml_core_schema() || !known.contains(&&*tag.suffix) {
        let message = format!("the tag `{}` has no meaning here", shown(&tag.to_string()));
        error(codes::ENVOY_YAML, at, message, "unknown tag").help("leave the tag out");
    }
    tag.suffix == "str"
}

fn is_table(node: &YamlNode<'_>) -> bool {
    matches!(node.content, Content::Table(_))
}

/// Returns the number of nodes in a tree of bounded depth.
fn size(node: &YamlNode<'_>) -> usize {
    1 + match &node.content {
        Content::Plain(_) | Content::Quoted(_) => 0,
        Content::List(list) => list.iter().map(size).sum(),
        Content::Table(table) => table
            .iter()
            .map(|(key, value)| size(key) + size(value))
            .sum(),
    }
}

/// Converts the parser's positions, in characters, into bytes.
struct ByteOffsets {
    /// Offset of each character; `None` if every character is one byte.
    bytes: Option<Vec<usize>>,
    end: usize,
}

impl ByteOffsets {
    fn new(text: &str) -> Self {
        let bytes = || text.char_indices().map(|(at, _)| at).collect();
        Self {
            bytes: (!text.is_ascii()).then(bytes),
            end: text.len(),
        }
    }

    fn byte(&self, index: usize) -> usize {
        match &self.bytes {
            Some(bytes) => bytes.get(index).copied().unwrap_or(self.end),
            None => index.min(self.end),
        }
    }

    fn range(&self, span: Span) -> Range<usize> {
        self.byte(span.start.index())..self.byte(span.end.index())
    }
}
