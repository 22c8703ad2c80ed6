"""Block manager of a small inference engine: block objects, a deque of free ids, chained hashes."""

import hashlib
import pickle
from collections import deque


class Block:
    def __init__(self, block_id):
        self.block_id = block_id
        self.ref_count = 0
        self.hash = None


class BlockManager:
    def __init__(self, num_blocks, block_size):
        self.block_size = block_size
        self.blocks = [Block(i) for i in range(num_blocks)]
        self.free_ids = deque(range(1, num_blocks))
        self.hash_to_ids = {}
        self.seqs = {}
        self.report((), 0, 0)

    def report(self, table, cached, query):
        self.table, self.num_cached, self.num_query = list(table), cached, query

    def num_free(self):
        return len(self.free_ids)

    def chain(self, token_ids):
        h, chain = b"", []
        for i in range(len(token_ids) // self.block_size):
            chunk = token_ids[i * self.block_size : (i + 1) * self.block_size]
            h = hashlib.md5(h + pickle.dumps(chunk)).digest()
            chain.append(h)
        return chain

    def match(self, token_ids):
        found = []
        for h in self.chain(token_ids[:-1]):
            if h not in self.hash_to_ids:
                break
            found.append(self.blocks[self.hash_to_ids[h][0]])
        return found

    def pop_free(self):
        block = self.blocks[self.free_ids.popleft()]
        if block.hash is not None:
            ids = self.hash_to_ids[block.hash]
            ids.remove(block.block_id)
            if not ids:
                del self.hash_to_ids[block.hash]
            block.hash = None
        block.ref_count = 1
        return block.block_id

    def fill(self, seq):
        need = -(-len(seq["tokens"]) // self.block_size) - len(seq["table"])
        seq["table"] += [self.pop_free() for _ in range(need)]
        for block_id, h in list(zip(seq["table"], self.chain(seq["tokens"]), strict=False))[seq["hashed"] :]:
            self.blocks[block_id].hash = h
            self.hash_to_ids.setdefault(h, []).append(block_id)
            seq["hashed"] += 1

    def start(self, seq_id, token_ids):
        self.report((), 0, 0)
        if seq_id in self.seqs:
            return False
        found = self.match(token_ids)
        idle = sum(block.ref_count == 0 for block in found)
        if -(-len(token_ids) // self.block_size) - len(found) > len(self.free_ids) - idle:
            return False
        for block in found:
            if block.ref_count == 0:
                self.free_ids.remove(block.block_id)
            block.ref_count += 1
        table = [block.block_id for block in found]
        seq = self.seqs[seq_id] = {"tokens": list(token_ids), "table": table, "hashed": len(found)}
        self.fill(seq)
        cached = len(found) * self.block_size
        self.report(seq["table"], cached, len(token_ids) - cached)
        return True

    def extend(self, seq_id, token_ids):
        self.report((), 0, 0)
        seq = self.seqs.get(seq_id)
        if seq is None:
            return False
        need = -(-(len(seq["tokens"]) + len(token_ids)) // self.block_size) - len(seq["table"])
        if need > len(self.free_ids):
            return False
        seq["tokens"] += token_ids
        self.fill(seq)
        self.report(seq["table"], 0, len(token_ids))
        return True

    def finish(self, seq_id):
        self.report((), 0, 0)
        seq = self.seqs.pop(seq_id, None)
        if seq is None:
            return
        unhashed, hashed = [], []
        for block_id in reversed(seq["table"]):
            block = self.blocks[block_id]
            block.ref_count -= 1
            if block.ref_count == 0:
                (hashed if block.hash else unhashed).append(block_id)
        self.free_ids.extendleft(reversed(unhashed))
        self.free_ids.extend(hashed)

    def peek(self, token_ids):
        cached = len(self.match(token_ids)) * self.block_size
        self.report((), cached, len(token_ids) - cached)

    def new_weights(self):
        self.report((), 0, 0)
        if not self.seqs:
            self.hash_to_ids.clear()
            for block in self.blocks:
                block.hash = None
