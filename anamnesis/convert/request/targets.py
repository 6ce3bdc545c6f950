"""What a conversion can be asked for by name: containers, encodings, and both.

A target is `CONTAINER[-ENCODING]`, or an encoding: `safetensors`, `gguf`, `npz-f16`, `fp8-block`.
Where it names no container, the output's name may promise one; else it is the one that the encoding
usually lies in. An encoding may have settings behind its name: `int4-32`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from anamnesis.base.dtypes import OUTPUT_DTYPES, DType, DTypeLike, output_dtype
from anamnesis.base.errors import OutputError
from anamnesis.base.nearest import UnknownWord, did_you_mean
from anamnesis.convert.request.form import check_ending, check_named
from anamnesis.convert.request.spellings import CONTAINERS, FOLDERS, Named, several, spelt, worded
from anamnesis.formats.written import WRITERS, asked_format
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.plain_encoding import plain_encoding
from anamnesis.schemes.encodings import ENCODINGS, GGUF, LAYOUTS, find, made

KEEP = "keep"  # of an override: as it is stored

_COPY = "gguf-copy"  # every tensor as it is, with llama-quantize's header
_TOGETHER = [f"{container}-{dtype}" for container in WRITERS for dtype in OUTPUT_DTYPES]


@dataclass(frozen=True, slots=True)
class Target:
    """What a name of a target stands for."""

    container: str | None
    encoding: Encoding | None = None
    dtype: DType | None = None
    usual: str = "safetensors"
    name: str | None = None
    mix: str | None = None
    text: str = field(default="", compare=False)
    is_directory: bool = False  # that transformers loads

    def output_dtype(self, dtype: DTypeLike | None) -> DType | None:
        """Return the dtype that target or argument names; refuse two."""
        found = self.dtype if dtype is None else output_dtype(dtype)
        if found is not None and self.dtype not in (None, found):
            raise ValueError(f"the target {self.text} contradicts dtype={found.name.lower()}")
        return found

    def casts_all(self, dtype: DTypeLike | None, asked: bool | None) -> bool:
        """Whether plain floats are cast: by default if a dtype is named."""
        return not (self.dtype is None and dtype is None) if asked is None else asked


class Listed(NamedTuple):
    """A target, for a listing."""

    name: str
    kind: str
    format: str
    loaders: str


def listed() -> Iterator[Listed]:
    """Yield all targets that go without a container, and the containers."""
    from anamnesis.convert.loaders.verdicts import loaders

    called = {container: name for name, container in CONTAINERS.items()}
    for container in ("safetensors", "gguf", "npz", "npy", "torch"):
        yield Listed(called.get(container, container), "container", container, loaders(container))
    for dtype in OUTPUT_DTYPES:
        yield Listed(dtype, "dtype", "safetensors", loaders("safetensors"))
    for name, entry in ENCODINGS.items():
        yield Listed(name, "encoding", entry.container, loaders(name))
    for name, entry in LAYOUTS.items():
        yield Listed(name, "layout", entry.container, loaders(name))
    mixed = mixes()
    for name in mixed:
        yield Listed(name, "encoding" if name != _COPY else "copy", "gguf", loaders("gguf"))
    for name in [name for name in GGUF if name not in mixed]:
        yield Listed(name, "layout", "gguf", loaders(name))


def names() -> list[str]:
    """Return the containers, and the targets that go without one."""
    return [*WRITERS, *CONTAINERS, *OUTPUT_DTYPES, *ENCODINGS, *LAYOUTS, *GGUF, *mixes()]


def mixes() -> list[str]:
    """Return the mixes of GGUF's types, as targets."""
    from anamnesis.schemes.families.ggml.mixes import ALIASES, MIXES

    return [*(f"gguf-{mix}" for mix in (*MIXES, *ALIASES) if mix not in OUTPUT_DTYPES), _COPY]


def target(to: Named | Target) -> Target:
    """Return what a target's name stands for."""
    if isinstance(to, Target):
        return to
    if isinstance(to, Encoding):
        return Target(None, to)
    to = worded("to", to, "gguf-")
    found = _named(to)
    if found is not None:
        return found
    _refuse_absent(to)
    if asked_format(to) is not None:
        raise UnknownWord(f"there is no target {to!r}: it is the name of an output")
    raise no_such("target", to, [*names(), *_TOGETHER])


