"""Runs on disk, their manifest, and folds: R97, R100, R109, R110, R120."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bitmap_samples import file_bitmaps, run
from lakedex.codec.hfile.reader import HFileReader
from lakedex.codec.metadata_record import bitmap_schema_json, decode_bitmap_records
from lakedex.codec.roaring import decode_bitmap
from lakedex.errors import CorruptFileError
from lakedex.index.bitmap.builder import FileBitmaps
from lakedex.index.bitmap.compaction import SMALL, CompactShard, only_live, runs_to_compact, shards
from lakedex.index.bitmap.keys import NULL_MARK, parse_bitmap_key, value_prefix
from lakedex.index.bitmap.loaded_index import read_files_block
from lakedex.index.bitmap.run_files import (
    BITMAP_FOLDER,
    COLUMN_SCHEMA,
    FILES_SCHEMA,
    NO_ENTRY,
    Manifest,
    Run,
    RunFolder,
    column_block,
    decode_block,
    encode_block,
    encode_run,
    files_block,
    list_runs,
    publish_manifest,
    remove_runs_of,
    run_name,
    state_text,
    write_run,
)
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles
from lakedex.metadata.files import open_hfile

GOLDEN = Path(__file__).parents[2] / "golden" / "bitmap" / "run.hfile"
MADE_WITH = "26.0.1"
"""Version of Arrow that made the coverage of the golden run."""
LIMITS = {"c": 5, "n": 10_000, "d.x": 3}
STORAGE = LocalStorage()


def data(seed: int, rows: int = 40) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "c": pa.array([rng.choice(["a", "b$", "\\", "", None]) for _ in range(rows)], pa.string()),
            "n": pa.array([rng.choice([1, 2, 3, None]) for _ in range(rows)], pa.int32()),
            "d": pa.array([{"x": rng.randrange(3 + seed % 3)} for _ in range(rows)], pa.struct([("x", pa.int64())])),
        }
    )


def made(number: int, **more: Any) -> FileBitmaps:
    name = f"file{number:04d}_1-0-{number}_2024.parquet"
    rows = data(number)
    return file_bitmaps(name, LIMITS, rows, partition=more.pop("partition", f"p={number % 3}"), groups=[25, 15])


FILES = [made(n) for n in range(7)]


def opened(folder: Path, content: bytes) -> HFileReader:
    path = folder / "one.hfile"
    path.write_bytes(content)
    return open_hfile(STORAGE, str(path), len(content))


# ---------------------------------------------------------------------------------------------------------- blocks
def test_blocks_come_back() -> None:
    block = decode_block(encode_block(files_block(FILES)), FILES_SCHEMA, "")
    assert block.column("base_file").to_pylist() == [item.base_file for item in FILES]
    assert block.column("group_rows").to_pylist() == [[25, 15]] * 7
    assert block.column("partition").to_pylist() == [item.partition for item in FILES]
    column = decode_block(encode_block(column_block("d.x", FILES)), COLUMN_SCHEMA, "")
    assert [state_text(state) for state in column.column("state").to_pylist()] == [
        "too many distinct values" if n % 3 else "indexed" for n in range(7)
    ]
    assert column.column("texts").to_pylist()[0] == ["0", "1", "2"]
    assert sum(column.column("counts").to_pylist()[0]) == 40
    none = column_block("absent", FILES)
    assert none.column("state").to_pylist() == [NO_ENTRY] * 7 and state_text(NO_ENTRY) == "no entry"


def test_blocks_without_files() -> None:
    assert decode_block(encode_block(files_block([])), FILES_SCHEMA, "").num_rows == 0
    assert decode_block(encode_block(column_block("c", [])), COLUMN_SCHEMA, "").num_rows == 0


def test_damaged_blocks_are_errors() -> None:
    whole = encode_block(column_block("c", FILES))
    for end in [0, 1, 8, *range(9, len(whole) - 16, 13)]:
        with pytest.raises(CorruptFileError):
            decode_block(whole[:end], COLUMN_SCHEMA, "a")
    with pytest.raises(CorruptFileError, match="coverage block with partition"):
        decode_block(whole, FILES_SCHEMA, "a")


# ------------------------------------------------------------------------------------------------------------ runs
def test_same_bytes_in_any_order() -> None:
    some = FILES[:4]
    assert len({encode_run(list(order)) for order in permutations(some)}) == 1


def test_the_golden_run(tmp_path: Path) -> None:
    """The format stays: the same files give the same cells, those with coverage too where Arrow is the same."""
    content = encode_run(FILES[:3])
    ours, golden = (dict(opened(tmp_path, data).scan(b"")) for data in (content, GOLDEN.read_bytes()))
    assert list(ours) == list(golden)
    for key, value in golden.items():
        if not key.startswith(b"\0"):
            assert ours[key] == value
            continue
        schema = FILES_SCHEMA if key.startswith(b"\0files$") else COLUMN_SCHEMA
        one, other = decode_bitmap_records([ours[key], value], bitmap_schema_json())
        assert decode_block(one.coverage or b"", schema, "").equals(decode_block(other.coverage or b"", schema, ""))
    if pa.__version__ == MADE_WITH:
        assert ours == golden


def test_what_the_golden_run_holds(tmp_path: Path) -> None:
    """R109: records by hand, as any reader of HFiles finds them."""
    reader = opened(tmp_path, GOLDEN.read_bytes())
    cells = dict(reader.scan(b""))
    keys = [key.decode() for key in cells]
    assert keys == sorted(keys) and reader.info["schema"].decode() == bitmap_schema_json()
    plain = [key for key in keys if not key.startswith(NULL_MARK)]
    wanted = [
        (column.column, text, item.partition, item.file_id, tuple(rows))
        for item in FILES[:3]
        for column in item.columns
        if column.state == "indexed"
        for text, rows in _rows(item, column.column).items()
    ]
    found = []
    for key, record in zip(
        plain, decode_bitmap_records([cells[k.encode()] for k in plain], bitmap_schema_json()), strict=True
    ):
        column, text, partition, file_id = parse_bitmap_key(key)
        rows = decode_bitmap(record.bitmap or "")
        assert record.cardinality == len(rows) and str(record.base_file).startswith(f"{file_id}_")
        found.append((column, text, partition, file_id, tuple(rows)))
    assert sorted(found, key=str) == sorted(wanted, key=str)


def _rows(item: FileBitmaps, column: str) -> dict[str | None, list[int]]:
    table = data(int(item.file_id.removeprefix("file")))
    values = (
        [row["x"] for row in table.column("d").to_pylist()] if column == "d.x" else table.column(column).to_pylist()
    )
    texts = [None if value is None else str(value) for value in values]
    return {text: [row for row, own in enumerate(texts) if own == text] for text in set(texts)}


def test_a_prefix_search_finds_a_value_in_all_file_groups(tmp_path: Path) -> None:
    """R108: column and value are enough."""
    reader = opened(tmp_path, encode_run(FILES))
    for value in ("a", "b$", "", None):
        found = [parse_bitmap_key(key.decode()) for key, _ in reader.scan(value_prefix("c", value).encode())]
        assert {file_id for _, _, _, file_id in found} == {item.file_id for item in FILES if value in _rows(item, "c")}
        assert {(column, own) for column, own, _, _ in found} == {("c", value)}


def test_names_of_runs() -> None:
    assert run_name("20240101000000000", "commit", 3) == "run_20240101000000000_commit_00003.hfile"
    assert Run("1", "build", 2).name == "run_1_build_00002.hfile"


# ---------------------------------------------------------------------------------------------------------- folder
def publish(folder: Path, number: int, runs: list[str], folded: list[str]) -> bool:
    return publish_manifest(
        TableFiles(STORAGE, str(folder)), Manifest(number=number, runs=tuple(runs), folded=tuple(folded))
    )


def names(folder: Path) -> list[str]:
    return [one.name for one in list_runs(TableFiles(STORAGE, str(folder))).runs]


def put(folder: Path, *runs: Run) -> None:
    for one in runs:
        write_run(TableFiles(STORAGE, str(folder)), one, b"x" * (one.number + 1))


def test_where_runs_lie(tmp_path: Path) -> None:
    """R97: ``.hoodie/metadata/bitmap_index``, and nothing there that makes it a partition to Java."""
    put(tmp_path, run(1))
    assert (tmp_path / ".hoodie/metadata/bitmap_index" / run(1).name).exists()
    assert sorted(p.name for p in (tmp_path / ".hoodie/metadata").rglob("*")) == ["bitmap_index", run(1).name]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    folder = list_runs(TableFiles(STORAGE, str(tmp_path)))
    assert (folder.runs, folder.idle, folder.size, folder.manifest) == ((), (), 0, Manifest())


def test_runs_that_no_fold_listed_count_by_instant(tmp_path: Path) -> None:
    put(tmp_path, run(9), run(2, "build"), run(10), run(2, "build", 1))
    assert names(tmp_path) == [run(2, "build").name, run(2, "build", 1).name, run(9).name, run(10).name]
    assert list_runs(TableFiles(STORAGE, str(tmp_path))).size == 1 + 2 + 1 + 1


def test_other_files_are_no_runs(tmp_path: Path) -> None:
    put(tmp_path, run(1))
    place = Path(str(tmp_path), BITMAP_FOLDER)
    for name in (
        ".run_1_commit_00000.hfile.crc",
        "run_x_commit_00000.hfile",
        "run_1_other_00000.hfile",
        "manifest_1.json",
        "notes",
    ):
        (place / name).write_text("x")
    assert names(tmp_path) == [run(1).name] and list_runs(TableFiles(STORAGE, str(tmp_path))).idle == ()


def test_outputs_of_a_fold_that_was_not_published_say_nothing(tmp_path: Path) -> None:
    put(tmp_path, run(1), run(2), run(3, "fold"))
    assert names(tmp_path) == [run(1).name, run(2).name]
    assert list_runs(TableFiles(STORAGE, str(tmp_path))).idle == (run(3, "fold").name,)


def test_a_published_fold(tmp_path: Path) -> None:
    put(tmp_path, run(1), run(2), run(3, "fold"), run(4))
    assert publish(tmp_path, 1, [run(3, "fold").name], [run(1).name, run(2).name])
    folder = list_runs(TableFiles(STORAGE, str(tmp_path)))
    assert [one.name for one in folder.runs] == [run(3, "fold").name, run(4).name]
    assert set(folder.idle) == {run(1).name, run(2).name}
    put(tmp_path, run(6, "fold"))
    assert publish(tmp_path, 2, [run(6, "fold").name], [run(3, "fold").name, run(4).name])
    folder = list_runs(TableFiles(STORAGE, str(tmp_path)))
    assert {one.name for one in folder.runs} == {run(1).name, run(2).name, run(6, "fold").name}, (
        "what an earlier fold took has to be gone, or named again, before the next one is published"
    )


def test_of_two_folds_at_once_one_wins(tmp_path: Path) -> None:
    put(tmp_path, run(1), run(2), run(3, "fold"), run(4, "fold"))
    taken = [run(1).name, run(2).name]
    assert publish(tmp_path, 1, [run(3, "fold").name], taken)
    assert not publish(tmp_path, 1, [run(4, "fold").name], taken)
    folder = list_runs(TableFiles(STORAGE, str(tmp_path)))
    assert [one.name for one in folder.runs] == [run(3, "fold").name]
    assert set(folder.idle) == {run(1).name, run(2).name, run(4, "fold").name}


def test_a_big_run_that_was_never_folded_stays_the_oldest(tmp_path: Path) -> None:
    """Its entries would win over those of a fold of newer runs, so the fold's manifest lists it before its own."""
    put(tmp_path, run(1, "build"), run(2), run(3), run(4, "fold"), run(5))
    assert publish(tmp_path, 1, [run(1, "build").name, run(4, "fold").name], [run(2).name, run(3).name])
    assert names(tmp_path) == [run(1, "build").name, run(4, "fold").name, run(5).name]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"runs": []}', '{"runs": 1, "folded": []}', "\x00"])
