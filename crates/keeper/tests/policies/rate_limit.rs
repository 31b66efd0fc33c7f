//! Behaviour that users of the rate limit service rely on, case by case: `envoy-rls/*.json`.
//!
//! Files 01, 04 and 06 restate the tests of the Go service; `own` states the rest of its
//! rules. A case has files, settings, and steps against a fresh memory store in virtual time.

#![expect(clippy::unwrap_used, reason = "a malformed case must fail the test")]

use std::fs;
use std::path::Path;

use ratekeeper::core::{Nanos, Origin};
use ratekeeper::policy::Policy;
use ratekeeper::policy::envoy::{
    CounterSeries, DescriptorAnswer, Direction, EnvoyAnswer, EnvoyCall, EnvoyCode, EnvoyConfig,
    EnvoyDescriptor, EnvoySettings, File, Hits, Override, load,
};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Keeper, ManualClock, at_once};
use serde_json::{Map, Value, json};

/// Quirks that are not followed; the guide says why. Each must differ.
const REFUSED_QUIRKS: [&str; 1] = ["underscore-ambiguity"];

#[test]
fn every_case_is_answered_as_expected() {
    let mut failures = Vec::new();
    let mut count = 0;
    for (file, case) in cases() {
        count += 1;
        let id = case["id"].as_str().unwrap();
        let failed = run(&case).err();
        match (REFUSED_QUIRKS.contains(&id), failed) {
            (false, Some(why)) => failures.push(format!("{file}: {id}: {why}")),
            (true, None) => failures.push(format!(
                "{file}: {id}: a quirk that must differ is followed"
            )),
            _ => {}
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(count > 50, "only {count} cases were found");
}

fn cases() -> Vec<(String, Value)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies/envoy-rls");
    let mut paths: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let mut cases = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let mut suite: Value = serde_json::from_str(&text).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        for case in suite["cases"].as_array_mut().unwrap() {
            cases.push((name.clone(), case.take()));
        }
    }
    cases
}

type Outcome<T = ()> = Result<T, String>;

fn run(case: &Value) -> Outcome {
    let start = case["clock_unix"].as_u64().unwrap_or(1_000_000);
    let origin = Origin::from_unix_nanos(start * 1_000_000_000);
    let settings = settings(&case["settings"]);
    let loaded = configuration(case, settings, origin);
    if let Some(expected) = case.get("expect_config_error") {
        return match loaded {
            Err(errors) if expected.as_str().is_none_or(|code| errors.contains(code)) => Ok(()),
            Err(errors) => Err(format!("refused for another reason: {errors}")),
            Ok(_) => Err("the configuration was loaded, but must be refused".to_owned()),
        };
    }
    let store = MemoryStore::new(MemoryConfig::default());
    let keeper = Keeper::new(Policy::default(), store, ManualClock::at(origin));
    keeper.install_envoy(loaded?);
    let mut counters = Map::new();
    for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        if let Some(seconds) = step["advance_s"].as_u64() {
            keeper.clock().advance(Nanos::from_secs(seconds));
        } else if let Some(files) = step.get("reload") {
            keeper.install_envoy(configuration(files, settings, origin)?);
        } else {
            self::step(&keeper, step, &mut counters).map_err(|why| format!("{number}: {why}"))?;
        }
    }
    Ok(())
}

/// The configuration of a case, or of a reload.
fn configuration(of: &Value, settings: EnvoySettings, origin: Origin) -> Outcome<EnvoyConfig> {
    let texts: Vec<String> = match (of["config_text"].as_str(), of["config"].as_array()) {
        (Some(text), _) => vec![text.to_owned()],
        (_, Some(files)) => files.iter().map(ToString::to_string).collect(),
        _ => return Err("the case has no configuration".to_owned()),
    };
    let file = |text| File {
        name: "a.yaml",
        text,
    };
    let files: Vec<_> = texts.iter().map(|text| file(&**text)).collect();
    match load(&files, settings, origin) {
        Ok(loaded) => Ok(loaded.config),
        Err(errors) => {
            let errors = errors.into_iter().flatten();
            let each: Vec<_> = errors
                .map(|e| format!("{} {}", e.code, e.message))
                .collect();
            Err(each.join("; "))
        }
    }
}

fn settings(named: &Value) -> EnvoySettings {
    let mut settings = EnvoySettings::default();
    for (name, value) in named.as_object().unwrap_or(&Map::new()) {
        let on = value.as_bool().unwrap();
        match name.as_str() {
            "merge_domain_config" => settings.merge_domains = on,
            "stop_increment_when_over_limit" => settings.stop_increment = on,
            "global_shadow_mode" => settings.shadow_mode = on,
            "global_quota_mode" => settings.quota_mode = on,
            "dynamic_metadata" => settings.dynamic_metadata = on,
            "local_cache" => {} // answers do not depend on it
            other => panic!("unknown setting {other}"),
        }
    }
    settings
}

fn step(
    keeper: &Keeper<MemoryStore, ManualClock>,
    step: &Value,
    counters: &mut Map<String, Value>,
) -> Outcome {
    let config = keeper.envoy().unwrap();
    let call = call(&step["call"]);
    let mut answer = Err("the call was never made".to_owned());
    for _ in 0..step["repeat"].as_u64().unwrap_or(1) {
        answer = at_once(keeper.rate_limit(&config, &call)).map_err(|error| error.to_string());
        if let Ok(answer) = &answer {
            count(answer, &config, counters);
        }
    }
    let expected = &step["expect"];
    let answer = match (answer, expected["grpc_error"].as_str()) {
        (Err(_), Some("*")) => return Ok(()),
        (Err(error), Some(part)) if error.contains(part) => return Ok(()),
        (Err(error), _) => return Err(format!("unexpected error: {error}")),
        (Ok(_), Some(part)) => return Err(format!("expected an error that contains `{part}`")),
        (Ok(answer), None) => answer,
    };
    compare(expected, &answer, counters)
}

