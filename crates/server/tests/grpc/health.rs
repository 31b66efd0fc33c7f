//! Health and reflection.

use prost::Message;
use prost_types::FileDescriptorProto;
use ratekeeper_wire::health::health_check_response::ServingStatus;
use ratekeeper_wire::health::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
};
use ratekeeper_wire::reflection::server_reflection_request::MessageRequest;
use ratekeeper_wire::reflection::server_reflection_response::MessageResponse;
use ratekeeper_wire::reflection::{ServerReflectionRequest, ServerReflectionResponse};

use super::client::Client;
use super::rls::POLICY;
use super::{Fixture, run};

pub(crate) fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.into(),
    }
}

#[test]
fn a_running_service_is_healthy_under_every_name() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        for name in [
            "",
            "ratelimit",
            "envoy.service.ratelimit.v3.RateLimitService",
        ] {
            let answer = client
                .call("/grpc.health.v1.Health/Check", &about(name))
                .await;
            let health: HealthCheckResponse = answer.read();
            assert_eq!(health.status(), ServingStatus::Serving, "{name}");
        }
        let answer = client
            .call("/grpc.health.v1.Health/Check", &about("x"))
            .await;
        assert_eq!(answer.status(), (5, "no such service"));
        let answer = client
            .call("/grpc.health.v1.Health/List", &HealthListRequest {})
            .await;
        let list: HealthListResponse = answer.read();
        assert_eq!(list.statuses.len(), 3);
    });
}

#[test]
fn an_unknown_service_can_be_watched() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let mut call = client.begin("/grpc.health.v1.Health/Watch", &[]).await;
        call.message(&about("x"));
        let health: HealthCheckResponse = call.answers().await.message().await;
        assert_eq!(health.status(), ServingStatus::ServiceUnknown);
    });
}

#[test]
fn reflection_describes_the_service() {
    let fixture = Fixture::new(POLICY);
    run(async {
        for version in ["v1", "v1alpha"] {
            let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
            let mut client = Client::connect(fixture.grpc()).await;
            let mut call = client.begin(&path, &[]).await;
            let symbol = "envoy.service.ratelimit.v3.RateLimitService".to_owned();
            for message in [
                MessageRequest::ListServices(String::new()),
                MessageRequest::FileContainingSymbol(symbol.clone()),
            ] {
                call.message(&ServerReflectionRequest {
                    host: String::new(),
                    message_request: Some(message),
                });
            }
            call.send.send_data(bytes::Bytes::new(), true).unwrap();
            let mut answers = call.answers().await;
            let first: ServerReflectionResponse = answers.message().await;
            let Some(MessageResponse::ListServicesResponse(list)) = first.message_response else {
                panic!("the first response is not a list");
            };
            assert!(list.service.iter().any(|service| service.name == symbol));
            let second: ServerReflectionResponse = answers.message().await;
            let Some(MessageResponse::FileDescriptorResponse(files)) = second.message_response
            else {
                panic!("the second response is not a file");
            };
            let file = FileDescriptorProto::decode(&*files.file_descriptor_proto[0]).unwrap();
            assert_eq!(file.name(), "envoy/service/ratelimit/v3/rls.proto");
            assert_eq!(answers.end().await.0, 0);
        }
    });
}
