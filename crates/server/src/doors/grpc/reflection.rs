//! Reflection: the services of this server, for tools that have no protos at hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};
use ratekeeper_wire::DESCRIPTORS;
use ratekeeper_wire::reflection::server_reflection_request::MessageRequest;
use ratekeeper_wire::reflection::server_reflection_response::MessageResponse;
use ratekeeper_wire::reflection::{
    ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse,
    ServerReflectionRequest, ServerReflectionResponse, ServiceResponse,
};

use crate::serve::grpc::{Code, GrpcCall, GrpcStatus};

static OFFERED: LazyLock<Arc<Offered>> = LazyLock::new(|| Arc::new(Offered::read(DESCRIPTORS)));

/// `ServerReflectionInfo`, of both versions: their messages are the same.
pub(super) async fn serve(mut call: GrpcCall) {
    let offered = Arc::clone(&OFFERED);
    let Some(mut answers) = call.answers() else {
        return;
    };
    let end = loop {
        let message = match call.next_message().await {
            Ok(Some(message)) => message,
            Ok(None) => break GrpcStatus::new(Code::Ok, ""),
            Err(status) => break status,
        };
        let Ok(request) = ServerReflectionRequest::decode(message) else {
            break GrpcStatus::new(Code::InvalidArgument, "not a reflection request");
        };
        if !answers.send(&offered.answer(request)).await {
            return;
        }
    };
    answers.end(&end);
}

/// The descriptors, by the names that requests ask for.
#[derive(Debug, Default)]
struct Offered {
    files: BTreeMap<String, ProtoFile>,
    /// Symbol to file.
    symbols: BTreeMap<String, String>,
    services: BTreeSet<String>,
    messages: BTreeSet<String>,
}

#[derive(Debug)]
struct ProtoFile {
    encoded: Bytes,
    imports: Vec<String>,
}

impl Offered {
    fn read(descriptors: &[u8]) -> Self {
        // Written by our own generator, and checked by a test.
        let set = FileDescriptorSet::decode(descriptors).unwrap_or_default();
        let mut offered = Self::default();
        for file in set.file {
            offered.add(file);
        }
        offered
    }

    fn add(&mut self, file: FileDescriptorProto) {
        let scope = file.package().to_owned();
        for message in &file.message_type {
            self.add_message(file.name(), &scope, message);
        }
        for each in &file.enum_type {
            self.add_symbol(file.name(), &scope, each.name());
        }
        for service in &file.service {
            let name = self.add_symbol(file.name(), &scope, service.name());
            for method in &service.method {
                self.add_symbol(file.name(), &name, method.name());
            }
            self.services.insert(name);
        }
        let encoded = file.encode_to_vec().into();
        let imports = file.dependency;
        let name = file.name.unwrap_or_default();
        self.files.insert(name, ProtoFile { encoded, imports });
    }

    fn add_message(&mut self, file: &str, scope: &str, message: &DescriptorProto) {
        let name = self.add_symbol(file, scope, message.name());
        for each in &message.enum_type {
            self.add_symbol(file, &name, each.name());
        }
        for inner in &message.nested_type {
            self.add_message(file, &name, inner);
        }
        self.messages.insert(name);
    }

    fn add_symbol(&mut self, file: &str, scope: &str, name: &str) -> String {
        let symbol = format!("{scope}.{name}");
        self.symbols.insert(symbol.clone(), file.to_owned());
        symbol
    }