fn call(call: &Value) -> EnvoyCall<'_> {
    let descriptors = call["descriptors"].as_array().map_or(&[][..], |list| list);
    EnvoyCall {
        domain: call["domain"].as_str().unwrap_or(""),
        descriptors: descriptors.iter().map(descriptor).collect(),
        hits_addend: number(&call["hits_addend"]),
    }
}

fn descriptor(descriptor: &Value) -> EnvoyDescriptor<'_> {
    let entries = descriptor["entries"].as_array().unwrap().iter();
    let limit = descriptor.get("limit").filter(|limit| !limit.is_null());
    let give_back = descriptor["is_negative_hits"].as_bool().unwrap_or(false);
    EnvoyDescriptor {
        entries: entries
            .map(|entry| (entry[0].as_str().unwrap(), entry[1].as_str().unwrap()))
            .collect(),
        limit: limit.map(|limit| Override {
            requests_per_unit: number(&limit["requests_per_unit"]),
            unit: limit["unit"].as_str().unwrap().parse().unwrap(),
            multiplier: number(&limit["unit_multiplier"]),
        }),
        hits_addend: descriptor["hits_addend"].as_u64(),
        direction: if give_back {
            Direction::GiveBack
        } else {
            Direction::Take
        },
    }
}

fn number(value: &Value) -> u32 {
    value
        .as_u64()
        .map_or(0, |number| number.try_into().unwrap())
}

fn code(code: EnvoyCode) -> &'static str {
    match code {
        EnvoyCode::Ok => "OK",
        EnvoyCode::OverLimit => "OVER_LIMIT",
    }
}

/// Adds the hits of an answer to the counters, by name.
fn count(answer: &EnvoyAnswer<'_>, config: &EnvoyConfig, counters: &mut Map<String, Value>) {
    let rules = config.rules();
    for hits in answer
        .statuses
        .iter()
        .filter_map(|status| status.hits.as_ref())
    {
        let Hits {
            series,
            total_hits,
            over_limit,
            near_limit,
            within_limit,
            shadow_mode,
        } = hits;
        let series = match series {
            CounterSeries::Rule(id) => &*rules[id.index()].path,
            CounterSeries::Named(name) => name,
        };
        for (name, more) in [
            ("total_hits", total_hits),
            ("over_limit", over_limit),
            ("near_limit", near_limit),
            ("within_limit", within_limit),
            ("shadow_mode", shadow_mode),
        ] {
            let counter = counters
                .entry(format!("{series}.{name}"))
                .or_insert(json!(0));
            *counter = json!(counter.as_u64().unwrap() + more);
        }
    }
}

fn compare(expected: &Value, answer: &EnvoyAnswer<'_>, counters: &Map<String, Value>) -> Outcome {
    same(
        "overall_code",
        &expected["overall_code"],
        &json!(code(answer.overall)),
    )?;
    let statuses = expected["statuses"].as_array().map_or(&[][..], |list| list);
    if !statuses.is_empty() {
        same(
            "statuses",
            &json!(statuses.len()),
            &json!(answer.statuses.len()),
        )?;
    }
    for (at, (expected, status)) in statuses.iter().zip(&answer.statuses).enumerate() {
        compare_status(expected, status).map_err(|why| format!("status {at}: {why}"))?;
    }
    for (name, value) in expected["counters_after"]
        .as_object()
        .unwrap_or(&Map::new())
    {
        same(name, value, counters.get(name).unwrap_or(&json!(0)))?;
    }
    if let Some(metadata) = expected.get("metadata") {
        same(
            "metadata",
            metadata,
            &Value::Object(answer.metadata.clone()),
        )?;
    }
    Ok(())
}

fn compare_status(expected: &Value, status: &DescriptorAnswer<'_>) -> Outcome {
    same("code", &expected["code"], &json!(code(status.code)))?;
    let limit = status.current_limit.map(|limit| {
        let mut actual = json!({
            "requests_per_unit": limit.requests_per_unit,
            "unit": limit.unit.as_ref().to_uppercase(),
        });
        if let Some(name) = limit.name {
            actual["name"] = json!(name);
        }
        if limit.multiplier > 1 {
            actual["unit_multiplier"] = json!(limit.multiplier);
        }
        actual
    });
    same(
        "current_limit",
        &expected["current_limit"],
        &limit.unwrap_or(Value::Null),
    )?;
    if !expected["limit_remaining"].is_null() {
        let remaining = json!(status.limit_remaining);
        same("limit_remaining", &expected["limit_remaining"], &remaining)?;
    }
    match &expected["duration_until_reset_s"] {
        Value::Null => Ok(()),
        Value::Number(_) => same(
            "duration_until_reset_s",
            &expected["duration_until_reset_s"],
            &json!(status.reset_after_s),
        ),
        _ => {
            let limit = status
                .current_limit
                .ok_or("the answer has a window, but no limit")?;
            let width = limit.unit.seconds() * u64::from(limit.multiplier);
            let reset = status
                .reset_after_s
                .ok_or("the answer has no duration_until_reset")?;
            if (1..=width).contains(&reset) {
                Ok(())
            } else {
                Err(format!(
                    "duration_until_reset is {reset} s; expected 1 to {width} s"
                ))
            }
        }
    }
}

fn same(what: &str, expected: &Value, seen: &Value) -> Outcome {
    if expected == seen {
        return Ok(());
    }
    Err(format!("{what} is {seen}; expected {expected}"))
}
