//! A pool of threads that works through one numbered list after the other.
//!
//! The calling thread is one of the workers. Items are claimed in order, and a claimed item is always
//! finished: after a list was cut short by a deadline, the finished items are its beginning. Or every
//! item has a home, the thread that has what belongs to it at hand; then each thread begins with its
//! own items, and helps the others when it has no more.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use fathom_record::pace::Moment;

use super::spin_barrier::SpinBarrier;

/// A list of items of one kind of work.
#[derive(Clone, Copy)]
struct Job<P> {
    phase: P,
    list: List,
}

#[derive(Clone, Copy)]
enum List {
    /// A number of items, claimed in order, until the time is over.
    InOrder(usize, Option<Moment>),
    /// The items of [`Workers::homes`].
    Homes,
}

/// An item that one thread should work on.
struct PinnedItem {
    home: usize,
    is_claimed: AtomicBool,
}

/// One item for one thread.
#[derive(Clone, Copy)]
pub(super) struct Task<P> {
    pub(super) phase: P,
    pub(super) item: usize,
    /// The number of the thread.
    pub(super) thread: usize,
}

/// The threads, and the function that they call for a task.
pub(super) struct Workers<'a, P> {
    work: &'a (dyn Fn(Task<P>) + Sync),
    threads: usize,
    /// The barrier at which all wait before a job, and again after it.
    barrier: SpinBarrier,
    /// The present job; none tells the threads to end.
    job: Mutex<Option<Job<P>>>,
    /// The next item that nobody has claimed, if they are claimed in order.
    next: AtomicUsize,
    /// The items, if each has a home.
    homes: RwLock<Vec<PinnedItem>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl<'a, P: Copy + Send + Sync> Workers<'a, P> {
    /// Calls `lead` with so many threads, which have ended when this returns.
    pub(super) fn gather<R>(
        threads: usize,
        work: &'a (dyn Fn(Task<P>) + Sync),
        lead: impl FnOnce(&Workers<'a, P>) -> R,
    ) -> R {
        let workers = Workers {
            work,
            threads,
            barrier: SpinBarrier::new(threads),
            job: Mutex::new(None),
            next: AtomicUsize::new(0),
            homes: RwLock::new(Vec::new()),
            panic: Mutex::new(None),
        };
        std::thread::scope(|scope| {
            for thread in 1..threads {
                let workers = &workers;
                scope.spawn(move || workers.follow(thread));
            }
            // Also when `lead` panics: a scope waits for its threads.
            let _dismissal = StopOnDrop(&workers);
            lead(&workers)
        })
    }

    /// Works through `items` items and returns how many were finished: all, unless the deadline
    /// passed before. At least one is. `alone`: too little work to wake the others for. Each thread
    /// gets its items in ascending order.
    pub(super) fn run(
        &self,
        phase: P,
        items: usize,
        deadline: Option<Moment>,
        alone: bool,
    ) -> usize {
        self.next.store(0, Ordering::Relaxed);
        self.work_off(Job { phase, list: List::InOrder(items, deadline) }, alone || items < 2);
        self.next.load(Ordering::Relaxed).min(items)
    }

    /// Works through one item for each home. Each thread gets its own items in ascending order,
    /// then those of others that nobody has claimed.
    pub(super) fn run_pinned(&self, phase: P, homes: impl Iterator<Item = usize>) {
        {
            let mut list = self.homes.write().unwrap_or_else(PoisonError::into_inner);
            list.clear();
            list.extend(homes.map(|home| PinnedItem { home, is_claimed: AtomicBool::new(false) }));
        }
        self.work_off(Job { phase, list: List::Homes }, false);
    }

    fn work_off(&self, job: Job<P>, alone: bool) {
        if alone || self.threads < 2 {
            self.work_any(0, job);
        } else {
            *self.job.lock().unwrap_or_else(PoisonError::into_inner) = Some(job);
            self.barrier.wait();
            self.work_any(0, job);
            self.barrier.wait();
        }
        if let Some(panic) = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
            resume_unwind(panic);
        }
    }

    fn follow(&self, thread: usize) {
        loop {
            self.barrier.wait();
            let Some(job) = *self.job.lock().unwrap_or_else(PoisonError::into_inner) else {
                return;
            };
            self.work_any(thread, job);
            self.barrier.wait();
        }
    }

    /// Claims and finishes items. A panic ends the job for everybody and goes to the leader: a
    /// thread that did not come to the barrier would block the others for ever.
    fn work_any(&self, thread: usize, Job { phase, list }: Job<P>) {
        let work = |item| (self.work)(Task { phase, item, thread });
        let work_any = || match list {
            List::InOrder(items, deadline) => self.work_in_order(items, deadline, work),
            List::Homes => self.work_pinned(thread, work),
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work_any)) {
            match list {
                List::InOrder(items, _) => self.next.store(items, Ordering::Relaxed),
                List::Homes => self.pinned_item().iter().for_each(|item| _ = item.claim()),
            }
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
    }

    fn work_in_order(&self, items: usize, deadline: Option<Moment>, work: impl Fn(usize)) {
        loop {
            let late = deadline.is_some_and(|deadline| Moment::now() >= deadline);
            if late && self.next.load(Ordering::Relaxed) > 0 {
                return;
            }
            let item = self.next.fetch_add(1, Ordering::Relaxed);
            if item >= items {
                return;
            }
            work(item);
        }
    }

    fn work_pinned(&self, thread: usize, work: impl Fn(usize)) {
        let items = self.pinned_item();
        let own = (0..items.len()).filter(|item| items[*item].home == thread);
        own.chain(0..items.len()).filter(|item| items[*item].claim()).for_each(work);
    }

    fn pinned_item(&self) -> RwLockReadGuard<'_, Vec<PinnedItem>> {
        self.homes.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PinnedItem {
    /// Claims the item; returns whether nobody was faster.
    fn claim(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::Relaxed)
    }
}

