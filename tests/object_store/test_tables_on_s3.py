"""Tables on a real S3 server: what a fault of each kind does to a write, and what its error says."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fault_proxy import FaultProxy, Rule

from lakedex import Table, probe_folder
from lakedex.errors import CommitError, LakedexError, LockTimeoutError, StorageError
from lakedex.io.locations import open_storage
from lakedex.parallel import run_threads

OPTIONS = {"hoodie.metadata.index.bitmap.enable": "false"}
LOCK, LEASED = r"PUT .*/\.locks/", r"PUT .*table_lock\.json"
COMPLETION = r"PUT .*timeline/\d+_\d+\.commit"


def rows(start: int, stop: int, add: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{n:03}" for n in range(start, stop)],
            "city": ["ab"[n % 2] for n in range(start, stop)],
            "v": [n + add for n in range(start, stop)],
        }
    )


def values(table: Table) -> dict[str, int]:
    found = table.scan().to_arrow()
    assert len(set(found["id"].to_pylist())) == found.num_rows
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.fixture
def table(root: str, options: dict[str, str], proxy: FaultProxy) -> Table:
    """A table of 40 rows."""
    made = Table.create(root, rows(0, 1).schema, record_key="id", partition_by="city", storage_options=options)
    made.upsert(rows(0, 40))
    proxy.clear()
    return made


@pytest.mark.parametrize(
    ("match", "kinds"),
    [
        (LOCK, ("lost", "lost500", "409", "503")),
        (r"PUT .*timeline/\d+\.commit\.requested", ("lost", "409", "reset")),
        (r"PUT .*timeline/\d+\.inflight", ("lost", "409", "500")),
        (COMPLETION, ("lost", "lost500", "409", "reset", "503")),
        (r"PUT .*metadata/.*\.log\.", ("lost", "409", "500")),
        (r"PUT .*metadata/.*deltacommit", ("lost", "409", "lost500")),
        (r"PUT .*\.marker", ("lost", "500")),
        (r"PUT .*_[0-9-]+_\d+\.parquet$", ("lost", "reset", "500")),
        (r"GET .*\.parquet", ("short", "reset", "503")),
        (r"GET .*list-type", ("short", "500", "503")),
        (r"POST .*delete", ("lost", "500", "503")),
    ],
)
def test_an_upsert_gets_over_a_fault(table: Table, proxy: FaultProxy, match: str, kinds: tuple[str, ...]) -> None:
    for number, kind in enumerate(kinds):
        proxy.rules = [Rule(match, kind)]
        result = table.upsert(rows(30, 42 + number, add=1000 * (number + 1)))
        assert any(seen.fault == kind for seen in proxy.seen), f"no request of the upsert is {match}"
        assert (result.inserted, result.updated) == ((2, 10) if number == 0 else (1, 11 + number))
        proxy.clear()
    last = 42 + len(kinds) - 1
    wanted = {f"k{n:03}": n + (1000 * len(kinds) if n >= 30 else 0) for n in range(last)}
    assert values(table) == wanted
    assert table.maintenance.validate().ok


@pytest.mark.parametrize("seed", range(4))
def test_a_life_under_faults(root: str, options: dict[str, str], proxy: FaultProxy, seed: int) -> None:
    """One request in thirty goes wrong: nothing is lost, doubled or seen early, and nothing is raised."""
    proxy.seeded(seed)
    table = Table.create(root, rows(0, 1).schema, record_key="id", partition_by="city", storage_options=options)
    wanted: dict[str, int] = {}
    for round_ in range(3):
        part = rows(20 * round_, 20 * round_ + 30, add=100 * round_)
        table.upsert(part)
        wanted |= dict(zip(part["id"].to_pylist(), part["v"].to_pylist(), strict=True))
        table.delete(where=f"id = 'k{20 * round_:03}'")
        del wanted[f"k{20 * round_:03}"]
        assert values(table) == wanted
    assert Table.open(root, storage_options=options).maintenance.validate().ok
    assert sum(bool(seen.fault) for seen in proxy.seen) > 5, f"seed {seed}"


@pytest.mark.parametrize(
    ("match", "status", "remedy"),
    [(r"PUT .*\.parquet", 403, "check the credentials and the permissions"), (LOCK, 403, "check the credentials")],
)
def test_what_is_refused_is_an_error_at_once(
    table: Table, proxy: FaultProxy, match: str, status: int, remedy: str
) -> None:
    before = values(table)
    proxy.clear()
    proxy.rules = [Rule(match, "403", times=1000)]
    with pytest.raises(StorageError, match=remedy) as caught:
        table.upsert(rows(30, 50, add=5))
    assert caught.value.__dict__["status"] == status and caught.value.path.startswith(table.path)
    proxy.clear()
    assert values(table) == before
    assert table.upsert(rows(30, 50, add=5)).inserted == 10
    assert table.maintenance.validate().ok


def test_a_lock_that_cannot_be_ended_does_not_block_the_next_write(table: Table, proxy: FaultProxy) -> None:
    """The commit is done; ending the lease is refused; the process knows its own lease again."""
    proxy.rules = [Rule(LEASED, "403", times=1000, skip=3)]
    table.upsert(rows(40, 45))
    assert any(seen.fault for seen in proxy.seen)
    proxy.clear()
    assert table.upsert(rows(45, 50)).inserted == 5
    assert sum("table_lock" in seen.line for seen in proxy.seen) < 12
    assert len(values(table)) == 50


@pytest.mark.parametrize("provider", ["StorageBasedLockProvider", "FileSystemBasedLockProvider"])
def test_two_writers_at_once_under_faults(root: str, options: dict[str, str], proxy: FaultProxy, provider: str) -> None:
    """Each commits all of its batches; none is lost, doubled, or raised."""
    Table.create(root, rows(0, 1).schema, record_key="id", partition_by="city", storage_options=options)
    by = {
        "hoodie.write.lock.provider": f"org.apache.hudi.client.transaction.lock.{provider}",
        "hoodie.write.num.retries.on.conflict.failures": "20",
    }
    proxy.seeded(11, every=(15, 60))

    def write(writer: int) -> int:
        table = Table.open(root, storage_options=options)
        return sum(table.upsert(rows(n, n + 10), options=by).inserted for n in (100 * writer, 100 * writer + 5))

    assert run_threads(write, [1, 2], 2) == [15, 15]
    assert sum(bool(seen.fault) for seen in proxy.seen) > 3
    proxy.clear()
    table = Table.open(root, storage_options=options)
    assert sorted(values(table)) == sorted(rows(100, 115)["id"].to_pylist() + rows(200, 215)["id"].to_pylist())
    assert table.maintenance.validate().ok


def test_a_held_lock_is_waited_for_and_each_provider_works(
    root: str, options: dict[str, str], proxy: FaultProxy
) -> None:
    """A lease of somebody else is waited for, once a second at most."""
    table = Table.create(root, rows(0, 1).schema, record_key="id", partition_by="city", storage_options=options)
    files = open_storage(root, options)
    lock = f"{root}/.hoodie/.locks/table_lock.json"
    files.storage.write(lock, b'{"expired": false, "validUntil": 99999999999999, "owner": "somebody"}')
    proxy.clear()
    with pytest.raises(LockTimeoutError, match="held by owner somebody"):
        table.upsert(rows(0, 5), options={"hoodie.write.lock.wait_time_ms": "1500"})
    assert 2 <= sum("table_lock" in seen.line for seen in proxy.seen) <= 6
    files.storage.delete(lock)
    by_file = {
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    }
    assert table.upsert(rows(0, 5), options=by_file).inserted == 5
    assert table.upsert(rows(0, 6)).inserted == 1


def test_secrets_are_in_no_text(table: Table, options: dict[str, str], root: str, proxy: FaultProxy) -> None:
    """A wrong signature is answered with the key's id and the text that was signed; neither is passed on."""
    wrong = {**options, "aws_secret_access_key": "another-secret", "aws_session_token": ""}
    with pytest.raises(LakedexError) as caught:
        Table.open(root, storage_options=wrong)
    texts = [str(caught.value), repr(caught.value), repr(caught.value.__dict__), repr(table.context), repr(table)]
    texts += [repr(table.context.files.storage), str(table.context.files), repr(pickle.dumps(caught.value))]
    for secret in (options["aws_access_key_id"], options["aws_secret_access_key"], "another-secret"):
        assert all(secret not in text for text in texts)
    storage: Any = open_storage(root, options).storage
    for entry in storage.store.list_all(root.removeprefix("s3://lake/")):
        assert options["aws_secret_access_key"].encode() not in storage.read(f"s3://lake/{entry.key}")


