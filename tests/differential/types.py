"""CQL types as the generator needs them."""

from __future__ import annotations

from dataclasses import dataclass, field

INTEGERS = ("tinyint", "smallint", "int", "bigint", "varint")
NUMBERS = (*INTEGERS, "float", "double", "decimal")
TIMES = ("timestamp", "date", "time", "timeuuid")
SCALARS = (*NUMBERS, "ascii", "text", "blob", "boolean", "uuid", "timeuuid", "inet", "timestamp", "date", "time",
           "duration")
KEY_SCALARS = tuple(name for name in SCALARS if name != "duration")


@dataclass
class Definition:
    """A user-defined type. ALTER TYPE changes it in place, so that every column of the type sees the change."""

    name: str
    fields: list[tuple[str, Type]] = field(default_factory=list)


@dataclass(eq=False)
class Type:
    """A CQL type; `parts` are the element, key and value, or component types.

    `frozen` is whether a value is written and deleted as one; true of everything that has no parts.
    """

    kind: str  # a scalar's name, or list, set, map, tuple, udt, vector
    parts: tuple[Type, ...] = ()
    frozen: bool = True
    definition: Definition | None = None
    dimension: int = 0

    @property
    def cql(self) -> str:
        """The type as DDL writes it."""
        if self.kind == "udt":
            name = f"@ks@.{self.definition.name}"
            return f"frozen<{name}>" if self.frozen else name
        if self.kind == "vector":
            return f"vector<{self.parts[0].cql}, {self.dimension}>"
        if not self.parts:
            return self.kind
        text = f"{self.kind}<{', '.join(part.cql for part in self.parts)}>"
        return f"frozen<{text}>" if self.frozen and self.kind != "tuple" else text

    @property
    def scalar(self) -> bool:
        return self.kind in SCALARS

    @property
    def collection(self) -> bool:
        return self.kind in ("list", "set", "map")

    @property
    def many_cells(self) -> bool:
        """True if its elements or fields are cells of their own."""
        return not self.frozen

    def uses(self, definition: Definition) -> bool:
        return self.definition is definition or any(part.uses(definition) for part in self.children())

    def children(self) -> list[Type]:
        if self.kind == "udt":
            return [kind for _, kind in self.definition.fields]
        return list(self.parts)

    def holds(self, *kinds: str) -> bool:
        """True if it is, or contains at any depth, one of these kinds."""
        return self.kind in kinds or any(child.holds(*kinds) for child in self.children())


def frozen(kind: Type) -> Type:
    return Type(kind.kind, kind.parts, True, kind.definition, kind.dimension)
