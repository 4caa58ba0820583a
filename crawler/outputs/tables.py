"""What tables in databases have in common: the columns of a record's key, and how fields become names of columns."""

import hashlib
from collections.abc import Collection, Iterable

from crawler.outputs.sink import Key, Row

KEY_COLUMNS = ("_fingerprint", "_visit", "_number")  # with these in it a table can't have a record twice


def column_name(field: str, taken: Collection[str], *, folds: bool = False, bytes_max: int = 0) -> str:
    """The column of a field in a table that has the columns `taken`, this one or not yet.

    `folds`: "Price" and "price" would be one column there; the second gets an underscore. Names longer than
    `bytes_max` (0: any) end in a digest of the whole.
    """
    name = field.replace("\0", "") or "_"
    if bytes_max and len(name.encode()) > bytes_max:
        mark = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
        name = f"{name.encode()[: bytes_max - 9].decode(errors='ignore')}_{mark}"
    if folds:
        lower = {one.lower(): one for one in taken}
        while name not in taken and name.lower() in lower:
            name += "_"
    return f"{name}_" if name in KEY_COLUMNS else name


def last_of_each(rows: Iterable[Row]) -> dict[Key, Row]:
    """Rows by their keys: one statement can't write one key twice."""
    return {row.key: row for row in rows}
