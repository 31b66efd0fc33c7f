//! Table: rows of texts, for a terminal and for a page.

use std::fmt::Write as _;

use crate::{Output, Result};

/// A head, and rows below it. A column whose last cell is a number is aligned to the right.
pub(crate) struct TextTable(Vec<Vec<String>>);

impl TextTable {
    pub(crate) fn new(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        let head = head.iter().map(|&cell| cell.to_owned()).collect();
        let rows = rows.into_iter();
        let rows = rows.map(|cells| cells.iter().map(|cell| plain(cell)).collect());
        Self(std::iter::once(head).chain(rows).collect())
    }

    fn is_of_numbers(&self, column: usize) -> bool {
        let last = self.0.last().map_or("", |row| &row[column]);
        let is_date = last.as_bytes().get(4) == Some(&b'-');
        last.starts_with(|c: char| c.is_ascii_digit() || c == '-') && !is_date
    }

    /// Prints the rows; without any, nothing.
    pub(crate) fn write(&self, output: &mut Output) -> Result<()> {
        let rows = if self.0.len() > 1 { &*self.0 } else { &[] };
        for cells in rows {
            let mut line = String::new();
            for (column, cell) in cells.iter().enumerate() {
                let widths = rows.iter().map(|cells| cells[column].chars().count());
                let width = widths.max().unwrap_or(0);
                // Writing to memory cannot fail.
                let _ = if self.is_of_numbers(column) {
                    write!(line, "  {cell:>width$}")
                } else {
                    write!(line, "  {cell:<width$}")
                };
            }
            output.line(line.trim_end())?;
        }
        Ok(())
    }

    /// Appends it to a page, if it has rows.
    pub(crate) fn write_html(&self, html: &mut String) {
        if self.0.len() < 2 {
            return;
        }
        html.push_str("<div class=\"wide\" tabindex=\"0\"><table>");
        for (row, cells) in self.0.iter().enumerate() {
            let tag = if row == 0 { "th" } else { "td" };
            html.push_str("<tr>");
            for (column, cell) in cells.iter().enumerate() {
                let class = if self.is_of_numbers(column) {
                    " class=\"number\""
                } else {
                    ""
                };
                let _ = write!(html, "<{tag}{class}>{}</{tag}>", escaped(cell));
            }
            html.push_str("</tr>");
        }
        html.push_str("</table></div>");
    }
}

/// Returns a text without control characters, which a client can send to a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Returns a text as a page shows it, without control characters.
pub(crate) fn escaped(text: &str) -> String {
    let text = plain(text).replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
