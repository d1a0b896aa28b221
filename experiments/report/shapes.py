"""The forms that lines of a results file must have, and what is wrong with a line that has another.

A shape is a type or several, a set of words, a list of one shape, or the fields of an object; a field whose name ends
with "?" may be missing or null. Fields that are not named here are left alone: a later version may write more.
"""

import math

TEXT = (str,)
NUMBER = (int, float)
FLAG = (bool,)
OBJECT = (dict,)
OPTIONAL_NUMBER = (int, float, type(None))

VERDICTS = ("met", "not met", "not shown", "not measured")

KINDS = {
    "run": {
        "shunt": TEXT, "commit?": TEXT, "started": TEXT, "smoke": FLAG, "seed?": NUMBER, "versions?": OBJECT,
        "machine": {"processor?": TEXT, "processors?": NUMBER, "memory_bytes?": NUMBER, "kernel?": TEXT, "virtual?": FLAG}},
    "scenario": {
        "name": TEXT, "title": TEXT, "question": TEXT, "setup": TEXT, "source?": TEXT,
        "axis": {"title": TEXT, "scale": {"log", "linear", "category"}},
        "arms": [{"name": TEXT, "title": TEXT, "missing?": TEXT}],
        "figures": [{"name": TEXT, "title": TEXT, "unit": TEXT, "better": {"less", "more", "neither"}}],
        "plots": [{"figure": TEXT, "sentence": TEXT}]},
    "measurement": {
        "scenario": TEXT, "arm": TEXT, "point?": TEXT, "x?": NUMBER, "round": NUMBER, "figures": OBJECT, "detail?": OBJECT},
    "series": {
        "scenario": TEXT, "arm": TEXT, "point?": TEXT, "figure": TEXT, "x_title": TEXT, "x": [NUMBER], "y": [OPTIONAL_NUMBER]},
    "picture": {"scenario": TEXT, "name": TEXT, "title": TEXT, "svg": TEXT},
    "summary": {
        "scenario": TEXT, "arm": TEXT, "point?": TEXT, "x?": NUMBER, "figure": TEXT, "median": NUMBER, "min": NUMBER,
        "max": NUMBER, "rounds": NUMBER},
    "comparison": {
        "scenario": TEXT, "point?": TEXT, "x?": NUMBER, "figure": TEXT, "arm": TEXT, "base": TEXT, "ratio": NUMBER,
        "low?": NUMBER, "high?": NUMBER, "shown": FLAG, "rounds": NUMBER},
    "claim": {
        "scenario?": TEXT, "text": TEXT, "source?": TEXT, "theirs?": TEXT, "ours?": TEXT, "how?": TEXT,
        "verdict": set(VERDICTS), "why?": TEXT},
    "note": {"scenario?": TEXT, "text": TEXT},
    "end": {"complete": FLAG, "seconds?": NUMBER},
}

NAMES = {TEXT: "a string", NUMBER: "a number", FLAG: "true or false", OBJECT: "an object", OPTIONAL_NUMBER: "a number or null"}


def faults(value, shape, place: str) -> list:
    """Finds the faults of a value, each with its place in the line."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{place} is {shown(value)}; an object is wanted"]
        return [fault for field, inner in shape.items() for fault in _field(value, field, inner, place)]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{place} is {shown(value)}; a list is wanted"]
        return [fault for index, item in enumerate(value) for fault in faults(item, shape[0], f"{place}[{index}]")]
    if isinstance(shape, set):
        wanted = ", ".join(f'"{word}"' for word in sorted(shape))
        return [] if isinstance(value, str) and value in shape else [f"{place} is {shown(value)}; one of {wanted} is wanted"]
    boolean = isinstance(value, bool) and bool not in shape  # for Python a boolean is a number
    endless = isinstance(value, float) and not math.isfinite(value)
    if boolean or endless or not isinstance(value, shape):
        return [f"{place} is {shown(value)}; {NAMES[shape]} is wanted"]
    return []


def _field(value: dict, field: str, inner, place: str) -> list:
    name = field.removesuffix("?")
    where = f"{place}.{name}" if place else name
    if value.get(name) is None:
        if field.endswith("?"):
            return []
        # A number that may be null must be written all the same.
        return [f"{where} is null"] if name in value else [f"{where} is missing"]
    return faults(value[name], inner, where)


def shown(value) -> str:
    """A value as an error names it."""
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
