//! Waiting on tokio's own timer, in real time.

use std::sync::{Arc, Mutex};

use ratekeeper::core::{Algorithm, Gcra, Nanos};
use ratekeeper::{Clock, Limiter};

#[test]
fn tasks_wait_in_order_and_aborted_tasks_leave_the_queue() {
    const TASKS: u64 = 100;
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    let limiter = Arc::new(Limiter::new(
        Gcra::spacing(Nanos::from_micros(200)).unwrap(),
    ));
    let start = limiter.clock().now();
    let order = Arc::new(Mutex::new(Vec::new()));
    runtime.block_on(async {
        let wait = |number: u64| {
            let (limiter, order) = (Arc::clone(&limiter), Arc::clone(&order));
            tokio::spawn(async move {
                limiter.acquire().await.unwrap();
                order.lock().unwrap().push(number);
            })
        };
        let tasks: Vec<_> = (0..TASKS).map(wait).collect();
        tokio::task::yield_now().await; // all have joined the line
        for task in tasks.iter().skip(3).step_by(4) {
            task.abort();
        }
        for (number, task) in tasks.into_iter().enumerate() {
            assert!(task.await.is_ok() || number % 4 == 3);
        }
    });
    let order = order.lock().unwrap();
    assert!(order.is_sorted(), "{order:?}");
    assert!(order.len() as u64 >= TASKS * 3 / 4);
    let step_back = Nanos::from_micros(10); // of the processor's counter
    let took = limiter.clock().now().since(start) + step_back;
    assert!(limiter.show(|limit| limit.bound(took)) >= order.len() as u64);
    assert_eq!(limiter.waiting(), 0);
}
