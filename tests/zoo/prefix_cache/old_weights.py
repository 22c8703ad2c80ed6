"""Paged KV blocks for a rollout worker; after new weights only the counters are cleared."""

import equal_stamps


class Pool(equal_stamps.Pool):
    def reset(self):
        self.last = ([], 0, 0)
