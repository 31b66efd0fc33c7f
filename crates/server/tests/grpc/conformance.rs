//! The cases of the rate limit service, over the wires: files on disk, gRPC, JSON, admin.
//!
//! ```text
//!   case: config -> files -> Service ; steps -> gRPC call --\
//!                            Service ; steps -> POST /json --+--> one form --> compared
//! ```
//!
//! The keeper's own tests run the same cases without wires; the files are there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread;

use ratekeeper::ManualClock;
use ratekeeper_core::{Nanos, Origin};
use ratekeeper_server::Door;
use ratekeeper_wire::rate_limit_descriptor::{Entry, RateLimitOverride};
use ratekeeper_wire::rate_limit_response::{DescriptorStatus, RateLimit};
use ratekeeper_wire::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse, RateLimitUnit};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::client::{Client, SHOULD_RATE_LIMIT};
use super::json::http;
use super::{Fixture, run};

/// Quirks that are not followed, for the reasons in the guide. Each must differ.
const REFUSED_QUIRKS: [&str; 1] = ["underscore-ambiguity"];
/// Start time of cases that state none.
const START: u64 = 1_000_000;
/// Number of cases at a time.
const WORKERS: usize = 24;

#[test]
fn every_case_is_answered_as_expected_by_grpc_and_json() {
    let cases = cases();
    let (next, compared) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    // A service takes a while to stop: many stop at once.
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((file, case)) = cases.get(next.fetch_add(1, Relaxed)) {
                    for wire in [Wire::Grpc, Wire::Json] {
                        if let Some(why) = failure(case, wire, &compared) {
                            let line = format!("{file}: {}: {wire:?}: {why}", case["id"]);
                            failures.lock().unwrap().push(line);
                        }
                    }
                }
            });
        }
    });
    let (failures, compared) = (failures.into_inner().unwrap(), compared.into_inner());
    println!("{} cases, {compared} answers compared", cases.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(compared > 2 * 290, "only {compared} answers were compared");
}

/// Returns the failure of a case, if its answers are wrong.
fn failure(case: &Value, wire: Wire, compared: &AtomicUsize) -> Option<String> {
    let refused = REFUSED_QUIRKS.contains(&case["id"].as_str().unwrap());
    match (refused, follow(case, wire, compared)) {
        (false, Err(why)) => Some(why),
        (true, Ok(())) => Some("a quirk that must differ is followed".to_owned()),
        _ => None,
    }
}

/// The protocol of a call.
#[derive(Clone, Copy, Debug)]
enum Wire {
    Grpc,
    Json,
}

fn cases() -> Vec<(String, Value)> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../keeper/tests/policies/envoy-rls");
    let entries = fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut cases = Vec::new();
    for path in paths {
        let mut suite: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for case in suite["cases"].as_array_mut().unwrap() {
            cases.push((name.clone(), case.take()));
        }
    }
    cases
}

type Outcome<T = ()> = Result<T, String>;

/// Follows the steps of a case on a service of its own; counts the answers in `compared`.
fn follow(case: &Value, wire: Wire, compared: &AtomicUsize) -> Outcome {
    let start = case["clock_unix"].as_u64().unwrap_or(START);
    let origin = Origin::from_unix_nanos(start * 1_000_000_000);
    let clock = Arc::new(ManualClock::at(origin));
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("limits")).unwrap();
    write_files(&directory, case);
    let policy = policy(&case["settings"]);
    let started = Fixture::start(&policy, directory, clock);
    if let Some(expected) = case.get("expect_config_error") {
        compared.fetch_add(1, Relaxed);
        let part = expected.as_str().unwrap_or_default();
        return match started.map_err(|error| error.to_string()) {
            Err(error) if error.contains(part) => Ok(()),
            Err(error) => Err(format!("refused for another reason: {error}")),
            Ok(_) => Err("the service started, but must refuse the configuration".to_owned()),
        };
    }
    let fixture = started.map_err(|error| error.to_string())?;
    for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        let done = if let Some(seconds) = step["advance_s"].as_u64() {
            fixture.clock.advance(Nanos::from_secs(seconds));
            Ok(())
        } else if let Some(files) = step.get("reload") {
            reload(&fixture, files)
        } else {
            compared.fetch_add(1, Relaxed);
            self::step(&fixture, step, wire)
        };
        done.map_err(|why| format!("{number}: {why}"))?;
    }
    Ok(())
}

