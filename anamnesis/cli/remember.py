"""`amn remember`: write the weights at full precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anamnesis.cli.options import described, paths_argument, to_option
from anamnesis.cli.writing import OPTIONS, Task, run, writes_models

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeName
    from anamnesis.cli.narration import Voice
    from anamnesis.convert.naming import Naming
    from anamnesis.convert.result import Report
    from anamnesis.model import Model

__all__ = ["command"]

_DEFAULT: DTypeName = "bf16"


@click.command(
    "remember",
    epilog=described(
        "amn remember model-fp8.safetensors",
        "amn remember Qwen3-8B-FP8/ -o Qwen3-8B/ --max-shard-size 5GB",
        "cat model-Q4_K_M.gguf | amn remember - --to f16 -o - > model-f16.safetensors",
        "amn remember -r loras/ -o plain/ --skip-existing",
    ),
)
@paths_argument
@writes_models(to_option)
def command(paths: tuple[str, ...], dtype: DTypeName | None, **given: Any) -> None:
    """Dequantise: write weights at full precision, exactly."""
    options = {name: given.pop(name) for name in OPTIONS}
    run(_Remember(dtype, options), paths, **given)


class _Remember(Task):
    def __init__(self, asked: DTypeName | None, options: dict[str, Any]) -> None:
        self._asked = asked
        self._dtype: DTypeName = asked or _DEFAULT
        self._options = options

    @property
    def naming(self) -> Naming:
        from anamnesis.convert.naming import Naming

        return Naming(self._dtype)

    @property
    def voice(self) -> Voice:
        from anamnesis.cli.narration import Voice

        asked = self._asked is not None and not self._options["cast_all"]
        return Voice(self._dtype, asked=asked)

    def is_of_its_word(self, model: Model) -> bool:
        from anamnesis.convert.naming import any_of_dtype

        weights = model._claim.weights.values()
        return any_of_dtype(weights, self._dtype, cast_all=self._options["cast_all"])

    def write(self, model: Model, out: Any, **progress: Any) -> Report:
        return model.remember(out, self._dtype, **progress, **self._options)

    def why_skipped(self, model: Model) -> str | None:
        """Say so if the output would be a mere copy."""
        options = self._options
        changes = options["cast_all"] or options["max_shard_size"] or model.problems
        plain = not any(tensor.is_quantized for tensor in model.values())
        is_copy = model.format_id == "safetensors" and plain and not changes
        return "nothing in it is quantised" if is_copy else None
