"""The differences that are intended, each with its reason; whatever is not here is a failure.

An entry says as narrowly as it can what it is about. A run counts how often each was used; one that a long run never
uses is to be removed.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Callable

from .compare import Difference, compare


@dataclass(frozen=True)
class Expected:
    """`ends` is whether the two sides' data may differ from here on, so that the sequence says no more."""

    name: str
    reason: str
    matches: Callable[[Difference], bool]
    ends: bool = False


def _group_by_breaks(difference: Difference) -> bool:
    theirs, step = difference.cassandra, difference.step
    broken = theirs.code == 0x1300 or theirs.code == 0x000A and "paging state" in theirs.message and step.page_size
    return bool(broken) and "GROUP BY" in step.text and difference.ours.kind == "rows"


# Exceptions of Java that Cassandra did not foresee: how its message begins, in which kinds of statements, and how that of the
# node begins, which calls the statement invalid.
UNFORESEEN = (
    (r"java\.lang\.IllegalArgumentException: Batch with conditions cannot span multiple partitions", r"lwt\.batch|batch",
     r"Batch with conditions cannot span multiple partitions"),
    (r"java\.lang\.ClassCastException: class \S+Constants\$Value cannot be cast to class \S+Lists\$Value",
     r"update|batch|lwt\.update|lwt\.batch", r"Invalid unset value for column"),
    (r"java\.lang\.ClassCastException: class \S+Tuples\$Value cannot be cast to class \S+UserTypes\$Value", r"invalid\.type",
     r"Invalid tuple type literal for"),
    (r"java\.lang\.NumberFormatException: Character .* is neither a decimal digit number", r"select\..*",
     r"the (float|double) \S+ cannot be cast to decimal"),
)


def _unforeseen(difference: Difference) -> bool:
    theirs, ours, kind = difference.cassandra, difference.ours, difference.step.kind
    return theirs.code == 0x0000 and ours.code == 0x2200 and any(
        re.match(message, theirs.message) and re.fullmatch(kinds, kind) and re.match(own, ours.message)
        for message, kinds, own in UNFORESEEN)


def _index_in_no_partition(difference: Difference) -> bool:
    theirs = difference.cassandra
    done = difference.ours.kind == "void" or difference.ours.message.startswith("ttl is too large")
    return (theirs.code == 0x0000 and theirs.message.endswith("IndexOutOfBoundsException: Index 0 out of bounds for length 0")
            and difference.step.kind in ("update", "delete", "batch", "lwt.batch") and done)


def _field_added_later(difference: Difference) -> bool:
    theirs, step = difference.cassandra, difference.step
    return (theirs.code == 0x0000 and theirs.message.startswith("java.lang.ArrayIndexOutOfBoundsException: Index ")
            and step.kind.startswith("lwt") and re.search(r" IF .*\w\.\w", step.text) is not None)


def _dropped_with_a_type(difference: Difference) -> bool:
    theirs = difference.cassandra
    return (theirs.code == 0x2200 and "incompatible with previously dropped column" in theirs.message
            and difference.step.kind == "ddl.alter_table" and difference.ours.kind == "schema")


def _empty_map(difference: Difference) -> bool:
    theirs = difference.cassandra
    cast = re.match(r"java\.lang\.ClassCastException: class \S+MapType cannot be cast to class \S+SetType", theirs.message)
    return (theirs.code == 0x0000 and cast is not None and difference.step.kind in ("insert", "update", "batch")
            and "{}" in difference.step.text and difference.ours.kind == "void")


def _differing(difference: Difference):
    """Pairs of values that differ, ours first, of answers with as many rows; None if that is not all that differs."""
    ours, theirs = difference.ours.rows, difference.cassandra.rows
    if difference.aspect != "rows" or len(ours) != len(theirs):
        return None
    return [pair for rows in zip(ours, theirs) for pair in zip(*rows) if pair[0] != pair[1]]


def _last_bit(difference: Difference) -> bool:
    """Neighbours among the doubles, or two forms of NaN, from a function that Java need not round rightly."""
    pairs = _differing(difference)
    if pairs is None or re.search(r"\b(log10|log|exp)\(", difference.step.text) is None:
        return False
    return all(mine and other and len(mine) == len(other) == 8
               and (abs(int.from_bytes(mine, "big") - int.from_bytes(other, "big")) == 1
                    or all(math.isnan(struct.unpack(">d", value)[0]) for value in (mine, other))) for mine, other in pairs)


