"""An adapter's file: its factors for each module, and their scale.

    PEFT       base_model.model.MODULE.lora_A.weight [r, in], .lora_B.weight [out, r]
    diffusers  unet.MODULE.lora_A.weight, and older: MODULE.lora.down.weight, MODULE_lora.up.weight
    kohya      lora_unet_MODULE.lora_down.weight, .lora_up.weight, .alpha; dots are underscores
    mlx-lm     MODULE.lora_a [in, r], .lora_b [r, out]

PEFT's and mlx-lm's adapter_config.json say the scale; kohya's alpha is a tensor, the rank if none.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.file_names import ADAPTER_NAMES
from anamnesis.checkpoint.json_file import read_json
from anamnesis.convert.lora.deltas import Factor
from anamnesis.formats.base import Container
from anamnesis.formats.registry import parse_file

_CONFIG = "adapter_config.json"
_FILES = (*ADAPTER_NAMES, "adapters.safetensors")  # the last is mlx-lm's
_PEFT = "base_model.model."

# What ends a tensor's name, and what it is for its module.
_ROLES = {
    **{f"{dot}lora{x}.weight": role for dot in "._" for x, role in ((".down", "A"), (".up", "B"))},
    **{f".lora_{x}{end}.weight": x for x in "AB" for end in ("", ".default")},
    **{f".lora_embedding_{x}": f"embedding_{x}" for x in "AB"},
    ".lora_down.weight": "A",
    ".lora_up.weight": "B",
    ".alpha": "alpha",
    ".lora_a": "A_turned",
    ".lora_b": "B_turned",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",
    ".lora_B.bias": "bias",
}
_PAIRS = (("A", "B"), ("embedding_A", "embedding_B"), ("A_turned", "B_turned"))
# Parts of names of what is another method than LoRA, or a form of it that is not read.
_OTHERS = {
    "hada_": "LoHa",
    "lokr_": "LoKr",
    "lora_mid": "LoCon of three factors",
    "dora_scale": "DoRA in kohya's form",
    "oft_": "OFT",
    "ia3_": "IA3",
    "vera_": "VeRA",
    "trainable_tokens": "trainable tokens",
    "glora_": "GLoRA",
}
# Of PEFT's config: what makes other weights than the base's, or other products, if it is set.
_UNREAD = (
    *("layer_replication", "trainable_token_indices", "alora_invocation_tokens", "use_qalora"),
    *("use_bdlora", "arrow_config", "kasa_config", "velora_config", "monteclora_config"),
    "megatron_config",
)
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")  # when an adapter is made


# In patterns of modules: what may take long, repeated groups, and more than three repetitions.
_DEARLY = re.compile(r"\)[*+?{]|\(\?|\\[0-9]|(?:[*+{].*){4}")
_LONGEST = 200


class Adapter(NamedTuple):
    """What an adapter holds."""

    container: Container
    modules: dict[str, dict[str, StoredTensor]]  # by role
    whole: dict[str, StoredTensor]  # that replace the base's
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its path."""
        return self.container.source.name

    def error(self, message: str) -> ParseError:
        """Return the error for an adapter that cannot be right."""
        return ParseError(message, source=self.name)

    def flag(self, key: str) -> bool:
        """Return whether its config sets a flag."""
        return self.config.get(key) is True

    def factors(self, module: str) -> tuple[Factor, Factor]:
        """Return what is multiplied: B and A, or both turned where the product is."""
        roles = self.modules[module]
        a, b, mlx = next((roles[a], roles[b], a == "A_turned") for a, b in _PAIRS if a in roles)
        if self.flag("fan_in_fan_out") or "embedding_A" in roles:  # (B @ A)^T = A^T @ B^T
            return Factor(a, turned=True), Factor(b, turned=True)
        return Factor(b, mlx), Factor(a, mlx)

    def scale(self, module: str, rank: int) -> float:
        """Return what the product of a module's factors is multiplied by."""
        alpha = self.modules[module].get("alpha")
        if alpha is not None:
            return float(alpha.numpy().reshape(())) / rank
        told = self.config.get("lora_parameters")  # mlx-lm's
        if isinstance(told, Mapping):
            return self._number(told.get("scale", 20.0), "lora_parameters.scale")
        if "peft_type" not in self.config:
            return 1.0
        number = self._number(self._alpha_of(module), "lora_alpha")
        return number / math.sqrt(rank) if self.flag("use_rslora") else number / rank

    def _alpha_of(self, module: str) -> Any:
        """Return a module's alpha: that of the first pattern that fits the end of its name."""
        patterns = self.config.get("alpha_pattern") or {}
        if not isinstance(patterns, Mapping):
            raise self.error("its alpha_pattern is no object")
        for pattern, alpha in patterns.items():
            if _DEARLY.search(pattern) or len(pattern) > _LONGEST:
                raise self.error(f"the pattern {pattern[:_LONGEST]!r} of its config is not read")
            try:
                if re.match(rf"(.*\.)?({pattern})$", module):
                    return alpha
            except re.error as error:
                raise self.error(f"the pattern {pattern!r} of its config: {error}") from None
        return self.config.get("lora_alpha", 8)

    def _number(self, value: Any, key: str) -> float:
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self.error(f"{key} of {_CONFIG} is no number")
        return float(value)


