"""What is asked of a mix of GGUF's types: llama-quantize's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from anamnesis.base.arguments import Word
from anamnesis.base.printable import shown

if TYPE_CHECKING:
    from anamnesis.schemes.families.ggml.choose import Options


class MixOptions(TypedDict, total=False):
    """The keyword options of a mix; `Model.convert` explains them."""

    pure: bool
    output_tensor_type: Word | None
    token_embedding_type: Word | None
    leave_output_tensor: bool
    override_kv: Mapping[str, Any] | None
    prune_layers: int | Sequence[int] | None
    keep_split: bool


MIX_OPTIONS = frozenset(MixOptions.__annotations__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedMix:
    """A mix, and what is asked beside it."""

    name: str
    options: Options
    override_kv: Mapping[str, Any]
    prune_layers: tuple[int, ...] = ()
    keep_split: bool = False


def asked_mix(name: str | None, given: Mapping[str, Any]) -> AskedMix | None:
    """Return a mix with its options; None if there is none."""
    if name is None:
        for option, value in given.items():
            if value:
                raise ValueError(f"{option} is for a mix of GGUF's types, such as gguf-q4_k_m")
        return None
    from anamnesis.schemes.families.ggml.choose import Options

    def named(option: str) -> str | None:
        text = given.get(option)
        try:
            return None if text is None else block_type(text)
        except ValueError as error:
            raise ValueError(f"{option}: {error}") from None

    options = Options(
        pure=bool(given.get("pure")),
        output=named("output_tensor_type"),
        embedding=named("token_embedding_type"),
        leave_output=bool(given.get("leave_output_tensor")),
    )
    return AskedMix(
        name=name,
        options=options,
        override_kv={k: _typed(k, v) for k, v in (given.get("override_kv") or {}).items()},
        prune_layers=given.get("prune_layers") or (),
        keep_split=bool(given.get("keep_split")),
    )


def block_type(name: str) -> str:
    """Return a type of GGUF's by its name, as a target or as llama-quantize has it."""
    from anamnesis.schemes.families.ggml.choose import type_named

    return type_named(name.lower().removeprefix("gguf-"))


def _typed(key: str, value: Any) -> Mapping[str, Any]:
    """Return a value with the type that llama-quantize gives it; one that has a type as it is."""
    if isinstance(value, Mapping) and value.keys() == {"type", "value"}:
        return value
    types = {bool: "bool", int: "uint32", float: "float32", str: "string"}
    if type(value) not in types:
        raise ValueError(
            f"override_kv {key!r} must be a number, a bool or a text, not {shown(value)}"
        )
    return {"type": types[type(value)], "value": abs(value) if type(value) is int else value}