def test_damaged_manifests_are_errors(tmp_path: Path, content: str) -> None:
    put(tmp_path, run(1))
    (Path(str(tmp_path), BITMAP_FOLDER) / "manifest_0000000001.json").write_text(content)
    with pytest.raises(CorruptFileError, match="manifest"):
        list_runs(TableFiles(STORAGE, str(tmp_path)))


def test_a_run_written_twice_is_one(tmp_path: Path) -> None:
    content = encode_run(FILES[:1])
    first = write_run(TableFiles(STORAGE, str(tmp_path)), run(1), content)
    again = write_run(TableFiles(STORAGE, str(tmp_path)), run(1), content)
    assert first == again and first.size == len(content)
    assert names(tmp_path) == [run(1).name]


# ----------------------------------------------------------------------------------------------------------- folds
def folder_of(*sizes: int) -> RunFolder:
    runs = tuple(replace(run(at), size=size) for at, size in enumerate(sizes))
    return RunFolder(manifest=Manifest(), runs=runs, idle=())


@pytest.mark.parametrize(
    "sizes, taken",
    [
        ([], 0),
        ([1, 1, 1], 0),
        ([1, 1, 1, 1], 4),
        ([10 * SMALL, 1, 1, 1, 1], 4),
        ([10 * SMALL, 1, 1, 1], 0),
        ([8 * SMALL, 4 * SMALL, 2 * SMALL, SMALL, 1], 5),
        ([9 * SMALL, SMALL, SMALL, SMALL, SMALL], 4),
        ([4 * SMALL, SMALL, SMALL, SMALL, SMALL], 5),
    ],
)
def test_which_runs_are_folded(sizes: list[int], taken: int) -> None:
    found = runs_to_compact(folder_of(*sizes), lambda one: True, 4)
    assert found == list(folder_of(*sizes).runs[len(sizes) - taken :])


