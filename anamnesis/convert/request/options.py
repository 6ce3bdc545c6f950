"""The table of all options: of commands, of functions in Python, and of recipes."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from anamnesis.convert.request import kinds
from anamnesis.convert.request.kinds import FLAG, SIZE, Kind, one_of, path, word

# What takes an option in Python: `Model.remember` and those that take all of its options, ...
Call = Literal["parse", "limits", "select", "remember", "convert", "mix", "fit", ""]


class Option(NamedTuple):
    """An option of commands, functions and recipes."""

    flags: str
    kind: Kind
    verbs: tuple[str, ...]
    group: str
    help: str
    brief: str | None = None  # the help of -h, if that shows it; empty if it is that of --help
    dest: str = ""  # its name in Python, if it is not the last of the flags
    call: Call = ""
    recipe: Literal["", "key", "repeated"] = ""  # repeated in recipes that `fit` writes
    default: Any = None
    only: Literal["", "gguf", "encoding"] = ""  # what else the output must be
    quiet: str = ""  # other flags, not in help, where they are no options of their own
    usual: tuple[str, ...] = ()  # the verbs whose -h shows it, if not all
    hidden: bool = False

    @property
    def flag(self) -> str:
        return self.flags.split()[-1].partition("/")[0]

    @property
    def name(self) -> str:
        return self.dest or self.flag.strip("-").replace("-", "_")

    @property
    def key(self) -> str:
        return "tensors" if self.name == "overrides" else self.name.replace("_", "-")

    def check(self, value: Any) -> None:
        """Refuse a wrong argument in Python."""
        if self.kind.check is not None and (value is not None or self.default is not None):
            self.kind.check(self.name, value)


_READ = ("parse", "inspect")
# A command that has the options of another, and some of its own.
_LIKE = {"merge": "convert"}
_PLAN = ("plan",)
_FORGET = ("forget", "convert")
_ENCODE = (*_FORGET, "plan")
_WRITE = ("remember", *_FORGET)
_MAKE = (*_WRITE, "plan")
_LOOK = ("diff", "check", "report")
_OPEN = (*_READ, *_LOOK, *_MAKE)
_LIMIT = (*_OPEN, "scan", "edit")
_JSON = (*_READ, "diff", "check", *_MAKE, "scan", "edit", "commit", "env")

_CAST = "Whether to cast floats that are not quantised, too. [default: %s]"

# In each group in the order of help.
# fmt: off
OPTIONS = (
    Option("--recipe", path("FILE.toml"), _ENCODE, "Input",
           "Read options from a file, over which the command line wins: to, drop, [tensors], ...",
           "Read options from a file."),
    Option("-r --recursive", FLAG, _WRITE, "Input",
           "Include all models in directories and their subdirectories.",
           "Include all models below directories."),
    Option("--select", word("PREFIX"), _OPEN, "Input",
           "Read only tensors whose names start with PREFIX (model_state, ...), and strip it.",
           call="parse"),
    Option("--keep-names", FLAG, _OPEN, "Input",
           "With --select, keep the full names.", call="select"),
    Option("--only", kinds.GLOBS, _OPEN, "Input",
           "Take only weights whose names match: '*.mlp.*', model.layers.0, ... Repeatable.",
           "Take only weights whose names match.", call="select", usual=_READ, quiet="--include"),
    Option("--drop", kinds.GLOBS, (*_READ, *_LOOK), "Input",
           "Leave out weights whose names match. Repeatable.",
           "Leave out weights whose names match.", call="select", quiet="--exclude"),
    Option("--drop", kinds.GLOBS, _MAKE, "Input",
           "Leave out weights whose names match. Repeatable.",
           "Leave out weights whose names match.", call="remember", recipe="repeated",
           quiet="--exclude"),
    Option("--variant", word("WORD"), _OPEN, "Input",
           "Read model.WORD.safetensors of a directory with several copies of its weights.",
           call="parse"),
    Option("--config", path("DIR"), _OPEN, "Input",
           "Folder with config.json and tokenizer for weights without: a trainer's checkpoint, ...",
           call="parse"),
    Option("--block-size", kinds.BLOCK, _OPEN, "Input",
           "Rows and columns that share a scale, if neither shapes nor config say it.",
           call="parse"),
    Option("--conv1d/--no-conv1d", FLAG, _OPEN, "Input",
           "Whether layers named like GPT-2's are Conv1D, if no config.json says so.",
           call="parse"),
    Option("--layout", one_of("modelopt", "comfyui"), _OPEN, "Input",
           "Producer of NVFP4 and MXFP8, if neither shapes, config nor markers tell.",
           call="parse"),
    Option("--fold-pre-quant-scale", FLAG, _OPEN, "Input",
           "Multiply ModelOpt's weights by the scales of their inputs (SmoothQuant, AWQ).",
           call="parse"),
    Option("--allow-foreign", FLAG, _OPEN, "Input",
           "Read pickles that refer to other code; none of it runs.", call="parse"),
    Option("--void-dtype", kinds.STORED_DTYPE, _OPEN, "Input",
           "Dtype of NumPy arrays of raw bytes (V1, V2): F8_E4M3, ...", call="parse"),
    Option("--scale", kinds.NUMBERS, ("merge",), "Input",
           "Multiply what adapters add: one number for all, or one for each. [default: 1]"),
    Option("--lora", kinds.ADAPTERS, ("check",), "Input",
           "Check that an adapter fits: each key is used, each shape fits. Repeatable."),
    Option("--lora", kinds.ADAPTERS, (*_FORGET, "plan"), "Input",
           "Merge an adapter into the weights, with a weight: DIR, DIR=0.5. Repeatable.",
           call="convert"),
    Option("--allow-unknown", FLAG, _MAKE, "Input",
           "Copy tensors that cannot be decoded, as they are stored, and list them.",
           call="remember", recipe="repeated"),

    Option("--metadata", FLAG, ("parse",), "Output", "Also list the metadata.", ""),
    Option("--schemes", FLAG, ("parse",), "Output",
           "List weights instead, each with its encoding, bits per value, and parts by their"
           " roles.",
           "List weights instead, with their encodings."),
    Option("--to", kinds.DTYPE, ("inspect",), "Output",
           "Dtype of dequantised weights. [default: bf16]",
           "Dtype of dequantised weights."),
    Option("--to", kinds.PLAIN, ("remember",), "Output",
           "Dtype of dequantised weights: bf16, f16 or f32; or a container: safetensors, gguf, npz"
           " or pth; or both: gguf-f16. [default: bf16]",
           "bf16 (default), f16, f32, gguf, gguf-f16, ..."),
    Option("--to", kinds.ENCODING, ("forget",), "Output",
           "Encoding to write: fp8-block, fp8-channel, int8, ...; --list shows all.",
           "fp8-block, int4, bnb-nf4, ...; --list shows all.", quiet="--scheme"),
    Option("--to", kinds.TARGET, ("convert",), "Output",
           "A container (gguf, npz, pth, ...), an encoding (fp8-block, ...) or both (gguf-f16);"
           " amn convert --list shows all.",
           "gguf, fp8-block, gguf-f16, ...; --list shows all.", recipe="key",
           quiet="--scheme"),
    Option("--to", kinds.TARGETS, _PLAN, "Output",
           "A container, an encoding or both, as for amn convert; several are compared:"
           " int4,fp8-block,nvfp4.",
           "One or more, as for amn convert: int4,nvfp4.", quiet="--scheme"),
    Option("--list", FLAG, _FORGET, "Output",
           "List all targets, and what loads them; with --to, what becomes of the codes of each"
           " encoding there.",
           "List all targets, and what loads them.", dest="lists"),
    Option("--list", FLAG, ("demo",), "Output", "List the demos and what they make.", "",
           dest="lists"),
    Option("--all", FLAG, ("demo",), "Output", "Make the inputs of all demos.", "",
           dest="makes_all"),
    Option("--set", kinds.EDITS, ("edit",), "Output",
           "Give KEY a value: KEY=VALUE; of a GGUF in the type that it has, or KEY:TYPE=VALUE."
           " Repeatable.",
           "Give KEY a value.", dest="new"),
    Option("--unset", kinds.KEYS, ("edit",), "Output", "Remove KEY. Repeatable.",
           "Remove KEY.", dest="gone"),
    Option("-o --output", path("OUT"), _WRITE, "Output",
           "Output file or directory, or - for standard output. A file's extension sets its format:"
           " .safetensors, .gguf, .npz or .pth; a final / makes a Hugging Face directory of a GGUF."
           " [default: beside the input, named for what it holds: model-bf16.safetensors]",
           "Output; its ending sets the format. - is stdout.", dest="out", quiet="--outfile"),
    Option("--dtype", kinds.DTYPE, ("remember",), "Output", "", hidden=True),
    Option("--dtype", kinds.DTYPE, _ENCODE, "Output",
           "Dtype of weights that are not encoded. [default: plain ones as stored, quantised ones"
           " in bf16]", call="convert", recipe="repeated"),
    Option("--rename", kinds.RENAMINGS, _ENCODE, "Output",
           "Replace each match of the regular expression FROM in tensor names by TO.",
           call="convert", recipe="repeated"),
    Option("--force", FLAG, (*_WRITE, "commit", "report"), "Output",
           "Replace an output that exists.", "", call="remember", quiet="-y --yes --overwrite"),
    Option("--dry-run", FLAG, _WRITE, "Output",
           "Write nothing, and show what would be written, as amn plan does."),
    Option("--skip-existing", FLAG, _WRITE, "Output", "Skip inputs whose output exists."),
    Option("--cast-all/--no-cast-all", FLAG, ("remember",), "Output",
           _CAST % "no", "Whether to cast plain floats, too.", call="remember"),
    Option("--cast-all/--no-cast-all", FLAG, _ENCODE, "Output",
           _CAST % "if a dtype is named", call="remember", recipe="repeated"),
    Option("--max-shard-size", SIZE, _MAKE, "Output",
           "Split the weights into shards of at most SIZE, such as 5GB.",
           call="remember", recipe="key"),

    Option("--include", kinds.GLOBS, _ENCODE, "What is encoded",
           "Encode only weights whose names match: '*.mlp.*', ... Repeatable.",
           call="convert", recipe="repeated", only="encoding"),
    Option("--exclude", kinds.GLOBS, _ENCODE, "What is encoded",
           "Do not encode weights whose names match. Repeatable.",
           "Do not encode weights whose names match.",
           call="convert", recipe="repeated", only="encoding"),
    Option("--tensor", kinds.OVERRIDES, _ENCODE, "What is encoded",
           "Encode matching weights differently: '*lm_head*=bf16'; keep copies them as stored."
           " The first match decides. Repeatable.",
           "Encode some differently: '*lm_head*=bf16'.", dest="overrides",
           call="convert", recipe="key"),
    Option("--experts", one_of("stacked", "split", "keep"), _MAKE, "What is encoded",
           "Store the experts of a layer as one stack, as a matrix each, or as the source does;"
           " codes are moved, too. [default: as the encoding's own tool does]",
           call="remember", recipe="repeated"),

    Option("--sample", kinds.COUNT, _PLAN, "Quality",
           "Measure the loss on N bands of a megabyte or two, spread over the model."
           " [default: 16; 0 for mixes of GGUF's types]",
           "Measure the loss on N bands of the model. [default: 16]"),
    Option("--full", FLAG, _PLAN, "Quality", "Measure the loss on the whole model."),
    Option("--lossless", FLAG, _ENCODE, "Quality",
           "Refuse to round or quantise any value: codes are moved, or cast exactly.",
           call="convert", recipe="key"),
    Option("--verify", FLAG, _FORGET, "Quality",
           "Read the output back, and compare it with a second encoding.",
           call="convert", recipe="key"),
    Option("--expect-same", path("MODEL", exists=True), _FORGET, "Quality",
           "Write only if all tensors equal those of MODEL, byte for byte; name those that differ.",
           call="convert"),
    Option("--strict", FLAG, _FORGET, "Quality",
           "Refuse outputs that a program computes otherwise than the model's own class.",
           call="convert", recipe="key"),
    Option("--no-loss", kinds.NEGATED, _ENCODE, "Quality", "Do not measure the loss.",
           dest="loss", call="convert", recipe="key", default=True),
    Option("--worst", FLAG, _FORGET, "Quality", "Show the five weights that lose the most."),
    Option("--math", one_of("float32", "reference"), _MAKE, "Quality",
           "Decode in float32, rounded once; or bit for bit as the encoding's own library does,"
           " which may round in between. [default: float32]",
           call="remember", recipe="repeated", default="float32"),

    Option("--target-size", SIZE, _PLAN, "GGUF",
           "Choose a type for each weight, so that the file is at most SIZE and the error of its"
           " weights least; that error is not the quality of the model.", call="fit"),
    Option("--target-bpw", kinds.BITS, _PLAN, "GGUF",
           "Likewise, so that weights take BITS on average.", call="fit"),
    Option("--types", word("TYPE,..."), _PLAN, "GGUF",
           "Types to choose from: q4_k, ...; or their families: k, iq, legacy. [default: k]",
           call="fit"),
    Option("--least", kinds.BOUNDS, _PLAN, "GGUF",
           "Type with the fewest bits for matching weights: '*.attn_v.*=q5_k'. Repeatable.",
           call="fit"),
    Option("--most", kinds.BOUNDS, _PLAN, "GGUF",
           "Type with the most bits for matching weights. Repeatable.", call="fit"),
    Option("--save-recipe", path("FILE.toml", dir_okay=False), _PLAN, "GGUF",
           "Write the choice to a file for convert --recipe, instead of printing it."),
    Option("--journal", path("FILE", dir_okay=False), _PLAN, "GGUF",
           "Keep measured errors in a file, and reuse those that it holds.", call="fit"),
    Option("--gguf-metadata", kinds.SETTINGS_FILE, _ENCODE, "GGUF",
           "Metadata for a GGUF file, on top of the source's; null removes a key.",
           dest="metadata", call="convert", recipe="key", only="gguf"),
    Option("--gguf-kv", kinds.SETTINGS, _ENCODE, "GGUF",
           "One entry of metadata, on top of the others: general.name=tiny, KEY=TYPE:VALUE, ...",
           dest="settings", only="gguf"),
    Option("--split-max-size", SIZE, _ENCODE, "GGUF",
           "Split a GGUF file into parts of at most SIZE of tensors, such as 5GB, like gguf-split.",
           call="convert", recipe="repeated", only="gguf"),
    Option("--imatrix", path("FILE", exists=True, dir_okay=False), _ENCODE, "GGUF",
           "Importance matrix, as llama-imatrix writes it: .gguf or .dat.",
           call="convert", recipe="repeated", only="gguf"),
    Option("--names", one_of("auto", "keep"), _ENCODE, "GGUF",
           "Names for the tensors of a Hugging Face directory: llama.cpp's (auto), or their own.",
           call="convert", recipe="repeated", default="auto"),
    Option("--tokenizer-pre", word("NAME"), _ENCODE, "GGUF",
           "llama.cpp's name for the pre-tokenizer, if the tokenizer's files do not give it.",
           call="convert", recipe="repeated", only="gguf"),
    Option("--pure", FLAG, _ENCODE, "GGUF",
           "Mixes: use the mix's own type for all weights.", call="mix", recipe="key"),
    Option("--output-tensor-type", kinds.BLOCK_TYPE, _ENCODE, "GGUF",
           "Mixes: type of output.weight, and of tied embeddings.",
           call="mix", recipe="key"),
    Option("--token-embedding-type", kinds.BLOCK_TYPE, _ENCODE, "GGUF",
           "Mixes: type of the embeddings.", call="mix", recipe="key"),
    Option("--leave-output-tensor", FLAG, _ENCODE, "GGUF",
           "Mixes: leave output.weight as it is.", call="mix", recipe="repeated"),
    Option("--override-kv", kinds.HEADER_KEYS, _ENCODE, "GGUF",
           "Mixes: set a header key, which the rules obey, too; int, float, bool or str.",
           call="mix", recipe="repeated"),
    Option("--prune-layers", kinds.LAYERS, _ENCODE, "GGUF",
           "Mixes: leave out layers, and renumber the others.",
           call="mix", recipe="repeated"),
    Option("--keep-split", FLAG, _ENCODE, "GGUF",
           "Mixes: write as many parts as the input has.",
           call="mix", recipe="repeated"),

    Option("--untrusted", FLAG, _LIMIT, "Limits",
           "Set all limits for files that you do not trust: 500MB at once, 1GB in all,"
           " 2,000,000 items, a ratio of 100.",
           "Set limits for files that you do not trust.", usual=(*_READ, "scan")),
    Option("--max-alloc", SIZE, _LIMIT, "Limits",
           "Limit each allocation that a file asks for: 500MB, ...",
           dest="max_single_alloc", call="limits"),
    Option("--max-bytes", SIZE, _LIMIT, "Limits",
           "Limit all allocations of parsing together.", dest="max_total_bytes", call="limits"),
    Option("--max-items", kinds.COUNT, _LIMIT, "Limits",
           "Limit tensors, metadata entries and array items together.",
           dest="max_item_count", call="limits"),
    Option("--max-ratio", kinds.RATIO, _LIMIT, "Limits",
           "Limit how many times its own size an archive may unpack to.",
           dest="max_decompression_ratio", call="limits"),

    Option("--manifest", path("FILE", dir_okay=False), ("check",), "Output",
           "Compare with a file of hashes, of each tensor's bytes and each weight's values; write"
           " it if there is none.",
           "Compare with a file of hashes, or write it."),
    Option("--same-codes", path("MODEL"), ("check",), "Output",
           "Quantise MODEL again, and expect the codes of this one.",
           "Expect the codes that quantising MODEL gives."),
    Option("--headers", FLAG, ("check",), "Output", "Check headers alone; read no values.", ""),
    Option("--values", FLAG, ("diff",), "Output",
           "Decode and compare the values, too: how many differ, and how far.", ""),
    Option("--values", FLAG, ("report",), "Output",
           "Read the values, too: scales, zeros, saturation; of two, how far they lie apart.", ""),
    Option("-o --output", path("FILE.html"), ("report",), "Output",
           "The page to write, or - for standard output. [default: report.html]", "",
           dest="page", default="report.html"),
    Option("--threads", kinds.COUNT, (*_LOOK, *_MAKE), "Run",
           "Number of threads. [default: all CPUs, up to 8]", call="remember"),
    Option("--remote-buffer", SIZE, (*_LOOK, *_MAKE), "Run",
           "Most bytes to request at the same time from a remote input. [default: 64MiB]",
           call="parse"),
    Option("--resume", FLAG, _WRITE, "Run",
           "Finish a run that was killed, with the same result.", call="remember"),
    Option("--executor", word("ENGINE"), _WRITE, "Run",
           "Let workers make the files: processes:N, or dask://HOST:PORT.", call="remember"),
    Option("--part", word("I/N"), _WRITE, "Run",
           "Make only share I of N of the files; auto and auto/N take I from Slurm or Kubernetes."
           " amn commit OUT finishes.", call="remember"),
    Option("--sync", FLAG, (*_WRITE, "commit"), "Run",
           "Flush to disk before exiting (slower).", call="remember"),
    Option("--json", kinds.JSON, _JSON, "Run",
           "Write JSON to stdout; NaN and infinities are strings.", "Write JSON.", dest="as_json"),
    Option("--jsonl", kinds.JSON_LINES, _JSON, "Run",
           "Write JSON as one line for each input, as soon as it is done.", dest="as_json"),
    Option("--color", one_of("auto", "always", "never"), (*_LIMIT, "commit", "demo", "env"), "Run",
           "Whether to use colours; auto does on a terminal, unless NO_COLOR is set."),
    Option("-q --quiet", FLAG, (*_WRITE, "commit"), "Run", "Print only warnings and errors.", ""),
    Option("-q --quiet", FLAG, ("scan",), "Run", "Show only files that are not safe.", ""),
)
# fmt: on


def options_of(verb: str, *calls: Call) -> dict[str, Option]:
    """Return the options of a verb by their names; of those, the ones that some calls take."""
    rows = rows_of(verb)
    return {row.name: row for row in rows if not calls or row.call in calls}


def rows_of(verb: str) -> list[Option]:
    """Return the rows of a verb; what it has of its own comes first."""
    own = [row for row in OPTIONS if verb in row.verbs]
    names = {row.name for row in own}
    like = [row for row in OPTIONS if _LIKE.get(verb) in row.verbs and row.name not in names]
    return own + like


def flag_of(name: str) -> str | None:
    """Return the flag of an option by its name in Python; None if no command has it."""
    return next((o.flag for o in OPTIONS if o.call and o.name == name), None)
