//! `grant`: adds credits to the balance of a key, in a running service.

use clap::Args;
use ratekeeper_policy::Unit;
use serde_json::{Map, Value, json};

use crate::client::CallArgs;
use crate::{Exit, Failure, Output, Result, words};

/// Add credits to the balance of a key in a running service
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct GrantArgs {
    /// Number of credits; with a unit, a decimal number
    #[arg(value_name = "AMOUNT")]
    credits: String,
    /// Name of the limit in the policy
    #[arg(long, value_name = "NAME")]
    limit: String,
    /// Part of the key, once for each: user=ann, attr:user=ann
    #[arg(long, value_name = "PART=VALUE")]
    key: Vec<String>,
    /// Text that identifies the grant: repeated with the same id, it adds nothing
    #[arg(long, value_name = "TEXT")]
    id: String,
    #[command(flatten)]
    call: CallArgs,
}

const HELP: &str = "\
Examples:
  ratekeeper grant 500 --limit credits --key user=ann --id payment-4711
  ratekeeper peek credits attr:user=ann

This calls the admin listener, with the token in RATEKEEPER_ADMIN_TOKEN if there is one. If the
answer is lost, repeat the call with the same id.

Exit codes: 0 granted; 1 granted before, with this id; 2 usage, or no service.";

impl GrantArgs {
    pub(crate) fn run(self, output: &mut Output) -> Result<Exit> {
        let mut key = Map::new();
        for part in &self.key {
            let (name, value) = part.split_once('=').ok_or_else(|| {
                Failure::new(format!(
                    "`{part}` is not a part of a key; expected PART=VALUE"
                ))
                .hint("write for example --key user=ann")
            })?;
            key.insert(name.to_owned(), Value::from(value));
        }
        let body = json!({
            "limit": self.limit,
            "key": key,
            "permits": self.credits,
            "id": self.id,
        });
        let answer = self.call.client()?.post("/v1/grant", &body)?;
        let unit = answer["unit"]["name"].as_str().map(|name| {
            let decimals = answer["unit"]["decimals"].as_u64();
            Unit::new(
                name,
                decimals.and_then(|it| u8::try_from(it).ok()).unwrap_or(0),
            )
        });
        let number = |field: &str| {
            let number = answer[field].as_u64().unwrap_or(0);
            match &unit {
                Some(unit) => unit.show(number).to_string(),
                None => words::count(number),
            }
        };
        let is_repeated = answer["done"] == "repeated";
        let done = if is_repeated {
            "granted before".to_owned()
        } else {
            format!("added {}", number("added"))
        };
        let text = format!("{done}; the balance is {}", number("balance"));
        self.call.show(&answer, output, text)?;
        Ok(Exit::done_if(!is_repeated))
    }
}