def _floor_beyond(difference: Difference) -> bool:
    """Timestamps some millions of years away, for which there is no calendar."""
    pairs = _differing(difference)
    if pairs is None or re.search(r"\bfloor\([^)]*, \d+(mo|y)\)", difference.step.text) is None:
        return False
    return all(mine and other and len(mine) == len(other) == 8
               and min(abs(int.from_bytes(value, "big", signed=True)) for value in (mine, other)) > 10**17 for mine, other in pairs)


def _read_failure(difference: Difference) -> bool:
    """True for a read without conditions on rows that compares with null. For columns of the key,
    Cassandra refuses that only at a row, and its answer says only that it failed."""
    kinds, ours = ("select.aggregate", "select.all"), difference.ours
    null = ours.code == 0x2200 and ours.message.startswith("Invalid null value in condition for column")
    return difference.cassandra.code == 0x1300 and (null or difference.step.kind in kinds and ours.kind == "rows")


def _values_of_two_selections(difference: Difference) -> bool:
    """Only columns of a map that is selected in parts twice differ, and Cassandra has left out values there."""
    text, (ours, theirs) = difference.step.text, (difference.ours, difference.cassandra)
    columns = Counter(re.findall(r'("(?:[^"]|"")+"|\w+)\[', text.split(" FROM ")[0]))
    if difference.aspect != "rows" or ".." not in text or max(columns.values(), default=0) < 2 or len(ours.rows) != len(theirs.rows):
        return False
    return all(mine == other or len(other or b"") < len(mine or b"") for pair in zip(ours.rows, theirs.rows) for mine, other in zip(*pair))


def _not_a_decimal(difference: Difference) -> bool:
    """True for an average whose sum is beyond all doubles and then meets an infinite one."""
    theirs = difference.cassandra
    return (theirs.code == 0x0000 and theirs.message.startswith("java.lang.NumberFormatException: Character ")
            and "avg(" in difference.step.text and difference.ours.kind == "rows")


def _without_forms(value: bytes) -> bytes | None:
    """A set's bytes with each element cut before its last nulls, one of each; None if they are no set's."""
    if len(value) < 4:
        return None
    elements, at = set(), 4
    for _ in range(int.from_bytes(value[:4], "big")):
        if at >= len(value):
            return None
        length = int.from_bytes(value[at:at + 4], "big")
        element, at = value[at + 4:at + 4 + length], at + 4 + length
        while element.endswith(b"\xff\xff\xff\xff"):
            element = element[:-4]
        elements.add(element)
    return b"".join(sorted(elements)) if at == len(value) else None


def _element_of_two_forms(difference: Difference) -> bool:
    """Only sets differ, and in the node one has an element twice: with and without the field that its type got later."""
    pairs = _differing(difference)
    if not pairs or any(len(mine or b"") <= len(other or b"") for mine, other in pairs):
        return False
    if "JSON" in difference.step.text:
        return all(_once(mine) == _once(other) for mine, other in pairs)
    forms = [(_without_forms(mine or b""), _without_forms(other or b"")) for mine, other in pairs]
    return all(mine is not None and mine == other for mine, other in forms)


def _once(text: bytes | None):
    """A row in JSON whose lists have each element once."""
    try:
        row = json.loads(text or b"")
    except ValueError:
        return text
    return {name: sorted({json.dumps(element) for element in value}) if isinstance(value, list) else value
            for name, value in row.items()}


def _empty_tuple_as_json(difference: Difference) -> bool:
    theirs, text = difference.cassandra, difference.step.text.lower()
    return (theirs.code == 0x0000 and theirs.message.startswith("java.lang.IndexOutOfBoundsException") and "json" in text
            and difference.step.reads and difference.ours.kind == "rows")


LEGACY_TIMEUUID = "org.apache.cassandra.db.marshal.LegacyTimeUUIDType"


def _legacy_timeuuid(difference: Difference) -> bool:
    """True if the answers differ in the name of that type alone."""
    if difference.aspect not in ("prepared", "columns") or LEGACY_TIMEUUID not in str(difference.cassandra):
        return False
    theirs = difference.cassandra
    renamed = theirs.altered(columns=_renamed(theirs.columns), prepared=theirs.prepared and _renamed(theirs.prepared))
    return compare(difference.step, difference.ours, renamed) is None