    fn answer(&self, request: ServerReflectionRequest) -> ServerReflectionResponse {
        let missing = |what: &str| {
            MessageResponse::ErrorResponse(ErrorResponse {
                error_code: Code::NotFound as i32,
                error_message: what.to_owned(),
            })
        };
        let with_imports = |file: &str| {
            let files = self.with_imports(file);
            MessageResponse::FileDescriptorResponse(FileDescriptorResponse {
                file_descriptor_proto: files,
            })
        };
        let response = match &request.message_request {
            Some(MessageRequest::FileByFilename(name)) if self.files.contains_key(name) => {
                with_imports(name)
            }
            Some(MessageRequest::FileByFilename(_)) => missing("no such file"),
            Some(MessageRequest::FileContainingSymbol(symbol)) => {
                let file = self.symbols.get(symbol.trim_start_matches('.'));
                file.map_or_else(|| missing("no such symbol"), |file| with_imports(file))
            }
            Some(MessageRequest::FileContainingExtension(_)) => missing("no such extension"),
            Some(MessageRequest::AllExtensionNumbersOfType(name)) => {
                if self.messages.contains(name.trim_start_matches('.')) {
                    MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse {
                        base_type_name: name.clone(),
                        extension_number: Vec::new(),
                    })
                } else {
                    missing("no such message")
                }
            }
            Some(MessageRequest::ListServices(_)) => {
                let services = self.services.iter().cloned();
                MessageResponse::ListServicesResponse(ListServiceResponse {
                    service: services.map(|name| ServiceResponse { name }).collect(),
                })
            }
            None => MessageResponse::ErrorResponse(ErrorResponse {
                error_code: Code::InvalidArgument as i32,
                error_message: "the request has no query".to_owned(),
            }),
        };
        ServerReflectionResponse {
            valid_host: request.host.clone(),
            original_request: Some(request),
            message_response: Some(response),
        }
    }

    /// Returns a file and all its imports, each once, the file itself first.
    fn with_imports(&self, name: &str) -> Vec<Vec<u8>> {
        let (mut names, mut next) = (vec![name], 0);
        let mut encoded = Vec::new();
        while let Some(file) = names.get(next).and_then(|name| self.files.get(*name)) {
            encoded.push(file.encoded.to_vec());
            for import in &file.imports {
                if !names.contains(&&**import) {
                    names.push(import);
                }
            }
            next += 1;
        }
        encoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(message: MessageRequest) -> MessageResponse {
        let request = ServerReflectionRequest {
            host: "h".into(),
            message_request: Some(message),
        };
        let response = OFFERED.answer(request.clone());
        assert_eq!(response.original_request, Some(request));
        response.message_response.unwrap()
    }

    /// Returns the names of the files in an answer.
    fn files(response: MessageResponse) -> Vec<String> {
        let MessageResponse::FileDescriptorResponse(files) = response else {
            panic!("{response:?}");
        };
        let names = files.file_descriptor_proto.iter().map(|file| {
            let file = FileDescriptorProto::decode(&**file).unwrap();
            file.name().to_owned()
        });
        names.collect()
    }

    #[test]
    fn services_are_listed() {
        let MessageResponse::ListServicesResponse(list) =
            ask(MessageRequest::ListServices("*".into()))
        else {
            panic!("no list");
        };
        let names: Vec<_> = list.service.iter().map(|service| &*service.name).collect();
        assert_eq!(
            names,
            [
                "envoy.service.ratelimit.v3.RateLimitService",
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection",
            ]
        );
    }

    #[test]
    fn a_symbol_brings_its_file_and_all_imports() {
        for symbol in [
            "envoy.service.ratelimit.v3.RateLimitService",
            "envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit",
            ".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit",
        ] {
            let files = files(ask(MessageRequest::FileContainingSymbol(symbol.into())));
            assert_eq!(files[0], "envoy/service/ratelimit/v3/rls.proto");
            for import in [
                "envoy/config/core/v3/base.proto",
                "envoy/extensions/common/ratelimit/v3/ratelimit.proto",
                "envoy/type/v3/ratelimit_unit.proto",
                "google/protobuf/wrappers.proto",
            ] {
                let times = files.iter().filter(|file| *file == import).count();
                assert_eq!(times, 1, "{import} in {files:?}");
            }
        }
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        for message in [
            MessageRequest::FileByFilename("x.proto".into()),
            MessageRequest::FileContainingSymbol("x.Y".into()),
            MessageRequest::AllExtensionNumbersOfType("x.Y".into()),
        ] {
            let MessageResponse::ErrorResponse(error) = ask(message) else {
                panic!("found");
            };
            assert_eq!(error.error_code, 5);
        }
    }
}
