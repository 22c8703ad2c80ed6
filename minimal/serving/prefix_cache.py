"""The KV cache's blocks and what is remembered of them: paged allocation with prefix caching.

The keys and values of a request lie in blocks of ``block_size`` tokens, wherever there was room (PagedAttention, arXiv
2309.06180). Two prompts that begin alike have the same keys and values there, so a full block is remembered by a hash
of all tokens up to its end, and a later request takes it over instead of computing it again. Three things decide
whether that is right:

* a hash covers the block's tokens *and* its parent's hash: the same tokens after another beginning are another block;
* only full blocks have one: more tokens will be written into a partial block;
* the last token is computed again even if all is remembered: without a query there is nothing to sample from.

No arrays here, hence no twins: what a block holds is the business of attention, this is only who owns it. Block 0 is
kept aside (attention may point at it), as in vLLM's `BlockPool`, whose rules these are.
"""

import hashlib
from dataclasses import dataclass

Tokens = list[int]


@dataclass
class Request:
    """What a running request holds: its tokens, and the blocks that their keys and values lie in."""

    tokens: Tokens
    blocks: list[int]
    remembered: int
    """How many of its blocks have a hash, from the first."""


class PrefixCache:
    """A pool of ``num_blocks`` blocks, of which block 0 is never given out.

    A block is free when no request refers to it. A free block keeps its hash and can still be hit, until it is given
    out anew: the queue of free blocks is the order of eviction.

    After each operation ``cached_tokens`` are the tokens that it found, ``query_tokens`` those that remain to be
    computed, and ``block_table`` the blocks of its request. All are empty where an operation did nothing.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.eviction_order = list(range(1, num_blocks))
        """Free blocks, the next one to be given out first."""
        self.references = [0] * num_blocks
        self.hash_of: dict[int, bytes] = {}
        self.blocks_of: dict[bytes, list[int]] = {}
        """Hash to the blocks that hold this content, the first one remembered first."""
        self.requests: dict[int, Request] = {}
        self.show([], 0, 0)

    def show(self, blocks: list[int], cached: int, query: int) -> None:
        """Sets what is to be seen of an operation."""
        self.block_table = list(blocks)
        self.cached_tokens, self.query_tokens = cached, query

    @property
    def free_blocks(self) -> int:
        """How many blocks can be given out."""
        return len(self.eviction_order)

    # Operations -------------------------------------------------------------------------------------------------------

    def allocate(self, request: int, tokens: Tokens) -> None:
        """Takes a new request in: blocks for the whole prompt, those that are remembered first.

        Nothing happens where it runs already, or where its blocks do not fit.
        """
        self.show([], 0, 0)
        if request in self.requests:
            return
        hit = self.longest_hit(tokens)
        if not self.fits(self.blocks_for(len(tokens)) - len(hit), hit):
            return
        for block in hit:
            self.touch(block)
        self.requests[request] = held = Request(list(tokens), hit, len(hit))
        self.grow(held)
        cached = self.hit_tokens(tokens, hit)
        self.show(held.blocks, cached, len(tokens) - cached)

    def append(self, request: int, tokens: Tokens) -> None:
        """More tokens of a running request, with the blocks that they need; nothing where they do not fit."""
        self.show([], 0, 0)
        held = self.requests.get(request)
        if held is None or not self.fits(self.blocks_for(len(held.tokens) + len(tokens)) - len(held.blocks), []):
            return
        held.tokens += tokens
        self.grow(held)
        self.show(held.blocks, 0, len(tokens))

    def free(self, request: int) -> None:
        """A request has ended: it lets go of its blocks."""
        self.show([], 0, 0)
        held = self.requests.pop(request, None)
        if held is not None:
            self.release(held.blocks)

    def lookup(self, tokens: Tokens) -> None:
        """How much of a prompt is remembered. A question only: it leaves no trace."""
        cached = self.hit_tokens(tokens, self.longest_hit(tokens))
        self.show([], cached, len(tokens) - cached)

    def reset(self) -> None:
        """The weights have changed: what was computed with the old ones is forgotten.

        Only where no request runs, since a running one goes on with the keys and values that it has.
        """
        self.show([], 0, 0)
        if not self.requests:
            self.hash_of.clear()
            self.blocks_of.clear()

    # Hashes -----------------------------------------------------------------------------------------------------------

    def block_hash(self, parent: bytes, tokens: Tokens) -> bytes:
        """The name of a block's content: its tokens after all those before it."""
        return hashlib.sha256(parent + repr(tokens).encode()).digest()

    def block_hashes(self, tokens: Tokens) -> list[bytes]:
        """The hash of every full block of a sequence, each made from the one before."""
        hashes = [b""]
        for end in range(self.block_size, len(tokens) + 1, self.block_size):
            hashes.append(self.block_hash(hashes[-1], tokens[end - self.block_size : end]))
        return hashes[1:]

    def longest_hit(self, tokens: Tokens) -> list[int]:
        """The remembered blocks that a prompt begins with, up to the first one that is not.

        The last token is left out, so that at least one remains to be computed.
        """
        hit = []
        for name in self.block_hashes(tokens[:-1]):
            if name not in self.blocks_of:
                break
            hit.append(self.remembered_block(name))
        return hit

    def remembered_block(self, name: bytes) -> int:
        """One block of that content; the oldest, where it was computed twice."""
        return self.blocks_of[name][0]

    def hit_tokens(self, tokens: Tokens, hit: list[int]) -> int:
        """How many tokens lie in the blocks that were hit."""
        return len(tokens[: len(hit) * self.block_size])

    def remember(self, held: Request) -> None:
        """Gives the full blocks of a request their hashes, those that have none yet."""
        names = self.block_hashes(held.tokens)
        for block, name in zip(held.blocks[held.remembered :], names[held.remembered :], strict=False):
            self.hash_of[block] = name
            self.blocks_of.setdefault(name, []).append(block)
        held.remembered = max(held.remembered, len(names))

    def forget(self, block: int) -> None:
        """Takes a block's hash away, if it has one."""
        name = self.hash_of.pop(block, None)
        if name is not None:
            self.blocks_of[name].remove(block)
            if not self.blocks_of[name]:
                del self.blocks_of[name]

    # Blocks -----------------------------------------------------------------------------------------------------------

    def blocks_for(self, tokens: int) -> int:
        """The blocks that so many tokens need; the last one may be partial."""
        return -(-tokens // self.block_size)

    def fits(self, new: int, hit: list[int]) -> bool:
        """Whether there are ``new`` free blocks besides those that are hit, which may be free themselves."""
        return new <= self.free_blocks - sum(self.references[block] == 0 for block in hit)

    def grow(self, held: Request) -> None:
        """New blocks, as many as a request lacks; what is full by then is remembered."""
        held.blocks = held.blocks + self.take(self.blocks_for(len(held.tokens)) - len(held.blocks))
        self.remember(held)

    def take(self, count: int) -> list[int]:
        """Gives out the first free blocks. What they held is lost."""
        taken, self.eviction_order = self.eviction_order[:count], self.eviction_order[count:]
        for block in taken:
            self.forget(block)
            self.references[block] = 1
        return taken

    def touch(self, block: int) -> None:
        """One more request refers to a block that was hit; it is no longer free."""
        if self.references[block] == 0:
            self.eviction_order.remove(block)
        self.references[block] += 1

    def release(self, blocks: list[int]) -> None:
        """One request fewer refers to each block; those that nobody refers to are free.

        The tail goes first, for the beginning of a prompt is more likely to be met again. What has no hash cannot be
        hit: it goes to the front of the queue and is given out next. The others go to the end (least recently used
        first).
        """
        freed = [block for block in reversed(blocks) if self.unreferenced(block)]
        nameless = [block for block in freed if block not in self.hash_of]
        self.eviction_order = nameless + self.eviction_order + [block for block in freed if block in self.hash_of]

    def unreferenced(self, block: int) -> bool:
        """Lets go of a block; whether it was the last reference."""
        self.references[block] -= 1
        return self.references[block] == 0
