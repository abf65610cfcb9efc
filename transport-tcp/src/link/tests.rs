//! No wake-up is lost, whatever the order in which tasks run.
//!
//! Not `loom`: the semaphore and the watch channel are tokio's, which would have to be built for it. What tasks share here
//! is one lock, so all that the threads of a runtime can do is to reorder whole critical sections, and to deliver
//! wake-ups late. Every such order of small models is tried: all tasks are futures over two real [`Link`]s, a step is one
//! poll, a wake-up is delivered in a step of its own, and an order in which nothing can run before all tasks are done has lost one.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::*;
use crate::mux::{Assembler, Outgoing};
use crate::recv_stream::TcpRecvStream;
use crate::send_stream::TcpSendStream;
use bytes::{BufMut, Bytes, BytesMut};
use datafusion_transport_core::connection::{RecvStream, SendStream};
use datafusion_transport_core::connection::{StreamClass, StreamCode, read, write};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// One frame and one write fill a window.
const LIMITS: Limits = Limits {
    stream_window_bytes: 8,
    max_frame_bytes: 8,
    max_streams: 1,
    max_unaccepted_streams: 1,
    early_window_bytes: 8,
    early_limit_bytes: 8,
    send_buffer_bytes: 8,
};
/// More orders than any model has: a model that grows beyond is a mistake.
const MAX_ORDERS: usize = 2_000_000;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Wake-ups on their way, and tasks that were woken.
#[derive(Default)]
struct Wakeups {
    sent: Mutex<Vec<usize>>,
}

struct TaskWaker {
    task: usize,
    wakeups: Arc<Wakeups>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut sent = self.wakeups.sent.lock().unwrap();
        if !sent.contains(&self.task) {
            sent.push(self.task);
        }
    }
}

/// The choices of an order: which of how many possible steps came next.
#[derive(Default)]
struct Order {
    choices: Vec<(usize, usize)>,
    at: usize,
}

impl Order {
    fn choose(&mut self, count: usize) -> usize {
        if self.at == self.choices.len() {
            self.choices.push((0, count));
        }
        let (chosen, before) = self.choices[self.at];
        assert_eq!(before, count, "the model is not deterministic");
        self.at += 1;
        chosen
    }

    /// The next order; false after the last.
    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, count)) = self.choices.pop() {
            if chosen + 1 < count {
                self.choices.push((chosen + 1, count));
                return true;
            }
        }
        false
    }
}

/// Runs the tasks that `model` makes in every order. The first `users` of them must end.
fn in_every_order(users: usize, model: impl Fn() -> Vec<Task>) {
    let mut order = Order::default();
    for number in 0..MAX_ORDERS {
        run(users, model(), &mut order);
        if !order.advance() {
            assert!(number > 1, "a model without a choice shows nothing");
            return;
        }
    }
    panic!("too many orders");
}

fn run(users: usize, tasks: Vec<Task>, order: &mut Order) {
    let wakeups = Arc::new(Wakeups::default());
    let mut woken: Vec<usize> = (0..tasks.len()).collect();
    let mut tasks: Vec<Option<Task>> = tasks.into_iter().map(Some).collect();
    loop {
        let sent = wakeups.sent.lock().unwrap().clone();
        let steps = woken.len() + sent.len();
        if steps == 0 {
            break;
        }
        let choice = order.choose(steps);
        if choice >= woken.len() {
            let task = wakeups.sent.lock().unwrap().remove(choice - woken.len());
            if !woken.contains(&task) {
                woken.push(task);
            }
            continue;
        }
        let task = woken.remove(choice);
        let waker = Waker::from(Arc::new(TaskWaker {
            task,
            wakeups: Arc::clone(&wakeups),
        }));
        if let Some(future) = &mut tasks[task]
            && future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(())
        {
            tasks[task] = None;
        }
    }
    let asleep: Vec<usize> = (0..users).filter(|task| tasks[*task].is_some()).collect();
    assert!(
        asleep.is_empty(),
        "asleep: {asleep:?} after {:?}",
        order.choices
    );
}