/// Replaces the configuration by that of a case, or of a reload.
fn write_files(directory: &TempDir, of: &Value) {
    let limits = directory.path().join("limits");
    for old in fs::read_dir(&limits).unwrap() {
        fs::remove_file(old.unwrap().path()).unwrap();
    }
    let texts: Vec<String> = match (of["config_text"].as_str(), of["config"].as_array()) {
        (Some(text), _) => vec![text.to_owned()],
        (_, Some(files)) => files.iter().map(ToString::to_string).collect(),
        _ => panic!("the case has no configuration"),
    };
    for (number, text) in texts.iter().enumerate() {
        fs::write(limits.join(format!("{number:02}.yaml")), text).unwrap();
    }
}

/// Returns the policy that reads the files, with the settings of the case in our words.
fn policy(settings: &Value) -> String {
    let mut policy = "version = 1\n[envoy]\nconfig = \"limits\"\n".to_owned();
    for (name, value) in settings.as_object().unwrap_or(&Map::new()) {
        let ours = match name.as_str() {
            "merge_domain_config" => "merge_domains",
            "stop_increment_when_over_limit" => "stop_increment",
            "global_shadow_mode" => "shadow_mode",
            "global_quota_mode" => "quota_mode",
            "dynamic_metadata" => "dynamic_metadata",
            "local_cache" => continue, // answers do not depend on it
            other => panic!("unknown setting {other}"),
        };
        policy.extend([ours, " = ", &value.as_bool().unwrap().to_string(), "\n"]);
    }
    policy
}

fn reload(fixture: &Fixture, files: &Value) -> Outcome {
    write_files(&fixture.directory, files);
    let admin = fixture.service.address(Door::Admin).unwrap();
    match http(admin, "POST /v1/reload", "") {
        (200, _) => Ok(()),
        (status, body) => Err(format!("reload: {status} {body}")),
    }
}

fn step(fixture: &Fixture, step: &Value, wire: Wire) -> Outcome {
    let call = step
        .get("call")
        .expect("a step has `call`, `reload` or `advance_s`");
    let times = step["repeat"].as_u64().unwrap_or(1);
    let answer = match wire {
        Wire::Grpc => ask_grpc(fixture, &request(call), times),
        Wire::Json => ask_json(fixture, &body(call).to_string(), times),
    };
    let expected = &step["expect"];
    let answer = match (answer, expected["grpc_error"].as_str()) {
        (Err(_), Some("*")) => return Ok(()),
        (Err(error), Some(part)) if error.contains(part) => return Ok(()),
        (Err(error), _) => return Err(format!("unexpected error: {error}")),
        (Ok(_), Some(part)) => return Err(format!("expected an error that contains `{part}`")),
        (Ok(answer), None) => answer,
    };
    compare(expected, &answer)?;
    match expected["counters_after"].as_object() {
        Some(counters) => compare_counters(fixture, counters),
        None => Ok(()),
    }
}

/// Returns the last of `times` answers, in one form for both wires.
fn ask_grpc(fixture: &Fixture, request: &RateLimitRequest, times: u64) -> Outcome<Value> {
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let mut last = client.call(SHOULD_RATE_LIMIT, request).await;
        for _ in 1..times {
            last = client.call(SHOULD_RATE_LIMIT, request).await;
        }
        match last.code {
            0 => Ok(answered(&last.read())),
            _ => Err(last.message),
        }
    })
}

fn ask_json(fixture: &Fixture, body: &str, times: u64) -> Outcome<Value> {
    let address = fixture.service.address(Door::Http).unwrap();
    let mut last = http(address, "POST /json", body);
    for _ in 1..times {
        last = http(address, "POST /json", body);
    }
    let (status, body) = last;
    let answered: Value = match status {
        200 | 429 => serde_json::from_str(&body).unwrap(),
        400 => return Err(body),
        _ => panic!("{status} {body}"),
    };
    let expected = if answered["overallCode"] == "OVER_LIMIT" {
        429
    } else {
        200
    };
    assert_eq!(status, expected, "{body}");
    Ok(answered)
}

