//! Act: a change of a key that a user of the screen asks for.

use crate::Failure;
use crate::client::{Client, percent_encoded};

/// Length of a ban that `b` sets.
const BAN: &str = "1h";

/// A change of a key, in all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Reset {
        limit: String,
        key: Vec<String>,
    },
    Ban {
        limit: String,
        key: Vec<String>,
    },
    /// Other numbers for the key, as the file of overrides has them: `20/1m`, `unlimited`.
    Override {
        limit: String,
        key: Vec<String>,
        set: String,
    },
}

impl Act {
    /// Changes the key in one server; returns a sentence.
    pub(super) fn run(&self, client: &Client) -> Result<String, Failure> {
        match self {
            Self::Reset { limit, key } => {
                client.delete(
                    &format!("/v1/keys/{}", percent_encoded(limit)),
                    &values(key),
                )?;
                Ok(format!("{} is reset", key.join(", ")))
            }
            Self::Ban { limit, key } => {
                let mut query = vec![("limit", &**limit), ("for", BAN)];
                query.extend(values(key));
                client.post_query("/v1/bans", &query)?;
                Ok(format!("{} is banned for {BAN}", key.join(", ")))
            }
            Self::Override { limit, key, set } => {
                let subject = match values(key).as_slice() {
                    [(_, value)] => (*value).to_owned(),
                    _ => key.join(";"),
                };
                let query = [("limit", &**limit), ("key", &*subject), ("set", &**set)];
                client.put("/v1/overrides", &query)?;
                Ok(format!("{} has {set}", key.join(", ")))
            }
        }
    }

    pub(super) fn question(&self) -> String {
        let (does, limit, key) = match self {
            Self::Override { limit, key, set } => {
                let key = key.join(", ");
                let key = key.escape_debug();
                return format!("numbers of {key} under {limit}, such as 20/1m: {set}");
            }
            Self::Reset { limit, key } => ("reset", limit, key),
            Self::Ban { limit, key } => ("ban for 1 h", limit, key),
        };
        let key = key.join(", ");
        format!("{does} {} under {limit}? [y/n]", key.escape_debug())
    }
}

/// Returns the values of the parts of a key as parameters of a query.
fn values(key: &[String]) -> Vec<(&str, &str)> {
    let value = |part: &'_ str| part.find('=').map_or(0, |sign| sign + 1);
    let values = key.iter().map(|part| ("key", &part[value(part)..]));
    values.collect()
}
