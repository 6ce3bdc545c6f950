"""The options that say what weights are written as."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from anamnesis.cli.grouped import option
from anamnesis.cli.mix_options import MIX_OPTIONS
from anamnesis.cli.options import Parsed, dtype, size
from anamnesis.cli.recipe import recipe_option

if TYPE_CHECKING:
    from anamnesis.convert.ask.targets import Target


def read_target(text: str) -> Target:
    """Return a target, which is called in lower case from here on."""
    from dataclasses import replace

    from anamnesis.convert.ask.targets import target

    return replace(target(text), text=text.lower())


def _encoding(text: str) -> Target:
    from anamnesis.convert.ask.targets import encoding

    try:
        found = read_target(text)
    except ValueError:
        encoding(text)  # raises, in words of encodings
        raise
    if found.encoding is None:
        raise ValueError(f"{text!r} quantises nothing; amn remember and amn convert write it")
    return found


def _plain(text: str) -> Target:
    from anamnesis.base.dtypes import OUTPUT_DTYPES
    from anamnesis.convert.ask.targets import no_such
    from anamnesis.formats.writers import WRITERS

    try:
        found = read_target(text)
    except ValueError:
        raise no_such("dtype or container", text, [*OUTPUT_DTYPES, *WRITERS]) from None
    if found.encoding is not None:
        raise ValueError(f"{text!r} quantises; amn forget and amn convert write it")
    return found


def _targets() -> list[str]:
    return [row.name for row in _listed()]


def _encodings() -> list[str]:
    return [row.name for row in _listed("encoding")]


def _plains() -> list[str]:
    return [row.name for row in _listed() if row.kind in ("container", "dtype")]


def _listed(kind: str | None = None) -> list[Any]:
    from anamnesis.convert.ask.targets import listed

    return [row for row in listed() if kind in (None, row.kind)]


def _override(text: str) -> tuple[str, str]:
    from anamnesis.convert.ask.targets import KEEP, encoding

    pattern, equals, name = text.rpartition("=")
    if not equals or not pattern:
        raise ValueError(f"write PATTERN=ENCODING, not {text!r}")
    if name != KEEP:
        encoding(name)
    return pattern, name


def _renaming(text: str) -> tuple[str, str]:
    import re

    pattern, equals, replacement = text.rpartition("=")
    if not equals or not pattern:
        raise ValueError(f"write FROM=TO, not {text!r}")
    try:
        re.sub(pattern, replacement, "")
    except re.error as error:
        raise ValueError(f"{text!r}: {error}") from None
    return pattern, replacement


def _setting(text: str) -> tuple[str, Any]:
    from anamnesis.formats.gguf.values import read_setting

    return read_setting(text)


def _settings_file(path: str) -> dict[str, Any]:
    from anamnesis.formats.gguf.values import read_settings

    try:
        with open(path, encoding="utf-8") as file:
            return read_settings(file.read())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


# Required but for --list, which click cannot say.
paths_or_list = click.argument("paths", metavar="PATH...", nargs=-1, type=click.Path())
target_option = option(
    "Output",
    "--to",
    "to",
    quiet=["--scheme"],
    type=Parsed("target", read_target, _targets),
    metavar="TARGET",
    help="A container (gguf, npz, pth, ...), an encoding (fp8-block, ...) or both (gguf-f16);"
    " amn convert --list has all.",
    brief="gguf, fp8-block, gguf-f16, ...; --list has all.",
)
encoding_option = option(
    "Output",
    "--to",
    "to",
    quiet=["--scheme"],
    type=Parsed("encoding", _encoding, _encodings),
    metavar="ENCODING",
    help="What weights are written in: fp8-block, fp8-channel, int8, ...; --list has all.",
    brief="fp8-block, int4, bnb-nf4, ...; --list has all.",
)
plain_option = option(
    "Output",
    "--to",
    "to",
    type=Parsed("target", _plain, _plains),
    metavar="TARGET",
    help="Dtype of dequantised weights: bf16, f16 or f32; or a container: safetensors, gguf, npz"
    " or pth; or both: gguf-f16. [default: bf16]",
    brief="bf16 (default), f16, f32, gguf, gguf-f16, ...",
)
list_option = option(
    "Output",
    "--list",
    "lists",
    is_flag=True,
    help="List what can be written, and what loads it; with --to, what codes of each encoding"
    " become in that one.",
    brief="List what can be written, and what loads it.",
)
_PATTERNS = (
    option(
        "Output",
        "--dtype",
        type=dtype,
        metavar="bf16|f16|f32",
        help="What weights come out as that are not encoded. [default: plain ones as stored,"
        " quantised ones in bf16]",
    ),
    option(
        "What is encoded",
        "--include",
        multiple=True,
        metavar="GLOB",
        help="Encode only weights with such names: '*.mlp.*', ... May be repeated.",
    ),
    option(
        "What is encoded",
        "--exclude",
        multiple=True,
        metavar="GLOB",
        help="Leave weights with such names plain.",
        brief="Leave weights with such names plain.",
    ),
    option(
        "What is encoded",
        "--tensor",
        "overrides",
        type=Parsed("override", _override),
        multiple=True,
        metavar="PATTERN=ENCODING",
        help="Write weights with such names otherwise: '*.lm_head.*=bf16'; keep copies them as"
        " they are stored. The first that fits decides.",
        brief="Write some otherwise: '*.lm_head.*=bf16'.",
    ),
    option(
        "Output",
        "--rename",
        type=Parsed("renaming", _renaming),
        multiple=True,
        metavar="FROM=TO",
        help="Put TO in place of each match of the regular expression FROM in a name.",
    ),
    option(
        "GGUF",
        "--gguf-metadata",
        "metadata",
        type=Parsed("file", _settings_file),
        metavar="FILE.json",
        help="Metadata of a GGUF file, over those of the source; null removes a key.",
    ),
    option(
        "GGUF",
        "--gguf-kv",
        "settings",
        type=Parsed("setting", _setting),
        multiple=True,
        metavar="KEY=VALUE",
        help="One of them, over those of the file: general.name=tiny, KEY=TYPE:VALUE, ...",
    ),
    option(
        "GGUF",
        "--split-max-size",
        type=size,
        metavar="SIZE",
        help="Cut a GGUF file into parts of at most SIZE of tensors, such as 5GB, as gguf-split"
        " does.",
    ),
)
_LOSSLESS = option(
    "Quality",
    "--lossless",
    is_flag=True,
    help="Refuse what would round or quantise a value: codes are moved, or cast exactly.",
)
_MEASURED = (
    option("Quality", "--verify", is_flag=True, help="Read back what was written, and compare it."),
    option(
        "Quality",
        "--expect-same",
        type=click.Path(exists=True),
        metavar="MODEL",
        help="Write only what has the tensors of MODEL, byte for byte; name those that differ.",
    ),
    option(
        "Quality",
        "--strict",
        is_flag=True,
        help="Refuse what a program computes otherwise than the model's own class.",
    ),
    option("Quality", "--no-loss", "loss", flag_value=False, default=True, help="Measure no loss."),
    option("Quality", "--worst", is_flag=True, help="Show the five weights that lose the most."),
)


def encoded_options(*, writes: bool) -> tuple[Callable[..., Any], ...]:
    """Return the options of what weights are written as, and of a command that writes them."""
    return (recipe_option, *_PATTERNS, *MIX_OPTIONS, _LOSSLESS, *(_MEASURED if writes else ()))


def needs(paths: tuple[str, ...], name: str, value: object, why: str | None = None) -> None:
    """Refuse a command line without paths, or, with what `why` says, without this option."""
    context = click.get_current_context()
    given = {"paths": bool(paths), name: value is not None}
    for param in context.command.params:
        if not given.get(param.name or "", True):
            message = why if param.name == name else None
            raise click.MissingParameter(message, ctx=context, param=param)


def list_targets(to: Target | None, *, as_json: bool, kind: str | None = None) -> None:
    """Print what can be written, and what loads it; of one what codes of others become in it."""
    if to is not None:
        from anamnesis.cli.ways import list_ways  # only here, for the sake of a quick start

        list_ways(to, as_json=as_json)
        return
    rows = _listed(kind)
    if as_json:
        print(json.dumps([row._asdict() for row in rows], indent=2))
        return
    head = ("target" if kind is None else "encoding", "written to", "loaded by")
    marks = {"layout": " *"}
    cells = [head, *((r.name, r.format, r.loaders + marks.get(r.kind, "")) for r in rows)]
    first, second, _ = (max(map(len, column)) for column in zip(*cells, strict=True))
    for name, container, loaders in cells:
        print(f"{name:<{first}}  {container:<{second}}  {loaders}")
    print("\nOf models of linear layers; experts and others: amn plan, docs/loading.md")
    if kind is None:
        print("* only takes weights that are in such codes already, and moves their bits")
        print("A container and one of the others go together: gguf-f16, npz-f32")
    print("--list --to TARGET: from which codes it is moved, cast exactly, or re-quantised")