fn request(call: &Value) -> RateLimitRequest {
    RateLimitRequest {
        domain: call["domain"].as_str().unwrap_or("").to_owned(),
        descriptors: each(call, descriptor),
        hits_addend: number(&call["hits_addend"]),
    }
}

/// Returns the result of `one` for each descriptor of a call.
fn each<T>(call: &Value, one: impl Fn(&Value) -> T) -> Vec<T> {
    let descriptors = call["descriptors"].as_array();
    descriptors.map_or(Vec::new(), |all| all.iter().map(one).collect())
}

fn descriptor(descriptor: &Value) -> RateLimitDescriptor {
    let entry = |pair: &Value| Entry {
        key: pair[0].as_str().unwrap().to_owned(),
        value: pair[1].as_str().unwrap().to_owned(),
    };
    let limit = descriptor.get("limit").filter(|limit| !limit.is_null());
    RateLimitDescriptor {
        entries: descriptor["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(entry)
            .collect(),
        limit: limit.map(|limit| RateLimitOverride {
            requests_per_unit: number(&limit["requests_per_unit"]),
            unit: RateLimitUnit::from_str_name(&unit(limit)).unwrap().into(),
            unit_multiplier: limit.get("unit_multiplier").map(number),
        }),
        hits_addend: descriptor["hits_addend"].as_u64(),
        is_negative_hits: descriptor["is_negative_hits"].as_bool().unwrap_or(false),
    }
}

/// Returns the call as JSON of proto3.
fn body(call: &Value) -> Value {
    let descriptor = |descriptor: &Value| {
        let mut body = descriptor.clone();
        let entries = descriptor["entries"].as_array().unwrap().iter();
        let entry = |pair: &Value| json!({"key": pair[0], "value": pair[1]});
        body["entries"] = entries.map(entry).collect();
        if body["limit"].is_object() {
            body["limit"]["unit"] = json!(unit(&descriptor["limit"]));
        }
        body
    };
    let mut body = call.clone();
    body["descriptors"] = each(call, descriptor).into();
    body
}

fn unit(limit: &Value) -> String {
    limit["unit"].as_str().unwrap().to_uppercase()
}

fn number(value: &Value) -> u32 {
    value
        .as_u64()
        .map_or(0, |number| number.try_into().unwrap())
}

/// Returns an answer of gRPC as JSON of proto3.
fn answered(response: &RateLimitResponse) -> Value {
    let metadata = response.dynamic_metadata.clone().map(|metadata| {
        let fields = metadata.fields.into_iter();
        fields
            .map(|(name, value)| (name, plain(value)))
            .collect::<Value>()
    });
    json!({
        "overallCode": response.overall_code().as_str_name(),
        "statuses": response.statuses.iter().map(answered_status).collect::<Value>(),
        "dynamicMetadata": metadata,
    })
}

fn answered_status(status: &DescriptorStatus) -> Value {
    let reset = status.duration_until_reset;
    let limit = |limit: &RateLimit| {
        json!({
            "name": limit.name,
            "requestsPerUnit": limit.requests_per_unit,
            "unit": limit.unit().as_str_name(),
            "unitMultiplier": limit.unit_multiplier,
        })
    };
    json!({
        "code": status.code().as_str_name(),
        "currentLimit": status.current_limit.as_ref().map(limit),
        "limitRemaining": status.limit_remaining,
        "durationUntilReset": reset.map(|reset| {
            assert_eq!(reset.nanos, 0, "the reset has whole seconds");
            format!("{}s", reset.seconds)
        }),
    })
}

fn plain(value: prost_types::Value) -> Value {
    use prost_types::value::Kind;
    match value.kind.unwrap() {
        Kind::NullValue(_) => Value::Null,
        Kind::BoolValue(flag) => flag.into(),
        Kind::NumberValue(number) => number.into(),
        Kind::StringValue(text) => text.into(),
        Kind::ListValue(list) => list.values.into_iter().map(plain).collect(),
        Kind::StructValue(table) => {
            let fields = table.fields.into_iter();
            fields.map(|(name, value)| (name, plain(value))).collect()
        }
    }
}

fn compare(expected: &Value, answered: &Value) -> Outcome {
    same(
        "overall_code",
        &expected["overall_code"],
        &answered["overallCode"],
    )?;
    let none = Vec::new();
    let statuses = answered["statuses"].as_array().unwrap_or(&none);
    if let Some(expected) = expected["statuses"]
        .as_array()
        .filter(|all| !all.is_empty())
    {
        same("statuses", &json!(expected.len()), &json!(statuses.len()))?;
        for (at, (expected, answered)) in expected.iter().zip(statuses).enumerate() {
            compare_status(expected, answered).map_err(|why| format!("status {at}: {why}"))?;
        }
    }
    if let Some(expected) = expected.get("metadata") {
        let answered = answered["dynamicMetadata"].get("metadata");
        let answered = answered.cloned().unwrap_or_else(|| json!({}));
        same("metadata", &floats(expected), &floats(&answered))?;
    }
    Ok(())
}

/// Makes all numbers floats, as those of a protobuf `Struct` are.
fn floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(values) => values.iter().map(floats).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields
                .map(|(name, value)| (name.clone(), floats(value)))
                .collect()
        }
        other => other.clone(),
    }
}

