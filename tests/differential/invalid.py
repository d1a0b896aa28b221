"""Statements that must be refused, or that are so mangled that nobody knows: both sides have to agree."""

from __future__ import annotations

import re

from . import reads, wheres, writes
from .context import SERVER, Context
from .draft import Draft
from .schema import identifier
from .step import LITERAL

WRONG = ("'text'", "1", "1.5", "true", "0x00", "123e4567-e89b-12d3-a456-426614174000", "[1]", "{1}", "{1: 2}", "(1, 2)",
         "{a: 1}", "null", "NaN", "1mo", "''", "0x", "99999999999999999999", "-1", "token(1)", "'1.2.3.4'", "'2020-01-01'", "$$x$$",
         "2147483648", "(int)1", "int(1)", "1 + 1", "'a' + 'b'", "-(-1)", "?", ":name")
TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|@ks@\.\w*@n@|@ks@|0x[0-9a-fA-F]*|[\w.]+|\s+|.", re.DOTALL)
INSERTED = ("SELECT", "FROM", "WHERE", "AND", "IN", "(", ")", ",", "=", "<", "*", "LIMIT", "'x'", "1", "?", ";", "[", "]", "{", "}",
            "NOT", "IF", "EXISTS", "TOKEN", "null", "--", "/*", ".", "CONTAINS", "OR", "LIKE", "BETWEEN", "IS NOT NULL", "\"", "'")


def wrong_type(context: Context, draft: Draft) -> str:
    """A literal where it may not fit; where it does, it is a write like others."""
    table, rng = context.table, context.rng
    column = rng.choice(table.columns)
    term = rng.choice(WRONG)
    if rng.random() < 0.4:
        return f"SELECT * FROM {table.name} WHERE {column.cql} {rng.choice(('=', '>', 'IN', 'CONTAINS'))} {term} ALLOW FILTERING"
    columns = [other for other in table.partition + table.clustering if other is not column]
    names = ", ".join(other.cql for other in [*columns, column])
    terms = ", ".join([context.key(other).literal for other in columns] + [term])
    if column.role in ("regular", "static") and rng.random() < 0.4:
        where = " AND ".join(wheres.row(context, Draft(rng, LITERAL)))
        return f"UPDATE {table.name} SET {column.cql} {rng.choice(('=', '=', '+=', '-='))} {term} WHERE {where}"
    return f"INSERT INTO {table.name} ({names}) VALUES ({terms})"


def wrong_name(context: Context, draft: Draft) -> str:
    """An unknown table, keyspace, column, function, type."""
    table, rng = context.table, context.rng
    column = rng.choice(table.columns).cql
    where = " AND ".join(wheres.row(context, Draft(rng, LITERAL)))
    return rng.choice((
        f"SELECT nothing FROM {table.name}", f"SELECT * FROM {table.name} WHERE nothing = 1", "SELECT * FROM @ks@.nothing",
        "SELECT * FROM nothing_@ks@.t", "SELECT * FROM unqualified", f"INSERT INTO {table.name} (nothing) VALUES (1)",
        f"UPDATE {table.name} SET nothing = 1 WHERE {where}", f"DELETE nothing FROM {table.name} WHERE {where}",
        f"SELECT nothing({column}) FROM {table.name}", f"SELECT CAST({column} AS nothing) FROM {table.name}",
        f"SELECT {column}.nothing FROM {table.name}", f"SELECT * FROM {table.name} ORDER BY nothing",
        f"SELECT * FROM {table.name} GROUP BY nothing", f"DELETE FROM {table.name} WHERE {where} IF nothing = 1",
        f"ALTER TABLE {table.name} DROP nothing", "ALTER TYPE @ks@.nothing ADD f int", "DROP TABLE @ks@.nothing",
        "DROP TABLE IF EXISTS @ks@.nothing", "DROP TYPE @ks@.nothing", "DROP KEYSPACE nothing_@ks@", "TRUNCATE @ks@.nothing",
        f"ALTER TABLE {table.name} ADD n nothing", "CREATE TABLE @ks@.x@n@ (a nothing PRIMARY KEY)", "USE nothing_@ks@",
        f"SELECT JSON nothing FROM {table.name}", f"INSERT INTO {table.name} JSON '{{\"nothing\": 1}}'", "DESCRIBE TABLE @ks@.nothing",
        f"SELECT * FROM {table.name} WHERE token(nothing) > 1", "INSERT INTO system.local (key) VALUES ('x')",
        "CREATE TABLE system.x (a int PRIMARY KEY)", "DROP KEYSPACE system"))


