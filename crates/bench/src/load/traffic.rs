//! Answers in, queries out: what happens per query, and when arrivals of an open loop are sent.

use shunt_reactor::Io;
use shunt_wire::cql::framing::Next;
use shunt_wire::cql::{
    envelope::{Header, opcode},
    message::{ResultMessage, result_kind, split_response_prefix},
};

use crate::load::{
    TIMER_ARRIVAL,
    generator::{Generator, Phase},
    keys::value_belongs,
    pace::Pace,
    session::{Session, SessionRest, Slot, Step},
    template::Operation,
};

impl Generator {
    #[inline]
    pub(super) fn envelope(&mut self, io: &mut Io, rest: &mut SessionRest, header: Header, body: &[u8]) -> Next {
        if header.stream < 0 && header.opcode == opcode::EVENT {
            return Next::Continue;
        }
        if rest.step != Step::Ready {
            return self.handshake(io, rest, header, body);
        }
        let slot = rest.slots.get_mut(header.stream as usize).filter(|slot| slot.intended_ns != 0);
        let Some(slot) = slot.filter(|_| header.response && header.version == self.options.layout.version) else {
            self.counts.wrong_answers += 1;
            return Next::Continue;
        };
        let asked = *slot;
        slot.intended_ns = 0;
        rest.in_flight -= 1;
        self.in_flight -= 1;
        self.counts.answered += 1;
        self.check(asked, header, body);
        let now_ns = io.now_ns();
        if asked.intended_ns >= self.measured_from_ns {
            self.latency.saturating_record(now_ns.saturating_sub(asked.intended_ns).max(1));
        }
        self.send_next(io, rest, header.stream as u16, now_ns);
        Next::Continue
    }

    #[inline]
    fn check(&mut self, asked: Slot, header: Header, body: &[u8]) {
        self.counts.selects += u64::from(asked.select);
        let message = match split_response_prefix(header.flags, body) {
            Ok((_, message)) => message,
            Err(_) => &[],
        };
        match (header.opcode, result_kind::peek(message)) {
            (opcode::RESULT, Some(result_kind::VOID)) if !asked.select => {}
            (opcode::RESULT, Some(result_kind::ROWS)) if asked.select => {
                if self.options.verify {
                    self.check_value(asked.key, header.version, message);
                }
            }
            (opcode::ERROR, Some(code)) => *self.counts.errors.entry(code as u32).or_insert(0) += 1,
            _ => self.counts.wrong_answers += 1,
        }
    }

    fn check_value(&mut self, key: u64, version: u8, message: &[u8]) {
        let Ok(ResultMessage::Rows(rows)) = ResultMessage::decode(version, message) else {
            self.counts.wrong_answers += 1;
            return;
        };
        match rows.rows().next() {
            None => self.counts.not_found += 1,
            Some(Ok(row)) if row.get(0).is_some_and(|value| value_belongs(key, value)) => {}
            Some(_) => self.counts.wrong_values += 1,
        }
    }

    /// A stream id became free: uses it again if there is something to send.
    #[inline]
    pub(super) fn send_next(&mut self, io: &mut Io, rest: &mut SessionRest, stream: u16, now_ns: u64) {
        match self.phase {
            Phase::Populating => self.send_populating(io, rest, stream, now_ns),
            Phase::WarmUp | Phase::Round(_) => match &mut self.pace {
                None => self.send(io, rest, stream, now_ns),
                Some(pace) => match pace.take() {
                    Some(intended_ns) => self.send(io, rest, stream, intended_ns),
                    None => self.free.push_back((rest.index as u32, stream)),
                },
            },
            _ => {}
        }
    }

    fn send_populating(&mut self, io: &mut Io, rest: &mut SessionRest, stream: u16, now_ns: u64) {
        if self.populated < self.options.keys {
            let key = self.populated;
            self.populated += 1;
            self.send_operation(io, rest, stream, now_ns, Operation::Insert, key);
        }
    }

    #[inline]
    fn send(&mut self, io: &mut Io, rest: &mut SessionRest, stream: u16, intended_ns: u64) {
        let key = self.keys.draw(&mut self.random);
        let reads = self.options.reads;
        let select = reads >= 1.0 || reads > 0.0 && self.random.unit() < reads;
        let operation = if select { Operation::Select } else { Operation::Insert };
        self.send_operation(io, rest, stream, intended_ns, operation, key);
    }

    #[inline]
    fn send_operation(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        stream: u16,
        intended_ns: u64,
        operation: Operation,
        key: u64,
    ) {
        let Some((_, template)) = &mut self.statements[operation as usize] else { return };
        let Some(slot) = rest.slots.get_mut(usize::from(stream)) else { return };
        *slot = Slot { intended_ns: intended_ns.max(1), key, select: operation == Operation::Select };
        rest.in_flight += 1;
        self.in_flight += 1;
        let header = Header::request(self.options.layout.version, stream as i16, opcode::EXECUTE);
        rest.output.push(io.output(rest.conn), header, template.body(key));
        self.note_unfinished(rest);
    }

    pub(super) fn arrival_timer(&mut self) {
        self.armed_ns = 0;
    }

    pub(super) fn send_arrivals(&mut self, io: &mut Io, sessions: &mut [Session]) {
        if !matches!(self.phase, Phase::WarmUp | Phase::Round(_)) {
            return;
        }
        let Some(pace) = &mut self.pace else { return };
        let next_ns = pace.advance(io.now_ns());
        if self.armed_ns == 0 || self.armed_ns > next_ns {
            self.armed_ns = next_ns;
            io.set_timer(next_ns, TIMER_ARRIVAL);
        }
        while self.pace.as_ref().is_some_and(|pace| pace.waiting() > 0) {
            let Some((index, stream)) = self.free.pop_front() else { break };
            let Some(session) = sessions.get_mut(index as usize) else { continue };
            // A connection lost meanwhile left its stream ids here.
            let usable = session.rest.step == Step::Ready
                && session.rest.slots.get(usize::from(stream)).is_some_and(|slot| slot.intended_ns == 0);
            if usable && let Some(intended_ns) = self.pace.as_mut().and_then(Pace::take) {
                self.send(io, &mut session.rest, stream, intended_ns);
            }
        }
    }
}
