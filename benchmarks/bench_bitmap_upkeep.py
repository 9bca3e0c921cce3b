"""Upkeep of bitmaps when 1 % of a base file's rows are updated: anew in the pass that writes, or as RFC-92 has it.

One base file of 500,000 rows, one indexed column with 2, 12, 100 or 10,000 values. The write itself (all rows of the
new base file) is the same for both and not measured. *Anew*: bitmaps of all rows, encoded as records. *RFC-92*: the
previous base file's keys and values are read, compared with the new rows, and the bitmaps that change are read, changed
and encoded. *In memory* leaves the reading out. With *moved* 1 % of the rows are deleted instead, so that others move.

    ./dev bench benchmarks/bench_bitmap_upkeep.py [rows]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakedex.codec.metadata_record import (
    BitmapRecord,
    bitmap_cells,
    bitmap_schema_json,
    decode_bitmap_records,
    encode_bitmap_records,
)
from lakedex.codec.roaring import decode_bitmap, encode_bitmap
from lakedex.index.bitmap.builder import BitmapsBuilder, FileBitmaps, RowGroup
from lakedex.index.bitmap.run_files import column_entries
from tests.bitmap_rfc import SliceRows, change

VALUES = (2, 12, 100, 10_000)
REPEATS = 3


def fastest(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of processor time of the fastest of some runs, and what the work gave."""
    best, found = float("inf"), None
    for _ in range(REPEATS):
        started = time.process_time()
        found = work()
        best = min(best, time.process_time() - started)
    return best, found


def anew(rows: pa.Table) -> dict[str, bytes]:
    """All bitmaps of the new file as records by key."""
    builder = BitmapsBuilder({"c": 20_000}, rows.schema.remove(0))
    for batch in rows.select(["c"]).to_batches(max_chunksize=65_536):
        builder.add(batch)
    groups = (RowGroup(rows.num_rows, 0, 1),)
    item = FileBitmaps(
        partition="p",
        file_id="f-0",
        base_file="new",
        rows=rows.num_rows,
        row_groups=groups,
        columns=builder.finish(groups),
    )
    return {key.decode(): value for key, value in bitmap_cells(column_entries(item, item.columns[0]))}


class Records(dict[str, bytes]):
    """Bitmaps that are decoded when they are asked for, as a reader of an HFile does."""

    def __getitem__(self, key: str) -> Any:
        (record,) = decode_bitmap_records([dict.__getitem__(self, key)], bitmap_schema_json())
        return decode_bitmap(record.bitmap or "")

    def get(self, key: str, default: Any = None) -> Any:
        """The bitmap, or the default."""
        return default if key not in self.keys() else self[key]


def sliced(rows: pa.Table) -> SliceRows:
    rows = rows.combine_chunks()
    return SliceRows(
        partition="p", file_id="f-0", keys=rows.column("key").chunk(0), rows=rows.select(["c"]).to_batches()[0]
    )


def compared(store: Records, before: Callable[[], SliceRows], after: SliceRows) -> dict[str, bytes]:
    """The records that the RFC's way writes."""
    found = change(store, before(), after, ["c"])  # type: ignore[arg-type]
    records = [BitmapRecord(bitmap=encode_bitmap(own), base_file="new", cardinality=len(own)) for own in found.values()]
    return dict(zip(found, encode_bitmap_records(records), strict=True))


def same(store: Records, changed: dict[str, bytes], wanted: dict[str, bytes]) -> None:
    """Stop if the two ways do not come to the same bitmaps."""
    ours = {key: own for key, own in ((k, Records({**store, **changed})[k]) for k in {**store, **changed}) if own}
    if ours != {key: Records(wanted)[key] for key in wanted}:
        raise SystemExit("the two ways differ")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    rng = np.random.default_rng(5)
    keys = pa.array(np.char.add("key-", np.char.zfill(rng.permutation(count).astype(str), 9)))
    print(f"{count:,} rows, 1 % updated; milliseconds of processor time, fastest of {REPEATS}\n")
    print("| values | case | anew | RFC-92 | ratio | RFC-92 in memory | ratio | records anew | records RFC-92 |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory(prefix="lakedex-bench-") as folder:
        for values in VALUES:
            codes = rng.integers(0, values, count)
            old = pa.table({"key": keys, "c": pa.array(np.char.add("value-", codes.astype(str)))})
            path = Path(folder) / f"{values}.parquet"
            pq.write_table(old, path)
            store = Records(anew(old))
            picked = rng.choice(count, count // 100, replace=False)
            codes[picked] = rng.integers(0, values, len(picked))
            updated = pa.table({"key": keys, "c": pa.array(np.char.add("value-", codes.astype(str)))})
            fewer = old.filter(pa.array(~np.isin(np.arange(count), picked)))
            for case, new in (("updated", updated), ("moved", fewer)):
                seconds, wanted = fastest(lambda new=new: anew(new))
                after, before = sliced(new), sliced(old)
                read, changed = fastest(
                    lambda s=store, p=path, a=after: compared(
                        s, lambda: sliced(pq.read_table(p, columns=["key", "c"])), a
                    )
                )
                memory, _ = fastest(lambda s=store, b=before, a=after: compared(s, lambda: b, a))
                same(store, changed, wanted)
                print(
                    f"| {values:,} | {case} | {seconds * 1000:.0f} | {read * 1000:.0f} | {read / seconds:.1f} | "
                    f"{memory * 1000:.0f} | {memory / seconds:.1f} | {len(wanted):,} | {len(changed):,} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