def test_runs_of_commits_that_are_not_decided_stay() -> None:
    folder = folder_of(*[1] * 6)
    found = runs_to_compact(folder, lambda one: one.instant != folder.runs[4].instant, 4)
    assert found == [*folder.runs[:4], folder.runs[5]]


def test_a_thousand_commits_leave_few_runs() -> None:
    """CompactedRuns whenever it is time, there are about log2 as many runs as bytes, and no byte is copied often."""
    runs: list[Run] = []
    copied = 0
    for number in range(1000):
        runs.append(replace(run(number), size=SMALL // 2))
        taken = runs_to_compact(RunFolder(manifest=Manifest(), runs=tuple(runs), idle=()), lambda one: True, 4)
        if taken:
            total = sum(one.size for one in taken)
            copied += total
            runs = [one for one in runs if one not in taken]
            runs.append(replace(run(number, "fold"), size=total))
            runs.sort()
    assert len(runs) <= 16
    assert copied <= 12 * 1000 * SMALL // 2


def folded(folder: Path, runs: list[list[FileBitmaps]], live: set[str], **more: Any) -> list[bytes]:
    written = [write_run(TableFiles(STORAGE, str(folder)), run(n), encode_run(files)) for n, files in enumerate(runs)]
    tasks = more.get("tasks") or shards(TableFiles(STORAGE, str(folder)), written, live, LIMITS)
    outputs = [task(run(99, "fold", part)) for part, task in enumerate(tasks)]
    return [STORAGE.read(f"{folder}/{BITMAP_FOLDER}/{one.name}") if one.size else b"" for one in outputs]


def test_a_fold_is_what_one_run_over_the_live_files_would_be(tmp_path: Path) -> None:
    live = {item.base_file for item in FILES if item is not FILES[2]}
    (found,) = folded(tmp_path, [FILES[:3], [FILES[4]], [FILES[3], FILES[5], FILES[6]]], live)
    assert found == encode_run([item for item in FILES if item is not FILES[2]])


def test_a_fold_of_folds_and_of_files_said_twice(tmp_path: Path) -> None:
    live = {item.base_file for item in FILES}
    (found,) = folded(tmp_path, [FILES[:5], FILES[3:], [FILES[0]]], live)
    assert found == encode_run(FILES)


def test_the_newest_run_wins_in_a_fold(tmp_path: Path) -> None:
    newer = replace(
        FILES[0],
        columns=tuple(c for c in file_bitmaps(FILES[0].base_file, {"c": 1, "n": 1, "d.x": 1}, data(0)).columns),
    )
    live = {FILES[0].base_file}
    (found,) = folded(tmp_path, [[FILES[0]], [newer]], live)
    assert found == encode_run([newer])


def test_a_fold_with_nothing_left_writes_nothing(tmp_path: Path) -> None:
    assert folded(tmp_path, [FILES[:2]], set()) == [b""]
    assert not list(Path(str(tmp_path), BITMAP_FOLDER).glob("*fold*"))


def test_shards_of_a_large_fold(tmp_path: Path) -> None:
    """By column and file group; together they hold what one would."""
    written = [
        write_run(TableFiles(STORAGE, str(tmp_path)), run(n), encode_run([item])) for n, item in enumerate(FILES)
    ]
    live = frozenset(item.base_file for item in FILES)
    tasks = [
        CompactShard(
            files=TableFiles(STORAGE, str(tmp_path)),
            runs=tuple(written),
            live=live,
            columns=(name,),
            part=part,
            parts=2,
        )
        for name in LIMITS
        for part in range(2)
    ]
    cells: dict[bytes, bytes] = {}
    for content in folded(tmp_path, [], set(), tasks=tasks):
        cells.update((key, value) for key, value in opened(tmp_path, content).scan(b"") if not key.startswith(b"\0"))
    whole = dict(opened(tmp_path, encode_run(FILES)).scan(b""))
    assert cells == {key: value for key, value in whole.items() if not key.startswith(b"\0")}


def test_a_large_fold_is_cut_by_columns_and_groups(tmp_path: Path) -> None:
    from lakedex.index.bitmap import compaction as folding

    big = [replace(run(1), size=folding.SHARD_BYTES * 6)]
    tasks = shards(TableFiles(STORAGE, str(tmp_path)), big, {"f"}, ["a", "b"])
    assert [(task.columns, task.part, task.parts) for task in tasks] == [((n,), p, 3) for n in "ab" for p in range(3)]


def test_a_damaged_run_is_no_input_of_a_fold(tmp_path: Path) -> None:
    content = bytearray(encode_run(FILES[:2]))
    content[len(content) // 2] ^= 0xFF
    written = write_run(TableFiles(STORAGE, str(tmp_path)), run(1), bytes(content))
    with pytest.raises(CorruptFileError):
        shards(TableFiles(STORAGE, str(tmp_path)), [written], {FILES[0].base_file}, LIMITS)[0](run(2, "fold"))


def test_columns_that_are_not_indexed_any_more_are_left_out(tmp_path: Path) -> None:
    written = write_run(TableFiles(STORAGE, str(tmp_path)), run(1), encode_run(FILES[:2]))
    task = shards(TableFiles(STORAGE, str(tmp_path)), [written], {item.base_file for item in FILES[:2]}, ["c", "new"])[
        0
    ]
    out = task(run(2, "fold"))
    reader = open_hfile(STORAGE, f"{tmp_path}/{BITMAP_FOLDER}/{out.name}", out.size)
    assert {parse_bitmap_key(k.decode())[0] for k, _ in reader.scan(b"") if not k.startswith(b"\0")} == {"c"}
    assert [t.num_rows for t in read_files_block(reader, "")] == [2]


@pytest.mark.parametrize(
    "live, alone",
    [
        ({0, 1, 2, 3}, None),
        ({4, 5, 6}, 2),
        ({2, 3}, 1),
        ({5}, None),
        ({4, 5}, 2),
        ({1, 4, 5, 6}, None),
        (set(), None),
    ],
    ids=["two runs", "the newest", "another", "too little of it", "half of it", "one more file", "nothing"],
)
def test_the_only_run_that_speaks_of_live_files(live: set[int], alone: int | None, tmp_path: Path) -> None:
    parts = [FILES[:2], FILES[2:4], FILES[4:]]
    runs = [write_run(TableFiles(STORAGE, str(tmp_path)), run(n), encode_run(files)) for n, files in enumerate(parts)]
    found = only_live(TableFiles(STORAGE, str(tmp_path)), runs, {FILES[number].base_file for number in live})
    assert found == (None if alone is None else runs[alone])


@pytest.mark.parametrize("listed", ["before the rollback", "when it had published", "after it"])
def test_a_rollback_beside_a_fold_leaves_a_manifest_of_what_is_there(tmp_path: Path, listed: str) -> None:
    """Folds take no lock: one may list the runs, and publish them as those that count, at any moment."""
    base, (undone, other) = str(tmp_path), (Run("2", "commit", 0), Run("1", "commit", 0))
    for one in (undone, other):
        write_run(TableFiles(STORAGE, base), one, encode_run([]))
    publish_manifest(TableFiles(STORAGE, base), Manifest(number=1, runs=(other.name, undone.name)))

    def fold(found: RunFolder) -> bool:
        names = tuple(one.name for one in found.runs)
        return publish_manifest(TableFiles(STORAGE, base), Manifest(number=found.manifest.number + 1, runs=names))

    class Folding(LocalStorage):
        def delete(self, path: str) -> None:
            if listed == "when it had published":
                assert fold(list_runs(TableFiles(STORAGE, base)))
            super().delete(path)

    before = list_runs(TableFiles(STORAGE, base))
    remove_runs_of(TableFiles(Folding(), base), undone.instant)
    assert fold(before) is False
    if listed == "after it":
        assert fold(list_runs(TableFiles(STORAGE, base)))
    found = list_runs(TableFiles(STORAGE, base))
    assert found.manifest.runs == (other.name,)
    assert [one.name for one in found.runs] == [other.name]
