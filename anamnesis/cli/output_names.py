"""What an output is called when the user names none.

`model-fp8.safetensors` becomes `model-bf16.safetensors`, `Qwen3-0.6B-GPTQ-Int4/` becomes
`Qwen3-0.6B-bf16/`: the words that tell the quantisation go, the output's dtype comes. Where weights
are quantised, those of dtypes go too: `model-bf16.safetensors` becomes `model-fp8.safetensors`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from anamnesis.base.errors import OutputError
from anamnesis.base.shard_names import NUMBER
from anamnesis.checkpoint import file_names
from anamnesis.checkpoint.folder import repository_of
from anamnesis.checkpoint.ollama import OllamaName
from anamnesis.checkpoint.pipelines import is_pipeline, is_read
from anamnesis.convert.request.form import Form, check_directory, check_named
from anamnesis.formats.written import asked_format
from anamnesis.sources.urls import file_name, kind_of_url, url_beside

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DTypeName
    from anamnesis.model import Model
    from anamnesis.tensor import Tensor

# Longest first where one ends like another.
_INPUT_EXTENSIONS = (
    *(".pth.tar", ".safetensors", ".gguf", ".npz", ".pth", ".ckpt", ".bin", ".sft", ".jit"),
    *(".ggml", ".pt", ".pkl", ".zip"),
)

# What publishers put at the end of a name, in any case, after one of - _ .
_METHODS = (
    r"mxfp[468]|nvfp4|fp[468]|float8|e[45]m[23](?:fn)?(?:uz)?",  # small floats
    r"gptq(?:model)?|awq|autoawq|autoround|auto-round|hqq|aqlm|eetq|exl[23]|marlin",
    r"bnb|bitsandbytes|nf4|torchao|quanto|modelopt|compressed-tensors",
    r"u?int[2348]|[234568]-?bits?|w\d+a(?:fp)?\d+|\d(?:\.\d+)?bpw",  # widths
    r"quanti[sz]ed|quant|scaled|mlx|svdquant",
    r"(?:ud-)?i?q[1-8]_(?:[01k]|xxs|xs|s|m|nl)(?:_(?:xxs|xs|xl|s|m|l))?|tq[12]_0",  # GGUF
)

# These mean the quantisation only behind one of those above.
_QUALIFIERS = (
    r"dynamic|static|scaled|mixed|mix|fast|kv|moe|sym|asym|hf",
    r"block(?:wise)?|(?:per-?)?tensor|(?:per-?)?channel|tensor-?wise|row-?wise|ct|ue8m0|nested",
    r"e[45]m[23](?:fn)?(?:uz)?|g\d+|\d+g|gs\d+|gemm|gemv|dq|act-?order|desc-?act|marlin",
)

_METHOD = re.compile("|".join(_METHODS), re.IGNORECASE | re.ASCII)
_WORD = re.compile("|".join((*_METHODS, *_QUALIFIERS)), re.IGNORECASE | re.ASCII)
_DTYPE = re.compile(r"[-_.](?:b?f(?:p|loat)?(?:16|32)|b16|half)\Z", re.IGNORECASE | re.ASCII)
_SEPARATORS = "-_."
_BEFORE_A_METHOD = tuple(f"{mark}unsloth" for mark in _SEPARATORS)
_MOST_PIECES = 4  # of one word that has separators itself: UD-Q4_K_M
_SHARD = re.compile(rf"{NUMBER}\Z")
_TORCH_MODEL = re.compile(rf"pytorch_model({NUMBER})?\.bin")
# Of a model's weights beside others; they do not count.
_COPIES = {"consolidated", file_names.ADAPTER_STEM}
_MOST_MODELS = len(_COPIES) + 2  # in a folder that is one: its own, and an output of earlier


class Naming(NamedTuple):
    """How outputs are named."""

    word: str | None
    form: Form = Form()
    keeps_dtypes: bool = True
    full_stem: bool = False


def derived_name(
    name: str,
    naming: Naming | str | None,
    *,
    directory: bool = False,
    full_stem: bool = False,
    elsewhere: bool = False,
) -> str:
    """Return the name of the output of a file or directory called `name`.

    It is never `name` itself, but in another folder.
    """
    naming = naming if isinstance(naming, Naming) else Naming(naming)
    stem = name if directory else _without_extension(name)
    shard = _SHARD.search(stem)
    number = shard[0] if shard else ""
    whole = stem = stem.removesuffix(number)
    if name.lower().endswith(".gguf"):
        number = ""  # any part stands for all, and all become one file
    if not (full_stem or naming.full_stem):
        stem = _without_quantization(stem) or stem
        if not naming.keeps_dtypes:
            stem = _DTYPE.sub("", stem) or stem
    becomes_directory = directory or naming.form.is_named_directory
    is_file = naming.form.becomes_file(directory=becomes_directory)
    extension = naming.form.extension if is_file else ""

    def called(stem: str, word: str | None) -> str:
        return f"{stem}{f'-{word}' if word else ''}{number}{extension}"

    word = naming.word
    if word and stem.lower().endswith(tuple(f"{mark}{word.lower()}" for mark in _SEPARATORS)):
        word = None
    made = called(stem, word)
    if elsewhere or made != name:
        return made
    stays = naming.full_stem or (naming.word and not naming.keeps_dtypes)
    return called(whole, "copy" if stays else "plain")


def _without_quantization(stem: str) -> str:
    """Take away the words at the end that tell the quantisation, the first of which is a method.

    They are found from the right, so that the time grows as the name's length and no faster.
    """
    kept = len(stem)
    # Where the last few words end; None where what follows is no such word.
    ends: list[int | None] = [kept]
    separators = [i for i, mark in enumerate(stem) if mark in _SEPARATORS]
    for start in reversed(separators):
        words = [end for end in ends if end and _WORD.fullmatch(stem, start + 1, end)]
        if any(_METHOD.fullmatch(stem, start + 1, end) for end in words):
            kept = start
        ends = [start if words else None, *ends[: _MOST_PIECES - 1]]
        if not any(ends):
            break
    before = stem[:kept]
    if kept < len(stem) and before.lower().endswith(_BEFORE_A_METHOD):
        return before[: -len("-unsloth")]
    return before


def _without_extension(name: str) -> str:
    for extension in _INPUT_EXTENSIONS:
        if name.lower().endswith(extension) and len(name) > len(extension):
            return name[: -len(extension)]
    return name


def derived_path(
    path: str, naming: Naming | str | None, folder: str | None = None, *, full_stem: bool = False
) -> str:
    """Return the output of the input `path`: in `folder`, else beside the input.

    Of anything in the hub's cache the output goes to the working directory, that of a snapshot
    (`models--org--name/snapshots/REVISION`) under the repository's name: nothing belongs into the
    cache but what was downloaded. So does the output of a model of Ollama's, or of an address. That
    of a pipeline's `pipe/unet` lies beside the pipeline, as `pipe-unet-bf16`.
    """
    if path.startswith(file_names.OLLAMA_PREFIX):
        name = derived_name(OllamaName.parse(path).file_name, naming, full_stem=full_stem)
        return os.path.join(folder or "", name)
    if kind_of_url(path):
        name, directory = _name_of_url(path)
        made = derived_name(name, naming, directory=directory, full_stem=full_stem)
        return os.path.join(folder or "", made)
    path = file_names.indexed_directory(path) or path
    directory = os.path.isdir(path)
    parent, name = os.path.split(path.rstrip("/" + os.sep) or path)
    if name in ("", os.curdir, os.pardir):
        parent, name = os.path.split(os.path.abspath(path))
    whole = os.path.abspath(os.path.join(parent, name))
    cached = repository_of(whole)
    if cached is not None:
        parent, (repository, snapshot) = "", cached
        if whole == snapshot:
            name = repository.rpartition("--")[2]
    elif folder is None and directory and is_pipeline(os.path.dirname(whole)):
        name = f"{os.path.basename(os.path.dirname(whole))}-{name}"
        is_named = os.path.basename(parent) not in ("", os.curdir, os.pardir)
        parent = os.path.dirname(parent) if is_named else os.path.join(parent, os.pardir)
    there = parent if folder is None else folder
    elsewhere = os.path.realpath(there) != os.path.realpath(os.path.dirname(whole))
    output = derived_name(
        name, naming, directory=directory, full_stem=full_stem, elsewhere=elsewhere
    )
    return os.path.join(there, output)


def _name_of_url(url: str) -> tuple[str, bool]:
    """Return what that at an address would be called, and whether it is a folder."""
    name = file_name(url)
    if file_names.is_index(name):
        return file_name(url_beside(url, "")) or file_names.MODEL_STEM, True
    return name, not is_read(name)


def any_of_dtype(weights: Iterable[Tensor], dtype: DTypeName, *, cast_all: bool) -> bool:
    """Whether any weight comes out at this dtype."""
    wanted = dtype.upper()
    return any(weight.dtype_out(dtype, cast_all=cast_all) == wanted for weight in weights)


def becomes_directory(model: Model, form: Form) -> bool:
    """Whether `-o model/` makes a Hugging Face directory: of a GGUF that llama.cpp runs."""
    if not form.has_directories or model.format_id != "gguf":
        return False
    from anamnesis.convert.decide.renames import is_of_llama_cpp

    return is_of_llama_cpp(model.metadata, model.stored)


class _Beside:
    """What lies in a folder, by which a new file there may be taken for a part of a model.

    A folder is read as one model if an index or config.json says so, or if its weights are shards
    of one; lone files lie side by side elsewhere.
    """

    def __init__(self, folder: str) -> None:
        try:
            names = os.listdir(folder)
        except OSError:  # it is not there yet, or may be written to, but not be listed
            names = []
        self._is_indexed = any(map(file_names.is_index, names))
        self._has_config = file_names.CONFIG_NAME in names
        self._weights = {
            n for n in names if n.endswith(file_names.EXTENSION) or _TORCH_MODEL.fullmatch(n)
        }
        self._n_models = len({_model_of(name) for name in self._weights})

    def is_spoilt_by(self, name: str) -> bool:
        """Whether a new file would pass for a part of the folder's model."""
        if not name.endswith(file_names.EXTENSION):
            return False
        if self._is_indexed:
            return True
        if self._n_models > _MOST_MODELS:
            return False
        weights = self._weights - {name}
        models = {_model_of(weight) for weight in weights}
        is_told = self._has_config or all(map(_SHARD.search, map(_without_extension, weights)))
        return is_told and len(models - _COPIES or models) == 1


