"""What llm-compressor and ModelOpt make of models with stacks of experts, run whole."""

from __future__ import annotations

import importlib.machinery
import sys
import warnings
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch

from helpers.tiny_models import loaded

__all__ = ["MODELOPT", "SCHEMES", "linearised", "llm_compressor", "modelopt"]

# The schemes that encodings here are of.
SCHEMES = {
    "fp8-channel": "FP8_DYNAMIC",
    "fp8-block-ct": "FP8_BLOCK",
    "int8": "W8A8",
    "int4": "W4A16",
    "int4-asym": "W4A16_ASYM",
    "nvfp4": "NVFP4A16",
    "mxfp4": "MXFP4A16",
    "mxfp8": "MXFP8A16",
}
MODELOPT = {
    "nvfp4-modelopt": "W4A16_NVFP4_CFG",
    "mxfp8-modelopt": "MXFP8_DEFAULT_CFG",
    "mxfp4-modelopt": "MXFP4_DEFAULT_CFG",
    "fp8-block-modelopt": "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG",
    "fp8-channel-modelopt": "FP8_PER_CHANNEL_PER_TOKEN_CFG",
}
EXPERTS = r"re:.*\.experts\.[0-9]+\..*"


class _Anything(ModuleType):
    """A package in which everything is."""

    __path__: MutableSequence[str] = []  # noqa: RUF012 -- of none

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made: Any = type(name, (), {}) if name[0].isupper() else MagicMock()
        setattr(self, name, made)
        return made


class _Hollow(MetaPathFinder, Loader):
    """Finds a package that is not there, and whatever is asked of it."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != self._package:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Anything(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def _hollow(package: str) -> Iterator[None]:
    finder = _Hollow(package)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]


@cache
def _llm_compressor() -> tuple[Any, Any, Any]:
    """Its calls; it imports data sets, which are not asked for."""
    with warnings.catch_warnings(), _hollow("datasets"):
        warnings.simplefilter("ignore")
        from llmcompressor import oneshot
        from llmcompressor.modeling.moe.linearize import linearize_moe
        from llmcompressor.modifiers.quantization import QuantizationModifier
    return oneshot, linearize_moe, QuantizationModifier


def llm_compressor(dense: Path, to: str, folder: Path) -> Path:
    """Quantise a model's experts, without data, and save it."""
    oneshot, linearize_moe, modifier = _llm_compressor()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = loaded(dense, dtype=torch.bfloat16)
        linearize_moe(model)
        recipe = modifier(targets=[EXPERTS], scheme=SCHEMES[to])
        oneshot(model=model, recipe=recipe, pipeline="datafree")
        model.save_pretrained(folder, save_compressed=True)
    return folder


def linearised(dense: Path) -> dict[str, torch.Tensor]:
    """Return the layers of single experts that are made of a model's stacks."""
    _, linearize_moe, _ = _llm_compressor()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = loaded(dense, dtype=torch.bfloat16)
        linearize_moe(model)
    return {name: tensor for name, tensor in model.state_dict().items() if ".experts." in name}


def inputs(model: Any) -> dict[str, torch.Tensor]:
    """Something to run a model with."""
    ids = torch.arange(3, 43)[None]
    both = {"input_ids": ids, "decoder_input_ids": ids}
    return both if model.config.is_encoder_decoder else {"input_ids": ids}


def modelopt(dense: Path, to: str, folder: Path) -> Path:
    """Quantise a model's weights, and save it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import modelopt.torch.quantization as mtq
        from modelopt.torch.export import export_hf_checkpoint

        model = loaded(dense, dtype=torch.bfloat16).eval()

        def run(model: Any) -> None:
            with torch.no_grad():
                model(**inputs(model))

        mtq.quantize(model, getattr(mtq, MODELOPT[to]), run)
        export_hf_checkpoint(model, export_dir=folder)
    return folder
