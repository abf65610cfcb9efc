//! An execute-task call of `auto`: chooses the kind, and makes the call, when the first of its partitions is polled.

use crate::auto::Auto;
use crate::auto::choices::Route;
use crate::config::TransportOptions;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DataFusionError, Result, internal_datafusion_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::ExecuteTaskRequest;
use futures::future::{BoxFuture, Shared};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use http::HeaderMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

type Batches = BoxStream<'static, Result<RecordBatch>>;

/// Chooses, calls, and puts each stream into its slot. Polled by whichever partitions are, and by a task of the call's own.
type Start = Shared<BoxFuture<'static, Result<Route, Arc<DataFusionError>>>>;

/// One partition of a call.
enum Slot {
    /// The call was not made yet.
    Pending,
    /// Nobody polled it since the call was made.
    Ready(Batches),
    /// Its consumer has it.
    Taken,
    /// Its consumer is gone, which had polled it or not.
    Dropped { polled: bool },
}

/// What the partitions of a call share.
struct Call {
    auto: Arc<Auto>,
    url: Url,
    slots: Arc<[Mutex<Slot>]>,
    start: Start,
    /// Goes on with the start where those who polled it don't: the first poll of a partition starts all of them.
    starting: OnceLock<AbortOnDropHandle<()>>,
}

/// The batches of one partition. Dropped before the call is made, it is dropped unpolled when it is; with its last partition, a
/// call that was not made is made in the background, so that the worker is told to release it.
pub(super) struct AutoStream {
    call: Arc<Call>,
    /// Its slot.
    partition: usize,
    polled: bool,
    state: State,
}

enum State {
    Waiting(Start),
    Open(Batches, Route),
    Done,
}

/// The streams of a call, in partition order. Sends nothing, and connects to nobody, before one of them is polled.
pub(super) fn execute_task(
    auto: &Arc<Auto>,
    url: &Url,
    headers: HeaderMap,
    request: ExecuteTaskRequest,
    metrics: ExecutionPlanMetricsSet,
    ctx: Arc<TaskContext>,
) -> Vec<AutoStream> {
    let count = request
        .target_partition_end
        .saturating_sub(request.target_partition_start);
    let slots: Arc<[_]> = (0..count).map(|_| Mutex::new(Slot::Pending)).collect();
    let start = {
        let (auto, url, slots) = (Arc::clone(auto), url.clone(), Arc::clone(&slots));
        async move {
            let limit = TransportOptions::from_session(ctx.session_config()).connect_timeout()?;
            let route = auto.route(&url, limit).await?;
            let mut channel = auto.channel(&url, route, limit).await?;
            let streams = channel.execute_task(headers, request, metrics, &ctx).await;
            let streams = streams.inspect_err(|err| auto.call_failed(&url, route, err))?;
            for (slot, stream) in slots.iter().zip(streams) {
                put(slot, stream);
            }
            Ok(route)
        }
    };
    let call = Arc::new(Call {
        auto: Arc::clone(auto),
        url: url.clone(),
        slots,
        start: start
            .map(|started: Result<_>| started.map_err(Arc::new))
            .boxed()
            .shared(),
        starting: OnceLock::new(),
    });
    let stream = |partition| AutoStream {
        state: State::Waiting(call.start.clone()),
        call: Arc::clone(&call),
        partition,
        polled: false,
    };
    (0..count).map(stream).collect()
}

/// Gives a partition its stream. One that was polled, and dropped since, is polled once for it, which starts its siblings.
fn put(slot: &Mutex<Slot>, mut stream: Batches) {
    let mut slot = lock(slot);
    match *slot {
        Slot::Pending => *slot = Slot::Ready(stream),
        Slot::Dropped { polled: true } => drop(stream.next().now_or_never()),
        Slot::Ready(_) | Slot::Taken | Slot::Dropped { polled: false } => {}
    }
}

impl Call {
    fn poll_start(&self, start: &mut Start, cx: &mut Context<'_>) -> Poll<Result<Route>> {
        let poll = start.poll_unpin(cx);
        if poll.is_pending()
            && let Ok(runtime) = Handle::try_current()
        {
            let go_on = || AbortOnDropHandle::new(runtime.spawn(self.start.clone().map(drop)));
            self.starting.get_or_init(go_on);
        }
        poll.map_err(DataFusionError::Shared)
    }
}

impl AutoStream {
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        loop {
            match &mut self.state {
                State::Waiting(start) => {
                    self.polled = true;
                    let route = ready!(self.call.poll_start(start, cx))?;
                    let batches = self.take_slot().ok_or_else(|| {
                        internal_datafusion_err!("the transport gave no stream for a partition")
                    })?;
                    self.state = State::Open(batches, route);
                }
                State::Open(batches, route) => {
                    let next = ready!(batches.poll_next_unpin(cx));
                    if let Some(Err(err)) = &next {
                        self.call.auto.call_failed(&self.call.url, *route, err);
                    }
                    return Poll::Ready(next);
                }
                State::Done => return Poll::Ready(None),
            }
        }
    }

    /// The stream, where the call was made.
    fn take_slot(&self) -> Option<Batches> {
        self.leave(Slot::Taken)
    }

    /// Leaves the slot like this, for good.
    fn leave(&self, left: Slot) -> Option<Batches> {
        let mut slot = lock(self.call.slots.get(self.partition)?);
        match std::mem::replace(&mut *slot, left) {
            Slot::Ready(batches) => Some(batches),
            Slot::Pending | Slot::Taken | Slot::Dropped { .. } => None,
        }
    }
}

impl Stream for AutoStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let poll = self.poll_batch(cx);
        if !matches!(poll, Poll::Pending | Poll::Ready(Some(Ok(_)))) {
            self.state = State::Done;
        }
        poll
    }
}

impl Drop for AutoStream {
    fn drop(&mut self) {
        drop(self.leave(Slot::Dropped {
            polled: self.polled,
        }));
    }
}

impl Drop for Call {
    /// Bounded by the time to reach the worker; the streams it makes are dropped at once, and release themselves.
    fn drop(&mut self) {
        if self.start.peek().is_none() {
            let start = self.start.clone();
            self.auto.spawn(start.map(drop));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
