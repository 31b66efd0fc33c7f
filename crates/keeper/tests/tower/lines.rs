//! Requests that wait in line.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use ratekeeper::KeyedLimiter;
use ratekeeper::core::{Gcra, Nanos};
use ratekeeper::store::MemoryConfig;
use ratekeeper::tower::{RateLimitLayer, ResponseFuture, Single};
use tower_layer::Layer;
use tower_service::Service;

use crate::stage::{Clocked, Stage, clock, get, header, limiter, poll};

type Waiting = Pin<Box<ResponseFuture<Stage, ()>>>;
type Lines = RateLimitLayer<Single<ratekeeper::core::Gcra, Clocked>>;

/// One each 100 ms, and at most `most` in line, for a second.
fn line(most: usize, clock: &Clocked) -> Lines {
    let limiter = limiter("1/100ms", clock).with_most_waiting(most);
    RateLimitLayer::new(limiter).queue(Nanos::SECOND)
}

fn call(layer: &Lines) -> Waiting {
    Box::pin(layer.layer(Stage::default()).call(get("/", &[])))
}

/// Polls all; who is answered now, and how.
fn answered(waiting: &mut Vec<(usize, Waiting)>) -> Vec<(usize, u16)> {
    let mut done = Vec::new();
    waiting.retain_mut(|(number, call)| match poll(call.as_mut()) {
        Poll::Ready(answer) => {
            done.push((*number, answer.unwrap().status().as_u16()));
            false
        }
        Poll::Pending => true,
    });
    done
}

#[test]
fn requests_are_served_in_the_order_in_which_they_came() {
    let clock = clock();
    let layer = line(100, &clock);
    let mut waiting: Vec<_> = (0..10).map(|number| (number, call(&layer))).collect();
    assert_eq!(answered(&mut waiting), [(0, 200)]);
    for number in 1..10 {
        assert_eq!(answered(&mut waiting), []);
        clock.advance(Nanos::from_millis(100));
        assert_eq!(answered(&mut waiting), [(number, 200)]);
    }
}

#[test]
fn who_cannot_be_served_in_time_is_refused_at_once() {
    let clock = clock();
    let layer = line(100, &clock);
    let mut waiting: Vec<_> = (0..14).map(|number| (number, call(&layer))).collect();
    let refused = [11, 12, 13].map(|number| (number, 429));
    assert_eq!(answered(&mut waiting)[1..], refused);
    assert_eq!(waiting.len(), 10, "of a second's worth");
    let mut late = call(&layer);
    let Poll::Ready(Ok(answer)) = poll(late.as_mut()) else {
        panic!("it waits");
    };
    assert_eq!(
        header(&answer, "retry-after").unwrap(),
        "2",
        "1.1 s, rounded up"
    );
}

#[test]
fn a_full_line_takes_nobody() {
    let clock = clock();
    let layer = line(3, &clock);
    let mut waiting: Vec<_> = (0..6).map(|number| (number, call(&layer))).collect();
    assert_eq!(answered(&mut waiting), [(0, 200), (4, 429), (5, 429)]);
}

#[test]
fn who_goes_away_leaves_the_line_and_the_rest_move_up() {
    let clock = clock();
    let layer = line(100, &clock);
    let mut waiting: Vec<_> = (0..6).map(|number| (number, call(&layer))).collect();
    assert_eq!(answered(&mut waiting), [(0, 200)]);
    waiting.retain(|(number, _)| number % 2 == 1); // 2 and 4 are gone
    clock.advance(Nanos::from_millis(100));
    assert_eq!(answered(&mut waiting), [(1, 200)]);
    waiting.remove(0); // 3 was first
    clock.advance(Nanos::from_millis(100));
    assert_eq!(answered(&mut waiting), [(5, 200)]);
    clock.advance(Nanos::from_millis(100));
    let mut next = call(&layer);
    assert!(poll(next.as_mut()).is_ready(), "nobody else was charged");
}

#[test]
fn readiness_neither_waits_nor_takes() {
    let clock = clock();
    let limiter = Arc::new(limiter("1/1h", &clock));
    let layer = RateLimitLayer::new(Arc::clone(&limiter)).queue(Nanos::SECOND);
    let mut services: Vec<_> = (0..100).map(|_| layer.layer(Stage::default())).collect();
    for service in &mut services {
        let ready = std::future::poll_fn(|context| {
            Service::<http::Request<()>>::poll_ready(service, context)
        });
        assert!(poll(std::pin::pin!(ready)).is_ready());
    }
    assert_eq!(limiter.peek().remaining.get(), 1);
    let _ = limiter.check();
    let ready = std::future::poll_fn(|context| {
        Service::<http::Request<()>>::poll_ready(&mut services[0], context)
    });
    assert!(
        poll(std::pin::pin!(ready)).is_ready(),
        "nothing is left, and it does not wait"
    );
}

#[test]
fn each_key_has_its_own_line() {
    let clock = clock();
    let apart = Gcra::spacing(Nanos::from_millis(100)).unwrap();
    let keyed = KeyedLimiter::with_clock(apart, MemoryConfig::default(), Arc::clone(&clock));
    let token =
        |parts: &http::request::Parts| Some(parts.headers.get("x-token")?.as_bytes().to_vec());
    let layer = RateLimitLayer::keyed(keyed, token).queue(Nanos::from_millis(250));
    let call = |token| {
        let mut service = layer.layer(Stage::default());
        Box::pin(service.call(get("/", &[("x-token", token)])))
    };
    let mut waiting: Vec<_> = ["a", "b", "a", "a", "a", "b"]
        .map(call)
        .into_iter()
        .enumerate()
        .collect();
    let mut answered = || {
        let mut done = Vec::new();
        waiting.retain_mut(|(number, call)| match poll(call.as_mut()) {
            Poll::Ready(answer) => {
                done.push((*number, answer.unwrap().status().as_u16()));
                false
            }
            Poll::Pending => true,
        });
        done
    };
    assert_eq!(answered(), [(0, 200), (1, 200), (4, 429)]);
    clock.advance(Nanos::from_millis(100));
    assert_eq!(answered(), [(2, 200), (5, 200)]);
    clock.advance(Nanos::from_millis(100));
    assert_eq!(answered(), [(3, 200)]);
}