@pytest.mark.parametrize(
    ("url", "change", "message"),
    [
        ("s3://nobody/t", {}, "s3://nobody/t.*the bucket nobody does not exist \\(404 NoSuchBucket\\)"),
        ("s3://lake/t", {"aws_endpoint_url": "http://127.0.0.1:9"}, "no connection to the store.*3 tries.*endpoint"),
        ("s3://lake/t", {"nonsense": "1"}, "storage option 'nonsense' is unknown"),
        ("s3://lake/t", {"endpoint": "http://x"}, "given twice"),
        ("s3://lake/t", {"fs.s3a.magic": "1"}, "has no meaning here"),
        ("/tmp/t", {}, "in no object store"),
    ],
)
def test_wrong_addresses(options: dict[str, str], url: str, change: dict[str, str], message: str) -> None:
    with pytest.raises(LakedexError, match=message):
        Table.open(url, storage_options={**options, **change})


def test_a_probe_of_a_folder(root: str, options: dict[str, str], proxy: FaultProxy) -> None:
    found = probe_folder(root, options)
    assert (found.ok, found.scheme, found.problem) == (True, "s3", "")
    assert open_storage(root, options).storage.entries(root) == {}
    proxy.rules = [Rule("PUT", "501", times=1000)]
    refused = probe_folder(f"{root}/x", {**options, "aws_region": "eu-central-1", "timeout": "9m"})
    assert not refused.ok and "does not keep to conditional writes" in refused.problem


