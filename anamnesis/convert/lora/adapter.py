"""An adapter's file: its factors for each module, and their scale.

    PEFT       base_model.model.MODULE.lora_A.weight [r, in], .lora_B.weight [out, r]
    diffusers  unet.MODULE.lora_A.weight, and older: MODULE.lora.down.weight, MODULE_lora.up.weight,
               MODULE.lora_linear_layer.up.weight
    kohya      lora_unet_MODULE.lora_down.weight, .lora_up.weight, .alpha; dots are underscores
    mlx-lm     MODULE.lora_a [in, r], .lora_b [r, out], and .m of DoRA

A config says the scale; kohya's alpha is a tensor, the rank if there is none.

    adapter_config.json                      PEFT's or mlx-lm's, for all modules
    __metadata__["lora_adapter_metadata"]    diffusers': PEFT's keys, each below its component
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from glob import escape, glob
from itertools import chain
from typing import Any, NamedTuple

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.limits import Budget, ParseLimits, hold
from anamnesis.base.plain_json import json_table
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.file_names import ADAPTER_NAMES
from anamnesis.checkpoint.json_file import json_object, read_json
from anamnesis.convert.lora.deltas import matrix
from anamnesis.formats.base import Container
from anamnesis.formats.registry import parse_file
from anamnesis.sources.urls import kind_of_url, shown_url

_METADATA = "lora_adapter_metadata"
_MOST = float.fromhex("0x1.fffffep127")  # the largest float32
_SCALE_OF_MLX = 20.0
_ALPHA_OF_PEFT = 8

# kinds: what the values of a config's keys are, if they are not null
# unread: PEFT's keys that make other weights than the base's, or other products, if they are set
# starts: what kohya's names (with underscores) and diffusers' begin with; a module's name follows
# roles: what ends a tensor's name, and what the tensor is for its module
# older: parts of names as diffusers' first versions wrote them, and as they are now
# others: what a part of a name begins with, of a method or a form that is not read
_TABLE = json_table(__file__)
STARTS, _ROLES, _OLDER = _TABLE["starts"], _TABLE["roles"], _TABLE["older"]
_KINDS: dict[str, type | tuple[type, ...]] = {
    "true or false": bool,
    "an object": dict,
    "a list": list,
    "true, false or a name": (bool, str),
}
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")  # when an adapter is made

# What may take long in patterns of modules: repeated groups, and more than three repetitions.
_DEARLY = re.compile(r"\)[*+?{]|\(\?|\\[0-9]|(?:[*+{].*){4}")
_LONGEST = 200
_WITH_CONFIG = (*ADAPTER_NAMES, "adapters.safetensors")  # PEFT's, and mlx-lm's
_OF_DIFFUSERS = ("pytorch_lora_weights.safetensors", "pytorch_lora_weights.bin")
_FILES = (*_WITH_CONFIG, *_OF_DIFFUSERS)
_PEFT = "base_model.model."
BASE_LAYER = ".base_layer."  # PEFT's: what a module wraps, saved beside its factors
_PAIRS = (("A", "B"), ("embedding_A", "embedding_B"), ("A_turned", "B_turned"))
_FACTORS = {role for pair in _PAIRS for role in pair}
_SAME = 0.01  # of an alpha in a config and as a tensor, which may be rounded to bfloat16


class Config:
    """One config, for all modules of an adapter or for those of a component of a pipeline."""

    def __init__(self, values: Mapping[str, Any], where: str, component: str = "") -> None:
        self.values, self._where, self._component = values, where, component
        start = str(values.get("init_lora_weights")).lower()
        self.is_rounded = start == "mica"  # of products, before they are added, as PEFT does
        # Values of other kinds are refused, and what would be merged wrongly.
        for key, what in _TABLE["kinds"].items():
            if values.get(key) is not None and not isinstance(values[key], _KINDS[what]):
                raise self.error(f"{key} must be {what}")
        if not all(isinstance(name, str) for name in values.get("target_parameters") or ()):
            raise self.error("target_parameters must be a list of names")
        method = str(values.get("peft_type", "LORA"))[:40]
        why = next((f"{key} is not merged" for key in _TABLE["unread"] if values.get(key)), None)
        if start.startswith(_CHANGES_BASE):
            why = (
                f"the adapter was made by {start}, which changes the base's weights; save it"
                " with path_initial_model_for_weight_conversion, as PEFT describes"
            )
        if method != "LORA":
            why = f"is of type {method}; only LoRA adapters are merged"
        if why is not None:
            raise UnsupportedError(f"{self._where}: {why}")
        self.parameters: list[str] = values.get("target_parameters") or []  # or ends of names
        self._alphas = list(self._patterns("alpha_pattern"))
        self._ranks = list(self._patterns("rank_pattern"))

    def error(self, message: str) -> ParseError:
        """Return the error for a config that cannot be right."""
        return ParseError(message, source=self._where)

    def scale(self, module: str, rank: int) -> float | None:
        """Return what the product of a module's factors is multiplied by, if that is said."""
        name = module.removeprefix(f"{self._component}.")
        of_mlx = self.values.get("lora_parameters")
        said = self.values.get("r") if of_mlx is None else of_mlx.get("rank")
        own = _first(self._ranks, name, said)
        if own is not None and self._number(own, "the rank") != rank:
            raise self.error(f"the rank of {module!r} is {own} here, but {rank} in its factors")
        if of_mlx is not None:
            return self._number(of_mlx.get("scale", _SCALE_OF_MLX), "lora_parameters.scale")
        if self.values.keys().isdisjoint(("peft_type", "lora_alpha")):
            return None
        alpha = _first(self._alphas, name, self.values.get("lora_alpha", _ALPHA_OF_PEFT))
        number = self._number(alpha, "lora_alpha")
        return number / math.sqrt(rank) if self.values.get("use_rslora") else number / rank

    def _patterns(self, key: str) -> Iterator[tuple[re.Pattern[str], Any]]:
        for pattern, value in (self.values.get(key) or {}).items():
            if _DEARLY.search(pattern) or len(pattern) > _LONGEST:
                raise self.error(f"the pattern {pattern[:_LONGEST]!r} of {key} is not read")
            try:
                yield re.compile(rf"(.*\.)?({pattern})$"), value
            except (re.error, OverflowError) as error:
                raise self.error(f"the pattern {pattern!r} of {key}: {error}") from None

    def _number(self, value: Any, key: str) -> float:
        if type(value) not in (int, float) or not abs(value) <= _MOST:
            raise self.error(f"{key} is not a number that a float32 holds: {str(value)[:40]}")
        return float(value)


