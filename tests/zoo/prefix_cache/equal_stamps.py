"""Paged KV blocks: who is evicted next is told by a stamp."""

import itertools

import numpy as np


class Pool:
    """Free blocks carry a stamp; the smallest one is given out next. Blocks without a name get negative stamps."""

    def __init__(self, num_blocks, block_size):
        self.block_size = block_size
        self.users = np.zeros(num_blocks, dtype=int)
        self.stamp = np.arange(num_blocks, dtype=float)
        self.stamp[0] = np.inf
        self.clock = itertools.count(num_blocks)
        self.names = [None] * num_blocks
        self.named_at = np.zeros(num_blocks)
        self.sequences = {}
        self.last = ([], 0, 0)

    block_table = property(lambda self: self.last[0])
    cached_tokens = property(lambda self: self.last[1])
    query_tokens = property(lambda self: self.last[2])

    def eviction_order(self):
        return [int(block) for block in np.argsort(self.stamp, kind="stable") if np.isfinite(self.stamp[block])]

    def free_blocks(self):
        return int(np.isfinite(self.stamp).sum())

    def prefixes(self, tokens):
        b = self.block_size
        return ["-".join(map(str, tokens[: b * (i + 1)])) for i in range(len(tokens) // b)]

    def known(self, tokens):
        hit = []
        for name in self.prefixes(tokens[: len(tokens) - 1]):
            same = [block for block, other in enumerate(self.names) if other == name]
            if not same:
                break
            hit.append(min(same, key=lambda block: self.named_at[block]))
        return hit

    def room(self, tokens, table):
        missing = -(-len(tokens) // self.block_size) - len(table)
        return missing <= self.free_blocks() - sum(np.isfinite(self.stamp[block]) for block in table)

    def victim(self):
        return int(np.argmin(self.stamp))

    def take_up(self, request, tokens, table, named):
        for block in table[:named]:
            self.stamp[block] = np.inf
        while len(table) * self.block_size < len(tokens):
            block = self.victim()
            self.names[block], self.stamp[block], self.users[block] = None, np.inf, 1
            table.append(block)
        for block, name in list(zip(table, self.prefixes(tokens), strict=False))[named:]:
            self.names[block], self.named_at[block] = name, next(self.clock)
        self.sequences[request] = (tokens, table)

    def allocate(self, request, tokens):
        self.last = ([], 0, 0)
        hit = self.known(tokens)
        if request in self.sequences or not self.room(tokens, hit):
            return
        self.users[hit] += 1
        cached = len(hit) * self.block_size
        self.take_up(request, list(tokens), hit, len(hit))
        self.last = (list(hit), cached, len(tokens) - cached)

    def append(self, request, tokens):
        self.last = ([], 0, 0)
        if request not in self.sequences:
            return
        before, table = self.sequences[request]
        if not self.room(before + tokens, table):
            return
        self.take_up(request, before + tokens, table, len(before) // self.block_size)
        self.last = (list(table), 0, len(tokens))

    def free(self, request):
        self.last = ([], 0, 0)
        _, table = self.sequences.pop(request, ([], []))
        self.users[table] -= 1
        unused = [block for block in reversed(table) if self.users[block] == 0]
        for block in unused:
            if self.names[block] is not None:
                self.stamp[block] = next(self.clock)
        for block in reversed(unused):
            if self.names[block] is None:
                self.stamp[block] = -next(self.clock)

    def lookup(self, tokens):
        cached = len(self.known(tokens)) * self.block_size
        self.last = ([], cached, len(tokens) - cached)

    def reset(self):
        self.last = ([], 0, 0)
        if not self.sequences:
            self.names = [None] * len(self.names)
