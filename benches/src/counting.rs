//! An allocator that counts per thread what it hands out.
//! Only binaries that measure memory install it, so that those which measure time do not pay for it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

static LIVE: AtomicI64 = AtomicI64::new(0);

/// The system's allocator, with counters.
#[derive(Debug)]
pub struct Counting;

/// How many allocations this thread has made; a reallocation is one.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// How many bytes all threads together hold now.
pub fn live_bytes() -> i64 {
    LIVE.load(Ordering::Relaxed)
}

fn count(bytes: i64) {
    // A thread whose locals are gone is not measured any more.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    LIVE.fetch_add(bytes, Ordering::Relaxed);
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

// SAFETY: everything is passed on to `System`, whose contract is the same.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(signed(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        // SAFETY: as the caller promised.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
