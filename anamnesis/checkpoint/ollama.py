"""`ollama:` names of models: where Ollama keeps the file of `llama3.2:1b`.

STORE/manifests/<host>/<namespace>/<name>/<tag>     JSON: layers, each a media type and a digest
STORE/blobs/sha256-<64 hex digits>                  the layers; one of them is the GGUF file, or
                                                    many are tensors
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.limits import Budget
from anamnesis.base.printable import abbreviate
from anamnesis.checkpoint.file_names import OLLAMA_PREFIX
from anamnesis.checkpoint.json_file import read_json

if TYPE_CHECKING:
    from anamnesis.checkpoint.ollama_tensors import Blobs

STORE_VARIABLE = "OLLAMA_MODELS"

_HOST = "registry.ollama.ai"
_NAMESPACE = "library"
_TAG = "latest"
_MODEL_LAYER = "application/vnd.ollama.image.model"
_TENSOR_LAYER = "application/vnd.ollama.image.tensor"
_FILE_LAYER = "application/vnd.ollama.image.json"
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_HOST_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}")
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_SHOWN = 10  # models in the message about one that is not there
_MAX_LISTED = 10_000


class OllamaName(NamedTuple):
    """A model's full name."""

    host: str
    namespace: str
    name: str
    tag: str

    @classmethod
    def parse(cls, url: str) -> OllamaName:
        """Read `ollama:[[HOST/]NAMESPACE/]NAME[:TAG]`."""
        rest, slash, last = url.removeprefix(OLLAMA_PREFIX).rpartition("/")
        name, colon, tag = last.partition(":")
        host, _, namespace = rest.rpartition("/")
        parsed = cls(
            host or _HOST,
            namespace if slash else _NAMESPACE,
            name,
            tag if colon else _TAG,
        )
        is_host = _HOST_PART.fullmatch(parsed.host) is not None
        if not is_host or not all(_PART.fullmatch(part) for part in parsed[1:]):
            raise ParseError(
                "is not the name of an Ollama model: ollama:[[HOST/]NAMESPACE/]NAME[:TAG]",
                source=url,
            )
        return parsed

    @property
    def file_name(self) -> str:
        """What the model would be called as a file: `llama3.2-1b.gguf`."""
        return f"{self.name}{'' if self.tag == _TAG else f'-{self.tag}'}.gguf"

    def __str__(self) -> str:
        """Return it as short as it can be written."""
        host = "" if self.host == _HOST else f"{self.host}/"
        namespace = f"{self.namespace}/" if host or self.namespace != _NAMESPACE else ""
        return f"{host}{namespace}{self.name}:{self.tag}"


def store() -> Path:
    """Return the folder of Ollama's models: `OLLAMA_MODELS`, or `~/.ollama/models`."""
    told = os.environ.get(STORE_VARIABLE)
    if told:
        return Path(told)
    try:
        return Path.home() / ".ollama" / "models"
    except RuntimeError:
        why = f"this user's home folder is not known; {STORE_VARIABLE} names the store"
        raise FileNotFoundError(errno.ENOENT, why, "~/.ollama/models") from None


def resolve(url: str) -> str | Blobs:
    """Return the path of the GGUF file of `ollama:[[HOST/]NAMESPACE/]NAME[:TAG]`, or the blobs."""
    name = OllamaName.parse(url)
    root = store()
    manifest = root.joinpath("manifests", *name)
    if not manifest.is_file():
        if manifest.exists():
            raise FileNotFoundError(errno.ENOENT, f"{manifest}, its manifest, is no file", url)
        names = sorted(str(name) for name in _models(root))
        if not names:
            why = f"no such model; there are none in {root} ({STORE_VARIABLE} names another store)"
            raise FileNotFoundError(errno.ENOENT, why, url)
        why = f"no such model in {root}, which has {abbreviate(names, _SHOWN)}"
        raise FileNotFoundError(errno.ENOENT, why, url)
    _check_inside(manifest, root / "manifests", url)
    told = read_json(manifest, Budget()).get("layers")
    if not isinstance(told, list):
        raise ParseError("the manifest has no list of layers", source=str(manifest))
    layers = [layer for layer in told if isinstance(layer, dict)]
    tensors = [layer for layer in layers if layer.get("mediaType") == _TENSOR_LAYER]
    if not tensors:
        models = [layer for layer in layers if layer.get("mediaType") == _MODEL_LAYER]
        if len(models) != 1:
            raise UnsupportedError(
                f"{manifest}: has {len(models)} layers of type {_MODEL_LAYER}, and one is read here"
            )
        return str(_blob(root, models[0], manifest, url))
    from anamnesis.checkpoint.ollama_tensors import Blobs

    def named(layer: dict[str, Any]) -> tuple[str, Path]:
        return str(layer.get("name", "")), _blob(root, layer, manifest, url)

    files = [layer for layer in layers if layer.get("mediaType") == _FILE_LAYER]
    return Blobs(url, [named(layer) for layer in tensors], dict(map(named, files)))


def _blob(root: Path, layer: dict[str, Any], manifest: Path, url: str) -> Path:
    """Return the path of a layer, which must be there."""
    digest = layer.get("digest")
    matched = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if matched is None:
        raise ParseError(
            f"the model's digest must be sha256: and 64 hexadecimal digits, not {digest!r:.100}",
            source=str(manifest),
        )
    blob = root / "blobs" / f"sha256-{matched[1]}"
    if not blob.is_file():
        name = OllamaName.parse(url)
        raise FileNotFoundError(
            errno.ENOENT, f"no such file; `ollama pull {name}` fetches it again", str(blob)
        )
    _check_inside(blob, root / "blobs", url)
    return blob


def _check_inside(path: Path, folder: Path, url: str) -> None:
    fence = os.path.realpath(folder)
    if os.path.commonpath([os.path.realpath(path), fence]) != fence:
        raise ParseError(f"{path} leads out of the store", source=url)


def _models(root: Path) -> Iterator[OllamaName]:
    """Yield the models of a store: the files four levels below its manifests."""
    top = root / "manifests"
    n = 0
    for folder, subfolders, files in os.walk(top):
        parts = Path(folder).relative_to(top).parts
        if len(parts) == 3:
            subfolders.clear()
            for file in files:
                if not file.startswith("."):
                    yield OllamaName(*parts, file)
                    n += 1
        if n >= _MAX_LISTED:
            return
