"""KV blocks with prefix reuse; a block's name is the tokens in it."""

import equal_ordered


class PrefixCache(equal_ordered.PrefixCache):
    def _keys(self, tokens):
        ends = range(self.size, len(tokens) + 1, self.size)
        return [tuple(tokens[end - self.size : end]) for end in ends]
