import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from lakedex.io.liveness import Heartbeat, delete_heartbeat, is_expired
from lakedex.io.local import LocalStorage
from lakedex.io.storage import TableFiles

STORE = LocalStorage()
INSTANT = "20260101000000000"
MINUTE = 60_000


def beat_file(base: Path) -> Path:
    return base / ".hoodie" / ".heartbeat" / INSTANT


def expired(base: Path, now: int, **options: int) -> bool:
    return is_expired(TableFiles(STORE, str(base)), INSTANT, now, **options)


def modified(base: Path) -> int:
    return STORE.modified(str(beat_file(base)))


def test_it_beats_until_stopped(tmp_path: Path) -> None:
    beat = Heartbeat(TableFiles(STORE, str(tmp_path)), INSTANT, interval_ms=5)
    beat.start()
    beat.start()
    assert json.loads(beat_file(tmp_path).read_bytes())["pid"] == os.getpid()
    beat_file(tmp_path).unlink()
    again = threading.Event()
    for _ in range(1000):
        if beat_file(tmp_path).exists():
            break
        again.wait(0.01)
    assert beat_file(tmp_path).exists()
    beat.stop()
    beat.stop()
    assert not beat_file(tmp_path).exists()
    with beat:
        assert beat_file(tmp_path).exists()
    assert os.listdir(beat_file(tmp_path).parent) == []


def test_a_failed_beat_is_noted_and_tried_again(tmp_path: Path) -> None:
    beat = Heartbeat(TableFiles(STORE, str(tmp_path)), INSTANT, interval_ms=5)
    with beat:
        folder = beat_file(tmp_path).parent
        beat_file(tmp_path).unlink()
        folder.rmdir()
        folder.write_bytes(b"")
        pause = threading.Event()
        for _ in range(1000):
            if beat.last_error is not None:
                break
            pause.wait(0.01)
        assert isinstance(beat.last_error, OSError)
        folder.unlink()
        for _ in range(1000):
            if beat.last_error is None:
                break
            pause.wait(0.01)
        assert beat.last_error is None


def test_what_a_process_could_not_delete_is_no_sign_of_its_life(tmp_path: Path) -> None:
    """Not under another path of the table either, and another heartbeat of this process counts."""
    other = tmp_path.with_name("link")
    other.symlink_to(tmp_path)
    beat = Heartbeat(TableFiles(STORE, str(tmp_path)), INSTANT)
    beat.start()
    content = beat_file(tmp_path).read_bytes()
    assert not expired(tmp_path, modified(tmp_path)) and not expired(other, modified(tmp_path))
    beat.stop()
    beat_file(tmp_path).write_bytes(content)
    assert expired(tmp_path, modified(tmp_path)) and expired(other, modified(tmp_path))
    with Heartbeat(TableFiles(STORE, str(tmp_path)), INSTANT):
        assert not expired(tmp_path, modified(tmp_path))


def test_age_decides(tmp_path: Path) -> None:
    with Heartbeat(TableFiles(STORE, str(tmp_path)), INSTANT):
        at = modified(tmp_path)
        assert not expired(tmp_path, at)
        assert not expired(tmp_path, at + 2 * MINUTE)
        assert expired(tmp_path, at + 2 * MINUTE + 1)
        assert expired(tmp_path, at + 11, interval_ms=5, misses=2)
        assert not expired(tmp_path, at - MINUTE)


def test_without_a_file_the_age_of_the_instant_decides(tmp_path: Path) -> None:
    assert expired(tmp_path, 1_000_000)
    assert not expired(tmp_path, 1_000_000, started_ms=1_000_000 - 2 * MINUTE)
    assert expired(tmp_path, 1_000_000, started_ms=1_000_000 - 2 * MINUTE - 1)


def test_hudis_empty_heartbeat_goes_by_age(tmp_path: Path) -> None:
    beat_file(tmp_path).parent.mkdir(parents=True)
    beat_file(tmp_path).write_bytes(b"")
    assert not expired(tmp_path, modified(tmp_path) + MINUTE)
    assert expired(tmp_path, modified(tmp_path) + 3 * MINUTE)
    delete_heartbeat(TableFiles(STORE, str(tmp_path)), INSTANT)
    assert not beat_file(tmp_path).exists()


def test_a_killed_writer_is_expired_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom lakedex.io.local import LocalStorage\nfrom lakedex.io.liveness import Heartbeat\n"
        "from lakedex.io.storage import TableFiles\n"
        "Heartbeat(TableFiles(LocalStorage(), sys.argv[1]), sys.argv[2]).start()\nprint('beats', flush=True)\ntime.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", code, str(tmp_path), INSTANT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "beats\n"
        at = modified(tmp_path)
        assert not expired(tmp_path, at)
        writer.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)
        assert expired(tmp_path, at)  # still a zombie
    assert expired(tmp_path, at)