/// Ends the workers when it is dropped.
struct StopOnDrop<'t, 'a, P>(&'t Workers<'a, P>);

impl<P> Drop for StopOnDrop<'_, '_, P> {
    fn drop(&mut self) {
        *self.0.job.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.barrier.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_item_is_done_once() {
        for threads in [1, 2, 4] {
            let done: Vec<AtomicUsize> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
            let work = |task: Task<usize>| {
                assert!(task.thread < threads);
                done[task.item].fetch_add(task.phase, Ordering::Relaxed);
            };
            Workers::gather(threads, &work, |workers| {
                assert_eq!(workers.run(1, 1000, None, false), 1000);
                assert_eq!(workers.run(10, 500, None, true), 500);
                assert_eq!(workers.run(100, 0, None, false), 0);
            });
            assert!(done[..500].iter().all(|times| times.load(Ordering::Relaxed) == 11));
            assert!(done[500..].iter().all(|times| times.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn at_home_every_item_is_done_once_and_ones_own_come_first() {
        for threads in [1, 2, 4] {
            let home = |item: usize| item * 7 % threads;
            let done: Vec<Mutex<Vec<usize>>> = (0..threads).map(|_| Mutex::default()).collect();
            let work = |task: Task<()>| {
                std::thread::sleep(Duration::from_micros(100));
                done[task.thread].lock().unwrap().push(task.item);
            };
            let take = || -> Vec<Vec<usize>> {
                done.iter().map(|done| std::mem::take(&mut *done.lock().unwrap())).collect()
            };
            let assert_once = |done: Vec<Vec<usize>>| {
                let mut items = done.concat();
                items.sort_unstable();
                assert!(items.into_iter().eq(0..100));
            };
            Workers::gather(threads, &work, |workers| {
                workers.run_pinned((), (0..100).map(home));
                let done = take();
                for (thread, items) in done.iter().enumerate() {
                    let own = items.iter().filter(|item| home(**item) == thread).count();
                    assert!(items[..own].iter().all(|item| home(*item) == thread));
                    assert!(items[..own].is_sorted());
                }
                assert_once(done);
                // Nobody is at home: others do the work.
                workers.run_pinned((), (0..100).map(|_| threads));
                assert_once(take());
                workers.run_pinned((), std::iter::empty());
            });
        }
    }

    #[test]
    fn a_deadline_leaves_a_beginning() {
        let done: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        let work = |task: Task<()>| {
            std::thread::sleep(Duration::from_millis(2));
            done[task.item].fetch_add(1, Ordering::Relaxed);
        };
        Workers::gather(3, &work, |workers| {
            assert_eq!(workers.run((), 100, Some(Moment::now()), true), 1);
            let soon = Moment::now() + Duration::from_millis(20);
            let finished = workers.run((), 100, Some(soon), false);
            assert!((1..100).contains(&finished));
            let sum: usize = done[1..].iter().map(|times| times.load(Ordering::Relaxed)).sum();
            assert_eq!(sum, finished - 1);
            assert!(done[1..finished].iter().all(|times| times.load(Ordering::Relaxed) == 1));
        });
    }

    #[test]
    fn a_panic_anywhere_reaches_the_caller() {
        for threads in [1, 2, 4] {
            let work = |task: Task<()>| assert!(task.item != 37, "item 37");
            let lead = |workers: &Workers<'_, ()>| workers.run((), 100, None, false);
            let caught = catch_unwind(AssertUnwindSafe(|| Workers::gather(threads, &work, lead)));
            let panic = caught.expect_err("the panic was lost");
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"item 37"));
            let at_home = |workers: &Workers<'_, ()>| {
                workers.run_pinned((), (0..100).map(|item| item % threads))
            };
            let caught =
                catch_unwind(AssertUnwindSafe(|| Workers::gather(threads, &work, at_home)));
            assert!(caught.is_err());
            let leader = catch_unwind(AssertUnwindSafe(|| {
                Workers::gather(threads, &work, |_| -> () { panic!("leader") });
            }));
            assert!(leader.is_err());
        }
    }
}
