//! Threads that own what cannot leave its thread, and do jobs.

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
        let (answers, answered) = channel();
        let mut count = 0;
        for input in inputs {
            let (answers, job, index) = (answers.clone(), job.clone(), count);
            let work = move |equipment: &mut Equipped<E>| {
                let answer = match equipment {
                    Ok(ready) => job(ready, input),
                    Err(fault) => Err(HarnessFault::new(&*fault.context, &fault.message)),
                };
                if let Err(fault) = &answer {
                    *equipment = Err(HarnessFault::new(&*fault.context, &fault.message));
                }
                // Whoever asked may have given up.
                let _ = answers.send((index, answer));
            };
            let sender = self.jobs.as_ref().ok_or_else(ended)?;
            sender.send(Box::new(work)).map_err(|_| ended())?;
            count += 1;
        }
        drop(answers);
        let mut results: Vec<Option<O>> = std::iter::repeat_with(|| None).take(count).collect();
        for (index, answer) in answered {
            results[index] = Some(answer?);
        }
        results.into_iter().map(|result| result.ok_or_else(ended)).collect()
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
