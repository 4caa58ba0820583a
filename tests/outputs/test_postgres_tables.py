import json
import sys
from pathlib import Path
from typing import Any

import pytest

from crawler.errors import OutputError, UsageError
from crawler.outputs.columns import ColumnType
from crawler.outputs.opening import check_target, open_growing
from crawler.outputs.sink import OutputAway, Wanted
from tests.outputs.samples import AWKWARD, ITEMS, rows, shape, target
from tests.support.postgres import PostgresServer


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


def write(url: str, records: list[dict[str, Any]], first: int = 0, **columns: ColumnType) -> None:
    sink = open_growing(target(url), shape(**columns), None)
    try:
        sink.write(rows(records, first))
        sink.commit()
    finally:
        sink.close()


def records(postgres: PostgresServer, database: str, table: str = "items") -> list[dict[str, Any]]:
    found = postgres.psql(
        database, f"SELECT to_jsonb(t) - '{{_fingerprint,_visit,_number}}'::text[] FROM {table} t ORDER BY _fingerprint"
    )
    return [json.loads(row[0]) for row in found]


def types(postgres: PostgresServer, database: str) -> dict[str, str]:
    rows_ = postgres.psql(
        database, "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'items' "
        "AND column_name NOT LIKE '\\_%'"
    )  # fmt: skip
    return {name: kind for name, kind in rows_ if name}


def test_values_come_back_with_their_types(postgres: PostgresServer, database: str) -> None:
    more = {"nested": [1, {"a": None}], "links": ["http://a.test/"]}
    write(postgres.url(database), [one | more for one in AWKWARD])
    assert records(postgres, database) == [one | more for one in AWKWARD]
    assert types(postgres, database) == {
        "url": "text", "title": "text", "price": "double precision", "stock": "bigint", "new": "boolean",
        "nested": "jsonb", "links": "jsonb",
    }  # fmt: skip


def test_what_is_sent_twice_counts_once_and_renews_its_own_columns(postgres: PostgresServer, database: str) -> None:
    url = postgres.url(database, table="items")
    for _ in range(2):
        write(url, [{"a": 1, "text": "long"}, {"a": 2, "text": "more"}])
    assert records(postgres, database) == [{"a": 1, "text": "long"}, {"a": 2, "text": "more"}]
    write(url, [{"a": 7}])
    assert records(postgres, database) == [{"a": 7, "text": "long"}, {"a": 2, "text": "more"}]


