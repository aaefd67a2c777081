//! The synchronous face of asynchronous work: one thread with its own runtime, and a map that
//! starts each piece of work once, however many ask for it.
//!
//! One thread, because the futures of `uv-client` are not `Send`; waiting on many servers needs
//! no more.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use futures::future::LocalBoxFuture;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// A lock whose holder panicked still guards whole values here: each is written in one step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An answer that will come.
pub(super) struct Slot<T> {
    value: Mutex<Option<T>>,
    ready: Condvar,
}

impl<T: Clone> Slot<T> {
    /// Blocks until the answer is there.
    pub(super) fn wait(&self) -> T {
        let mut value = lock(&self.value);
        loop {
            match &*value {
                Some(value) => return value.clone(),
                None => {
                    value = self.ready.wait(value).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// The duty to answer. Dropped unanswered (its task was cancelled or panicked), it answers with
/// what was agreed for that case, so that nobody waits for ever.
pub(super) struct Promise<T: Clone> {
    slot: Arc<Slot<T>>,
    otherwise: Option<T>,
}

impl<T: Clone> Promise<T> {
    /// A promise and the place where its answer will be.
    pub(super) fn new(otherwise: T) -> (Self, Arc<Slot<T>>) {
        let slot = Arc::new(Slot { value: Mutex::new(None), ready: Condvar::new() });
        (Promise { slot: slot.clone(), otherwise: Some(otherwise) }, slot)
    }

    /// Answers.
    pub(super) fn keep(mut self, value: T) {
        self.otherwise = None;
        self.set(value);
    }

    fn set(&self, value: T) {
        *lock(&self.slot.value) = Some(value);
        self.slot.ready.notify_all();
    }
}

impl<T: Clone> Drop for Promise<T> {
    fn drop(&mut self) {
        if let Some(value) = self.otherwise.take() {
            self.set(value);
        }
    }
}

/// Answers by question, each sought once.
pub(super) struct OnceMap<K, T>(Mutex<HashMap<K, Arc<Slot<T>>>>);

impl<K: Eq + Hash, T: Clone> OnceMap<K, T> {
    pub(super) fn new() -> Self {
        OnceMap(Mutex::new(HashMap::new()))
    }

    /// The place of the answer to `key`; `start` is called if nobody asked before. It runs under
    /// the map's lock and must only hand the work on.
    pub(super) fn get_or_start(
        &self,
        key: K,
        otherwise: impl FnOnce() -> T,
        start: impl FnOnce(Promise<T>),
    ) -> Arc<Slot<T>> {
        let mut map = lock(&self.0);
        map.entry(key)
            .or_insert_with(|| {
                let (promise, slot) = Promise::new(otherwise());
                start(promise);
                slot
            })
            .clone()
    }
}

type Job<C> = Box<dyn FnOnce(Rc<C>) -> LocalBoxFuture<'static, ()> + Send>;

/// A thread that runs jobs concurrently over a context of its own.
pub(super) struct Worker<C: 'static> {
    jobs: Option<UnboundedSender<Job<C>>>,
    thread: Option<JoinHandle<()>>,
}

impl<C: 'static> Worker<C> {
    /// Starts the thread and makes its context there.
    ///
    /// # Errors
    /// What `make` says, or `broken` with the reason why there is no thread or runtime.
    pub(super) fn start<E, F>(
        make: impl FnOnce() -> F + Send + 'static,
        broken: impl Fn(String) -> E + Send + Clone + 'static,
    ) -> Result<Self, E>
    where
        E: Send + 'static,
        F: Future<Output = Result<C, E>>,
    {
        let (jobs, mut queue) = unbounded_channel::<Job<C>>();
        let (started, made) = std::sync::mpsc::channel::<Result<(), E>>();
        let sorry = broken.clone();
        let body = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(err) => {
                    let _ = started.send(Err(sorry(err.to_string())));
                    return;
                }
            };
            let tasks = tokio::task::LocalSet::new();
            tasks.block_on(&runtime, async {
                let context = match make().await {
                    Ok(context) => Rc::new(context),
                    Err(err) => {
                        let _ = started.send(Err(err));
                        return;
                    }
                };
                if started.send(Ok(())).is_err() {
                    return;
                }
                while let Some(job) = queue.recv().await {
                    tokio::task::spawn_local(job(context.clone()));
                }
            });
            // Work still under way is dropped, and with it the promises.
            drop(tasks);
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new()
            .name("wheel-sources".into())
            .stack_size(8 << 20)
            .spawn(body)
            .map_err(|err| broken(err.to_string()))?;
        let worker = Worker { jobs: Some(jobs), thread: Some(thread) };
        match made.recv() {
            Ok(Ok(())) => Ok(worker),
            Ok(Err(err)) => Err(err),
            Err(_) => Err(broken("the thread ended at once".into())),
        }
    }

    /// Has a job run; if the thread is gone, the job is dropped.
    pub(super) fn run<F>(&self, job: impl FnOnce(Rc<C>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        if let Some(jobs) = &self.jobs {
            // A failed send drops the job, and its promise answers.
            let _ = jobs.send(Box::new(move |context| Box::pin(job(context))));
        }
    }
}

impl<C: 'static> Drop for Worker<C> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been answered for by the promises it dropped.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn worker() -> Worker<Cell<u32>> {
        Worker::start(|| async { Ok::<_, String>(Cell::new(0)) }, |reason| reason).unwrap()
    }

    #[test]
    fn many_ask_and_one_works() {
        let (worker, map) = (worker(), OnceMap::<u8, u32>::new());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let slot = map.get_or_start(
                        1,
                        || 0,
                        |promise| {
                            worker.run(|count| async move {
                                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                                count.set(count.get() + 1);
                                promise.keep(count.get());
                            });
                        },
                    );
                    assert_eq!(slot.wait(), 1);
                });
            }
        });
    }

    #[test]
    fn a_lost_promise_is_answered() {
        let map = OnceMap::<u8, u32>::new();
        let slot = {
            let worker = worker();
            map.get_or_start(
                1,
                || 7,
                |promise| {
                    worker.run(|_| async move {
                        std::future::pending::<()>().await;
                        promise.keep(1);
                    });
                },
            )
        };
        assert_eq!(slot.wait(), 7);
    }

    #[test]
    fn a_context_that_cannot_be_made_is_an_error() {
        let made = Worker::<u8>::start(|| async { Err("no".to_owned()) }, |reason| reason);
        assert_eq!(made.err().as_deref(), Some("no"));
    }
}
