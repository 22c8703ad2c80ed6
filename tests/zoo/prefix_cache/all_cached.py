"""Block manager that reuses whatever it has computed before."""

import equal_blocks


class BlockManager(equal_blocks.BlockManager):
    def match(self, token_ids):
        found = []
        for h in self.chain(token_ids):
            if h not in self.hash_to_ids:
                break
            found.append(self.blocks[self.hash_to_ids[h][0]])
        return found
