//! Algorithm: the word for how a limit counts, and the fields beside it.

use crate::config::fields::{ALGORITHMS, OWNED};
use crate::config::{At, Table, Text, codes, error, shown};

/// Reads the word of `algorithm`, which is a word or a table; `None` if it is not written, or wrong.
pub(super) fn algorithm(table: Table<'_>) -> Option<At<'_, &'static str>> {
    let name = match table.table("algorithm") {
        Some(fields) => {
            let name = fields.text("name")?.value;
            if strays(name, fields) {
                return None;
            }
            name
        }
        None => table.text("algorithm")?.value,
    };
    let word = ALGORITHMS.iter().find(|word| **word == name)?; // others are reported
    Some(At::new(word, table.place("algorithm")))
}

/// Reports the first field that belongs to another algorithm.
fn strays(name: &str, fields: Table<'_>) -> bool {
    let stray = OWNED.iter().find_map(|(field, owner)| {
        let node = fields.get(field).filter(|_| *owner != name)?;
        Some((field, owner, node.at))
    });
    let Some((field, owner, at)) = stray else {
        return false;
    };
    let name = shown(name);
    let message = format!("`{field}` belongs to \"{owner}\", not to \"{name}\"");
    let label = "not a field of this algorithm";
    error(codes::ALGORITHM, at, message, label).help(format!(
        "write algorithm = \"{name}\", or name = \"{owner}\""
    ));
    true
}

/// Reports `algorithm` beside a quantity that has its own, which `own` may name.
pub(super) fn no_algorithm(named: Option<Text<'_>>, quantity: &str, own: Option<&str>) {
    let Some(named) = named.filter(|named| Some(named.value) != own) else {
        return;
    };
    let message = format!("this `algorithm` cannot be combined with {quantity}");
    let label = match own {
        Some(own) => format!("{quantity} is always a \"{own}\""),
        None => format!("{quantity} has its own algorithm"),
    };
    error(codes::ALGORITHM, named.at, message, label)
        .help("remove `algorithm`, or write the number as limit = \"100/1m\"");
}
