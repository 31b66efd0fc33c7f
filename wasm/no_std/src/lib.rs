//! A limit in a program without a standard library and without a heap: the target `wasm32v1-none`
//! has neither. The host is `../run.mjs`.
#![no_std]

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicU32, Ordering};

use ratekeeper_core::{CellLimiter, Clock, Gcra, Nanos, Origin, Quota, Time};

/// A clock of the program's own: milliseconds, as an interrupt of a timer would count them.
struct Ticks(AtomicU32);

impl Clock for &Ticks {
    fn now(&self) -> Time {
        Time::ZERO + Nanos::from_millis(self.0.load(Ordering::Relaxed).into())
    }

    fn origin(&self) -> Origin {
        Origin::UNIX // not known
    }
}

/// Asks a limit of `burst` permits, and one more every 100 ms, a number of times; returns the
/// number of requests that pass.
#[unsafe(no_mangle)]
pub extern "C" fn passes(burst: u32, asks: u32, millis_between: u32) -> u32 {
    let ticks = Ticks(AtomicU32::new(0));
    let quota = Quota::per_second(10).with_burst(u64::from(burst));
    let Ok(bucket) = quota.and_then(Gcra::token_bucket) else {
        return u32::MAX;
    };
    let limiter = CellLimiter::new(bucket, &ticks);
    let mut passed = 0;
    for _ in 0..asks {
        passed += u32::from(limiter.check().is_ok());
        ticks.0.fetch_add(millis_between, Ordering::Relaxed);
    }
    passed
}

/// No heap: the limit allocates nothing, and a program that tries is stopped.
struct NoHeap;

// SAFETY: an allocator may return null for every request, and what it has not given is never freed.
unsafe impl GlobalAlloc for NoHeap {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static HEAP: NoHeap = NoHeap;

#[panic_handler]
fn stop(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
