"""Block manager of a small inference engine."""

import equal_blocks


class BlockManager(equal_blocks.BlockManager):
    def finish(self, seq_id):
        self.report((), 0, 0)
        seq = self.seqs.pop(seq_id, None)
        if seq is None:
            return
        unhashed, hashed = [], []
        for block_id in reversed(seq["table"]):
            block = self.blocks[block_id]
            idle, block.ref_count = block.ref_count == 0, 0
            if not idle:
                (hashed if block.hash else unhashed).append(block_id)
        self.free_ids.extendleft(reversed(unhashed))
        self.free_ids.extend(hashed)
