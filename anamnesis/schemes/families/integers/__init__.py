"""Integers with scales, zero points and biases for groups of them.

    result = round((float32(code) - zero) * float32(scale) + float32(bias))

Each operation rounds to float32, the last one to the output. What differs from producer to producer
is names, how codes are packed, and where zero points lie: `layouts/` has a file for each.
`rows.py` decodes integers in rows, which `weight.py` sees otherwise, and `words.py` those in words
of GPTQ and AWQ, of [in, out].
"""
