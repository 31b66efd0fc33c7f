//! Table: rows of texts, for a terminal and for a page.

use std::fmt::Write as _;

use crate::{Failure, Output};

/// Rows below a head. A column of numbers is aligned to the right.
pub(crate) struct TextTable {
    pub(crate) head: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl TextTable {
    fn is_of_numbers(&self, column: usize) -> bool {
        let is_number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let date = |cell: &String| cell.as_bytes().get(4) == Some(&b'-');
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.all(|cell| is_number(cell) && !date(cell))
    }

    /// Prints the rows; without any, nothing.
    pub(crate) fn write(&self, output: &mut Output) -> Result<(), Failure> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let head: Vec<String> = self.head.iter().map(|&cell| cell.to_owned()).collect();
        let lines = || std::iter::once(&head).chain(&self.rows);
        for cells in lines() {
            let mut line = String::new();
            for (column, cell) in cells.iter().enumerate() {
                let widths = lines().map(|cells| cells[column].chars().count());
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
        if self.rows.is_empty() {
            return;
        }
        html.push_str("<div class=\"wide\" tabindex=\"0\"><table>");
        let head = self.head.iter().map(|&cell| cell.to_owned()).collect();
        for (tag, cells) in
            std::iter::once(("th", &head)).chain(self.rows.iter().map(|row| ("td", row)))
        {
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

/// Returns a text as a page shows it.
pub(crate) fn escaped(text: &str) -> String {
    let signs = [
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("\"", "&quot;"),
    ];
    let text = text.to_owned();
    signs
        .iter()
        .fold(text, |text, (sign, word)| text.replace(sign, word))
}
