//! Reflection: the services of this server, for tools that have no protos at hand.

use prost::Message;
use prost_reflect::FileDescriptor;
use ratekeeper_wire::reflection::server_reflection_request::MessageRequest;
use ratekeeper_wire::reflection::server_reflection_response::MessageResponse;
use ratekeeper_wire::reflection::{
    ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse,
    ServerReflectionRequest, ServerReflectionResponse, ServiceResponse,
};

use super::PROTOS;
use crate::serve::grpc::{Code, GrpcCall, GrpcStatus};

/// `ServerReflectionInfo`, of both versions: their messages are the same.
pub(super) async fn serve(mut call: GrpcCall) {
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
        if !answers.send(&answer(request)).await {
            return;
        }
    };
    answers.end(&end);
}

fn answer(request: ServerReflectionRequest) -> ServerReflectionResponse {
    let error = |code: Code, what: &str| {
        MessageResponse::ErrorResponse(ErrorResponse {
            error_code: code as i32,
            error_message: what.to_owned(),
        })
    };
    let missing = |what| error(Code::NotFound, what);
    let response = match &request.message_request {
        Some(MessageRequest::FileByFilename(name)) => {
            let file = PROTOS.get_file_by_name(name);
            file.map_or_else(|| missing("no such file"), with_imports)
        }
        Some(MessageRequest::FileContainingSymbol(symbol)) => {
            let file = file_of(symbol.trim_start_matches('.'));
            file.map_or_else(|| missing("no such symbol"), with_imports)
        }
        Some(MessageRequest::FileContainingExtension(_)) => missing("no such extension"),
        Some(MessageRequest::AllExtensionNumbersOfType(name)) => {
            let message = PROTOS.get_message_by_name(name.trim_start_matches('.'));
            let none = |_| {
                MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse {
                    base_type_name: name.clone(),
                    extension_number: Vec::new(),
                })
            };
            message.map_or_else(|| missing("no such message"), none)
        }
        Some(MessageRequest::ListServices(_)) => {
            let names = PROTOS.services().map(|it| it.full_name().to_owned());
            let mut names: Vec<_> = names.collect();
            names.sort();
            let service = names.into_iter().map(|name| ServiceResponse { name });
            MessageResponse::ListServicesResponse(ListServiceResponse {
                service: service.collect(),
            })
        }
        None => error(Code::InvalidArgument, "the request has no query"),
    };
    ServerReflectionResponse {
        valid_host: request.host.clone(),
        original_request: Some(request),
        message_response: Some(response),
    }
}

/// Returns the file of a message, an enumeration, a service or a method.
fn file_of(symbol: &str) -> Option<FileDescriptor> {
    let service = |name| Some(PROTOS.get_service_by_name(name)?.parent_file());
    let (parent, name) = symbol.rsplit_once('.').unwrap_or_default();
    let methods = PROTOS.get_service_by_name(parent);
    let is_method = methods.is_some_and(|it| it.methods().any(|method| method.name() == name));
    None.or_else(|| Some(PROTOS.get_message_by_name(symbol)?.parent_file()))
        .or_else(|| Some(PROTOS.get_enum_by_name(symbol)?.parent_file()))
        .or_else(|| service(if is_method { parent } else { symbol }))
}

/// Returns a file and all that it imports, each once.
fn with_imports(file: FileDescriptor) -> MessageResponse {
    let mut files = vec![file];
    let mut next = 0;
    while let Some(file) = files.get(next).cloned() {
        for import in file.dependencies() {
            if !files.contains(&import) {
                files.push(import);
            }
        }
        next += 1;
    }
    let encoded = files.iter().map(FileDescriptor::encode_to_vec);
    MessageResponse::FileDescriptorResponse(FileDescriptorResponse {
        file_descriptor_proto: encoded.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::FileDescriptorProto;

    fn ask(message: MessageRequest) -> MessageResponse {
        let request = ServerReflectionRequest {
            host: "h".into(),
            message_request: Some(message),
        };
        let response = answer(request.clone());
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
