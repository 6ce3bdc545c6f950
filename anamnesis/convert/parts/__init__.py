"""An output made file by file, by several processes or machines."""
