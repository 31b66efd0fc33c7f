//! Act: a change of a key that a user of the screen asks for.

use crate::Failure;
use crate::client::Client;
use crate::request::CliRequest;

/// Length of a ban that `b` sets.
const BAN: &str = "1h";

/// A change of a key, in all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Reset { limit: String, key: Vec<String> },
    Ban { limit: String, key: Vec<String> },
}

impl Act {
    /// Changes the key in one server; returns a sentence.
    pub(super) fn run(&self, client: &Client) -> Result<String, Failure> {
        match self {
            Self::Reset { limit, key } => {
                let body = CliRequest::from_parts(key)?.body(limit);
                let answer = client.post("/v1/reset", &body)?;
                let applies = answer["limits"]
                    .as_array()
                    .is_some_and(|list| !list.is_empty());
                let key = key.join(", ");
                Ok(if applies {
                    format!("{key} is reset")
                } else {
                    format!("{limit} needs more than its key to apply: call /v1/reset")
                })
            }
            Self::Ban { limit, key } => {
                let value = |part: &String| {
                    let value = part.split_once('=').map_or(&**part, |(_, value)| value);
                    ("key", value.to_owned())
                };
                let values: Vec<_> = key.iter().map(value).collect();
                let mut query = vec![("limit", &**limit), ("for", BAN)];
                query.extend(values.iter().map(|(name, value)| (*name, &**value)));
                client.post_query("/v1/bans", &query)?;
                Ok(format!("{} is banned for {BAN}", key.join(", ")))
            }
        }
    }

    pub(super) fn question(&self) -> String {
        let (does, limit, key) = match self {
            Self::Reset { limit, key } => ("reset", limit, key),
            Self::Ban { limit, key } => ("ban for 1 h", limit, key),
        };
        let key = key.join(", ");
        format!("{does} {} under {limit}? [y/n]", key.escape_debug())
    }
}
