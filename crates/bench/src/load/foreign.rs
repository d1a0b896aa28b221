//! Sessions with servers that do not speak CQL. Each has one request in flight, under stream id 0.

use shunt_reactor::Io;

use crate::load::{
    etcd::{self, Heard},
    generator::Generator,
    keys::write_digits,
    locks::{Foreign, NAME_BYTES, OWNER_BYTES, owner_of},
    redis::{self, Reply},
    session::{SessionRest, Slot, Step},
    template::{Statement, Template},
};

impl Generator {
    /// Sends the first message of a new connection.
    pub(super) fn begin_foreign(&mut self, io: &mut Io, rest: &mut SessionRest) {
        rest.step = Step::Startup;
        match self.foreign() {
            Some(Foreign::Redis) => redis::load_script(io.output(rest.conn)),
            Some(Foreign::Etcd) => etcd::Connection::begin(io.output(rest.conn)),
            None => {}
        }
    }

    /// Sends the request of `slot`.
    pub(super) fn put_foreign(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        foreign: Foreign,
        slot: Slot,
    ) {
        let (mut name, mut owner) = ([0; NAME_BYTES], [0; OWNER_BYTES]);
        write_digits(slot.key, &mut name);
        write_digits(owner_of(rest.index, self.options.outstanding, 0), &mut owner);
        let acquires = slot.statement == Statement::ACQUIRE;
        let out = io.output(rest.conn);
        match foreign {
            Foreign::Redis if acquires => {
                let mut ttl_ms = *b"0000000";
                write_digits(
                    self.options.locks.map_or(1, |locks| u64::from(locks.ttl_seconds) * 1000),
                    &mut ttl_ms,
                );
                // Redis refuses a number with leading zeros.
                let zeros = ttl_ms.iter().take_while(|&&digit| digit == b'0').count();
                redis::acquire(out, &name, &owner, &ttl_ms[zeros..]);
            }
            Foreign::Redis => {
                let script =
                    self.statements.get(Statement::RELEASE.index()).and_then(Option::as_ref);
                redis::release(out, script.map_or(&[], |(script, _)| script), &name, &owner);
            }
            Foreign::Etcd => {
                self.body.clear();
                if acquires {
                    etcd::acquire(&mut self.body, &name, &owner);
                } else {
                    etcd::release(&mut self.body, &name, &owner);
                }
                if let Err(why) = rest.http.call(out, &self.body) {
                    self.fail(io, why);
                }
            }
        }
    }

    /// Reads the answers in `data`; returns the number of bytes consumed.
    ///
    /// # Errors
    /// The connection is unusable.
    pub(super) fn take_foreign(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        foreign: Foreign,
        data: &[u8],
    ) -> Result<usize, String> {
        let mut used = 0;
        loop {
            let length = match foreign {
                Foreign::Redis => self.take_redis(io, rest, &data[used..])?,
                Foreign::Etcd => self.take_etcd(io, rest, &data[used..])?,
            };
            match length {
                Some(length) => used += length,
                None => return Ok(used),
            }
        }
    }

    fn take_redis(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        data: &[u8],
    ) -> Result<Option<usize>, String> {
        let Some((length, reply)) = redis::reply(data)? else { return Ok(None) };
        match reply {
            Reply::Error(text) => {
                // A repetition would not help: the server lacks the command or memory.
                let text = format!("Redis answered {}", String::from_utf8_lossy(text));
                self.fail(io, text.clone());
                return Err(text);
            }
            Reply::Text(script) if rest.step == Step::Startup => {
                self.statements[Statement::RELEASE.index()] =
                    Some((script.to_vec(), Template::default()));
                self.foreign_ready(rest);
            }
            Reply::Applied if rest.step == Step::Ready => self.foreign_answered(io, rest, true)?,
            Reply::NotApplied if rest.step == Step::Ready => {
                self.foreign_answered(io, rest, false)?
            }
            other => return Err(format!("{other:?} does not answer the request to Redis")),
        }
        Ok(Some(length))
    }

    fn take_etcd(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        data: &[u8],
    ) -> Result<Option<usize>, String> {
        let Some((length, heard)) = rest.http.take(io.output(rest.conn), data)? else {
            return Ok(None);
        };
        match heard {
            Heard::Greeting if rest.step == Step::Startup => self.foreign_ready(rest),
            Heard::Greeting | Heard::Nothing => {}
            Heard::Done(applied) => self.foreign_answered(io, rest, applied)?,
        }
        Ok(Some(length))
    }

    fn foreign_ready(&mut self, rest: &mut SessionRest) {
        rest.step = Step::Ready;
        rest.attempts = 0;
        self.session_ready(rest);
    }

    fn foreign_answered(
        &mut self,
        io: &mut Io,
        rest: &mut SessionRest,
        applied: bool,
    ) -> Result<(), String> {
        let slot = rest.slots.first_mut().filter(|slot| slot.intended_ns != 0);
        let slot = slot.ok_or("an answer arrived without a request")?;
        let asked = *slot;
        slot.intended_ns = 0;
        self.counts.not_applied += u64::from(!applied);
        self.answered(io, rest, 0, asked, applied);
        Ok(())
    }
}
