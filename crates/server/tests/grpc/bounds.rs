//! Bounds: malformed or oversized calls are refused or bounded, and the service is unharmed.

use bytes::Bytes;
use prost::Message;
use ratekeeper_wire::{MAX_DESCRIPTORS, MAX_ENTRIES, MAX_REQUEST_BYTES};

use super::client::{Client, SHOULD_RATE_LIMIT, framed};
use super::rls::{POLICY, descriptor, request, user};
use super::{Fixture, run};

#[test]
fn malformed_calls_are_refused_and_the_next_is_served() {
    let fixture = Fixture::new(POLICY);
    let good = framed(&user("ada").encode_to_vec());
    let two = Bytes::from([&good[..], &good[..]].concat());
    let compressed = Bytes::from([&[1], &good[1..]].concat());
    let announced = |length: u32| Bytes::from([&[0][..], &length.to_be_bytes()].concat());
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        for (bytes, code, message) in [
            (Bytes::new(), 3, "the call has no message"),
            (good.slice(..3), 3, "the last message is cut short"),
            (
                good.slice(..good.len() - 1),
                3,
                "the last message is cut short",
            ),
            (two, 3, "the call has more than one message"),
            (
                compressed,
                12,
                "compressed messages are not read; send grpc-encoding: identity",
            ),
            (
                announced(u32::MAX),
                8,
                "the message has 4294967295 bytes, at most 65536 are read",
            ),
            (framed(b"\xff"), 3, "the message cannot be read: "),
            (
                framed(b"\x12\x05\x0a"),
                3,
                "the message cannot be read: the message ends too early",
            ),
        ] {
            let answer = client.raw(SHOULD_RATE_LIMIT, &[], bytes).await;
            assert_eq!(answer.code, code, "{answer:?}");
            assert!(answer.message.starts_with(message), "{answer:?}");
        }
        assert_eq!(client.call(SHOULD_RATE_LIMIT, &user("ada")).await.code, 0);
    });
}

#[test]
fn descriptors_and_entries_are_counted() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let many = |descriptors: usize, entries: usize| {
            request(vec![descriptor(&vec![("k", "v"); entries]); descriptors])
        };
        for (descriptors, entries, code) in [
            (MAX_DESCRIPTORS, 2, 0),
            (1, MAX_ENTRIES, 0),
            (MAX_DESCRIPTORS + 1, 1, 3),
            (1, MAX_ENTRIES + 1, 3),
            (5_000, 1, 3),
        ] {
            let answer = client
                .call(SHOULD_RATE_LIMIT, &many(descriptors, entries))
                .await;
            assert_eq!(
                answer.code, code,
                "{descriptors} {entries}: {}",
                answer.message
            );
        }
        let large = "x".repeat(MAX_REQUEST_BYTES);
        let answer = client.call(SHOULD_RATE_LIMIT, &user(&large)).await;
        assert_eq!(answer.code, 8, "{}", answer.message);
        assert_eq!(client.call(SHOULD_RATE_LIMIT, &user("ada")).await.code, 0);
    });
}

#[test]
fn only_grpc_calls_of_known_methods_are_answered() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let good = framed(&user("ada").encode_to_vec());
        for (path, content_type, http_status, code) in [
            ("/x.Y/Z", "application/grpc", 200, 12),
            ("/", "application/grpc", 200, 12),
            (SHOULD_RATE_LIMIT, "application/grpc+proto", 200, 0),
            (SHOULD_RATE_LIMIT, "application/json", 415, -1),
        ] {
            let fields = [("content-type", content_type)];
            let answer = client.raw(path, &fields, good.clone()).await;
            assert_eq!(
                (answer.http_status, answer.code),
                (http_status, code),
                "{path}"
            );
        }
    });
}

#[test]
fn a_call_past_its_deadline_is_not_charged() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let good = framed(&user("ada").encode_to_vec());
        for field in [
            ("grpc-timeout", "0m"),
            ("x-envoy-expected-rq-timeout-ms", "0"),
        ] {
            let answer = client.raw(SHOULD_RATE_LIMIT, &[field], good.clone()).await;
            assert_eq!(answer.status(), (4, "the deadline of the call has passed"));
        }
        // The message never comes: the deadline does.
        let call = client
            .begin(SHOULD_RATE_LIMIT, &[("grpc-timeout", "20m")])
            .await;
        let answer = call.answer().await;
        assert_eq!(answer.status(), (4, "the deadline of the call has passed"));
    });
}

#[test]
fn a_message_may_arrive_byte_by_byte() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        let good = framed(&user("ada").encode_to_vec());
        let mut call = client.begin(SHOULD_RATE_LIMIT, &[]).await;
        for byte in &good[..] {
            call.send
                .send_data(Bytes::copy_from_slice(&[*byte]), false)
                .unwrap();
            tokio::task::yield_now().await;
        }
        call.send.send_data(Bytes::new(), true).unwrap();
        assert_eq!(call.answer().await.code, 0);
    });
}

#[test]
fn a_slow_reader_delays_no_other_client_and_is_bounded() {
    let fixture = Fixture::new(POLICY);
    run(async {
        // No room for a single byte of any answer.
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(0);
        let stream = tokio::net::TcpStream::connect(fixture.grpc())
            .await
            .unwrap();
        let mut slow = Client::with(stream, &builder).await;
        let good = framed(&user("slow").encode_to_vec());
        let mut begun = Vec::new();
        for _ in 0..100 {
            let mut call = slow.begin(SHOULD_RATE_LIMIT, &[]).await;
            call.send.send_data(good.clone(), true).unwrap();
            begun.push(call.answers().await);
        }
        // All streams are taken: the next call does not begin, and takes nothing.
        let more = tokio::time::timeout(std::time::Duration::from_millis(300), async {
            let mut call = slow.begin(SHOULD_RATE_LIMIT, &[]).await;
            call.send.send_data(good.clone(), true).unwrap();
            call.answers().await
        });
        assert!(
            more.await.is_err(),
            "no call begins after a hundred unread answers"
        );

        let mut other = Client::connect(fixture.grpc()).await;
        assert_eq!(other.call(SHOULD_RATE_LIMIT, &user("ada")).await.code, 0);
    });
}

#[test]
fn calls_that_are_begun_and_reset_end_the_connection() {
    let fixture = Fixture::new(POLICY);
    run(async {
        let mut client = Client::connect(fixture.grpc()).await;
        for _ in 0..50 {
            let mut call = client.begin(SHOULD_RATE_LIMIT, &[]).await;
            call.send.send_reset(h2::Reason::CANCEL);
        }
        let mut other = Client::connect(fixture.grpc()).await;
        assert_eq!(other.call(SHOULD_RATE_LIMIT, &user("ada")).await.code, 0);
    });
}
