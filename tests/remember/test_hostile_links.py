"""Whatever lies at the names that a run uses, it touches nothing outside its own output.

A folder that was downloaded may hold links, pipes and partial runs as its maker likes. The names
are not listed here: they are recorded from a run, so that a new one is covered too.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zlib import crc32

import pytest

import anamnesis as an
from anamnesis.convert.resume import folder as folder_module
from anamnesis.convert.resume.folder import Folder
from anamnesis.convert.resume.staging import Staging
from helpers.models import partials, tree, write_directory

pytestmark = [
    pytest.mark.usefixtures("small_bands", "no_hang"),
    pytest.mark.skipif(os.name == "nt", reason="needs links and pipes"),
]

SUFFIX = ".amn-partial"
MODES = ("fresh", "anew", "resume", "commit", "force")
HOSTILE = ("link to file", "link to folder", "dangling link", "hard link", "pipe", "folder", "file")


class Stop(Exception):
    """What ends a run amid its work."""


@pytest.fixture
def no_hang() -> Iterator[None]:
    """Opening a pipe waits for ever: end the tests then."""
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


# --- what names a run uses ------------------------------------------------------------------------

_watched: list[tuple[Path, set[str]]] = []
_looking = threading.local()


def _look(event: str, _: tuple[Any, ...]) -> None:
    """Note all names there are before a call that may change them."""
    if not _watched or getattr(_looking, "busy", False):
        return
    if event == "open" or event.startswith(("os.", "shutil.")):
        _looking.busy = True
        try:
            for root, names in _watched:
                names |= {p.relative_to(root).as_posix() for p in root.rglob("*")}
        finally:
            _looking.busy = False


@pytest.fixture(scope="module", autouse=True)
def watching() -> None:
    sys.addaudithook(_look)  # there is no removing it


def names_used(model: an.Model, folder: Path, out: str, modes: tuple[str, ...]) -> list[str]:
    """Return all names below a folder that are ever there while a model is written into it."""
    names: set[str] = set()
    for mode in modes:
        shutil.rmtree(folder, ignore_errors=True)
        prepare(model, folder, out, mode)
        _watched.append((folder, names))
        try:
            model.remember(folder / out, **how(mode))
        finally:
            _watched.clear()
        names |= {p.relative_to(folder).as_posix() for p in folder.rglob("*")}
    shutil.rmtree(folder)
    return sorted(names)


# --- what an earlier run has left -----------------------------------------------------------------


def how(mode: str) -> dict[str, Any]:
    """Return the options of the run."""
    return {"threads": 1, "resume": mode in ("resume", "commit"), "force": mode == "force"}


def prepare(model: an.Model, folder: Path, out: str, mode: str) -> None:
    """Make what there is before the run: nothing, or what a killed run has left."""
    folder.mkdir()
    if mode == "fresh":
        return
    if mode == "force":
        model.remember(folder / out, "f32")
    if mode == "commit":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Folder, "move", move_within)
            kill(model, folder / out, threads=1)
    else:
        kill(model, folder / out, threads=1, force=mode == "force", progress=stop_amid)


def kill(model: an.Model, out: Path, **options: Any) -> None:
    with pytest.raises(Stop):
        model.remember(out, **options)


def stop_amid(done: int, _: int) -> None:
    if done > 50_000:
        raise Stop


_move = Folder.move


def move_within(self: Folder, name: str, to: Folder, new: str) -> None:
    """Move nothing out of the staging folder."""
    if SUFFIX not in str(to.path):
        raise Stop
    _move(self, name, to, new)


# --- what lies at a name --------------------------------------------------------------------------


def make_victim(victim: Path) -> None:
    """Make somebody's folder, which looks as if a run had left it."""
    for name in ("lock", "plan.json", "plan.json.new", "journal", "commit", "files/a/b.jpg"):
        (victim / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (victim / "folder" / name).write_text("" if name == "lock" else f"precious {name}")
    (victim / "file").write_text("precious")


def plant(kind: str, path: Path, victim: Path) -> None:
    """Put something hostile at a name; what was there lies where it leads to, if that may be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file, folder = victim / "file", victim / "folder"
    if path.is_dir():
        shutil.rmtree(folder)
        path.rename(folder)
    elif path.exists():
        path.replace(file)
    if kind == "link to file":
        path.symlink_to(file)
    elif kind == "link to folder":
        path.symlink_to(folder)
    elif kind == "dangling link":
        path.symlink_to(victim / "nothing")
    elif kind == "hard link":
        path.hardlink_to(file)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        shutil.copytree(folder, path)
    else:
        shutil.copy(file, path)


def seen(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Return all there is in a folder, links not followed."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in [folder, *folder.rglob("*")] if os.path.lexists(folder) else []:
        status = path.lstat()
        content: Any = None
        if stat.S_ISREG(status.st_mode):
            content = status.st_size, status.st_mtime_ns
            if status.st_size < 1 << 24:  # others are sparse
                content = path.read_bytes(), status.st_mtime_ns
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        found[path.relative_to(folder).as_posix()] = (status.st_mode, content)
    return found


# --- the matrix -----------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "source", ["file", pytest.param("directory", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.parametrize(
    ("mode", "relative"), [*((mode, True) for mode in MODES), ("anew", False), ("resume", False)]
)
def test_nothing_outside_is_touched(
    mode: str,
    relative: bool,
    model: an.Model,
    out: Path,
    fast_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(folder_module, "_RELATIVE", relative)  # False: as on Windows
    model.remember(fast_folder / "want")
    want = tree(fast_folder / "want")
    names = names_used(model, fast_folder / "traced", out.name, (mode, "anew"))
    last = {Path(name).name for name in names}
    assert {"lock", "plan.json", "plan.json.new", "journal", "commit", "files"} <= last
    assert any(name.endswith(".safetensors.new") for name in last)
    prepare(model, fast_folder / "prepared", out.name, mode)
    succeeded = 0
    for name in names:
        for kind in HOSTILE:
            case, victim = fast_folder / "case", fast_folder / "victim"
            shutil.copytree(fast_folder / "prepared", case)
            make_victim(victim)
            plant(kind, case / name, victim)
            before, old, told = seen(victim), seen(case), ""
            try:
                model.remember(case / out.name, **how(mode))
            except (an.AnamnesisError, OSError) as error:
                told = str(error)
                assert "\n" not in told
            context = f"{kind} at {name}: {told or 'success'}"
            assert seen(victim) == before, context
            if told:
                assert str(case) in told, context
                assert mode == "commit" or seen(case) == old, context
            else:
                succeeded += 1
                found = tree(case / out.name)
                if f"{SUFFIX}/" not in name:  # other files may be beside, or those of a killed run
                    found = {k: v for k, v in found.items() if k in want}
                assert found == want, context
                kinds = {stat.S_IFMT(mode) for mode, _ in seen(case / out.name).values()}
                assert kinds <= {stat.S_IFREG, stat.S_IFDIR}, context
            assert set(os.listdir(case)) <= {out.name, out.name + SUFFIX}, context
            shutil.rmtree(case)
            shutil.rmtree(victim)
    assert succeeded


# --- swapped meanwhile ----------------------------------------------------------------------------


def swapped(path: Path, victim: Path) -> None:
    """Move a folder away and leave a link to somebody's instead."""
    path.rename(path.with_name(f"{path.name} away"))
    path.symlink_to(victim / "folder")


@pytest.mark.parametrize("swap", [SUFFIX, f"{SUFFIX}/files"])
@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_swapped_for_a_link_amid_a_run(
    swap: str, resume: bool, model: an.Model, out: Path, tmp_path: Path
) -> None:
    make_victim(tmp_path / "victim")
    before = seen(tmp_path / "victim")
    if resume:
        kill(model, out, threads=1, progress=stop_amid)
    done: list[int] = []

    def progress(*_: int) -> None:
        if not done:
            swapped(Path(f"{out}{swap}"), tmp_path / "victim")
        done.append(1)

    with suppress(an.OutputError, OSError):
        model.remember(out, threads=1, resume=resume, progress=progress)
    assert done
    assert seen(tmp_path / "victim") == before


def test_a_folder_swapped_for_a_link_between_check_and_use(tmp_path: Path) -> None:
    """The check of `inner` saw a folder, the call that opens it finds a link."""
    make_victim(tmp_path / "victim")
    link, real = tmp_path / "link", tmp_path / "real"
    link.symlink_to(tmp_path / "victim" / "folder")
    real.mkdir()
    with Folder.named(tmp_path) as folder:
        folder.status = lambda _: real.lstat()  # type: ignore[method-assign, assignment]
        with pytest.raises(OSError, match="link"):
            folder.inner("link")
        folder.status = lambda _: (tmp_path / "victim/file").lstat()  # type: ignore[method-assign, assignment]
        (tmp_path / "other").symlink_to(tmp_path / "victim" / "file")
        with pytest.raises(OSError, match="other"):
            folder.open("other")
        folder.create("name")
        (tmp_path / "second").hardlink_to(tmp_path / "name")
        with pytest.raises(an.OutputError, match="several names"):
            folder.open("name")


@pytest.mark.parametrize("kind", ["pipe", "gone"])
def test_a_sidecar_swapped_meanwhile(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = write_directory(tmp_path / "in"), tmp_path / "out"
    reserve = Staging.reserve

    def swap(*args: Any) -> None:
        reserve(*args)
        (source / "tokenizer.json").unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(source / "tokenizer.json")

    monkeypatch.setattr(Staging, "reserve", swap)
    with (
        an.parse(source) as model,
        pytest.raises((an.ParseError, FileNotFoundError), match=r"tokenizer\.json"),
    ):
        model.remember(out)
    assert not out.exists()


def test_a_name_that_leads_out(tmp_path: Path) -> None:
    with Folder.named(tmp_path) as folder:
        for name in ("../x", "/x", "a/../../x"):
            with pytest.raises(an.OutputError, match="leads out"), folder.place(name):
                pass


# --- partial runs that are damaged or foreign -----------------------------------------------------


@pytest.fixture
def partial(model: an.Model, out: Path) -> Path:
    """A partial run."""
    kill(model, out, threads=1, progress=stop_amid)
    (found,) = partials(out.parent)
    return found


def is_refused(model: an.Model, out: Path, match: str, *, also_anew: bool = False) -> None:
    """Check that the partial run is refused in one line and left as it is."""
    before = seen(out.parent)
    both: tuple[dict[str, Any], ...] = ({"resume": True}, {})
    for options in both[: 1 + also_anew]:
        with pytest.raises(an.OutputError, match=match) as caught:
            model.remember(out, **options)
        assert "\n" not in str(caught.value)
        assert "remove it" in str(caught.value) or "without resume=True" in str(caught.value)
        assert seen(out.parent) == before


@pytest.mark.parametrize("name", ["photos/a.jpg", "notes.txt", "files.txt", "Lock"])
def test_foreign_folder(name: str, model: an.Model, out: Path, partial: Path) -> None:
    (partial / name).parent.mkdir(exist_ok=True)
    (partial / name).write_text("precious")
    is_refused(model, out, "not left by a run", also_anew=True)


@pytest.mark.parametrize("name", ["files/a.jpg", "plan.json"])
def test_folder_that_was_never_locked(name: str, model: an.Model, out: Path) -> None:
    path = out.with_name(out.name + SUFFIX) / name
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    is_refused(model, out, "not left by a run", also_anew=True)


def test_lock_with_something_in_it(model: an.Model, out: Path, partial: Path) -> None:
    (partial / "lock").write_text("precious")
    is_refused(model, out, "not left by a run", also_anew=True)


def test_what_file_managers_leave(model: an.Model, out: Path, partial: Path) -> None:
    (partial / ".DS_Store").write_bytes(b"x")
    model.remember(out, resume=True)
    assert out.exists()


def test_a_file_that_no_run_of_this_plan_makes(model: an.Model, out: Path, partial: Path) -> None:
    (partial / "files" / "evil.py").write_text("import this")
    is_refused(model, out, r"evil\.py")
    model.remember(out)
    assert "evil.py" not in tree(out)


def sparse(path: Path, size: int) -> None:
    with open(path, "ab") as stream:
        stream.truncate(size)


@pytest.mark.parametrize("size", [1 << 20, 1 << 33])
def test_huge_journal(size: int, model: an.Model, out: Path, partial: Path) -> None:
    sparse(partial / "journal", size)
    is_refused(model, out, "journal: is damaged")


@pytest.mark.parametrize("ordinal", [10_000, 1 << 32, (1 << 64) - 1])
def test_journal_of_bands_that_are_not_there(
    ordinal: int, model: an.Model, out: Path, partial: Path
) -> None:
    record = ordinal.to_bytes(8, "little") + bytes(8)
    (partial / "journal").write_bytes(record + crc32(record).to_bytes(4, "little"))
    is_refused(model, out, "journal: is damaged")


def test_commit_before_all_is_written(model: an.Model, out: Path, partial: Path) -> None:
    (partial / "commit").touch()
    is_refused(model, out, "commit: is damaged")


def test_huge_plan(model: an.Model, out: Path, partial: Path) -> None:
    sparse(partial / "plan.json", 1 << 33)
    is_refused(model, out, "a different source")


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"a":' * 100_000, b"1" * 100_000])
def test_plan_of_deep_json(raw: bytes, model: an.Model, out: Path, partial: Path) -> None:
    """It is longer than the plan that is looked for, so it is another."""
    (partial / "plan.json").write_bytes(raw)
    is_refused(model, out, "a different source")


def test_deep_json_in_the_length_of_a_plan(model: an.Model, out: Path, partial: Path) -> None:
    length = (partial / "plan.json").stat().st_size
    (partial / "plan.json").write_bytes(b"[" * length)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(150, length // 4))
    try:
        model.remember(out, resume=True)
    finally:
        sys.setrecursionlimit(before)
    assert out.exists()


def test_file_that_was_cut(model: an.Model, out: Path, partial: Path) -> None:
    model.remember(out.with_name("want"))
    file = next(p for p in (partial / "files").rglob("*") if p.is_file())
    os.truncate(file, 100)
    model.remember(out, resume=True)
    assert tree(out) == tree(out.with_name("want"))


@pytest.mark.parametrize("resume", [False, True])
def test_deep_folders(resume: bool, model: an.Model, out: Path, partial: Path) -> None:
    here = os.getcwd()
    os.chdir(partial / "files")
    try:
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)
    with pytest.raises((an.OutputError, OSError), match=r"nested too deep|Too many open files"):
        model.remember(out, resume=resume)
    shutil_free_removal(partial / "files")


def shutil_free_removal(folder: Path) -> None:
    """Remove nested folders that `shutil` cannot, for they are too deep."""
    here = os.getcwd()
    os.chdir(folder)
    depth = 0
    while os.path.isdir("d"):
        os.chdir("d")
        depth += 1
    for _ in range(depth):
        os.chdir("..")
        os.rmdir("d")
    os.chdir(here)


# --- whose folder it is ---------------------------------------------------------------------------


def test_the_folder_is_private(partial: Path) -> None:
    assert stat.S_IMODE(partial.stat().st_mode) == 0o700


def test_folder_that_others_may_write_to(model: an.Model, out: Path, partial: Path) -> None:
    partial.chmod(0o777)
    is_refused(model, out, "other users may write", also_anew=True)
    partial.chmod(0o755)
    model.remember(out, resume=True)
    assert out.exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives away")
def test_folder_of_another_user(model: an.Model, out: Path, partial: Path) -> None:
    os.chown(partial, 65534, 65534)
    is_refused(model, out, "another user", also_anew=True)


def test_file_system_without_owners_and_modes(
    model: an.Model, out: Path, partial: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files appear as somebody's, and open to all."""
    real = os.stat, os.fstat

    def foreign(status: os.stat_result) -> os.stat_result:
        return os.stat_result(
            (status[0] | 0o777, *status[1:4], 4711, *status[5:]),
            cast(tuple[Any, dict[str, Any]], status.__reduce__()[1])[1],
        )

    monkeypatch.setattr(os, "stat", lambda *a, **k: foreign(real[0](*a, **k)))
    monkeypatch.setattr(os, "fstat", lambda *a, **k: foreign(real[1](*a, **k)))
    model.remember(out, resume=True)
    assert out.exists()


# --- the output itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("force", [False, True])
def test_output_folder_that_is_a_link(force: bool, tmp_path: Path) -> None:
    source, out = write_directory(tmp_path / "in"), tmp_path / "out"
    (tmp_path / "victim").mkdir()
    out.symlink_to(tmp_path / "victim")
    with an.parse(source) as model, pytest.raises(an.OutputError, match="is a link"):
        model.remember(out, force=force)
    assert not list((tmp_path / "victim").iterdir())


def test_folders_above_the_output_may_be_links(model: an.Model, out: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "models").symlink_to(tmp_path / "disk")
    model.remember(tmp_path / "models" / out.name)
    assert os.listdir(tmp_path / "disk") == [out.name]


def test_links_in_an_output_folder(tmp_path: Path) -> None:
    """A link to a folder is refused before the work; a link to a file is replaced."""
    source, out, victim = write_directory(tmp_path / "in"), tmp_path / "out", tmp_path / "victim"
    make_victim(victim)
    before = seen(victim)
    out.mkdir()
    (out / "assets").symlink_to(victim / "folder")
    (out / "config.json").symlink_to(victim / "file")

    def progress(*_: int) -> None:
        raise AssertionError("nothing is to be decoded")

    with an.parse(source) as model:
        with pytest.raises(an.OutputError, match="assets: is a link"):
            model.remember(out, force=True, progress=progress)
        (out / "assets").unlink()
        model.remember(out, force=True)
    assert (out / "config.json").is_file()
    assert not (out / "config.json").is_symlink()
    assert seen(victim) == before


# --- Windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "tag", "is_link"),
    [
        (stat.S_IFDIR, 0xA0000003, True),  # a junction
        (stat.S_IFLNK, 0xA000000C, True),
        (stat.S_IFREG, 0xA000001D, True),  # a link of its Linux
        (stat.S_IFDIR, 0x9000001A, False),  # a folder that is in the cloud as well
        (stat.S_IFDIR, 0, False),
    ],
)
def test_junctions(mode: int, tag: int, is_link: bool, tmp_path: Path) -> None:
    status: Any = SimpleNamespace(st_mode=mode, st_reparse_tag=tag, st_nlink=1)
    (tmp_path / "inner").mkdir()
    with Folder.named(tmp_path) as folder:
        folder.status = lambda _: status  # type: ignore[method-assign, assignment]
        if is_link:
            with pytest.raises(an.OutputError, match="is a link"):
                folder.inner("inner")
            with pytest.raises(an.OutputError, match="is a link"):
                folder.check_file("inner", status)
        elif stat.S_ISDIR(mode):
            folder.inner("inner").close()