@pytest.mark.parametrize(
    ("values", "kind", "found"),
    [
        ([1, 2.5], "double precision", [1, 2.5]),
        ([1, "x"], "text", ["1", "x"]),
        ([True, 2], "text", ["true", "2"]),
        ([[1], "x"], "text", ["[1]", "x"]),
        (["x", {"a": 1}], "text", ["x", '{"a":1}']),
        ([None, 3], "bigint", [None, 3]),
        ([1, 1 << 64], "text", ["1", "18446744073709551616"]),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_columns_widen_as_values_come(
    postgres: PostgresServer, database: str, values: list[Any], kind: str, found: list[Any], together: bool
) -> None:
    url = postgres.url(database)
    if together:
        write(url, [{"v": value} for value in values])
    else:
        for number, value in enumerate(values):
            write(url, [{"v": value}], number)
    assert types(postgres, database) == {"v": kind}
    assert [record["v"] for record in records(postgres, database)] == found


def test_two_writers_of_one_table_take_each_others_columns_in(postgres: PostgresServer, database: str) -> None:
    one, other = (open_growing(target(postgres.url(database)), ITEMS, None) for _ in range(2))
    one.write(rows([{"v": 1}]))
    one.commit()
    other.write(rows([{"v": "x", "w": 1}], 1))
    other.commit()
    one.write(rows([{"v": 2, "w": 2.5}], 2))
    one.commit()
    one.close()
    other.close()
    assert records(postgres, database) == [{"v": "1", "w": None}, {"v": "x", "w": 1}, {"v": "2", "w": 2.5}]


def test_a_table_that_people_made_keeps_its_types(postgres: PostgresServer, database: str) -> None:
    postgres.psql(
        database,
        "CREATE SCHEMA shop; CREATE TABLE shop.goods (id serial, _fingerprint bigint, _visit int, _number int, "
        "price numeric(10,2), day date, at timestamptz DEFAULT now(), UNIQUE (_number, _fingerprint, _visit))",
    )
    url = postgres.url(database, table="shop.goods")
    write(url, [{"price": 19.99, "day": "2024-05-01"}, {"price": "5", "day": None}])
    found = postgres.psql(database, "SELECT id, price, day, at IS NULL FROM shop.goods ORDER BY id")
    assert found == [["1", "19.99", "2024-05-01", "f"], ["2", "5.00", "", "f"]]
    with pytest.raises(OutputError, match="rejects the records: invalid input syntax for type date"):
        write(url, [{"day": "tomorrow-ish"}], 9)


def test_what_postgresql_can_not_have_in_text_is_replaced(postgres: PostgresServer, database: str) -> None:
    write(postgres.url(database), [{"title": "a\0b", "nested": {"k\0": ["\0", "\\u0000"]}}])
    assert records(postgres, database) == [{"title": "a\ufffdb", "nested": {"k\ufffd": ["\ufffd", "\\u0000"]}}]


def test_names_of_any_length_and_kind_are_columns(postgres: PostgresServer, database: str) -> None:
    names = ["x" * 80, "x" * 79 + "y", 'a"b', "Größe", "select", "Price", "price", "50%"]
    write(postgres.url(database), [{name: n for n, name in enumerate(names)}])
    write(postgres.url(database), [{name: n for n, name in enumerate(names)}], 1)
    (first, second) = records(postgres, database)
    assert first == second
    assert sorted(first.values()) == list(range(len(names)))


def test_declared_columns_and_times(postgres: PostgresServer, database: str) -> None:
    write(postgres.url(database), [{"at": "2024-05-01T12:00:00.250Z"}], at=ColumnType.TIME, page=ColumnType.TEXT)
    assert postgres.psql(database, "SELECT at AT TIME ZONE 'UTC', page FROM items") == [["2024-05-01 12:00:00.25", ""]]


# --- bad targets: one line each, before any work ---


def test_a_bad_database_is_said_in_one_line_without_the_password(postgres: PostgresServer, database: str) -> None:
    postgres.psql(
        database, "CREATE TABLE items (id int); CREATE TABLE keyless (_fingerprint int, _visit int, _number int)"
    )
    postgres.psql(database, f"CREATE TABLE mine AS SELECT * FROM keyless; CREATE USER reader{database} PASSWORD 'r'")
    postgres.psql(
        database,
        f"ALTER TABLE mine ADD PRIMARY KEY (_fingerprint, _visit, _number); GRANT SELECT ON mine TO reader{database}",
    )
    reader = {"user": f"reader{database}", "password": "r"}
    for url, said in (
        (postgres.url(database), "table items at .* is not a results table: it has no columns _fingerprint"),
        (postgres.url(database, table="keyless"), "is not a unique key"),
        (postgres.url("nowhere"), 'database "nowhere" does not exist'),
        (postgres.url(database, password="wrong secret"), "password authentication failed"),
        (postgres.url(database, table="mine", **reader), "no permission to insert and update in table mine"),
        (postgres.url(database, table="new", **reader), "permission denied for schema public"),
    ):
        with pytest.raises(OutputError if "schema" in said else UsageError, match=said) as caught:
            check_target(target(url), ITEMS)
        line = str(caught.value)
        assert "\n" not in line
        assert "secret" not in line
        assert "crawler:" not in line


def test_a_server_that_is_not_there_is_away(postgres: PostgresServer) -> None:
    with pytest.raises(OutputAway, match=r"no answer from postgresql://crawler@127\.0\.0\.1:1/x") as caught:
        check_target(target("postgresql://crawler:secret@127.0.0.1:1/x"), ITEMS)
    assert caught.value.exit_code == 12
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_server_that_stops_in_the_middle_is_away_and_takes_the_same_again(
    postgres: PostgresServer, database: str
) -> None:
    sink = open_growing(target(postgres.url(database)), ITEMS, None)
    sink.write(rows([{"n": 1}]))
    sink.commit()
    sink.write(rows([{"n": 2}], 1))
    postgres.stop()
    try:
        with pytest.raises(OutputAway):
            sink.commit()
        sink.close()
        with pytest.raises(OutputAway, match="no answer"):
            open_growing(target(postgres.url(database)), ITEMS, None)
    finally:
        postgres.start()
    write(postgres.url(database), [{"n": 1}, {"n": 2}])
    assert records(postgres, database) == [{"n": 1}, {"n": 2}]


def test_a_lock_is_not_waited_for_for_ever(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr("crawler.outputs.postgres.LOCK_TIMEOUT", "100ms")
    write(postgres.url(database), [{"n": 1}])
    with psycopg.connect(postgres.url(database)) as other:
        other.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(OutputAway, match="lock timeout"):
            write(postgres.url(database), [{"n": 2}], 1)


def test_without_psycopg_one_line_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match=r"PostgreSQL needs psycopg: .* install .*postgresql"):
        check_target(target("postgresql://localhost/x"), ITEMS)


# --- names and limits of its own ---


def test_fields_with_the_names_of_system_columns_get_columns(postgres: PostgresServer, database: str) -> None:
    names = ["xmin", "xmax", "cmin", "cmax", "ctid", "tableoid", "oid", "xmin_", "XMIN"]
    for first in range(2):
        write(postgres.url(database), [{name: place for place, name in enumerate(names)}], first)
    (one, other) = records(postgres, database)
    assert one == other
    assert sorted(one.values()) == list(range(len(names)))
    assert {name: one[name] for name in ("xmin_", "ctid_", "oid", "xmin__")} == {
        "xmin_": 0, "ctid_": 4, "oid": 6, "xmin__": 7
    }  # fmt: skip


def test_names_that_differ_in_what_is_cleaned_away_have_columns_of_their_own(
    postgres: PostgresServer, database: str
) -> None:
    names = ["b", "b\0", "\0b", "", "_", "\0", "_visit", "_visit_", "x" * 80, "x" * 80 + "\0"]
    for first in range(2):
        write(postgres.url(database), [{name: place for place, name in enumerate(names)}], first)
    (one, other) = records(postgres, database)
    assert one == other
    assert sorted(one.values()) == list(range(len(names)))


def test_many_columns_that_widen_cost_one_copy_of_the_table(postgres: PostgresServer, database: str) -> None:
    """The server copies the whole table for each statement that changes a type."""
    write(postgres.url(database), [{f"n{place}": 1.5 for place in range(30)}])
    postgres.psql(
        database,
        "CREATE TABLE changes (n int); CREATE FUNCTION note() RETURNS event_trigger AS $$ BEGIN "
        "INSERT INTO changes VALUES (1); END $$ LANGUAGE plpgsql; "
        "CREATE EVENT TRIGGER t ON table_rewrite EXECUTE FUNCTION note()",
    )
    write(postgres.url(database), [{f"n{place}": "x" for place in range(30)}], 1)
    assert postgres.psql(database, "SELECT count(*) FROM changes") == [["1"]]


def test_a_row_that_is_too_big_is_not_away(postgres: PostgresServer, database: str) -> None:
    with pytest.raises(OutputError, match="rejects the records: row is too big") as caught:
        write(postgres.url(database), [{f"text{place}": "x" * 20 for place in range(400)}])
    assert not isinstance(caught.value, OutputAway)


@pytest.mark.parametrize("rule", ["title text NOT NULL", "n bigint CHECK (n > 100)", "n bigint UNIQUE"])
def test_a_rule_of_the_table_that_a_record_breaks_is_not_away(
    postgres: PostgresServer, database: str, rule: str
) -> None:
    keys = "_fingerprint bigint, _visit int, _number int, PRIMARY KEY (_fingerprint, _visit, _number)"
    postgres.psql(database, f"CREATE TABLE items ({keys}, {rule})")
    with pytest.raises(OutputError, match="rejects the records") as caught:
        write(postgres.url(database), [{"n": 1}, {"n": 1}])
    assert not isinstance(caught.value, OutputAway)


def test_a_trigger_that_takes_rows_away_is_said(postgres: PostgresServer, database: str) -> None:
    write(postgres.url(database), [{"n": 1}])
    postgres.psql(
        database,
        "CREATE FUNCTION skip() RETURNS trigger AS $$ BEGIN IF NEW.n = 3 THEN RETURN NULL; END IF; RETURN NEW; END $$ "
        "LANGUAGE plpgsql; CREATE TRIGGER t BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION skip()",
    )
    with pytest.raises(OutputError, match=r"took 2 of 3 records"):
        write(postgres.url(database), [{"n": 2}, {"n": 3}, {"n": 4}], 1)


def test_keys_of_nested_values_stay_distinct_without_nul(postgres: PostgresServer, database: str) -> None:
    write(postgres.url(database), [{"v": {"k\0": 1, "k\ufffd": 2, "k": 3}}])
    assert records(postgres, database) == [{"v": {"k\ufffd\ufffd": 1, "k\ufffd": 2, "k": 3}}]


@pytest.mark.parametrize(
    "values",
    [[(1 << 53) + 1, 0.5], [0.5, (1 << 53) + 1], [0.5, 1, 2, -(1 << 53) - 1, 1e300, 1e-7], [1, 0.1, 10**18 + 7]],
)
@pytest.mark.parametrize("together", [False, True])
def test_whole_numbers_that_no_floating_one_equals_stay_what_they_are(
    postgres: PostgresServer, database: str, values: list[Any], together: bool
) -> None:
    if together:
        write(postgres.url(database), [{"v": value} for value in values])
    else:
        for number, value in enumerate(values):
            write(postgres.url(database), [{"v": value}], number)
    found = [record["v"] for record in records(postgres, database)]
    assert [json.loads(value) if isinstance(value, str) else value for value in found] == values


def test_rows_are_counted_by_their_keys_whatever_else_is_in_the_table(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.outputs.postgres.PULSE_ROWS", 7)
    write(postgres.url(database), [{"n": n} for n in range(50)])
    sink = open_growing(target(postgres.url(database)), ITEMS, None)
    pulses: list[int] = []
    wanted = [
        Wanted(row.key.fingerprint, row.key.visit, 2 if n == 3 else 1) for n, row in enumerate(rows([{}] * 20, 40))
    ]
    assert sink.found(wanted, lambda: pulses.append(1)) == 10
    sink.close()
    assert len(pulses) == 3


def test_a_check_leaves_no_table_behind(postgres: PostgresServer, database: str) -> None:
    """So that a table which was dropped is found to be missing, and filled again."""
    url = postgres.url(database, table="items")
    check_target(target(url), shape(a=ColumnType.INT))
    assert types(postgres, database) == {}
    sink = open_growing(target(url), shape(a=ColumnType.INT), None)
    sink.close()
    assert getattr(sink, "is_new_table") is True  # noqa: B009 - of two kinds of sinks only
    assert types(postgres, database) == {"a": "bigint"}