def _renamed(value):
    if isinstance(value, tuple):
        return tuple(_renamed(part) for part in value)
    return value.replace(LEGACY_TIMEUUID, "timeuuid") if isinstance(value, str) else value


def _system_write(difference: Difference) -> bool:
    return difference.ours.code == 0x2100 and difference.cassandra.kind == "void" and " system." in difference.step.text


def _descending_collection(difference: Difference) -> bool:
    theirs = difference.cassandra
    return difference.ours.kind == "rows" and theirs.code == 0x2200 and (
        "requires a" in theirs.message and "but found argument" in theirs.message or "CONTAINS" in theirs.message
        and "on non-" in theirs.message)


def _order_of_conditions(difference: Difference) -> bool:
    answers = (difference.ours, difference.cassandra)
    invalid = [answer for answer in answers if answer.code == 0x2200 and answer.message.startswith("Invalid comparison with")]
    refused = [answer for answer in answers if answer.kind == "rows" and answer.rows and answer.rows[0][0] == b"\0"]
    return difference.step.kind.startswith("lwt") and len(invalid) == len(refused) == 1


def _descending_sum(difference: Difference) -> bool:
    theirs = difference.cassandra
    return theirs.code == 0x2200 and theirs.message.startswith("Ambiguous '") and difference.ours.kind in ("rows", "void")


def _type_in_key(difference: Difference) -> bool:
    ours = difference.ours
    return difference.cassandra.kind == "schema" and ours.code == 0x2200 and "in the primary key of table" in ours.message


def _constant_for_tuple(difference: Difference) -> bool:
    theirs, ours = difference.cassandra, difference.ours
    accepted = theirs.kind in ("void", "rows") or theirs.code in (0x1300, 0x1500)  # or it fails over what it accepted
    return difference.step.kind == "invalid.type" and accepted and ours.code == 0x2200 and "is no value of type" in ours.message


def _deleted_element(difference: Difference) -> bool:
    """Some of Cassandra's rows have the element no more; ours are among them, in their order. With pages it may count such a
    row, not show it, and take the short page for the last one: then its rows are among ours."""
    def among(some, all_of_them):
        rest = iter(all_of_them)
        return all(row in rest for row in some)

    ours, theirs, step = difference.ours.rows, difference.cassandra.rows, difference.step
    return (difference.aspect == "rows" and re.search(r"CONTAINS|\] = ", step.text) is not None
            and "ALLOW FILTERING" in step.text and (among(ours, theirs) or bool(step.page_size) and among(theirs, ours)))


def _fields_in_a_name(difference: Difference) -> bool:
    if difference.aspect == "rows" and "JSON" in difference.step.text and "{" in difference.step.text:
        texts = [[sorted(row[0] or b"") for row in answer.rows] for answer in (difference.ours, difference.cassandra)]
        return texts[0] == texts[1]
    if difference.aspect not in ("columns", "prepared") or ": " not in str(difference.cassandra.columns):
        return False
    names = [[(sorted(name), kind) for name, kind in answer.columns] for answer in (difference.ours, difference.cassandra)]
    return names[0] == names[1]


def _letter_behind_number(difference: Difference) -> bool:
    theirs = difference.cassandra
    return difference.step.kind == "invalid.mangled" and theirs.code == 0x2000 and "mismatched character" in theirs.message


def _null_bound(difference: Difference) -> bool:
    ours = difference.ours
    return (difference.step.kind == "invalid.type" and difference.cassandra.kind == "rows" and ours.code == 0x2200
            and "null value in condition" in ours.message)


def _list_in_batch(difference: Difference) -> bool:
    theirs = difference.cassandra
    return theirs.code == 0x2200 and theirs.message.startswith("Attempted to") and difference.step.kind == "lwt.batch"


def _map_element(difference: Difference) -> bool:
    ours, theirs = difference.ours, difference.cassandra
    both = [answer.rows[0][0] for answer in (ours, theirs) if answer.kind == "rows" and answer.rows]
    # Read as a value of the other type, it may also be too short.
    broken = theirs.code == 0x0000 and theirs.message.startswith("java.lang.IndexOutOfBoundsException") and ours.kind == "rows"
    return (difference.step.kind.startswith("lwt") and (broken or len(both) == 2 and both[0] != both[1])
            and re.search(r" IF .*\w\[.*\] ([<>=!]|IN)", difference.step.text) is not None)


