//! The work per query: answers in, queries out. The steps of special operations are in
//! [`operations`](super::operations).

use std::ops::ControlFlow;

use shunt_reactor::Io;
use shunt_wire::cql::{
    envelope::{Header, opcode},
    message::{result_kind, split_response_prefix},
};

use crate::load::{
    generator::{Generator, Phase},
    locks::owner_of,
    mix::Operation,
    session::{SessionRest, Slot, Step},
    template::Statement,
};

impl Generator {
    /// Handles an answer or event. A break means that the connection is unusable.
    #[inline]
    pub(super) fn envelope(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        header: Header,
        body: &[u8],
    ) -> ControlFlow<()> {
        if header.stream < 0 && header.opcode == opcode::EVENT {
            return ControlFlow::Continue(());
        }
        if rest.step != Step::Ready {
            return self.handshake(io, rest, header, body);
        }
        let slot = rest.slots.get_mut(header.stream as usize).filter(|slot| slot.intended_ns != 0);
        let Some(slot) =
            slot.filter(|_| header.response && header.version == self.options.layout.version)
        else {
            self.counts.wrong_answers += 1;
            return ControlFlow::Continue(());
        };
        let asked = *slot;
        slot.intended_ns = 0;
        let good = self.check(rest, asked, header, body);
        self.answered(io, rest, header.stream as u16, asked, good);
        ControlFlow::Continue(())
    }

    /// Ends the query of a stream id (`good`: a success), and sends the next step.
    #[inline]
    pub(super) fn answered(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        stream: u16,
        asked: Slot,
        good: bool,
    ) {
        rest.in_flight -= 1;
        self.in_flight -= 1;
        self.counts.answered += 1;
        if !good && self.phase == Phase::Populating {
            self.unwritten.push(asked.key);
        }
        if asked.operation > Operation::Update && self.goes_on(io, rest, stream, asked, good) {
            return;
        }
        let now_ns = io.now_ns();
        self.record(asked, now_ns);
        self.send_next(io, rest, stream, now_ns);
    }

    #[inline]
    pub(super) fn record(&mut self, asked: Slot, now_ns: u64) {
        if asked.intended_ns >= self.measured_from_ns {
            let latency_ns = now_ns.saturating_sub(asked.intended_ns).max(1);
            self.latencies[asked.operation as usize].saturating_record(latency_ns);
        }
    }

    /// Counts an answer; true if it is a success.
    #[inline]
    fn check(&mut self, rest: &SessionRest, asked: Slot, header: Header, body: &[u8]) -> bool {
        let writes = asked.statement.writes();
        self.counts.selects += u64::from(!writes);
        let (prefix, message) = split_response_prefix(header.flags, body).unwrap_or_default();
        match (header.opcode, result_kind::peek(message)) {
            (opcode::RESULT, Some(_)) if asked.operation == Operation::Transfer => {
                let owner = owner_of(rest.index, self.options.outstanding, header.stream as u16);
                return self.check_transfer(owner, header.version, &prefix, message);
            }
            (opcode::RESULT, Some(result_kind::ROWS)) if asked.operation.is_of_locks() => {
                return self.check_applied(header.version, message);
            }
            (opcode::RESULT, Some(result_kind::VOID)) if writes && !self.options.conditional => {
                return true;
            }
            (opcode::RESULT, Some(result_kind::ROWS)) if writes && self.options.conditional => {
                return true;
            }
            (opcode::RESULT, Some(result_kind::ROWS)) if !writes => {
                if self.options.verify {
                    let keys = self.keys_of(rest, asked, header.stream);
                    self.check_rows(asked, keys, header.version, message);
                }
                return true;
            }
            (opcode::ERROR, Some(code)) => {
                *self.counts.errors.entry(code as u32).or_insert(0) += 1;
                self.in_doubt(owner_of(rest.index, self.options.outstanding, header.stream as u16));
            }
            _ => self.counts.wrong_answers += 1,
        }
        false
    }

    /// Reuses a free stream id if an operation is waiting or due.
    #[inline]
    pub(super) fn send_next(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        stream: u16,
        now_ns: u64,
    ) {
        match self.phase {
            Phase::Populating => self.send_populating(io, rest, stream, now_ns),
            Phase::WarmUp | Phase::Round(_) if self.pace.is_some() => {
                self.use_free(io, rest, stream)
            }
            Phase::WarmUp | Phase::Round(_) if self.options.locks.is_some() => {
                self.take_lock(io, rest, stream, now_ns)
            }
            Phase::WarmUp | Phase::Round(_) if self.options.transfers.is_some() => {
                self.begin_transfer(io, rest, stream, now_ns);
            }
            Phase::WarmUp | Phase::Round(_) => self.send(io, rest, stream, now_ns),
            _ => {}
        }
    }

    fn send_populating(&mut self, io: &mut Io, rest: &mut SessionRest, stream: u16, now_ns: u64) {
        let again = self.unwritten.pop();
        let next = again.or_else(|| (self.populated < self.options.keys).then_some(self.populated));
        let Some(key) = next else { return };
        self.populated += u64::from(again.is_none());
        let operation = Operation::Update;
        self.put(
            io,
            rest,
            stream,
            Slot { intended_ns: now_ns, key, operation, statement: Statement::INSERT },
        );
    }

    #[inline]
    pub(super) fn send(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        stream: u16,
        intended_ns: u64,
    ) {
        let Some(reads) = self.plain_reads else {
            return self.send_mixed(io, rest, stream, intended_ns);
        };
        let key = self.keys.draw(&mut self.random);
        let select = reads >= 1.0 || reads > 0.0 && self.random.unit() < reads;
        let (operation, statement) = if select {
            (Operation::Read, Statement::SELECT)
        } else {
            (Operation::Update, Statement::INSERT)
        };
        self.put(io, rest, stream, Slot { intended_ns, key, operation, statement });
    }

    /// Sends the query of `slot` under this stream id.
    #[inline]
    pub(super) fn put(&mut self, io: &mut Io, rest: &mut SessionRest, stream: u16, slot: Slot) {
        let Some(place) = rest.slots.get_mut(usize::from(stream)) else { return };
        *place = Slot { intended_ns: slot.intended_ns.max(1), ..slot };
        rest.in_flight += 1;
        self.in_flight += 1;
        if let Some(foreign) = self.foreign() {
            return self.put_foreign(io, rest, foreign, slot);
        }
        let owner = owner_of(rest.index, self.options.outstanding, stream);
        let Some(Some((_, template))) = self.statements.get_mut(slot.statement.index()) else {
            return;
        };
        let opcode = if self.options.texts { opcode::QUERY } else { opcode::EXECUTE };
        let header = Header::request(self.options.layout.version, stream as i16, opcode);
        let body = match slot.statement {
            Statement::SCAN => {
                template.scan(slot.key, self.options.scan_rows.draw(&mut self.random))
            }
            Statement::MULTIGET => {
                let first = usize::from(stream) * usize::from(self.options.multiget);
                template.multiget(rest.keys.get(first..).unwrap_or_default())
            }
            Statement::ACQUIRE | Statement::RELEASE => template.lock(slot.key, owner),
            Statement::TRANSFER => {
                let balance = self.balances.get(owner as usize).copied().unwrap_or_default();
                let Some(kind) = self.options.transfers else { return };
                template.ints(kind.values(slot.key, balance, owner).as_slice())
            }
            _ if self.options.texts => template.text(slot.key),
            _ => template.body(slot.key),
        };
        rest.output.push(io.output(rest.conn), header, body);
        self.note_unfinished(rest);
    }
}
