//! What arrives: [`State::on_frame`].

use crate::mux::frame::{Frame, Violation};
use crate::mux::state::{Role, State, Wakes};
use crate::mux::stream::{End, Phase, Stream};
use bytes::Bytes;
use datafusion_transport_core::connection::StreamCode;

/// What the connection itself has to see to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Nothing.
    None,
    /// The answer to this ping.
    Pong(u64),
    /// The peer closed, for this reason.
    GoAway(Bytes),
}

impl State {
    /// Takes one frame. After a violation the connection must be closed.
    pub(crate) fn on_frame(&mut self, frame: Frame, wakes: &mut Wakes) -> Result<Event, Violation> {
        if self.closed {
            return Ok(Event::None);
        }
        match frame {
            Frame::Open { stream } => self.on_open(stream, wakes)?,
            Frame::Data { stream, payload } => self.on_data(stream, payload, wakes)?,
            Frame::Window { stream, bytes } => self.on_window(stream, bytes, wakes)?,
            Frame::Finish { stream } => self.on_end(stream, End::Finished, wakes)?,
            Frame::Reset { stream, code } => self.on_end(stream, End::Reset(code), wakes)?,
            Frame::Stop { stream, code } => self.on_stop(stream, code, wakes),
            Frame::Allow { streams } => self.on_allow(streams)?,
            Frame::Early { bytes } => self.on_early(bytes, wakes)?,
            Frame::Ping { nonce } => {
                self.pong = Some(nonce);
                wakes.add(&mut self.writer);
            }
            Frame::Pong { nonce } => return Ok(Event::Pong(nonce)),
            Frame::GoAway { reason } => return Ok(Event::GoAway(reason)),
        }
        Ok(Event::None)
    }

    fn on_open(&mut self, id: u64, wakes: &mut Wakes) -> Result<(), Violation> {
        let peers = match self.role {
            Role::Connector => 1,
            Role::Listener => 0,
        };
        if id % 2 != peers || self.streams.contains_key(&id) {
            let detail = format!("stream {id} is not the peer's to open");
            return Err(Violation::new("T-9", detail));
        }
        if self.remote_opened >= self.remote_allowed {
            let detail = format!("more streams than the {} allowed", self.remote_allowed);
            return Err(Violation::new("T-10", detail));
        }
        self.remote_opened += 1;
        self.streams
            .insert(id, Stream::remote(&self.ours, &self.theirs));
        self.backlog.push_back(id);
        wakes.add(&mut self.acceptor);
        self.update_allowance(wakes);
        Ok(())
    }

    fn on_data(&mut self, id: u64, payload: Bytes, wakes: &mut Wakes) -> Result<(), Violation> {
        let bytes = payload.len();
        let stream = self.open_stream(id)?;
        stream.recv.push(payload)?;
        wakes.add(&mut stream.recv.waker);
        self.on_early_data(id, bytes, wakes)
    }

    fn on_end(&mut self, id: u64, end: End, wakes: &mut Wakes) -> Result<(), Violation> {
        // T-15: a reset may have been under way when the stream ended.
        if end != End::Finished && !self.streams.contains_key(&id) {
            return Ok(());
        }
        let stream = self.open_stream(id)?;
        let recv = &mut stream.recv;
        if recv
            .end
            .is_some_and(|before| before != End::Finished || end == End::Finished)
        {
            let detail = format!("stream {id} ended twice");
            return Err(Violation::new("T-11", detail));
        }
        recv.end = Some(end);
        recv.grant_due = false;
        recv.stop_due = false;
        if end != End::Finished {
            recv.discard();
        }
        wakes.add(&mut recv.waker);
        if end != End::Finished {
            self.release_early(id, wakes);
        }
        self.settle(id, wakes);
        Ok(())
    }

    fn on_window(&mut self, id: u64, bytes: u32, wakes: &mut Wakes) -> Result<(), Violation> {
        let most = u64::from(self.theirs.stream_window_bytes);
        // T-15: it may have been under way when the stream ended.
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.announced) else {
            return Ok(());
        };
        let credit = stream.send.credit + u64::from(bytes);
        if credit > most {
            let detail = format!("credit of {credit} bytes, more than the window of {most}");
            return Err(Violation::new("T-13", detail));
        }
        stream.send.credit = credit;
        wakes.add(&mut stream.send.waker);
        Ok(())
    }

    fn on_stop(&mut self, id: u64, code: StreamCode, wakes: &mut Wakes) {
        // T-15: it may have been under way when the stream ended.
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.announced) else {
            return;
        };
        let send = &mut stream.send;
        if !matches!(send.phase, Phase::Open | Phase::Finishing) {
            return;
        }
        send.stopped = Some(code);
        send.phase = Phase::Resetting(code);
        wakes.add(&mut send.waker);
        self.discard_unsent(id, wakes);
        self.enter_urgent(id, wakes);
    }

    fn on_allow(&mut self, streams: u64) -> Result<(), Violation> {
        if streams < self.opens_allowed {
            let detail = format!(
                "{streams} streams allowed after {} were",
                self.opens_allowed
            );
            return Err(Violation::new("T-10", detail));
        }
        self.opens_allowed = streams;
        Ok(())
    }

    fn open_stream(&mut self, id: u64) -> Result<&mut Stream, Violation> {
        let stream = self.streams.get_mut(&id);
        stream.filter(|stream| stream.announced).ok_or_else(|| {
            let detail = format!("data or an end for stream {id}, which is not open");
            Violation::new("T-11", detail)
        })
    }
}
