//! Stop: health goes down first, then calls in flight finish.

use bytes::Bytes;
use prost::Message;
use ratekeeper_server::Event;
use ratekeeper_wire::health::HealthCheckResponse;
use ratekeeper_wire::health::health_check_response::ServingStatus;

use super::client::{Client, SHOULD_RATE_LIMIT, framed};
use super::health::about;
use super::rls::{POLICY, user};
use super::{Fixture, run};

#[test]
fn health_goes_down_first_and_calls_in_flight_finish() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let mut watch = client.begin("/grpc.health.v1.Health/Watch", &[]).await;
        watch.message(&about("ratelimit"));
        let mut watch = watch.answers().await;
        let health: HealthCheckResponse = watch.message().await;
        assert_eq!(health.status(), ServingStatus::Serving);

        // Half a call: its message is still to come.
        let mut busy = Client::connect(fixture.grpc()).await;
        let mut half = busy.begin(SHOULD_RATE_LIMIT, &[]).await;
        half.send
            .send_data(Bytes::from_static(&[0, 0]), false)
            .unwrap();
        tokio::task::yield_now().await;
        let answer = busy.call("/grpc.health.v1.Health/Check", &about("")).await;
        assert_eq!(answer.code, 0, "the half call arrived before this one");

        fixture.service.stop();
        let health: HealthCheckResponse = watch.message().await;
        assert_eq!(health.status(), ServingStatus::NotServing);
        let mut late = Client::connect(fixture.grpc()).await;
        let answer = late.call(SHOULD_RATE_LIMIT, &user("ada")).await;
        assert_eq!(
            answer.code, 0,
            "a client that does not know of the stop is served"
        );
        assert_eq!(watch.end().await, (14, "the server stops".into()));

        let message = framed(&user("ada").encode_to_vec());
        half.send.send_data(message.slice(2..), true).unwrap();
        assert_eq!(
            half.answer().await.code,
            0,
            "a call in progress is finished"
        );
        client.connection.await.unwrap().unwrap();
        busy.connection.await.unwrap().unwrap();
    });
    fixture.await_event(|event| matches!(event, Event::Stopped).then_some(()));
    fixture.service.wait();
}
