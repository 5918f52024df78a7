//! Threads that own what cannot leave its thread, and do jobs.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fathom_core::HarnessFault;

/// Something to do with the equipment of a thread.
type Job<E> = Box<dyn FnOnce(&mut E) + Send>;

/// Threads, each with equipment of its own that is made when it has its first job.
pub(super) struct Pool<E> {
    jobs: Option<Sender<Job<E>>>,
    threads: Vec<JoinHandle<()>>,
}

impl<E: 'static> Pool<E> {
    /// Starts threads; `make` makes the equipment of each. What cannot be made is the answer to every
    /// job of that thread.
    pub(super) fn new(
        name: &str,
        threads: usize,
        make: impl Fn() -> Result<E, HarnessFault> + Clone + Send + 'static,
    ) -> Result<Pool<Equipped<E>>, HarnessFault> {
        let (jobs, received) = channel::<Job<Equipped<E>>>();
        let received = Arc::new(Mutex::new(received));
        let spawn = |number: usize| {
            let (received, make) = (Arc::clone(&received), make.clone());
            let named = std::thread::Builder::new().name(format!("{name}-{number}"));
            named.spawn(move || work(&received, &make))
        };
        let threads: Result<Vec<_>, _> = (0..threads.max(1)).map(spawn).collect();
        let threads = threads.map_err(|error| HarnessFault::new("starting a thread", error))?;
        Ok(Pool { jobs: Some(jobs), threads })
    }
}

/// The equipment of a thread, or why there is none.
pub(super) type Equipped<E> = Result<E, HarnessFault>;

fn work<E>(received: &Mutex<Receiver<Job<Equipped<E>>>>, make: &dyn Fn() -> Equipped<E>) {
    let mut equipment = None;
    loop {
        let job = received.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        job(equipment.get_or_insert_with(make));
        if matches!(equipment, Some(Err(_))) {
            // The reason may have gone when the next job comes.
            equipment = None;
        }
    }
}

impl<E: 'static> Pool<Equipped<E>> {
    /// Does something with the equipment of some thread, for each of `inputs`; the results come in the
    /// same order. A failure of equipment gives it up: the next job gets a new one.
    pub(super) fn each<I: Send + 'static, O: Send + 'static>(
        &self,
        inputs: impl IntoIterator<Item = I>,
        job: impl Fn(&mut E, I) -> Result<O, HarnessFault> + Clone + Send + 'static,
    ) -> Result<Vec<O>, HarnessFault> {
        let inputs: VecDeque<(usize, I)> = inputs.into_iter().enumerate().collect();
        let count = inputs.len();
        let (answers, answered) = channel();
        let waiting = Arc::new(Mutex::new(inputs));
        // A thread takes one input after the other and answers once: in a guest waking somebody for each of them
        // costs as much as a dozen system calls.
        for _ in 0..self.threads.len().min(count) {
            let (answers, job, waiting) = (answers.clone(), job.clone(), Arc::clone(&waiting));
            let work = move |equipment: &mut Equipped<E>| {
                let answer = work_off(equipment, &waiting, &job);
                // Whoever asked may have given up.
                let _ = answers.send(answer);
            };
            let sender = self.jobs.as_ref().ok_or_else(ended)?;
            sender.send(Box::new(work)).map_err(|_| ended())?;
        }
        drop(answers);
        let mut results: Vec<Option<O>> = std::iter::repeat_with(|| None).take(count).collect();
        for answer in answered {
            for (index, output) in answer? {
                results[index] = Some(output);
            }
        }
        results.into_iter().map(|result| result.ok_or_else(ended)).collect()
    }
}

/// Does what is waiting with the equipment of this thread, until nothing is left or something fails: then nobody
/// else has to begin either.
fn work_off<E, I, O>(
    equipment: &mut Equipped<E>,
    waiting: &Mutex<VecDeque<(usize, I)>>,
    job: &impl Fn(&mut E, I) -> Result<O, HarnessFault>,
) -> Result<Vec<(usize, O)>, HarnessFault> {
    let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    let mut done = Vec::new();
    loop {
        let Some((index, input)) = lock().pop_front() else { return Ok(done) };
        let answer = match equipment {
            Ok(ready) => job(ready, input),
            Err(fault) => Err(HarnessFault::new(&*fault.context, &fault.message)),
        };
        match answer {
            Ok(output) => done.push((index, output)),
            Err(fault) => {
                *equipment = Err(HarnessFault::new(&*fault.context, &fault.message));
                lock().clear();
                return Err(fault);
            }
        }
    }
}

fn ended() -> HarnessFault {
    HarnessFault::new("working with disks", "the thread that does it has ended")
}

impl<E> Drop for Pool<E> {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic was told when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_inputs() {
        let pool = Pool::new("test", 3, || Ok(10)).unwrap();
        assert_eq!(pool.each(0..100, |ten, input| Ok(*ten * input)).unwrap()[99], 990);
        let squares = pool.each(0..100_u64, |_, input| {
            std::thread::sleep(std::time::Duration::from_micros(100 - input));
            Ok(input * input)
        });
        assert_eq!(squares.unwrap(), (0..100).map(|input| input * input).collect::<Vec<_>>());
        assert!(pool.each([], |_, input: u8| Ok(input)).unwrap().is_empty());
    }

    #[test]
    fn a_failure_ends_a_batch_and_the_next_one_has_new_equipment() {
        let made = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&made);
        let make = move || Ok(count.fetch_add(1, Ordering::Relaxed));
        let pool = Pool::new("test", 1, make).unwrap();
        let tried = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&tried);
        let failed = pool.each(0..10, move |_, input| {
            count.fetch_add(1, Ordering::Relaxed);
            if input == 3 { Err(HarnessFault::new("three", "fails")) } else { Ok(input) }
        });
        assert_eq!(failed.unwrap_err().context, "three");
        assert_eq!(tried.load(Ordering::Relaxed), 4, "nothing begins after a failure");
        assert_eq!(pool.each([()], |equipment, ()| Ok(*equipment)).unwrap(), [1]);
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }
}