def wrong_shape(context: Context, draft: Draft) -> str:
    """A key part too few or too many, a column twice, a clause where it has no place."""
    table, rng = context.table, context.rng
    parts = wheres.row(context, Draft(rng, LITERAL))
    fewer = " AND ".join(rng.sample(parts, rng.randint(0, len(parts) - 1))) or f"{table.columns[0].cql} = null"
    whole = " AND ".join(parts)
    column, key = rng.choice(table.columns).cql, rng.choice(table.partition + table.clustering).cql
    value = rng.choice(table.values).cql if table.values else key
    names = ", ".join(other.cql for other in table.partition)
    return rng.choice((
        f"SELECT * FROM {table.name} WHERE {fewer}", f"DELETE FROM {table.name} WHERE {fewer}",
        f"UPDATE {table.name} SET {value} = null WHERE {fewer}", f"DELETE {value} FROM {table.name} WHERE {fewer}",
        f"SELECT * FROM {table.name} WHERE {whole} AND {parts[0]}", f"UPDATE {table.name} SET {key} = null WHERE {whole}",
        f"INSERT INTO {table.name} ({names}) VALUES ({', '.join('null' for _ in table.partition)})",
        f"INSERT INTO {table.name} ({column}, {column}) VALUES (null, null)", f"INSERT INTO {table.name} ({column}) VALUES (1, 2)",
        f"INSERT INTO {table.name} ({names}) VALUES ()", f"DELETE {key} FROM {table.name} WHERE {whole}",
        f"SELECT * FROM {table.name} ORDER BY {column}", f"SELECT DISTINCT {column} FROM {table.name}",
        f"SELECT * FROM {table.name} GROUP BY {column}", f"SELECT * FROM {table.name} LIMIT {rng.choice(('0', '-1', 'null', '1.5'))}",
        f"SELECT * FROM {table.name} PER PARTITION LIMIT 0", f"SELECT writetime({column}) FROM {table.name}",
        f"SELECT ttl({key}) FROM {table.name}", f"SELECT *, {column} FROM {table.name}", f"SELECT count(*), {column} FROM {table.name}",
        f"SELECT sum({column}), avg({column}) FROM {table.name}", f"SELECT {column}[0] FROM {table.name}",
        f"SELECT * FROM {table.name} WHERE {column} = null ALLOW FILTERING", f"SELECT * FROM {table.name} WHERE {column} != 1",
        f"SELECT * FROM {table.name} WHERE {column} CONTAINS 1", f"SELECT * FROM {table.name} WHERE token({column}) > 0",
        f"SELECT * FROM {table.name} WHERE {column} IN ()", f"SELECT * FROM {table.name} WHERE {column} IS NOT NULL",
        f"SELECT * FROM {table.name} WHERE {column} LIKE 'a%'", f"SELECT * FROM {table.name} WHERE {column} > 1 AND {column} > 2",
        f"SELECT * FROM {table.name} WHERE {column} BETWEEN 1 AND 2", f"SELECT max({column}), {column} FROM {table.name}",
        f"INSERT INTO {table.name} ({names}) VALUES ({', '.join('?' for _ in table.partition)})",
        f"BEGIN BATCH SELECT * FROM {table.name}; APPLY BATCH", "BEGIN BATCH APPLY BATCH", f"BEGIN COUNTER BATCH DELETE FROM {table.name} "
        f"WHERE {whole}; APPLY BATCH", f"UPDATE {table.name} USING TTL 1000000000 SET {value} = null WHERE {whole}",
        f"DELETE FROM {table.name} USING TTL 5 WHERE {whole}",
        f"UPDATE {table.name} USING TIMESTAMP 5 SET {value} = null WHERE {whole} IF EXISTS",
        f"UPDATE {table.name} SET {value} = null, {value} = null WHERE {whole}", f"ALTER TABLE {table.name} DROP {key}",
        f"ALTER TABLE {table.name} ADD {column} int", f"ALTER TABLE {table.name} ADD q counter",
        f"ALTER TABLE {table.name} ALTER {column} TYPE blob",
        f"CREATE TABLE @ks@.x@n@ ({identifier('a')} int, b int)", "CREATE TABLE @ks@.x@n@ (a duration PRIMARY KEY)",
        "CREATE TABLE @ks@.x@n@ (a list<int> PRIMARY KEY)", "CREATE TABLE @ks@.x@n@ (a int PRIMARY KEY, b int, b text)",
        "CREATE TABLE @ks@.x@n@ (a int PRIMARY KEY, b int static)", "CREATE TABLE @ks@.x@n@ (a int PRIMARY KEY, b counter, c int)",
        "CREATE TABLE @ks@.x@n@ (a counter PRIMARY KEY)", "CREATE TABLE @ks@.x@n@ (a int PRIMARY KEY, b list<list<int>>)",
        "CREATE TABLE @ks@.x@n@ (a int PRIMARY KEY) WITH nothing = 1",
        "CREATE TABLE @ks@.x@n@ (a int PRIMARY KEY) WITH CLUSTERING ORDER BY (b ASC)",
        "CREATE TABLE @ks@.x@n@ (a int PRIMARY KEY, b set<duration>)",
        "CREATE TYPE @ks@.y@n@ (a int, a text)", "CREATE TYPE @ks@.y@n@ (a counter)",
        "CREATE KEYSPACE x@n@ WITH replication = {'class': 'Nothing'}", "CREATE KEYSPACE x@n@", "CREATE KEYSPACE @ks@ WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}", "CREATE TABLE @ks@.x@n@ (a int PRIMARY KEY) WITH gc_grace_seconds = -1",
        "CREATE TABLE @ks@.x@n@ (a int PRIMARY KEY) WITH default_time_to_live = 'x'"))


def mangled(context: Context, draft: Draft) -> str:
    """A valid statement with a word missing, doubled, moved or put in."""
    rng = context.rng
    make = rng.choice((writes.insert, writes.update, writes.delete, reads.slices, reads.several, reads.group_by, reads.token_range))
    if make is writes.update and not context.table.values:
        make = writes.insert
    clock, context.clock = context.clock, SERVER  # a USING clause cut in two could bring a time to live twice
    text = make(context, Draft(rng, LITERAL))
    context.clock = clock
    tokens = TOKEN.findall(text.split(" USING ")[0] if make is writes.insert else text)
    for _ in range(rng.choice((1, 1, 1, 2))):
        at = rng.randrange(len(tokens))
        way = rng.random()
        if way < 0.35:
            del tokens[at]
        elif way < 0.5:
            tokens.insert(at, tokens[at])
        elif way < 0.75:
            tokens.insert(at, f" {rng.choice(INSERTED)} ")
        else:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        if not tokens:
            break
    return "".join(tokens)
