"""Results of the driver's protocol layer with values left as bytes and types as text."""

from __future__ import annotations

from cassandra.cqltypes import ListType, MapType, SetType, TupleType, UserType
from cassandra.protocol import (
    CUSTOM_TYPE, ErrorMessage, PreparedQueryNotFound, ResultMessage, _ProtocolHandler, error_classes, read_int, read_short,
    read_string)

PARAMETERS = {ListType: 1, SetType: 1, MapType: 2}


class RawResult(ResultMessage):
    """A RESULT whose rows are tuples of bytes or None and whose column types are descriptions."""

    result_metadata_id = None

    def recv_results_rows(self, f, protocol_version, user_type_map, result_metadata, column_encryption_policy):
        self.recv_results_metadata(f, user_type_map)
        columns = self.column_metadata if self.column_metadata is not None else result_metadata or []
        count = read_int(f)
        self.parsed_rows = [tuple(self.recv_row(f, len(columns))) for _ in range(count)]
        self.columns = columns

    @classmethod
    def read_type(cls, f, user_type_map) -> str:
        code = read_short(f)
        kind = cls.type_codes.get(code)
        if kind is CUSTOM_TYPE:
            return read_string(f)
        if kind in PARAMETERS:
            parts = [cls.read_type(f, user_type_map) for _ in range(PARAMETERS[kind])]
            return f"{kind.typename}<{', '.join(parts)}>"
        if kind is TupleType:
            return f"tuple<{', '.join(cls.read_type(f, user_type_map) for _ in range(read_short(f)))}>"
        if kind is UserType:
            keyspace, name = read_string(f), read_string(f)
            fields = [f"{read_string(f)} {cls.read_type(f, user_type_map)}" for _ in range(read_short(f))]
            return f"udt {keyspace}.{name}<{', '.join(fields)}>"
        return kind.typename if kind is not None else f"code 0x{code:04x}"


class RawError(ErrorMessage):
    """An ERROR of any code. The driver gives up a connection on its own class for protocol errors; a server does not."""

    @classmethod
    def recv_body(cls, f, protocol_version, *args):
        code, message = read_int(f), read_string(f)
        known = error_classes.get(code, cls)
        return cls(code, message, known.recv_error_info(f, protocol_version))

    @property
    def unprepared(self) -> bool:
        return self.code == PreparedQueryNotFound.error_code


class RawHandler(_ProtocolHandler):
    message_types_by_opcode = {
        **_ProtocolHandler.message_types_by_opcode, RawResult.opcode: RawResult, RawError.opcode: RawError}


decode = RawHandler.decode_message
