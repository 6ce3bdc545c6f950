"""A parsed model: its weights by name, and the verbs `inspect` and `remember`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

from anamnesis.base.dtypes import DType, output_dtype, stored_dtype
from anamnesis.base.errors import AnamnesisError
from anamnesis.base.levels import resolve_level
from anamnesis.base.limits import UNLIMITED, Budget, ParseLimits
from anamnesis.base.source import Readable
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.file_names import OLLAMA_PREFIX
from anamnesis.checkpoint.metadata import all_metadata
from anamnesis.checkpoint.open import Checkpoint, open_checkpoint
from anamnesis.convert.inspection import Inspection, inspect_claim
from anamnesis.formats.registry import Opening
from anamnesis.schemes.base import Weight
from anamnesis.schemes.facts import QuantFacts, read_facts
from anamnesis.schemes.ledger import Claim
from anamnesis.schemes.plain import Plain, plain_dtype
from anamnesis.schemes.registry import claim_all

if TYPE_CHECKING:
    from anamnesis.convert.pipeline import Progress
    from anamnesis.convert.result import Report
    from anamnesis.convert.sinks import Writable

__all__ = ["Model", "Tensor", "parse"]


def parse(
    where: str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Readable,
    *,
    limits: ParseLimits | None = None,
    block_size: tuple[int, int] | None = None,
    mmap: bool = False,
    select: str | None = None,
    allow_foreign: bool = False,
    void_dtype: str | None = None,
    conv1d: bool | None = None,
) -> Model:
    """Parse the headers of a model; no tensor data is read.

    Parameters
    ----------
    where : path, bytes-like or file object
        A file, a directory of shards, the bytes of a file, or anything with `read` and `seek`. Any
        part of a GGUF model in several files stands for all. `ollama:llama3.2:1b` is the file that
        Ollama has of that model.
    limits : ParseLimits, optional
        Budgets for untrusted input; unbounded by default.
    block_size : (int, int), optional
        Rows and columns that share a scale, where neither shapes nor config settle it.
    mmap : bool
        Map files instead of reading them. A file that is cut short meanwhile kills the process.
    select : str, optional
        Take only the tensors below this name, such as `model_state`, and call them by what follows.
    allow_foreign : bool
        Read also pickles that refer to what no tensor needs; nothing is imported or called either
        way.
    void_dtype : str, optional
        The dtype of NumPy arrays whose items are bytes without a meaning and as long, as numpy
        saves those of ml_dtypes: `F8_E4M3`, `float8_e4m3fn`. Two bytes are BF16 if not given.
    conv1d : bool, optional
        Whether quantised layers that are called as GPT-2's are transformers' `Conv1D`, whose
        weights are transposed, or nn.Linear; by default what config.json says of the model's type.

    Returns
    -------
    Model
        A mapping from names to `Tensor`; close it, or use it as a context manager.

    Raises
    ------
    ParseError
        If the input is malformed; the message has the offset.
    DisallowedGlobal
        If a pickle refers to what no tensor needs, and `allow_foreign` is not set.
    LimitExceeded
        If a limit or a permanent cap would be exceeded.
    OSError
        If something cannot be opened or read.
    ValueError
        If `void_dtype` is no dtype of whole bytes.
    """
    limits = limits or UNLIMITED
    void = None if void_dtype is None else stored_dtype(void_dtype)
    if isinstance(where, str) and where.startswith(OLLAMA_PREFIX):
        from anamnesis.checkpoint.ollama import resolve

        where = resolve(where)
    opening = Opening(mmap, allow_foreign, void)
    return Model(open_checkpoint(where, limits, opening, select=select), limits, block_size, conv1d)


class Tensor:
    """One weight of a model, decoded when asked for."""

    __slots__ = ("_limits", "weight")

    def __init__(self, weight: Weight, limits: ParseLimits) -> None:
        self.weight = weight
        self._limits = limits

    @property
    def name(self) -> str:
        """Its name in the output."""
        return self.weight.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, outermost dimension first."""
        return self.weight.shape

    @property
    def scheme(self) -> str:
        """Its encoding in words, or its dtype if it is not quantised."""
        return self.weight.scheme

    @property
    def parts(self) -> tuple[StoredTensor, ...]:
        """The stored tensors that it is made of; the first holds the codes."""
        return self.weight.parts

    @property
    def is_quantized(self) -> bool:
        """Whether it takes decoding."""
        return not isinstance(self.weight, Plain)

    def numpy(
        self, dtype: str = "f32", *, threads: int | None = None, level: str | None = None
    ) -> Any:
        """Return it as an array of its shape.

        Parameters
        ----------
        dtype : str
            `f32`, `f16` or `bf16` (ml_dtypes.bfloat16). Integers, bools, complex numbers and
            packed sub-byte types come as they are stored.
        threads : int, optional
            By default one for each CPU, at most 8 and at most one for each megabyte.
        level : str, optional
            Kernel level, see `anamnesis.base.levels`.

        Raises
        ------
        LimitExceeded
            If the array is larger than the limits that the model was parsed with allow.
        ParseError
            If the file has become shorter meanwhile.
        """
        from anamnesis.schemes.arrays import decode, usual_threads

        target = plain_dtype(self.weight, output_dtype(dtype), cast=True)
        n_bytes = target.n_bytes(self.weight.n_elements)
        Budget(self._limits).alloc(n_bytes, f"tensor {self.name!r}")
        if threads is None:
            threads = usual_threads(self.weight, n_bytes)
        return decode(self.weight, target, None, threads, resolve_level(level))

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.scheme}, {list(self.shape)})"