def _named(to: str) -> Target | None:
    """Return what a word stands for; None if it is no target."""
    if to.strip().lower() in FOLDERS:
        return Target("safetensors", text=to, is_directory=True)
    name = spelt(to, names())
    if _container(name) is not None:
        return Target(_container(name), text=to)
    mixed = _mixed(name)
    if mixed is not None:
        return replace(mixed, text=to)
    entry = find(name)
    if entry is not None:
        found = made(entry)
        if name in GGUF:  # of which no tool makes a whole model: codes that are there are moved
            found = replace(found, codes=None)
        return Target(None, found, usual=entry.container, name=name, text=to)
    if name in OUTPUT_DTYPES:
        return Target(None, None, OUTPUT_DTYPES[name], text=to)
    first, _, rest = name.partition("-")
    container = _container(first)
    if container is not None and rest in OUTPUT_DTYPES:
        return Target(container, None, OUTPUT_DTYPES[rest], text=to)
    entry = find(rest)
    if container is not None and entry is not None:
        return Target(container, made(entry), name=rest, text=to)
    return None


def asked_target(
    to: Named | Target | None, out: Any, *, of_gguf: bool, dtype: DTypeLike | None = None
) -> Target:
    """Return what a target's name stands for; without one, what the output's name asks for."""
    if to is None:
        return output_target(out, of_gguf=of_gguf, dtype=dtype)
    found = target(to)
    if found.is_directory and of_gguf and dtype is None:
        return replace(found, dtype=OUTPUT_DTYPES["bf16"])
    return found


def output_target(out: Any, *, of_gguf: bool, dtype: DTypeLike | None = None) -> Target:
    """Return what the name of an output asks for, where no target is named."""
    # Its ending says the container. Without one a GGUF that llama.cpp runs (`of_gguf`) becomes a
    # directory that transformers loads, in BF16 unless a `dtype` is asked for; all else stays in
    # safetensors.
    if not isinstance(out, (str, os.PathLike)):
        return Target("safetensors")
    check_named(out)
    path = os.fspath(out)
    word = None if os.path.dirname(path) or asked_format(path) else _named(path)
    if word is not None and not word.is_directory:
        name = f"model{WRITERS[word.container or word.usual].endings[0]}"
        raise OutputError(
            f"{path!r} is a target, not the name of an output",
            remedy=f"put to={path!r} beside a name, such as {name}; ./{path} is a file or folder"
            " of that name",
        )
    check_ending(Target(None), path)
    container = None if os.path.isdir(path) else asked_format(path)
    if container is None and of_gguf and dtype is None:
        return replace(target("bf16"), is_directory=True)
    return Target(container or "safetensors")


def _mixed(name: str) -> Target | None:
    """Return the mix that a name is of, with its own type; None if it is of none."""
    first, _, rest = name.partition("-")
    if first != "gguf" or not rest:
        return None
    from anamnesis.schemes.families.ggml.mixes import ALIASES, COPY, MIXES

    mix = ALIASES.get(rest, rest)
    if mix == COPY:
        return Target("gguf", mix=mix)
    if mix not in MIXES:
        return None
    base = MIXES[mix].base.lower()
    if base in OUTPUT_DTYPES:
        return Target("gguf", None, OUTPUT_DTYPES[base], mix=mix)
    entry = find(f"gguf-{base}")
    assert entry is not None  # a mix is of known types
    return Target(None, made(entry), usual="gguf", name=name, mix=mix)


def no_such(what: str, word: str, known: Iterable[str]) -> UnknownWord:
    """Return that there is no such target, or encoding, and which ones are like it."""
    return UnknownWord(f"there is no {what} {word!r}{did_you_mean(word, known)}")


def _refuse_absent(name: str) -> None:
    """Raise for an encoding that is known, and not written; or for what may be several."""
    from anamnesis.convert.loaders.verdicts import absent, loaders

    programs = {one: loaders("gguf" if one in mixes() else one) for one in several(name)}
    if programs:
        each = "; ".join(f"{one} for {who}" for one, who in programs.items())
        raise ValueError(f"{name!r} has several meanings, name one: {each}")
    why = absent(name)
    if why is not None:
        raise ValueError(why)


def _container(name: str) -> str | None:
    name = CONTAINERS.get(name, name)
    return name if name in WRITERS else None


def encoding(name: Named, container: str = "") -> Encoding:
    """Return the encoding of a name, values as they are among them."""
    if isinstance(name, Encoding):
        return name
    name = worded("an encoding", name)
    word = spelt(name, names())
    if word in OUTPUT_DTYPES:
        return plain_encoding(OUTPUT_DTYPES[word])
    of_gguf = GGUF.get(f"gguf-{word}") if container == "gguf" else None
    entry = of_gguf or find(word)
    if entry is None and word in mixes():
        raise ValueError(f"{name!r} is a mix, for a whole model; name a type, such as q4_k")
    if entry is None:
        _refuse_absent(name)
        raise no_such("encoding", name, [*OUTPUT_DTYPES, *ENCODINGS, *LAYOUTS, *GGUF])
    return made(entry)
