"""The verbs of a model that write: `remember`, `convert`, `forget`."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from anamnesis.base.arguments import check_path
from anamnesis.base.dtypes import DTypeLike
from anamnesis.planning import Planning
from anamnesis.sources.urls import absolute

if TYPE_CHECKING:
    from anamnesis.convert.conversion import Conversion
    from anamnesis.convert.report.report import Report
    from anamnesis.convert.request.request import ConvertOptions, RememberOptions, Request
    from anamnesis.convert.request.spellings import Named
    from anamnesis.convert.resume.destination import Destination
    from anamnesis.convert.write.sinks import Writable

__all__ = ["Writing"]


class Writing(Planning):
    """The verbs of a model that write it; they delegate to `convert`."""

    # --- remember ------------------------------------------------------------------------------

    def remember(
        self,
        out: str | os.PathLike[str] | Writable | Callable[[str, Any], object],
        dtype: DTypeLike = "bf16",
        **options: Unpack[RememberOptions],
    ) -> Report:
        """Write all weights at full precision, in constant memory.

        Parameters
        ----------
        out : path, writable file object, or function
            A model that is one file becomes one file of the format that its name promises, else of
            safetensors; a directory becomes a directory that `transformers` loads, or one file if
            the name is of one. A file object gets one safetensors file from its present position
            on (it needs not seek). A function is called with the name and the array of one weight
            after another, and holds one whole weight at a time.
        dtype : str, numpy.dtype, scalar type or torch.dtype
            `bf16`, `f16` or `f32`: what quantised weights come out as.

        Other Parameters
        ----------------
        threads : int, optional
            By default the CPUs that this process may use, at most 8.
        progress : function or True, optional
            Called now and then, on the caller's thread, with bytes done and bytes in all. True
            shows a bar, in a terminal or a notebook. What it raises stops the run and comes out;
            what is written so far stays beside `out`, for `resume`.
        cancel : threading.Event or alike, optional
            Stops the run once its `is_set()` is true, which is asked before each band, of about a
            megabyte: `Cancelled` is raised, and nothing is left of the output. What a stream or a
            function was given by then cannot be taken back.
        force : bool
            Replace an output that exists.
        resume : bool
            Take up a killed run of the same conversion; to the same bytes. An output that is there
            is finished if it has these bytes, and otherwise exists.
        sync : bool
            Return only when the output would survive a power cut.
        executor : Executor or str, optional
            Makes the files of the output, each whole: any `concurrent.futures.Executor`, such as a
            pool of processes, `Client.get_executor()` of Dask, those of parsl and mpi4py; or
            `processes:N`, or `dask://HOST:PORT`. The bytes are those of one process. Workers open
            the model by its path and plan anew, with one thread unless `threads` says more;
            `progress` is called as files are done. After a failure another run makes what is left.
        part : str, optional
            `2/4` makes one of four shares of the files, `auto` or `auto/4` the one whose number
            Slurm or Kubernetes gives to this process, and `commit` gives all files their final
            names, once each is made, and adds what goes with them. All take the same options.
        cast_all : bool, optional
            Cast also floats that are not quantised. By default `convert`, `forget` and `plan` do
            where a dtype is named, in the target or as `dtype`; `remember` does not.
        allow_unknown : bool
            Pass through, as they are, tensors that look like parts of weights that cannot be read;
            take a GGUF file for whole whose name says that it is a part, and whose header does not.
        max_shard_size : int or str, optional
            Bytes, or a text such as "5GB"; cut the output anew into shards of safetensors of at
            most this, in a folder that `out` names. Refused for a single file.
        level : str, optional
            Kernel level, see `anamnesis.base.levels`.
        drop : str or sequence of str
            Names of weights, with wildcards, that are left out, as `select` has them; or, between
            a Hugging Face directory and a GGUF, names of the output.
        edit : mapping of str to array, function or None
            For names of weights, with wildcards, what takes the place of their values; the first
            that fits decides. An array of numpy, ml_dtypes, torch or what has `__dlpack__`, of any
            shape, of which another is among the warnings. Or a function, which is called with the
            `Tensor`, takes it for an array (`lambda a: a * 2`) or asks it for one (`numpy("f32")`,
            `torch()`), and returns an array of its shape: one at a time and on any thread, while
            the output is written, so that a single weight is in memory; more than once where a
            weight is surveyed before it is encoded, or verified, so that it must return the same
            each time. What it returned it must not write to later. None leaves the weight out.
            Floats are rounded once (float64 by way of float32, as torch does): to the dtype of a
            weight that is not quantised, which it keeps unless `cast_all`, else to what comes out.
            For others the dtype must be the same.
            What a function raises comes out with a note that names the weight, and nothing is left
            behind; such a run cannot be resumed. No weight is added: that is for `save`.
        math : str
            `float32` (default): everything is decoded in float32, and rounded once to its dtype.
            `reference`: the bits that the library gives which defines the encoding. The two differ
            where that library computes in a 16-bit dtype: in that of the scales for MLX's affine
            integers, HQQ's, and torchao's Int4Tensor, whose result is then rounded to `dtype`; in
            `dtype` for FP8 and INT8 of ModelOpt, and FP8 and NVFP4 of ComfyUI.
        experts : str, optional
            `stacked`: the experts of a layer are put together as one stack of matrices, as
            transformers 5 has them in memory (`experts.gate_up_proj`), or mlx-lm
            (`switch_mlp.gate_proj.weight`) where its encodings are written. `split`: stacks are
            taken apart, into `experts.0.gate_proj.weight` and so on. `keep`: as the source has
            them. Codes are cut and joined where they lie. What cannot be is refused. By default
            what is encoded is as the encoding's own tool has it, and what is not, as the model's
            own class.

        Returns
        -------
        Report

        Raises
        ------
        UnsupportedError, ParseError
            If a stored tensor cannot be accounted for; `allow_unknown` lets it pass.
        Cancelled
            If `cancel` is set.
        LimitExceeded
            If `out` is a function, and the array of a weight is larger than the limits that the
            model was parsed with allow; before the first call. Files are written in bands, which
            take no more than a few megabytes each.
        OutputError
            If the output exists, is the input, or is being written by another run.
        OSError
            If there is no room, or reading or writing fails.
        TypeError
            If there is no such option.
        ValueError
            If an option has a value that it does not take, a name to drop fits no weight, or
            the model is closed.
        """
        return self._written(out, self._remembered(dtype, options), options)

    def _remembered(self, dtype: DTypeLike, options: Mapping[str, Any]) -> Callable[..., Request]:
        """Return what makes the request of `remember`."""
        from anamnesis.convert.request.request import RememberOptions, check_options
        from anamnesis.convert.request.resolve import resolve

        check_options(options, RememberOptions)
        return partial(resolve, None, dtype=dtype)

    def _written(
        self,
        out: Any,
        ask: Callable[..., Request],
        options: Mapping[str, Any],
        *,
        in_memory: bool = False,
    ) -> Report:
        from anamnesis.convert.report.meter import progress_bar

        self._check_open()
        if is_path := isinstance(out, (str, os.PathLike)):
            from anamnesis.convert.resume.places import check_place

            check_place(os.fspath(check_path("out", out)))
        elif isinstance(out, io.TextIOBase):
            raise TypeError("out must be a binary file: open it with 'wb'")
        progress = options.get("progress")
        bar = progress_bar() if progress is True else nullcontext(progress)
        with ExitStack() as opened, bar as callback:
            conversion = self._conversion(ask, out, {**options, "progress": callback}, opened)
            if is_path:
                own = {**options, "executor": None, "progress": None}  # of a worker
                own["threads"] = own.get("threads") or 1
                planning = partial(self._destination, ask, absolute(out), own)
                return conversion.to_path(os.fspath(out), planning)
            if hasattr(out, "write"):
                return conversion.to_stream(out, self._limits if in_memory else None)
            if callable(out):
                return conversion.to_callback(out, self._limits)
        raise TypeError(
            f"out must be a path, a file object or a function, not {type(out).__name__}"
        )

    def _conversion(
        self,
        ask: Callable[..., Request],
        out: Any,
        options: Mapping[str, Any],
        opened: ExitStack,
    ) -> Conversion:
        from anamnesis.convert.conversion import Conversion

        return Conversion(*self._edited(ask(out, **options), opened))

    def _destination(
        self, ask: Callable[..., Request], out: str, options: Mapping[str, Any]
    ) -> Destination:
        return self._conversion(ask, out, options, ExitStack()).destination(out)

    # --- forget and convert --------------------------------------------------------------------

    def convert(
        self,
        out: str | os.PathLike[str] | Writable,
        to: Named | None = None,
        **options: Unpack[ConvertOptions],
    ) -> Report:
        """Write the model in another encoding, another container, or both; in constant memory.

        Parameters
        ----------
        out : path or writable file object
            As of `remember`, where `to` names no container; in others but safetensors a directory
            becomes one file. A file object gets the bytes in one pass, if they come in order. Those
            of NPZ, of torch's files, and of weights that are written as several tensors do not:
            they are written to a temporary file first, and then copied.
        to : str, Encoding, type of gguf-py or dtype, optional
            A container (`safetensors`, `gguf`, `npz`, `npy`, `pth`), an encoding (`fp8-block`), or
            both (`gguf-f16`). A weight that is in such codes already is repacked: its bits move,
            and nothing is lost. Where a closed form gives codes that stand for the same values,
            it is cast. Else it is decoded and quantised anew, which the report counts. Without it,
            the ending of `out` says the container; a GGUF whose `out` has none becomes a directory
            that transformers loads, in `bf16` or `dtype`, and all else stays in safetensors.

        Other Parameters
        ----------------
        dtype : str
            `bf16`, `f16` or `f32`: what weights come out as that are not encoded, plain floats
            among them; vectors in a GGUF as F32 nevertheless, as llama.cpp has them. If none is
            named, here or in `to`, plain weights keep their dtype, GGUF keeps the blocks that it
            has, and all else comes out as `bf16`.
        include, exclude : str or sequence of str
            Names of weights, with wildcards, that are encoded, and that are not.
        overrides : mapping of str to str or Encoding
            For names of weights, with wildcards, what they are written in; the first that fits
            decides. `keep` copies all that a weight is stored as, byte for byte and under its
            stored names; what the output would misread so is refused.
        rename : mapping of str to str
            Regular expressions, and what is put in place of each match in a tensor's name.
        metadata : mapping
            What the file says of itself, beside what the source does.
        split_max_size : int or str, optional
            Bytes of tensors, or a text such as "5GB"; cut a GGUF file into parts of at most this,
            which are called `NAME-00001-of-00003.gguf` for an `out` of `NAME.gguf`. Where one is
            enough it is `out`.
        loss : bool
            Whether what the encoding takes is measured (default).
        verify : bool
            Read back what was written, and compare it with a second encoding.
        lossless : bool
            Refuse what would round or quantise a value: codes are moved or cast exactly, what is
            decoded comes out as `f32`. The error names the first weight of which that is not so.
        expect_same : path, optional
            A model, as a file or a directory: write only what has its tensors, byte for byte. So
            one proves that a source which was trained for an encoding gives the published codes.
            All is made twice, once to be compared.
        names : str
            `auto` (default): a Hugging Face directory becomes a GGUF under llama.cpp's names, with
            the header, the tokenizer and the order of values that llama.cpp reads; one whose
            architecture is not known is refused. `keep`: under the names that it has.
        tokenizer_pre : str, optional
            What llama.cpp calls the pre-tokenizer, where the tokenizer's files do not tell.
        strict : bool or None
            Refuse what a program is known to load wrong without an error; `force` writes it even
            so. And what one computes otherwise than the model's own class, but with None. What is
            not refused is in `Report.warnings`.
        **options
            Those of `remember`.

        Returns
        -------
        Report

        Raises
        ------
        UnsupportedError, ParseError
            If a stored tensor cannot be accounted for, or the container cannot hold one; nothing
            is written then.
        OutputError
            As `remember`; or if `verify` or `expect_same` finds a difference.
        OSError
            If there is no room, or reading or writing fails.
        ValueError
            If there is no such target, or a pattern fits no weight.
        """
        from anamnesis.convert.request.resolve import resolve

        asked = self._asked(to, out, options)
        return self._written(out, partial(resolve, asked, limits=self._limits), options)

    def forget(
        self,
        out: str | os.PathLike[str] | Writable,
        encoding: Named,
        **options: Unpack[ConvertOptions],
    ) -> Report:
        """Quantise: write weights in an encoding, in the container that it usually has.

        Parameters
        ----------
        out : path or writable file object
        encoding : str or Encoding
        **options
            Those of `convert`.

        Raises
        ------
        UnsupportedError, ParseError, OutputError, OSError, ValueError
            As `convert`.
        """
        from anamnesis.convert.request.resolve import resolve
        from anamnesis.convert.request.targets import target

        found = target(encoding)
        if found.encoding is None:
            raise ValueError(f"{encoding!r} quantises nothing; `convert` and `remember` write it")
        return self._written(out, partial(resolve, found, limits=self._limits), options)

    dequantize, quantize = remember, forget  # as others call these verbs

    def remember_to_bytes(
        self, dtype: DTypeLike = "bf16", **options: Unpack[RememberOptions]
    ) -> bytes:
        """Return the safetensors file that `remember` would write; takes its options.

        Raises
        ------
        LimitExceeded
            If its tensors take more bytes than the limits allow that the model was parsed with.
        AnamnesisError, OSError, TypeError, ValueError
            As `remember`.
        """
        stream = io.BytesIO()
        self._written(stream, self._remembered(dtype, options), options, in_memory=True)
        return stream.getvalue()
