"""Mutation testing of `minimal/`: small faults are put into its code one at a time, and the contracts must see them.

`operators` and `making` write the mutants, `benches` records what the oracles say once, `planting` puts a mutant in a
module's place, `judging` tries it, `workers` spread the mutants over processes, `listing` holds those that are argued
to be equivalent. ``python -m tests.mutants`` (or ``make mutants``) runs it all.
"""
