import numpy as np
import pyarrow as pa
import pytest

from lakedex.codec.bloom import DYNAMIC, SIMPLE, BloomBuilder, BloomSizing, build_bloom, hash_keys
from lakedex.tagging.keyed_rows import KEY
from lakedex.write.file_group_tasks import SMALL_ROWS, with_hashes


def batch(*keys: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.string())], [KEY])


def test_small_groups_get_the_hashes_of_their_keys() -> None:
    large = batch(*(f"k{n}" for n in range(SMALL_ROWS + 1)))
    groups = [(3, batch("a", "bcdef")), (5, batch()), (7, batch("ghijk")), (8, large), (9, batch("alone"))]
    found = list(with_hashes(iter(groups), BloomSizing()))
    assert [(number, rows) for number, rows, _ in found] == groups
    by_number = {number: hashed for number, _, hashed in found}
    assert {number for number, hashed in by_number.items() if hashed is None} == {5, 8, 9}
    for number in (3, 7):
        hashed, keys = by_number[number], dict(groups)[number].column(0)
        assert hashed is not None
        assert hashed.keys.equals(keys)
        assert np.array_equal(hashed.hashes, hash_keys(keys, hashed.num_hashes).hashes)


def test_a_bad_key_is_left_to_who_writes_its_group() -> None:
    groups = [(0, batch("a")), (1, batch(""))]
    assert [hashed for *_, hashed in with_hashes(groups, BloomSizing())] == [None, None]


@pytest.mark.parametrize("kind", [SIMPLE, DYNAMIC])
@pytest.mark.parametrize("hashes", [8, 40])
def test_a_filter_of_hashed_keys_is_that_of_the_keys(kind: str, hashes: int) -> None:
    keys = pa.array([f"{'x' * (n % 7)}{n}" for n in range(200)])
    builder = BloomBuilder(num_entries=50, fpp=1e-9, type_code=kind, max_entries=100)
    hashed = hash_keys(keys, hashes)
    for start in (0, 90, 200):
        builder.add(hashed.slice(start, 90))
    builder.add(hashed.slice(180, 20))
    expected = build_bloom(keys, num_entries=50, fpp=1e-9, type_code=kind, max_entries=100)
    assert builder.finish().encode() == expected.encode()
    few = pa.array(["x1", "not there", "7"])
    assert expected.probe(few).tolist() == [expected.probe(pa.array([key.as_py()]))[0] for key in few]
