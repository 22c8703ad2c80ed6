"""KV blocks with prefix reuse; every chunk of a prompt is remembered, the last one too."""

import equal_ordered


class PrefixCache(equal_ordered.PrefixCache):
    def _keys(self, tokens):
        return [tuple(tokens[: start + self.size]) for start in range(0, len(tokens), self.size)]

    def _cached(self, tokens, blocks):
        return min(len(blocks) * self.size, len(tokens) - 1)