def _first(patterns: list[tuple[re.Pattern[str], Any]], module: str, default: Any) -> Any:
    """Return the value of the first pattern that fits the end of a module's name."""
    return next((value for pattern, value in patterns if pattern.match(module)), default)


def configs_of(container: Container, folder: str, budget: Budget) -> dict[str, Config]:
    """Return the configs of an adapter by component; that of "" is for all others."""
    raw, file = container.metadata.get(_METADATA), os.path.join(folder, "adapter_config.json")
    if not raw:
        return {"": Config(read_json(file, budget) if os.path.isfile(file) else {}, file)}
    where = f"{container.source.name}: its {_METADATA}"
    if not isinstance(raw, str):
        raise ParseError("is no text", source=where)
    sections: dict[str, dict[str, Any]] = {}
    for name, value in json_object(raw.encode(), where, budget).items():
        component, _, key = name.rpartition(".")
        sections.setdefault(component, {"peft_type": "LORA"})[key] = value
    return {
        component: Config(values, f"{where} of {component!r}" if component else where, component)
        for component, values in sections.items()
    }


class Adapter(NamedTuple):
    """What an adapter holds."""

    container: Container
    modules: dict[str, dict[str, StoredTensor]]  # by role
    whole: dict[str, StoredTensor]  # that replace the base's
    configs: Mapping[str, Config]  # by component of a pipeline; "" is for all
    weight: float  # that all of it is added with
    needs_scale: bool  # from a config or alphas, as it is a folder of PEFT or mlx-lm

    @property
    def name(self) -> str:
        """Its path."""
        return self.container.source.name

    def error(self, message: str) -> ParseError:
        """Return the error for an adapter that cannot be right."""
        return ParseError(message, source=self.name)

    def config(self, module: str) -> Config:
        """Return what is said of a module: by its component, or else of all."""
        component = module.partition(".")[0]
        return self.configs.get(component) or self.configs[""]

    def factors(
        self, module: str, is_conv1d: bool | None = None
    ) -> tuple[StoredTensor, StoredTensor, bool]:
        """Return what is multiplied, and whether both are turned, as the base or the config is."""
        roles = self.modules[module]
        a, b, mlx = next((roles[a], roles[b], a == "A_turned") for a, b in _PAIRS if a in roles)
        if is_conv1d is None:
            is_conv1d = self.config(module).values.get("fan_in_fan_out")
        if is_conv1d or "embedding_A" in roles:
            return matrix(a, is_turned=True), matrix(b, is_turned=True), True  # A^T @ B^T
        return matrix(b, is_turned=mlx), matrix(a, is_turned=mlx), False

    def made(self, module: str, is_conv1d: bool | None = None) -> tuple[int, int]:
        """Return the shape of the product of a module's factors."""
        left, right, _ = self.factors(module, is_conv1d)
        return left.shape[0], right.shape[1]

    def scale(self, module: str, rank: int, parameter: str = "") -> float:
        """Return what the product of a module's factors is multiplied by; of a parameter of it."""
        alpha = self.modules[module].get("alpha")
        said = self.config(module).scale(parameter or module, rank)
        if alpha is None and said is None and self.needs_scale:
            raise self.error(
                f"nothing gives the scale of {module!r}, as adapter_config.json does in such a"
                " folder; name the file to merge it with a scale of 1"
            )
        if alpha is None:
            return self.weight if said is None else self.weight * said
        scale = float(alpha.numpy().reshape(-1)[0]) / rank
        if not math.isfinite(scale):
            raise self.error(f"tensor {alpha.name!r} is not a finite number")
        if said is not None and not math.isclose(scale, said, rel_tol=_SAME):
            raise self.error(
                f"tensor {alpha.name!r} gives the scale {scale:g}, but the config {said:g}; if"
                " the config is another adapter's, move this one to a folder of its own"
            )
        return self.weight * scale


