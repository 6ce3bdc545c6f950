"""What everything builds on: stored tensors, dtypes, errors, limits, levels."""

import os.path

# The distribution called `anamnesis` installs a package of that name too, into this folder, and one
# of the two overwrites the other's __init__.py. All modules come by here, whoever's that is.
if os.path.exists(os.path.join(os.path.dirname(__file__), os.pardir, "mpihandler.py")):
    raise ImportError(
        "the distributions anamnesis and anamnesis-tensors are installed in one environment, and "
        "overwrite each other: `pip uninstall anamnesis anamnesis-tensors`, then install only one"
    )