fn compare_status(expected: &Value, answered: &Value) -> Outcome {
    same("code", &expected["code"], &answered["code"])?;
    let limit = &answered["currentLimit"];
    let seen = limit.is_object().then(|| {
        let mut seen = json!({
            "requests_per_unit": number(&limit["requestsPerUnit"]),
            "unit": limit["unit"],
        });
        for (name, answered) in [("name", "name"), ("unit_multiplier", "unitMultiplier")] {
            if !limit[answered].is_null() && limit[answered] != "" {
                seen[name] = limit[answered].clone();
            }
        }
        seen
    });
    let seen = seen.unwrap_or(Value::Null);
    same("current_limit", &expected["current_limit"], &seen)?;
    if !expected["limit_remaining"].is_null() {
        let left = json!(number(&answered["limitRemaining"]));
        same("limit_remaining", &expected["limit_remaining"], &left)?;
    }
    let reset = answered["durationUntilReset"].as_str();
    let reset = reset.map(|text| text.strip_suffix('s').unwrap().parse::<u64>().unwrap());
    match &expected["duration_until_reset_s"] {
        Value::Null => Ok(()),
        exact @ Value::Number(_) => same("duration_until_reset_s", exact, &json!(reset)),
        _ => {
            let width = seconds(&seen["unit"]) * seen["unit_multiplier"].as_u64().unwrap_or(1);
            match reset {
                Some(reset) if (1..=width).contains(&reset) => Ok(()),
                _ => Err(format!(
                    "duration_until_reset is {reset:?}; expected 1 to {width} s"
                )),
            }
        }
    }
}

fn seconds(unit: &Value) -> u64 {
    let units = BTreeMap::from([
        ("SECOND", 1),
        ("MINUTE", 60),
        ("HOUR", 3_600),
        ("DAY", 86_400),
        ("WEEK", 7 * 86_400),
        ("MONTH", 30 * 86_400),
        ("YEAR", 365 * 86_400),
    ]);
    units[unit
        .as_str()
        .expect("the answer has a window, but no limit")]
}

/// Compares counters as Prometheus reads them: `d.key_v.total_hits` is a rule and a kind.
fn compare_counters(fixture: &Fixture, expected: &Map<String, Value>) -> Outcome {
    let admin = fixture.service.address(Door::Admin).unwrap();
    let (_, metrics) = http(admin, "GET /metrics", "");
    for (name, count) in expected {
        let (rule, kind) = name.rsplit_once('.').unwrap();
        let rule = json!(rule); // quoted as a label is
        let series = format!("ratekeeper_rls_hits_total{{rule={rule},kind=\"{kind}\"}} ");
        let seen = metrics.lines().find_map(|line| line.strip_prefix(&series));
        let seen = seen.map_or(0, |count| count.parse::<u64>().unwrap());
        same(name, count, &json!(seen))?;
    }
    Ok(())
}

fn same(what: &str, expected: &Value, seen: &Value) -> Outcome {
    if expected == seen {
        return Ok(());
    }
    Err(format!("{what} is {seen}; expected {expected}"))
}
