"""What an adapter's config says of its modules: flags, ranks and scales.

adapter_config.json                      PEFT's or mlx-lm's, for all modules
__metadata__["lora_adapter_metadata"]    diffusers': PEFT's keys, each below its component
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.limits import Budget
from anamnesis.checkpoint.json_file import json_object, read_json
from anamnesis.formats.base import Container

_FILE = "adapter_config.json"
_METADATA = "lora_adapter_metadata"
_MOST = float.fromhex("0x1.fffffep127")  # the largest float32
_SCALE_OF_MLX = 20.0
_ALPHA_OF_PEFT = 8

# What the values of some keys are, if they are not null.
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    **dict.fromkeys(
        ("use_dora", "use_rslora", "fan_in_fan_out", "lora_bias"), (bool, "true or false")
    ),
    **dict.fromkeys(("alpha_pattern", "rank_pattern", "lora_parameters"), (dict, "an object")),
    "target_parameters": (list, "a list"),
    "init_lora_weights": ((bool, str), "true, false or a name"),
}
# Keys of PEFT's that make other weights than the base's, or other products, if they are set.
_UNREAD = (
    *("layer_replication", "trainable_token_indices", "alora_invocation_tokens", "use_qalora"),
    *("use_bdlora", "arrow_config", "kasa_config", "velora_config", "monteclora_config"),
    "megatron_config",
)
_CHANGES_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")  # when an adapter is made

# What may take long in patterns of modules: repeated groups, and more than three repetitions.
_DEARLY = re.compile(r"\)[*+?{]|\(\?|\\[0-9]|(?:[*+{].*){4}")
_LONGEST = 200


class Config:
    """One config, for all modules of an adapter or for those of a component of a pipeline."""

    def __init__(self, values: Mapping[str, Any], where: str, component: str = "") -> None:
        self.values, self._where, self._component = values, where, component
        self._check()
        self._alphas = list(self._patterns("alpha_pattern"))
        self._ranks = list(self._patterns("rank_pattern"))

    def error(self, message: str) -> ParseError:
        """Return the error for a config that cannot be right."""
        return ParseError(message, source=self._where)

    def flag(self, key: str) -> bool | None:
        """Return what a flag is set to; None if the config does not have it."""
        value: bool | None = self.values.get(key)
        return value

    def parameters(self) -> list[str]:
        """Return the names, or ends of names, of parameters that are wrapped by themselves."""
        return self.values.get("target_parameters") or []

    def scale(self, module: str, rank: int) -> float | None:
        """Return what the product of a module's factors is multiplied by, if that is said."""
        name = module.removeprefix(f"{self._component}.")
        own = self._of(self._ranks, name, self.values.get("r"))
        if own is not None and self._number(own, "the rank") != rank:
            raise self.error(f"the rank of {module!r} is {own} here, and {rank} in its factors")
        of_mlx = self.values.get("lora_parameters")
        if of_mlx is not None:
            return self._number(of_mlx.get("scale", _SCALE_OF_MLX), "lora_parameters.scale")
        if self.values.keys().isdisjoint(("peft_type", "lora_alpha")):
            return None
        alpha = self._of(self._alphas, name, self.values.get("lora_alpha", _ALPHA_OF_PEFT))
        number = self._number(alpha, "lora_alpha")
        return number / math.sqrt(rank) if self.flag("use_rslora") else number / rank

    def _of(self, patterns: list[tuple[re.Pattern[str], Any]], module: str, default: Any) -> Any:
        """Return the value of the first pattern that fits the end of a module's name."""
        return next((value for pattern, value in patterns if pattern.match(module)), default)

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
            raise self.error(f"{key} is no number that a float32 holds: {str(value)[:40]}")
        return float(value)

    def _check(self) -> None:
        """Refuse values of other kinds, and what would be merged wrongly."""
        values = self.values
        for key, (kind, what) in _KINDS.items():
            if values.get(key) is not None and not isinstance(values[key], kind):
                raise self.error(f"{key} must be {what}")
        if not all(isinstance(name, str) for name in values.get("target_parameters") or ()):
            raise self.error("target_parameters must be a list of names")
        if values.get("peft_type", "LORA") != "LORA":
            given = str(values["peft_type"])[:40]
            raise UnsupportedError(
                f"{self._where}: is of {given}; only adapters of LoRA are merged"
            )
        start = values.get("init_lora_weights")
        if isinstance(start, str) and start.lower().startswith(_CHANGES_BASE):
            raise UnsupportedError(
                f"{self._where}: the adapter was made by {start}, which changes the base's weights;"
                " save it with path_initial_model_for_weight_conversion, as PEFT describes"
            )
        unread = next((key for key in _UNREAD if values.get(key)), None)
        if unread is not None:
            raise UnsupportedError(f"{self._where}: {unread} is not merged")


def configs_of(container: Container, folder: str, budget: Budget) -> dict[str, Config]:
    """Return the configs of an adapter by component; that of "" is for all others."""
    raw, file = container.metadata.get(_METADATA), os.path.join(folder, _FILE)
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