/// A link on either side.
fn links(limits: Limits) -> (Arc<Link>, Arc<Link>) {
    let link = |role| Arc::new(Link::new(role, limits, limits, "peer".into()));
    (link(Role::Connector), link(Role::Listener))
}

/// The writer of one side and the reader of the other: what is sent arrives in the same step.
fn wire(from: &Arc<Link>, to: &Arc<Link>) -> Task {
    let (from, to) = (Arc::clone(from), Arc::clone(to));
    Box::pin(async move {
        let (mut out, mut assembler) = (Outgoing::default(), Assembler::new(8));
        while poll_fn(|cx| {
            out.clear();
            from.with(|state, wakes| state.poll_fill(cx, &mut out, 1, wakes))
        })
        .await
        {
            let bytes: BytesMut = out.slices.drain(..).flatten().collect();
            assembler.space().put_slice(&bytes);
            to.with(|state, wakes| {
                while let Some(frame) = assembler.next_frame().unwrap() {
                    state.on_frame(frame, wakes).unwrap();
                }
                state.assert_invariants();
            });
        }
    })
}

async fn open(link: &Arc<Link>) -> Option<(TcpSendStream, TcpRecvStream)> {
    if !link.may_open().await {
        return None;
    }
    let id = link.with(|state, _| state.open(StreamClass::Bulk))?;
    Some(halves(link, id))
}

async fn accept(link: &Arc<Link>) -> Option<(TcpSendStream, TcpRecvStream)> {
    let id = poll_fn(|cx| link.with(|state, wakes| state.poll_accept(cx, wakes))).await?;
    Some(halves(link, id))
}

fn halves(link: &Arc<Link>, id: u64) -> (TcpSendStream, TcpRecvStream) {
    let send = TcpSendStream::new(Arc::clone(link), id);
    (send, TcpRecvStream::new(Arc::clone(link), id))
}

async fn send(stream: &mut TcpSendStream, bytes: usize) -> bool {
    let mut chunks = VecDeque::from([Bytes::from(vec![1; bytes])]);
    write(stream, &mut chunks).await.is_ok()
}

async fn receive(stream: &mut TcpRecvStream) -> usize {
    let mut bytes = 0;
    while let Ok(Some(chunk)) = read(stream, usize::MAX).await {
        bytes += chunk.len();
    }
    bytes
}

#[test]
fn a_writer_beyond_its_window_and_its_reader() {
    in_every_order(2, || {
        let (a, b) = links(LIMITS);
        let wires = [wire(&a, &b), wire(&b, &a)];
        let writer = async move {
            let (mut tx, _rx) = open(&a).await.unwrap();
            assert!(send(&mut tx, 12).await);
            tx.finish();
        };
        let reader = async move {
            let (_tx, mut rx) = accept(&b).await.unwrap();
            assert_eq!(12, receive(&mut rx).await);
        };
        let users: [Task; 2] = [Box::pin(writer), Box::pin(reader)];
        users.into_iter().chain(wires).collect()
    });
}

#[test]
fn writers_that_share_the_send_buffer_and_one_that_gives_up() {
    let limits = Limits {
        max_streams: 2,
        max_unaccepted_streams: 2,
        early_limit_bytes: 16,
        ..LIMITS
    };
    in_every_order(2, || {
        let (a, b) = links(limits);
        let wire = wire(&a, &b);
        let gives_up = {
            let a = Arc::clone(&a);
            async move {
                let (mut tx, _rx) = open(&a).await.unwrap();
                poll_fn(|cx| {
                    let chunks = &mut VecDeque::from([Bytes::from_static(&[1; 8])]);
                    let _ = tx.poll_write(cx, chunks);
                    Poll::Ready(())
                })
                .await;
            }
        };
        let writer = async move {
            let (mut tx, _rx) = open(&a).await.unwrap();
            assert!(send(&mut tx, 8).await);
        };
        vec![Box::pin(gives_up), Box::pin(writer), wire]
    });
}

