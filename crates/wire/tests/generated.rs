//! The checked-in code and descriptors are what the protos say.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message;
use prost_types::FileDescriptorSet;

const ROOTS: [&str; 4] = [
    "envoy/service/ratelimit/v3/rls.proto",
    "grpc/health/v1/health.proto",
    "grpc/reflection/v1/reflection.proto",
    "grpc/reflection/v1alpha/reflection.proto",
];

/// Messages that the process sends to others: reflection does not list them.
const SENT: [&str; 2] = [
    "opentelemetry/proto/collector/metrics/v1/metrics_service.proto",
    "opentelemetry/proto/collector/logs/v1/logs_service.proto",
];

fn home(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Path and content of every file that the protos make.
fn generate() -> BTreeMap<PathBuf, Vec<u8>> {
    let set = protox::compile(ROOTS, [home("proto")]).expect("the protos compile");
    let mut files = BTreeMap::new();

    // Reflection tells names and types: comments and positions stay at home.
    let mut bare = set.clone();
    for file in &mut bare.file {
        file.source_code_info = None;
    }
    files.insert(home("src/descriptors.bin"), bare.encode_to_vec());

    let exported = protox::compile(SENT, [home("proto")]).expect("the protos compile");
    // The two versions of reflection have the same messages: one of them is code.
    let coded = |name: &str| !name.contains("v1alpha");
    let set = FileDescriptorSet {
        file: set
            .file
            .into_iter()
            .chain(exported.file)
            .filter(|file| coded(file.name()))
            .collect(),
    };
    let out = env::temp_dir().join(format!("ratekeeper-wire-{}", std::process::id()));
    fs::create_dir_all(&out).expect("a directory for temporary files");
    let mut config = prost_build::Config::new();
    config.out_dir(&out).include_file("mod.rs");
    config.compile_fds(set).expect("code for the protos");
    for entry in fs::read_dir(&out).expect("just written") {
        let path = entry.expect("just written").path();
        let name = path.file_name().expect("a file").to_owned();
        let content = fs::read(&path).expect("just written");
        files.insert(home("src/generated").join(name), content);
    }
    fs::remove_dir_all(&out).expect("just written");
    files
}

#[test]
fn the_checked_in_code_matches_the_protos() {
    let files = generate();
    if env::var_os("UPDATE").is_some() {
        for (path, content) in &files {
            fs::write(path, content).expect("the source tree is writable");
        }
    }
    for (path, content) in &files {
        let here = fs::read(path).unwrap_or_default();
        assert!(
            &here == content,
            "{} is stale: run with UPDATE=1",
            path.display()
        );
    }
    let present = fs::read_dir(home("src/generated")).expect("the directory is there");
    for entry in present {
        let path = entry.expect("readable").path();
        assert!(
            files.contains_key(&path),
            "no proto generates {}",
            path.display()
        );
    }
}
