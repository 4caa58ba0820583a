"""Writes the pages, and parts of pages, that are made from the code (`scripts/make-reference`)."""

from scripts.docs_lib import frontier_layout, reference

MADE = {
    reference.PAGE: lambda _: reference.make(),
    reference.ARCHITECTURE: reference.with_picture,
    frontier_layout.PAGE: frontier_layout.with_tables,
}

for path, make in MADE.items():
    path.write_text(make(path.read_text("utf-8")), encoding="utf-8")
    print(f"{path.relative_to(reference.ROOT)} is written")