#[test]
fn a_writer_that_waits_for_the_early_limit() {
    let limits = Limits {
        max_streams: 2,
        max_unaccepted_streams: 2,
        send_buffer_bytes: 64,
        ..LIMITS
    };
    in_every_order(2, || {
        let (a, b) = links(limits);
        let wires = [wire(&a, &b), wire(&b, &a)];
        let [one, two] = [(); 2].map(|()| {
            let id = a.with(|state, _| state.open(StreamClass::Bulk)).unwrap();
            halves(&a, id)
        });
        let writer = async move {
            let (mut first, _rx) = one;
            let (mut second, _rx) = two;
            assert!(send(&mut first, 8).await);
            assert!(send(&mut second, 8).await);
            second.finish();
        };
        let acceptor = async move {
            let _first = accept(&b).await.unwrap();
            let (_tx, mut second) = accept(&b).await.unwrap();
            assert_eq!(8, receive(&mut second).await);
        };
        let users: [Task; 2] = [Box::pin(writer), Box::pin(acceptor)];
        users.into_iter().chain(wires).collect()
    });
}

#[test]
fn openers_of_more_streams_than_are_allowed() {
    in_every_order(3, || {
        let (a, b) = links(LIMITS);
        let wires = [wire(&a, &b), wire(&b, &a)];
        let caller = || {
            let a = Arc::clone(&a);
            async move {
                let (mut tx, _rx) = open(&a).await.unwrap();
                assert!(send(&mut tx, 1).await);
                tx.finish();
            }
        };
        let users: [Task; 3] = [
            Box::pin(caller()),
            Box::pin(caller()),
            Box::pin(async move {
                for _ in 0..2 {
                    accept(&b).await.unwrap();
                }
            }),
        ];
        users.into_iter().chain(wires).collect()
    });
}

#[test]
fn a_reader_that_stops_a_waiting_writer() {
    in_every_order(2, || {
        let (a, b) = links(LIMITS);
        let wires = [wire(&a, &b), wire(&b, &a)];
        let writer = async move {
            let (mut tx, mut rx) = open(&a).await.unwrap();
            assert!(!send(&mut tx, 20).await);
            assert_eq!(0, receive(&mut rx).await);
        };
        let reader = async move {
            let (mut tx, mut rx) = accept(&b).await.unwrap();
            rx.stop(StreamCode::CANCELLED);
            tx.reset(StreamCode::ABANDONED);
        };
        let users: [Task; 2] = [Box::pin(writer), Box::pin(reader)];
        users.into_iter().chain(wires).collect()
    });
}

#[test]
fn a_writer_and_a_reader_whose_connection_closes() {
    in_every_order(3, || {
        let (a, b) = links(LIMITS);
        let wire = wire(&a, &b);
        let id = a.with(|state, _| state.open(StreamClass::Bulk)).unwrap();
        let (mut tx, mut rx) = halves(&a, id);
        let writer = async move { assert!(!send(&mut tx, 20).await) };
        let reader = async move { assert_eq!(0, receive(&mut rx).await) };
        let closer = async move { a.fail(ErrorKind::Closed, "enough", Some("enough")) };
        vec![Box::pin(writer), Box::pin(reader), Box::pin(closer), wire]
    });
}

#[test]
fn those_who_wait_for_a_connection_that_closes() {
    in_every_order(4, || {
        let (a, _) = links(LIMITS);
        let [opener, acceptor, waiter] = [(); 3].map(|()| Arc::clone(&a));
        vec![
            Box::pin(async move {
                let _one = open(&opener).await;
                assert!(open(&opener).await.is_none());
            }),
            Box::pin(async move { assert!(accept(&acceptor).await.is_none()) }),
            Box::pin(async move { drop(waiter.closed().await) }),
            Box::pin(async move { a.fail(ErrorKind::Closed, "enough", Some("enough")) }),
        ]
    });
}