def _model_of(shard: str) -> str:
    """Return the name that the shards of one model share, in either format."""
    return _SHARD.sub("", os.path.splitext(shard)[0]).removeprefix("pytorch_")


class OutputNames:
    """Names the outputs of one run, each of which is its own.

    Inputs that differ only in the words that tell the quantisation keep them in their outputs.
    """

    def __init__(
        self,
        naming: Naming | str,
        out: str | None,
        inputs: Sequence[str],
        folders: Mapping[str, str] | None = None,
    ) -> None:
        several = len(inputs) > 1 or bool(folders)
        check_named(out)
        if several and out is not None and not os.path.isdir(out):
            if os.path.exists(out):
                raise OutputError(f"{out}: is a file; several inputs need a directory")
            if asked_format(out) is not None:
                raise OutputError(
                    f"{out}: is the name of one file, for {len(inputs):,} inputs; name a directory"
                )
        self._naming = naming = naming if isinstance(naming, Naming) else Naming(naming)
        if out is not None:
            check_directory(naming.form.container, out)
        self._out = out
        self._several = several
        self._folders = folders or {}
        self._inputs = {_identity(path): path for path in inputs}
        self._taken: dict[str, str] = {}
        self._beside: dict[str, _Beside] = {}  # by folder, as it was before the first output
        self._full_stems: set[str] = set()
        keys = {path: _key(self.planned(path)) for path in inputs if several}
        many = Counter(keys.values())
        self._full_stems = {path for path, key in keys.items() if many[key] > 1}

    def leave_out_outputs(self) -> dict[str, str]:
        """Leave out inputs that are outputs of others; return both."""
        found = {}
        for path in self._inputs.values() if self._several else ():
            file = _identity(self.planned(path))
            made = self._inputs.get(file) if file is not None else None
            if made not in (None, path):
                found[made] = path
        self._inputs = {file: path for file, path in self._inputs.items() if path not in found}
        return found

    def planned(self, path: str, naming: Naming | None = None) -> str:
        """Return the output for an input, whatever exists."""
        naming = naming or self._naming
        full_stem = path in self._full_stems
        if self._out is None:
            return derived_path(path, naming, full_stem=full_stem)
        is_directory = os.path.isdir(path) or file_names.indexed_directory(path) is not None
        if kind_of_url(path):
            _, is_directory = _name_of_url(path)
        is_one = naming.form.becomes_file(directory=is_directory)
        if naming.form.is_named_directory and not self._several:
            return self._out
        is_folder = self._out.endswith(("/", os.sep)) or os.path.isdir(self._out)
        if self._several or (is_one and is_folder):
            folder = os.path.join(self._out, self._folders.get(path, ""))
            made = derived_path(path, naming, folder, full_stem=full_stem)
            return made + os.sep if naming.form.is_named_directory else made
        return self._out

    def of(self, path: str, naming: Naming | None = None) -> str:
        """Return and reserve the output for an input."""
        output = self.planned(path, naming)
        file = _identity(output)
        if file is not None and self._inputs.get(file, path) != path:
            raise OutputError(
                f"{path}: its output {output} is the input {self._inputs[file]}",
                remedy="run it alone, with -o",
            )
        key = _key(output)
        first = self._taken.get(key)
        if first is None and file is not None:  # some systems ignore case in names
            first = next((of for out, of in self._taken.items() if _identity(out) == file), None)
        if first is not None:
            raise OutputError(
                f"{path}: its output {output} is the output of {first}, too",
                remedy="run it alone, with -o",
            )
        folder, name = os.path.split(output)
        folder = folder or os.curdir
        if output != self._out and folder not in self._beside:
            self._beside[folder] = _Beside(folder)
        if output != self._out and self._beside[folder].is_spoilt_by(name):
            raise OutputError(
                f"{output}: would be taken for a part of the model in {folder}",
                remedy="name the output with -o",
            )
        self._taken[key] = path
        return output


def _key(path: str) -> str:
    return os.path.normcase(os.path.abspath(path))


def _identity(path: str) -> tuple[int, int] | None:
    """Return the identity of the file at a path; None if there is none."""
    with suppress(OSError, ValueError):
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return None