EXPECTED: tuple[Expected, ...] = (
    Expected("GROUP BY breaks", "Cassandra 5.0 cannot go on with pages of GROUP BY without clustering columns, and fails to read "
             "when its limit ends within a range tombstone; the node answers", _group_by_breaks),
    Expected("index in no partition", "Of a list by index with an empty IN: Cassandra fails, and there is nothing to do",
             _index_in_no_partition, ends=True),
    Expected("empty tuple as JSON", "An empty value of a tuple is accepted and then breaks SELECT JSON", _empty_tuple_as_json),
    Expected("not a decimal", "An average whose sum is beyond all doubles and that then meets an infinite one fails in Cassandra",
             _not_a_decimal),
    Expected("element of two forms", "An element of a set, written before and after its type got a field, is one element in Cassandra and "
             "two in the node", _element_of_two_forms),
    Expected("unforeseen exception", "Cassandra answers ServerError with an exception of Java where the statement is invalid",
             _unforeseen),
    Expected("field added later", "A condition on a field that a value was written without, as its type got it later, breaks in Cassandra",
             _field_added_later, ends=True),
    Expected("dropped with a type", "A column that is added again as it was is another one to Cassandra if a type of the user's is within "
             "its type", _dropped_with_a_type, ends=True),
    Expected("empty map", "{} stands for a map within a frozen value: Cassandra takes it for a set and answers ServerError", _empty_map,
             ends=True),
    Expected("last bit", "The last bit of a logarithm or an exponential is the processor's and the library's", _last_bit),
    Expected("floor beyond the calendar", "Months of timestamps beyond all years overflow in Cassandra, and otherwise in the node",
             _floor_beyond),
    Expected("read failure", "Cassandra fails to read", _read_failure),
    Expected("two selections of a map", "Where a map is selected by key and by slice at once, Cassandra loses values that both ask for",
             _values_of_two_selections),
    Expected("legacy timeuuid", "Cassandra says that min and max of a timeuuid are of a class of its own that drivers do not know; "
             "the node says timeuuid", _legacy_timeuuid),
    Expected("write to system", "Without an authorizer Cassandra lets anybody write to its own tables", _system_write),
    Expected("descending collection", "Cassandra 5.0 does not know a frozen collection for one if it is a clustering column in "
             "descending order", _descending_collection),
    Expected("descending sum", "Nor which operation on numbers is meant where the result is for such a column", _descending_sum,
             ends=True),
    Expected("field of a key", "Cassandra lets types of clustering columns have more fields later on, not those of the partition key; "
             "the node neither", _type_in_key, ends=True),
    Expected("constant for a tuple", "Cassandra takes any constant for a tuple and then reads its text as it can", _constant_for_tuple,
             ends=True),
    Expected("deleted element", "CONTAINS of Cassandra finds elements of sets and keys of maps that were deleted, as long as the "
             "tombstone is there; with pages it may end too early for that", _deleted_element),
    Expected("fields in a name", "The name of a column that is selected by a literal of a user-defined type has its fields in the order "
             "of Java's hashes in Cassandra, as they were written in the node", _fields_in_a_name),
    Expected("letter behind a number", "The node reads 1AND as 1 AND, Cassandra begins a UUID there and finds no more of it",
             _letter_behind_number, ends=True),
    Expected("null bound", "Behind ALLOW FILTERING Cassandra compares with null as if nothing was asked", _null_bound),
    Expected("list in a conditional batch", "Cassandra sees only rows that have conditions: an element of a list elsewhere cannot be set",
             _list_in_batch, ends=True),
    Expected("element of a map", "In conditions Cassandra compares the values of a map as if they were of the type of its keys",
             _map_element, ends=True),
    Expected("order of conditions", "Of two conditions on a row, one that does not hold and one that cannot be, Cassandra finds "
             "either first", _order_of_conditions),
)


def find(difference: Difference, uses: Counter) -> Expected | None:
    """The entry this difference falls under, counted in `uses`."""
    for entry in EXPECTED:
        if entry.matches(difference):
            uses[entry.name] += 1
            return entry
    return None
