"""Integers packed in 32-bit words, as GPTQ and AWQ have them."""
