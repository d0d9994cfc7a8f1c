//! The handshake: flags, then options until one opens an export.

use super::{
    Event, Export, Exports, Input, Listed, Machine, Missing, OPTION_BYTES_MAX, OPTION_BYTES_SKIPPED_MAX, Phase, Step,
    Violation,
};
use super::{REQUEST_BYTES_MAX, REQUEST_BYTES_MIN, REQUEST_BYTES_PREFERRED};
use crate::wire::handshake::{
    BlockSizes, EXPORT_NAME_PADDING_BYTES, ExportSize, FIXED_NEWSTYLE, Greeting, InfoRequest, NO_ZEROES, OptionHeader,
    ReplyHeader, export_flag, info, option, reply,
};

impl Machine {
    pub(super) fn greet(&mut self) {
        self.outbox.push_bytes(&Greeting { flags: FIXED_NEWSTYLE | NO_ZEROES }.encode());
    }

    pub(super) fn client_flags(&mut self, input: &mut Input) -> Result<Step, Violation> {
        let Some(bytes) = self.stash.read::<4>(input) else { return Ok(Step::Starved) };
        let flags = u32::from_be_bytes(bytes);
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Err(Violation::ClientFlags(flags));
        }
        self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
        self.phase = Phase::Option;
        Ok(Step::Again)
    }

    pub(super) fn option(&mut self, input: &mut Input) -> Result<Step, Violation> {
        let Some(bytes) = self.stash.read::<{ OptionHeader::BYTES }>(input) else { return Ok(Step::Starved) };
        let Some(OptionHeader { option, len_bytes }) = OptionHeader::decode(&bytes)? else { return Ok(Step::Starved) };
        if len_bytes > OPTION_BYTES_SKIPPED_MAX {
            return Err(Violation::OptionTooLong(len_bytes));
        }
        self.phase = if len_bytes > OPTION_BYTES_MAX {
            self.refuse(option, reply::ERR_TOO_BIG, "the option's data is too long");
            Phase::SkipOption { left_bytes: len_bytes }
        } else {
            self.option_data.clear();
            Phase::OptionData { option, len_bytes }
        };
        Ok(Step::Again)
    }

    pub(super) fn skip_option(&mut self, input: &mut Input, left_bytes: u32) -> Step {
        let count = input.len().min(left_bytes as usize);
        input.skip(count);
        let left_bytes = left_bytes - count as u32;
        if left_bytes > 0 {
            self.phase = Phase::SkipOption { left_bytes };
            return Step::Starved;
        }
        self.phase = Phase::Option;
        Step::Again
    }

    pub(super) fn option_data(
        &mut self,
        input: &mut Input,
        option: u32,
        len_bytes: u32,
        exports: &impl Exports,
    ) -> Result<Step, Violation> {
        let count = input.len().min(len_bytes as usize - self.option_data.len());
        self.option_data.extend_from_slice(&input.rest()[..count]);
        input.skip(count);
        if self.option_data.len() < len_bytes as usize {
            return Ok(Step::Starved);
        }
        self.phase = Phase::Option;
        let data = std::mem::take(&mut self.option_data);
        let step = self.answer(option, &data, exports);
        self.option_data = data;
        step
    }

    fn answer(&mut self, option: u32, data: &[u8], exports: &impl Exports) -> Result<Step, Violation> {
        match option {
            option::EXPORT_NAME => return self.export_name(data, exports),
            option::ABORT => {
                self.reply(option, reply::ACK, &[]);
                self.phase = Phase::Ended;
                return Ok(Step::Event(Event::Disconnect));
            }
            option::INFO | option::GO => return Ok(self.info(option, data, exports)),
            option::LIST | option::STRUCTURED_REPLY if !data.is_empty() => {
                self.refuse(option, reply::ERR_INVALID, "this option takes no data");
            }
            option::LIST => {
                for Listed { name, description } in exports.list() {
                    let mut entry = Vec::with_capacity(4 + name.len() + description.len());
                    entry.extend_from_slice(&(name.len() as u32).to_be_bytes());
                    entry.extend_from_slice(name.as_bytes());
                    entry.extend_from_slice(description.as_bytes());
                    self.reply(option, reply::SERVER, &entry);
                }
                self.reply(option, reply::ACK, &[]);
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(option, data, exports),
            option::STRUCTURED_REPLY => {
                self.structured = true;
                self.reply(option, reply::ACK, &[]);
            }
            _ => self.refuse(option, reply::ERR_UNSUP, "this server does not know the option"),
        }
        Ok(Step::Again)
    }

    fn export_name(&mut self, data: &[u8], exports: &impl Exports) -> Result<Step, Violation> {
        let name = String::from_utf8_lossy(data);
        let Some(export) = exports.find(&name) else { return Err(Violation::UnknownExport(name.into_owned())) };
        let size = ExportSize { size_bytes: export.size_bytes, flags: self.export_flags(&export) };
        self.outbox.push_bytes(&size.encode());
        if !self.no_zeroes {
            self.outbox.push_bytes(&[0; EXPORT_NAME_PADDING_BYTES]);
        }
        Ok(self.open(export))
    }

    fn info(&mut self, option: u32, data: &[u8], exports: &impl Exports) -> Step {
        let Some(request) = InfoRequest::decode(data) else {
            self.refuse(option, reply::ERR_INVALID, "lengths that do not add up, or a name that is not UTF-8");
            return Step::Again;
        };
        let Some(export) = exports.find(request.name) else {
            self.refuse_missing(option, &exports.why_missing(request.name));
            return Step::Again;
        };
        let size = ExportSize { size_bytes: export.size_bytes, flags: self.export_flags(&export) };
        self.reply_info(option, info::EXPORT, &size.encode());
        let sizes = BlockSizes {
            minimum_bytes: REQUEST_BYTES_MIN,
            preferred_bytes: REQUEST_BYTES_PREFERRED,
            maximum_bytes: REQUEST_BYTES_MAX,
        };
        self.reply_info(option, info::BLOCK_SIZE, &sizes.encode());
        if request.wants(info::NAME) {
            self.reply_info(option, info::NAME, export.name.as_bytes());
        }
        if request.wants(info::DESCRIPTION) {
            self.reply_info(option, info::DESCRIPTION, export.description.as_bytes());
        }
        self.reply(option, reply::ACK, &[]);
        if option != option::GO {
            return Step::Again;
        }
        self.open(export)
    }

    fn open(&mut self, export: Export) -> Step {
        self.size_bytes = export.size_bytes;
        self.is_read_only = export.is_read_only;
        self.contexts.settle(&export.name);
        self.phase = Phase::Request;
        Step::Event(Event::Opened { name: export.name, since: self.contexts.snapshots() })
    }

    /// What can be done with an export (section "Transmission flags"). FAST_ZERO is true: zeroes are an entry without
    /// data, whatever their length.
    fn export_flags(&self, export: &Export) -> u16 {
        let always = export_flag::HAS_FLAGS
            | export_flag::SEND_FLUSH
            | export_flag::SEND_FUA
            | export_flag::SEND_CACHE
            | export_flag::CAN_MULTI_CONN;
        let kind = match export.is_read_only {
            true => export_flag::READ_ONLY,
            false => export_flag::SEND_TRIM | export_flag::SEND_WRITE_ZEROES | export_flag::SEND_FAST_ZERO,
        };
        let df = if self.structured { export_flag::SEND_DF } else { 0 };
        always | kind | df
    }

    pub(super) fn reply(&mut self, option: u32, reply: u32, data: &[u8]) {
        self.outbox.push_bytes(&ReplyHeader { option, reply, len_bytes: data.len() as u32 }.encode());
        self.outbox.push_bytes(data);
    }

    fn reply_info(&mut self, option: u32, kind: u16, data: &[u8]) {
        let len_bytes = data.len() as u32 + 2;
        self.outbox.push_bytes(&ReplyHeader { option, reply: reply::INFO, len_bytes }.encode());
        self.outbox.push_bytes(&kind.to_be_bytes());
        self.outbox.push_bytes(data);
    }

    pub(super) fn refuse_missing(&mut self, option: u32, missing: &Missing) {
        let (error, why) = missing.reply();
        self.refuse(option, error, why);
    }

    pub(super) fn refuse(&mut self, option: u32, error: u32, message: &str) {
        self.reply(option, error, message.as_bytes());
    }
}