class Model(Mapping[str, Tensor]):
    """A parsed file or directory, as a mapping from the names of its weights to `Tensor`.

    Attributes
    ----------
    checkpoint : Checkpoint
        The files.
    claim : Claim
        What became of each stored tensor.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        limits: ParseLimits,
        block_size: tuple[int, int] | None = None,
        conv1d: bool | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self._limits = limits
        try:
            # What lies beside a file matters only if something in it may be quantised.
            facts = None if checkpoint.beside else self._read_facts(block_size, conv1d)
            self.claim: Claim = claim_all(
                checkpoint.stored,
                lambda: facts or self._read_facts(block_size, conv1d),
                checkpoint.unreadable,
                self_contained=checkpoint.self_contained,
                whole=checkpoint.is_whole,
            )
        except BaseException:
            checkpoint.close()
            raise

    def _read_facts(self, block_size: tuple[int, int] | None, conv1d: bool | None) -> QuantFacts:
        if self.checkpoint.self_contained:
            facts = QuantFacts()
        else:
            facts = read_facts(self.checkpoint.read_config(), self.metadata)
        blocks = facts.blocks if block_size is None else frozenset({block_size})
        return replace(facts, blocks=blocks, conv1d=conv1d)

    # --- the mapping ---------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Tensor:
        """Return a weight; raise what is wrong with it if it cannot be read."""
        problem = self.claim.problems.get(name)
        if problem is not None:
            raise problem
        return Tensor(self.claim.weights[name], self._limits)

    def __iter__(self) -> Iterator[str]:
        return iter(self.claim.weights)

    def __len__(self) -> int:
        return len(self.claim.weights)

    def __contains__(self, name: object) -> bool:
        return name in self.claim.weights

    def __repr__(self) -> str:
        return f"<anamnesis.Model of {len(self):,} weights, {self.format}>"

    # --- what it is ----------------------------------------------------------------------------

    @property
    def format_id(self) -> str:
        """The container: `safetensors`, `gguf`, `npz`, `npy` or `torch`."""
        return next(iter(self.checkpoint.shards.values())).id

    @property
    def format(self) -> str:
        """The same for people, with its version or kind: `GGUF v3`."""
        return next(iter(self.checkpoint.shards.values())).format

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the files' headers say of themselves.

        Strings for safetensors. For GGUF bool, int, float, str, and lists of these, which are read
        when they are first asked for.
        """
        return all_metadata(self.checkpoint.shards.values())

    @property
    def stored(self) -> Mapping[str, StoredTensor]:
        """All tensors as they lie in the files."""
        return self.checkpoint.stored

    @property
    def problems(self) -> Mapping[str, AnamnesisError]:
        """Stored tensors that cannot be read, and why."""
        return self.claim.problems

    def inspect(self, dtype: str = "bf16") -> Inspection:
        """Return format, schemes, counts and sizes, as they would come out at `dtype`."""
        return inspect_claim(
            self.claim,
            containers=list(self.checkpoint.shards.values()),
            wanted=output_dtype(dtype),
        )

    # --- remember ------------------------------------------------------------------------------

    def remember(
        self,
        out: str | os.PathLike[str] | Writable | Callable[[str, Any], object],
        dtype: str | DType = "bf16",
        *,
        threads: int | None = None,
        progress: Progress | None = None,
        force: bool = False,
        resume: bool = False,
        sync: bool = False,
        cast_all: bool = False,
        allow_unknown: bool = False,
        max_shard_size: int | None = None,
        level: str | None = None,
    ) -> Report:
        """Write all weights at full precision, in constant memory.

        Parameters
        ----------
        out : path, writable file object, or function
            A model that is one file becomes one safetensors file; a directory becomes a directory
            that `transformers` loads, or one file if the name ends in `.safetensors`. A file object
            gets one safetensors file from its present position on (it needs not seek). A function
            is called with the name and the array of one weight after another, and holds one whole
            weight at a time.
        dtype : str
            `bf16`, `f16` or `f32`: what quantised weights come out as.
        threads : int, optional
            By default the CPUs that this process may use, at most 8.
        progress : function, optional
            Called now and then, on the caller's thread, with bytes done and bytes in all.
        force : bool
            Replace an output that exists.
        resume : bool
            Take up a killed run of the same conversion; to the same bytes.
        sync : bool
            Return only when the output would survive a power cut.
        cast_all : bool
            Cast also floats that are not quantised.
        allow_unknown : bool
            Pass through, as they are, tensors that look like parts of weights that cannot be read;
            take a GGUF file for whole whose name says that it is a part, and whose header does not.
        max_shard_size : int, optional
            Bytes; cut the output of a directory anew into shards of at most this. Refused for a
            single file.
        level : str, optional
            Kernel level, see `anamnesis.base.levels`.

        Returns
        -------
        Report

        Raises
        ------
        UnsupportedError, ParseError
            If a stored tensor cannot be accounted for; `allow_unknown` lets it pass.
        OutputError
            If the output exists, is the input, or is being written by another run.
        OSError
            If there is no room, or reading or writing fails.
        """
        from anamnesis.base.workers import default_threads
        from anamnesis.convert.request import Options
        from anamnesis.convert.run import Remembering

        options = Options(
            dtype=output_dtype(dtype),
            threads=default_threads() if threads is None else threads,
            level=resolve_level(level),
            progress=progress,
            force=force,
            resume=resume,
            sync=sync,
            cast_all=cast_all,
            allow_unknown=allow_unknown,
            max_shard_size=max_shard_size,
        )
        remembering = Remembering(self.checkpoint, self.claim, options)
        if isinstance(out, (str, os.PathLike)):
            return remembering.to_path(os.fspath(out))
        if hasattr(out, "write"):
            return remembering.to_stream(out)
        if callable(out):
            return remembering.to_callback(out)
        raise TypeError(
            f"out must be a path, a file object or a function, not {type(out).__name__}"
        )

    def remember_to_bytes(self, dtype: str | DType = "bf16", **options: Any) -> bytes:
        """Return the safetensors file that `remember` would write; takes its options."""
        import io

        stream = io.BytesIO()
        self.remember(stream, dtype, **options)
        return stream.getvalue()

    # --- closing -------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the files that were opened here."""
        self.checkpoint.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
