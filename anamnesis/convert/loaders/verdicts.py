"""Which programs load an output, by the table, and what writes what we do not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from anamnesis.convert.loaders.table import (
    ANY,
    CELLS,
    OF_DIFFUSERS,
    ONE_BY_ONE,
    PLACES,
    PROGRAMS,
    QUANTISED_BY,
    SPLIT_BY_TOOLS,
    Cell,
    Outcome,
)
from anamnesis.schemes.libraries.mlx_models import CLASSES, class_of
from anamnesis.schemes.libraries.sections import typed_sections
from anamnesis.schemes.libraries.stacks import is_of_an_expert

_SPLIT_EXPERT = re.compile(r"(?:^|\.)experts\.[0-9]+\.(?:gate|up|down)_proj\.")
_STACK = re.compile(
    r"(?:^|\.)(?:experts\.(?:gate_up|up|down)_proj|block_sparse_moe\.(?:input|output)_linear)\b"
)
_DECODERS = ("CausalLM", "LMHead", "ConditionalGeneration")
_T5 = frozenset({"t5", "mt5", "umt5", "longt5", "switch_transformers"})
_OWN_LINEAR = frozenset({"falcon"})

_TOWER = re.compile(r"^(?:model\.)?(?:vision_tower|vision_model|visual)\.")
_SIGLIP = frozenset({"siglip", "siglip_vision_model", "siglip2", "siglip2_vision_model"})

_BLOCK = re.compile(r"-([0-9]+)x([0-9]+)\b")  # of ids
_NAMES = frozenset(name for cell in CELLS for name in cell.encodings)
_USUAL = {name: "gguf" for name in _NAMES if name.startswith("gguf-")}
_APART = {"llama4": "llama4_text", "gpt-oss": "gpt_oss"}
IMAGES, IMAGES_IN_ROWS = "images", "images-in-rows"
_OF_MEGATRON = re.compile(r"(?:^|\.)decoder\.layers\.(?:[0-9]+\.)?(?:self_attention|mlp)\.")
NO_CONFIG = "no-config"
OF_LLAMA_CPP = re.compile(r"^blk\.[0-9]+\.|^token_embd\.weight$")
_OF_HUGGING_FACE = re.compile(
    r"(?:^|\.)(?:layers?|h|blocks?|embed_tokens|lm_head)\.(?:[0-9]|weight)"
)
_WORST: dict[Outcome, int] = {"loads": 0, "unwritten": 1, "refuses": 2, "wrong": 3}
_LLAMA_CPP = "llama.cpp"
_OF_IMAGES = (IMAGES, IMAGES_IN_ROWS)  # which nobody expects of a program of texts
_UNEXPECTED = (ANY, NO_CONFIG, *_OF_IMAGES)


class Facts(NamedTuple):
    """The facts that verdicts depend on."""

    encodings: tuple[str, ...]
    kinds: frozenset[str]


def listed_name(encoding: str) -> str | None:
    """Return the table's name of an encoding: `int4-asym` for `int4-128-asym`; else None."""
    words = encoding.split("-")
    known = []
    for name in _NAMES:
        first, *others = name.split("-")
        rest = iter(words[1:])
        if words[0] == first and all(word in rest for word in others):  # in this order
            known.append(name)
    return max(known, key=lambda name: name.count("-"), default=None)


class Output(NamedTuple):
    """The parts of a planned output that facts come from."""

    container: str
    metadata: Mapping[str, Any]
    config: Mapping[str, Any]
    has_config: bool
    has_params: bool
    names: list[str]
    coded: dict[str, str]
    dtypes: set[str]
    numbers: set[str]