def open_adapter(path: str, limits: ParseLimits) -> Adapter:
    """Open an adapter: a folder of PEFT's or mlx-lm's, or a file."""
    budget = Budget(limits)
    folder, file = path, path
    if os.path.isdir(path):
        names = [name for name in _FILES if os.path.isfile(os.path.join(path, name))]
        if not names:
            raise ParseError(f"is no adapter: it has none of {', '.join(_FILES)}", source=path)
        file = os.path.join(path, names[0])
    else:
        folder = os.path.dirname(path)
    config_path = os.path.join(folder, _CONFIG)
    config = read_json(config_path, budget) if os.path.isfile(config_path) else {}
    container = parse_file(file, budget)
    try:
        return _checked(_sorted(container, config))
    except BaseException:
        container.source.close()
        raise


def _sorted(container: Container, config: Mapping[str, Any]) -> Adapter:
    adapter = Adapter(container, {}, {}, config)
    for name, tensor in container.tensors.items():
        foreign = next((what for part, what in _OTHERS.items() if part in name), None)
        if foreign is not None or tensor.dtype.kind != "float":
            what = f"is of {foreign}" if foreign else f"is {tensor.dtype}"
            raise UnsupportedError(f"{adapter.name}: tensor {name!r} {what}, which is not merged")
        bare = name.removeprefix(_PEFT)
        ending = next((end for end in _ROLES if bare.endswith(end)), None)
        if ending is None:
            adapter.whole[bare.replace(".modules_to_save", "").replace(".base_layer.", ".")] = (
                tensor
            )
        else:
            module = adapter.modules.setdefault(bare.removesuffix(ending), {})
            if module.setdefault(_ROLES[ending], tensor) is not tensor:
                raise adapter.error(f"tensor {name!r} is there twice, under another name")
    return adapter


def _checked(adapter: Adapter) -> Adapter:
    """Refuse what would be merged wrongly."""
    config = adapter.config
    kind = config.get("peft_type", "LORA")
    if kind != "LORA":
        raise UnsupportedError(f"{adapter.name}: is an adapter of {kind}, and LoRA is merged")
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
        raise UnsupportedError(
            f"{adapter.name}: was made by {start}, which changes the base's weights; save it with"
            " path_initial_model_for_weight_conversion, as PEFT describes"
        )
    unread = next((key for key in _UNREAD if config.get(key)), None)
    if unread is not None:
        raise UnsupportedError(f"{adapter.name}: {unread} of its config is not merged")
    if not adapter.modules and not adapter.whole:
        raise adapter.error("holds no tensors")
    if not adapter.modules:
        raise adapter.error("holds no factors of LoRA, such as NAME.lora_A.weight")
    for module, roles in adapter.modules.items():
        if [a in roles and b in roles for a, b in _PAIRS].count(True) != 1:
            raise adapter.error(f"module {module!r} lacks one of its two factors")
    return adapter
