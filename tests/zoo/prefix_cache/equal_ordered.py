"""KV blocks with prefix reuse; a block's name is its whole prefix."""

from collections import OrderedDict


class PrefixCache:
    """Blocks are named by their prefix; the free list is an ordered dict, its first key is the victim."""

    def __init__(self, num_blocks, block_size):
        self.size = block_size
        self.free_list = OrderedDict.fromkeys(range(1, num_blocks))
        self.owners = dict.fromkeys(range(num_blocks), 0)
        self.content = {}
        self.running = {}
        self.cached_tokens = self.query_tokens = 0
        self.block_table = []

    @property
    def free_blocks(self):
        return len(self.free_list)

    @property
    def eviction_order(self):
        return list(self.free_list)

    def _done(self, table=(), cached=0, query=0):
        self.block_table, self.cached_tokens, self.query_tokens = list(table), cached, query

    def _keys(self, tokens):
        return [tuple(tokens[:end]) for end in range(self.size, len(tokens) + 1, self.size)]

    def _same(self, key):
        """Blocks with that content, in the order in which they got it."""
        return [block for block, known in self.content.items() if known == key]

    def _find(self, tokens):
        blocks = []
        for key in self._keys(tokens[:-1]):
            same = self._same(key)
            if not same:
                return blocks
            blocks.append(same[0])
        return blocks

    def _cached(self, tokens, blocks):
        return len(blocks) * self.size

    def _leaving(self, table):
        return reversed(table)

    def _count(self, tokens):
        return (len(tokens) + self.size - 1) // self.size

    def _complete(self, name):
        tokens, table, named = self.running[name]
        while len(table) < self._count(tokens):
            block, _ = self.free_list.popitem(last=False)
            self.content.pop(block, None)
            self.owners[block] = 1
            table.append(block)
        keys = self._keys(tokens)
        for block, key in list(zip(table, keys, strict=False))[named:]:
            self.content[block] = key
        self.running[name] = tokens, table, max(named, len(keys))
        return table

    def allocate(self, request, tokens):
        self._done()
        if request in self.running:
            return
        blocks = self._find(tokens)
        new = self._count(tokens) - len(blocks)
        if new > len(self.free_list) - len(self.free_list.keys() & set(blocks)):
            return
        for block in blocks:
            self.owners[block] += 1
            self.free_list.pop(block, None)
        self.running[request] = list(tokens), list(blocks), len(blocks)
        cached = self._cached(tokens, blocks)
        self._done(self._complete(request), cached, len(tokens) - cached)

    def append(self, request, tokens):
        self._done()
        if request not in self.running:
            return
        before, table, _ = self.running[request]
        if self._count(before + tokens) - len(table) <= len(self.free_list):
            before.extend(tokens)
            self._done(self._complete(request), 0, len(tokens))

    def free(self, request):
        self._done()
        if request not in self.running:
            return
        _, table, _ = self.running.pop(request)
        gone = []
        for block in self._leaving(table):
            self.owners[block] -= 1
            if not self.owners[block]:
                gone.append(block)
        for block in gone:
            self.free_list[block] = None
        for block in reversed([block for block in gone if block not in self.content]):
            self.free_list.move_to_end(block, last=False)

    def lookup(self, tokens):
        blocks = self._find(tokens)
        cached = self._cached(tokens, blocks)
        self._done((), cached, len(tokens) - cached)

    def reset(self):
        self._done()
        if not self.running:
            self.content.clear()