def test_paths_of_hadoop_and_of_the_environment(
    table: Table, root: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret, region, endpoint = options.values()
    hadoop = {
        "fs.s3a.access.key": key,
        "fs.s3a.secret.key": secret,
        "fs.s3a.endpoint.region": region,
        "fs.s3a.endpoint": endpoint.removeprefix("http://"),
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.bucket.other.access.key": "wrong",
    }
    path = root.replace("s3://", "s3a://")
    assert len(values(Table.open(path, storage_options=hadoop))) == 40
    # A token in the environment belongs to the keys in the environment.
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of other keys")
    assert Table.is_table(root, storage_options=hadoop)
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    for name, value in options.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert len(values(Table.open(path))) == 40


def test_a_fork_is_refused_and_does_not_hang(table: Table) -> None:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(20)
        try:
            table.scan().count()
        except LakedexError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as source:
        assert "forked" in source.read()
    os.waitpid(child, 0)


def test_large_files_are_put_in_parts(root: str, options: dict[str, str], proxy: FaultProxy, tmp_path: Path) -> None:
    storage = open_storage(root, options).storage
    data = os.urandom(1 << 20) * 20
    with storage.open_output(f"{root}/big") as out:
        out.write(data)
    assert proxy.counts()["MULTIPART"] == 5
    assert storage.read(f"{root}/big") == data


def test_a_completion_that_nobody_can_see_is_unknown(table: Table, proxy: FaultProxy) -> None:
    """403 to the completion: it did not take effect, the write is undone, and the next one is clean."""
    before = values(table)
    proxy.clear()
    proxy.rules = [Rule(COMPLETION, "403", times=1000)]
    with pytest.raises((StorageError, CommitError)):
        table.upsert(rows(38, 50))
    proxy.clear()
    assert values(table) == before
    table.upsert(rows(38, 50))
    assert len(values(table)) == 50
