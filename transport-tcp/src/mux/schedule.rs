//! What is sent next: [`State::fill`].

use crate::mux::frame::{Header, Kind};
use crate::mux::outgoing::Outgoing;
use crate::mux::state::{State, Wakes};
use crate::mux::stream::Phase;
use datafusion_transport_core::connection::StreamClass;
use std::task::{Context, Poll};

/// A frame takes up further writes until it has this much; then its header no longer counts.
const MERGE_BELOW_BYTES: usize = 16 * 1024;

impl State {
    /// Adds frames to `out` until it holds `max_bytes` or nothing is left to send: what concerns the connection, then grants,
    /// stops and resets, then control data, then bulk data in turn (T-18). Ready when there is something, `false` when
    /// the connection is closed and everything, the reason included, was taken.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Outgoing,
        max_bytes: usize,
        wakes: &mut Wakes,
    ) -> Poll<bool> {
        self.fill(out, max_bytes, wakes);
        if out.bytes > 0 {
            return Poll::Ready(true);
        }
        if self.closed {
            return Poll::Ready(false);
        }
        self.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(crate) fn fill(&mut self, out: &mut Outgoing, max_bytes: usize, wakes: &mut Wakes) {
        self.fill_connection(out);
        while out.bytes < max_bytes {
            let more = self.fill_urgent(out, wakes)
                || self.fill_data(StreamClass::Control, out, wakes)
                || self.fill_data(StreamClass::Bulk, out, wakes);
            if !more {
                self.fill_go_away(out);
                break;
            }
        }
        out.seal();
    }

    fn fill_connection(&mut self, out: &mut Outgoing) {
        if self.closed {
            return;
        }
        if let Some(nonce) = self.ping.take() {
            out.header(Header::new(Kind::Ping, 0, nonce));
        }
        if let Some(nonce) = self.pong.take() {
            out.header(Header::new(Kind::Pong, 0, nonce));
        }
        if std::mem::take(&mut self.allow_due) {
            self.remote_allowed = self.allowance();
            out.header(Header::new(Kind::Allow, 0, self.remote_allowed));
        }
        if let Some(bytes) = self.early.take_grant() {
            out.header(Header::new(Kind::Early, 0, bytes));
        }
    }

    /// After the streams that were finished: nothing comes behind it.
    fn fill_go_away(&mut self, out: &mut Outgoing) {
        if let Some(reason) = self.go_away.take() {
            out.header(Header::new(Kind::GoAway, reason.len() as u32, 0));
            out.payload(reason);
        }
    }

    /// One stream's grant, stop and reset. False when there are none.
    fn fill_urgent(&mut self, out: &mut Outgoing, wakes: &mut Wakes) -> bool {
        if self.closed {
            return false;
        }
        let Some(id) = self.urgent.pop_front() else {
            return false;
        };
        let Some(stream) = self.streams.get_mut(&id) else {
            return true;
        };
        stream.urgent = false;
        let recv = &mut stream.recv;
        if std::mem::take(&mut recv.grant_due) {
            let bytes = recv.grant(self.ours.stream_window_bytes);
            out.header(Header::new(Kind::Window, bytes, id));
        }
        if std::mem::take(&mut recv.stop_due) {
            let code = recv.stopped.map_or(0, |code| code.0);
            out.header(Header::new(Kind::Stop, code, id));
        }
        if let Phase::Resetting(code) = stream.send.phase {
            stream.send.phase = Phase::Ended;
            out.header(Header::new(Kind::Reset, code.0, id));
            self.settle(id, wakes);
        }
        true
    }

    /// One frame of the next stream in line. False when the lane is empty.
    fn fill_data(&mut self, class: StreamClass, out: &mut Outgoing, wakes: &mut Wakes) -> bool {
        let Some(id) = self.lane(class).pop_front() else {
            return false;
        };
        let max_frame_bytes = self.theirs.max_frame_bytes.min(self.ours.max_frame_bytes);
        let Some(stream) = self.streams.get_mut(&id) else {
            return true;
        };
        stream.send.lane = None;
        if !stream.send.has_work() {
            return true;
        }
        let announces = !std::mem::replace(&mut stream.announced, true);
        if announces {
            out.header(Header::new(Kind::Open, 0, id));
        }
        let stop_due = stream.recv.stop_due;
        let taken = stream.send.fill_frame(id, max_frame_bytes as usize, out);
        if stream.send.queue.is_empty() && stream.send.phase == Phase::Finishing {
            stream.send.phase = Phase::Finished;
            out.header(Header::new(Kind::Finish, 0, id));
        }
        self.freed(taken, wakes);
        if announces && stop_due {
            self.enter_urgent(id, wakes);
        }
        self.enter_lane(id, wakes);
        self.settle(id, wakes);
        true
    }
}

impl crate::mux::stream::SendHalf {
    /// One Data frame from the queue, if it holds anything. Returns its payload's length.
    fn fill_frame(&mut self, id: u64, max_bytes: usize, out: &mut Outgoing) -> usize {
        let bytes = self.frame_bytes(max_bytes);
        if bytes == 0 {
            return 0;
        }
        out.data_header(Header::new(Kind::Data, bytes as u32, id), bytes);
        let mut missing = bytes;
        while missing > 0 {
            let Some(piece) = self.queue.front_mut() else {
                break;
            };
            let taken = missing.min(piece.bytes.len());
            out.payload(piece.bytes.split_to(taken));
            if piece.bytes.is_empty() {
                self.queue.pop_front();
            } else {
                piece.begins_write = false;
            }
            missing -= taken;
        }
        self.sent(bytes);
        bytes
    }

    /// How much goes into the next frame: whole writes as far as they fit, or the first part of one that doesn't.
    fn frame_bytes(&self, max_bytes: usize) -> usize {
        let mut bytes = 0;
        for (number, piece) in self.queue.iter().enumerate() {
            if number > 0 && piece.begins_write && bytes >= MERGE_BELOW_BYTES {
                break;
            }
            bytes += piece.bytes.len();
            if bytes >= max_bytes {
                return max_bytes;
            }
        }
        bytes
    }
}