def facts_of_output(output: Output) -> Facts:
    """Return the facts of a planned output."""
    container, config, names = output.container, output.config, output.names
    ids = set(output.coded.values())
    encodings = tuple(sorted(filter(None, map(listed_name, ids)))) if ids else (container,)
    coded = output.coded or names
    types = frozenset(kind for _, kind in typed_sections(config, 1))
    kinds = {*_experts(coded, names, types), *_models(config, types)}
    if ids and isinstance(config.get("vision_config"), dict):  # by which part is encoded
        has_tower = any(map(_TOWER.search, coded))
        if has_tower or any(name.startswith("language_model.") for name in coded):
            kinds.add("seeing")
        if has_tower and types & _SIGLIP:
            kinds.add("siglip")
    if ids and {_USUAL.get(name, "safetensors") for name in encodings} - {container}:
        kinds.add("elsewhere")
    elif encodings and container == "safetensors" and not output.has_config:
        if ids:
            kinds.add("mistral" if output.has_params else "lone")
        elif not output.has_params:
            kinds.add(NO_CONFIG)
    if any(shown <= set(names) for shown in OF_DIFFUSERS):
        kinds.add("of-diffusers")
    if any(name.endswith("-actorder") for name in ids):
        kinds.add("act-order")
    if any((size := _BLOCK.search(name)) and size[1] != size[2] for name in ids):
        kinds.add("oblong")
    if "mlx-nvfp4" in ids and any(name.endswith("global_scale") for name in output.numbers):
        kinds.add("second-scale")
    if container == "gguf":
        kinds |= set(lacks(names, output.metadata))
    elif any(OF_LLAMA_CPP.match(name) for name in names):
        kinds.add("gguf-names")
    elif any(map(_OF_MEGATRON.search, names)):
        kinds.add("megatron-names")
    if "BF16" in output.dtypes:
        kinds.add("bf16")
    return Facts(encodings, frozenset(kinds))


def _experts(
    coded: Collection[str], names: Collection[str], types: frozenset[str]
) -> Iterator[str]:
    """Yield the kinds of experts: the encoded ones, or all of a plain output."""
    is_split = types & SPLIT_BY_TOOLS and any(_SPLIT_EXPERT.search(name) for name in names)
    if is_split:
        yield next((f"apart-{short}" for short, kind in _APART.items() if kind in types), "apart")
    elif any(map(is_of_an_expert, coded)):
        yield "experts"
    if any(_STACK.search(name) for name in coded):
        yield "stacks"
        if "gpt_oss" in types:
            yield "stacks-gpt-oss"
    if types & ONE_BY_ONE and any(_STACK.search(name) for name in names):
        yield "joined"
    if "llama4_text" in types or "llama4" in types:
        yield "llama4"


def _models(config: Mapping[str, Any], types: frozenset[str]) -> Iterator[str]:
    if types & _T5:
        yield "t5"
    if types & _OWN_LINEAR:
        yield "own-linear"
    if class_of(config) not in (*CLASSES, ""):
        yield "not-in-mlx"
    classes = config.get("architectures")
    names = [name for name in classes if isinstance(name, str)] if isinstance(classes, list) else []
    decodes = any(word in name for name in names for word in _DECODERS)
    if config.get("is_encoder_decoder") is True:
        yield "two-stacks"
    if config.get("is_encoder_decoder") is True or (names and not decodes):
        yield "encoder"


