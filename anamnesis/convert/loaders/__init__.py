"""Which programs load what is written: a table, and what follows from it.

`table` has the rows, `verdicts` what of an output they depend on, and what follows. Imported only
where a plan, a listing or an account needs it.
"""
