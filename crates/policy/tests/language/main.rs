//! The policy language: texts that are right, broken, foreign or hostile, and the guide about them.

mod broken;
mod cases;
mod descriptors;
mod envoy_hostile;
mod examples;
#[path = "../../../core/tests/algorithms/cases.rs"]
mod extent;
mod good;
mod guide;
mod import;
mod lists;
mod mistakes;
mod not_built;
mod overrides;
mod reference;
mod robust;
mod schema;