def lacks(names: Collection[str], metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield what llama.cpp needs and a GGUF lacks, or that it is of an image model."""
    from anamnesis.formats.gguf.read import SHAPE_KEY
    from anamnesis.formats.gguf.values import text_of
    from anamnesis.schemes.families.ggml.mixes import KEPT_OF_IMAGES

    if text_of(metadata, "general.architecture") in KEPT_OF_IMAGES:
        is_cut = any(key.startswith(SHAPE_KEY) for key in metadata)
        yield IMAGES_IN_ROWS if is_cut else IMAGES
    elif not any(OF_LLAMA_CPP.match(name) for name in names) and any(
        _OF_HUGGING_FACE.search(name) for name in names
    ):
        yield "hf-names"
    elif "general.architecture" not in metadata:
        yield "no-architecture"
    elif "token_embd.weight" in names and "tokenizer.ggml.model" not in metadata:
        yield "no-tokenizer"


def absent(name: str) -> str | None:
    """Return why an encoding is not written; None if the name is unknown."""
    tool = next((who for word, who in QUANTISED_BY.items() if name.lower().startswith(word)), None)
    return None if tool is None else f"amn does not quantise to {name} yet; {tool} does"


class Verdict(NamedTuple):
    """Whether a program loads an output.

    Attributes
    ----------
    program : str
        With what it needs beside.
    outcome : str
        `loads`, `refuses`, `otherwise`: it computes something else with the same values; or
        `wrong`: it loads other values without an error.
    why, instead : str
        What is in the way, and what works; arguments stand with a value, as in errors' remedies.
    warns : bool
        Whether the end of a run warns of it.
    """

    program: str
    outcome: Outcome
    why: str = ""
    instead: str = ""
    warns: bool = False

    def __str__(self) -> str:
        return sentence([self.program], self.outcome, self.why, self.instead)

    def to_dict(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("program", "outcome", "why", "instead")}


@cache
def _rows() -> dict[tuple[str, str, str], Cell]:
    """Return the rows by program, encoding and kind; later rows replace earlier ones."""
    return {(row.program, name, row.kind): row for row in CELLS for name in row.encodings}


def cell(program: str, encoding: str, kind: str) -> Cell | None:
    """Return the row of a cell; None if the program does not know the encoding."""
    rows = _rows()
    return rows.get((program, encoding, kind)) or rows.get((program, encoding, ANY))


def verdicts(facts: Facts) -> tuple[Verdict, ...]:
    """Return what each program makes of an output that knows all of its encodings."""
    found = []
    for program in PROGRAMS:
        rows = [_of(program, name, facts.kinds) for name in facts.encodings]
        if rows and all(rows):
            worst = max((row for some in rows for row in some), key=lambda row: _WORST[row.outcome])
            found.append(_verdict(worst))
    return tuple(found)


def otherwise(found: Sequence[Verdict], why: Sequence[str]) -> tuple[Verdict, ...]:
    """Return verdicts, with what llama.cpp computes otherwise."""
    otherwise = [Verdict(_LLAMA_CPP, "otherwise", one, warns=True) for one in why]
    rest = [one for one in found if not (otherwise and one[:2] == (_LLAMA_CPP, "loads"))]
    return (*rest, *otherwise)


def _of(program: str, encoding: str, kinds: Iterable[str]) -> list[Cell]:
    """Return the rows of all kinds; the row of any kind, where a kind has none."""
    rows = _rows()
    own = [rows[key] for kind in sorted(kinds) if (key := (program, encoding, kind)) in rows]
    own = [row for row in own if row.outcome != "unwritten"]  # such an output is never written
    usual = rows.get((program, encoding, ANY))
    return [row for row in own if row.kind in PLACES] or own or ([usual] if usual else [])


def _verdict(row: Cell) -> Verdict:
    title = PROGRAMS[row.program].title
    needs = f" (with {row.needs})" if row.needs and row.outcome == "loads" else ""
    # People expect a program to load an encoding that it has a library for.
    is_expected = row.kind not in _UNEXPECTED or bool(row.needs)
    warns = row.outcome == "wrong" or (row.outcome == "refuses" and is_expected)
    outcome: Outcome = "refuses" if row.outcome == "unwritten" else row.outcome
    return Verdict(f"{title}{needs}", outcome, row.why, row.instead, warns)


def warnings(found: Sequence[Verdict]) -> tuple[str, ...]:
    """Return a sentence, with its programs, for each reason that a user must know."""
    by_reason: dict[tuple[Outcome, str, str], list[str]] = {}
    for one in found:
        if one.warns:
            by_reason.setdefault((one.outcome, one.why, one.instead), []).append(one.program)
    return tuple(
        sentence(programs, outcome, why, instead)
        for (outcome, why, instead), programs in by_reason.items()
    )


def sentence(programs: Sequence[str], outcome: Outcome, why: str, instead: str) -> str:
    """Return a sentence: why programs do not load an output, and what they load."""
    *first, last = programs
    who = f"{', '.join(first)} and {last}" if first else last
    if outcome == "otherwise":
        return f"{who} computes this otherwise: {why}"
    do = "do" if first else "does"
    verb = f"load{'' if first else 's'} this wrong, without an error"
    text = f"{who} {verb if outcome == 'wrong' else f'{do} not load this'}: {why}"
    return f"{text}; {instead}" if instead else text


def loaders(encoding: str) -> str:
    """Return the programs that load an encoding of linear layers, for a listing."""
    found = []
    for program in PROGRAMS:
        some = [row for row in CELLS if row.program == program and encoding in row.encodings]
        some = [row for row in some if row.kind not in _OF_IMAGES]
        usual = cell(program, encoding, "dense")
        rows = [usual] if usual is not None and usual.outcome != "unwritten" else some
        found += [_verdict(row).program for row in rows if row.outcome == "loads"][:1]
    return ", ".join(found)
