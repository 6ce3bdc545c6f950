"""Which programs load what is written: a table, and what follows from it.

`table` has the rows, `facts` what of an output they depend on, `verdicts` what follows. Imported
only where a plan, a listing or an account needs it.
"""
