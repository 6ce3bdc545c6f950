"""Globals that give a pickle access to code, files or the network.

It only separates the dangerous from the unknown; what is safe is on an allow-list elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

LONGEST_NAME = 200  # characters of a module or a name; a longer one hides something


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Whole modules, with all that is in or below them: processes, the system and other machines; files;
# code; and gadgets that lead there.
DANGEROUS_MODULES = _words("""
    os nt posix sys subprocess commands popen2 pty signal multiprocessing _posixsubprocess
    socket ssl socketserver http httplib urllib urllib2 requests aiohttp httpx ftplib telnetlib
    smtplib poplib imaplib nntplib xmlrpc asyncio webbrowser antigravity paramiko fabric
    _osx_support _aix_support platform sysconfig _winapi winreg msvcrt resource

    shutil tempfile fileinput io _io _pyio zipfile tarfile dbm shelve sqlite3 mmap fcntl linecache
    filecmp distutils setuptools pip ensurepip venv zipapp uuid

    ctypes _ctypes cffi importlib imp runpy pkgutil zipimport code codeop pdb bdb cProfile profile
    pstats timeit trace doctest unittest test pydoc inspect dis marshal pickle _pickle cPickle dill
    cloudpickle joblib jsonpickle yaml pickletools lib2to3 idlelib _pyrepl rlcompleter readline
    atexit threading _thread sched concurrent gc weakref operator _operator functools types site

    numpy.f2py numpy.testing numpy.distutils numpy.ctypeslib pandas.io logging.config
    torch.jit.unsupported_tensor_ops torch.jit._serialization torch.package torch.hub torch.fx
    torch.distributed.rpc torch.utils.bottleneck torch.utils.collect_env torch.utils._config_module
    torch.utils.data torch.utils.cpp_extension torch._dynamo torch._inductor torch.ops
    torch.multiprocessing torch.library IPython ipykernel nturl2path turtle tkinter
""")

_BUILTINS = _words("""
    eval exec execfile compile open file input raw_input __import__ getattr setattr delattr hasattr
    globals locals vars dir apply reload breakpoint map filter type super classmethod staticmethod
    property memoryview print help exit quit object
""")

# Single names of modules whose others may be harmless.
DANGEROUS_NAMES: dict[str, frozenset[str]] = {
    "builtins": _BUILTINS,
    "__builtin__": _BUILTINS,
    "copyreg": frozenset(("__newobj__", "__newobj_ex__")),
    "codecs": frozenset(("open", "EncodedFile")),
    "collections": frozenset(("namedtuple",)),
    "logging": frozenset(("FileHandler", "Logger", "Handler")),
    "numpy": frozenset(
        ("load", "loads", "save", "savez", "fromfile", "memmap", "genfromtxt", "loadtxt", "lib")
    ),
    "torch": frozenset(("load", "save", "compile", "classes", "ops", "import_ir_module")),
    "torch.serialization": frozenset(("load", "save", "_load", "_legacy_load", "os", "_open_file")),
    "torch.storage": frozenset(("_load_from_bytes",)),
    "pandas": frozenset(("read_pickle", "eval", "DataFrame.query")),
    "re": frozenset(("Scanner",)),
    "string": frozenset(("Formatter",)),
}


_LONGEST_MODULE = max(map(len, DANGEROUS_MODULES))


def is_extension(module: str, name: str) -> bool:
    """Return whether a global is a number, which may mean any global that someone registered."""
    return module == "copyreg" and name.startswith("extension ")


def is_dangerous(module: str, name: str) -> bool:
    """Return whether a global is in the table, or gets at one that is by dots or underscores."""
    if max(len(module), len(name)) > LONGEST_NAME:
        return True
    if name in DANGEROUS_NAMES.get(module, ()):
        return True
    if is_extension(module, name):
        return True
    if any(package in DANGEROUS_MODULES for package in _packages(module)):
        return True
    steps = name.split(".")
    if len(steps) > 1 and any(step in DANGEROUS_MODULES or step in _BUILTINS for step in steps):
        return True
    return any(step.startswith("__") and step.endswith("__") for step in steps)


def _packages(module: str) -> Iterator[str]:
    """Yield a module and the packages that it is in, except those too long for the table."""
    end = module.find(".")
    while 0 <= end <= _LONGEST_MODULE:
        yield module[:end]
        end = module.find(".", end + 1)
    if end < 0:
        yield module