def open_adapter(path: str, weight: float, limits: ParseLimits) -> Adapter:
    """Open an adapter: a folder of PEFT's, mlx-lm's or diffusers', or a file."""
    if kind_of_url(path) is not None:
        raise UnsupportedError(f"{shown_url(path)}: adapters are read from this machine only")
    budget = Budget(limits)
    is_folder = os.path.isdir(path)
    folder, file = (path, _file_of(path)) if is_folder else (os.path.dirname(path), path)
    container = parse_file(file, budget)
    if container.id == "gguf":
        container.source.close()
        raise UnsupportedError(
            f"{file}: adapters in GGUF are not merged",
            remedy="pass the PEFT adapter that it was made from",
        )
    needs_scale = is_folder and os.path.basename(file) in _WITH_CONFIG
    try:
        configs = configs_of(container, folder, budget)
        adapter = _checked(_sorted(Adapter(container, {}, {}, configs, weight, needs_scale)))
        parts = chain.from_iterable(roles.values() for roles in adapter.modules.values())
        hold(limits, ((f"the tensor {part.name!r}", 4 * part.n_elements) for part in parts))
        return adapter
    except BaseException:
        container.source.close()
        raise


def _file_of(folder: str) -> str:
    names = [name for name in _FILES if os.path.isfile(os.path.join(folder, name))]
    if not names:
        inside = [
            os.path.dirname(p) for f in _FILES for p in glob(os.path.join(escape(folder), "*", f))
        ]
        what = f"; name one inside, such as {inside[0]}" if inside else ""
        raise ParseError(f"is no adapter: it has none of {', '.join(_FILES)}{what}", source=folder)
    others = [name for name in names if not name.startswith(os.path.splitext(names[0])[0])]
    if others:
        raise ParseError(f"has {names[0]} and {others[0]}: name the file", source=folder)
    return os.path.join(folder, names[0])


def _sorted(adapter: Adapter) -> Adapter:
    """Return an adapter with its tensors by what they are for."""
    for name, tensor in adapter.container.tensors.items():
        others = _TABLE["others"].items()
        foreign = next((what for word, what in others if f".{word}" in f".{name}"), None)
        kinds = ("float", "int") if name.endswith(".alpha") else ("float",)
        if foreign is not None or tensor.dtype.kind not in kinds:
            what = f"is of {foreign}" if foreign else f"is {tensor.dtype}"
            raise UnsupportedError(f"{adapter.name}: tensor {name!r} {what}, which is not merged")
        bare = name.removeprefix(_PEFT)
        for old, new in _OLDER.items():
            bare = bare.replace(old, new)
        ending = next((end for end in _ROLES if bare.endswith(end)), None)
        if ending is None:
            own = bare.replace(".modules_to_save", "").replace(BASE_LAYER, ".")
            known = adapter.whole.setdefault(own, tensor)
        else:
            module = adapter.modules.setdefault(bare.removesuffix(ending), {})
            known = module.setdefault(_ROLES[ending], tensor)
        if known is not tensor:
            raise adapter.error(f"tensor {name!r} is there twice, under another name")
    return adapter


def _checked(adapter: Adapter) -> Adapter:
    """Refuse tensors and modules that cannot be merged, and components without a config."""
    for error in adapter.container.unreadable.values():
        raise error
    if not adapter.modules and not adapter.whole:
        raise adapter.error("holds no tensors")
    if not adapter.modules:
        raise adapter.error("holds no factors of LoRA, such as NAME.lora_A.weight")
    for module, roles in adapter.modules.items():
        if roles.keys() & _FACTORS not in [{*pair} for pair in _PAIRS]:
            raise adapter.error(
                f"module {module!r} must have two factors, such as lora_A and lora_B"
            )
        if "alpha" in roles and roles["alpha"].n_elements != 1:
            raise adapter.error(f"tensor {roles['alpha'].name!r} is not a single number")
    components = {module.partition(".")[0] for module in adapter.modules}
    without = sorted(components - adapter.configs.keys())
    if without and "" not in adapter.configs:
        raise adapter.error(f"its metadata has configs, but none for {without[0]!r}")
    return adapter
