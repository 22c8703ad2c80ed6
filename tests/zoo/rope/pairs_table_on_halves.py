import torch


class RotaryEmbedding:
    def rotate_half(self, x):
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat((-x2, x1), dim=-1)

    def forward(self, positions, query, key, base):
        dim = query.shape[-1]
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=query.dtype) / dim))
        freqs = torch.einsum("i,j->ij", positions.to(query.dtype), inv_freq)
        emb = freqs.repeat_interleave(2, dim=-1)[:, None, :]
        cos, sin = emb.cos(), emb.sin()
        return query * cos + self.rotate_half(query) * sin, key * cos + self.rotate_half(key) * sin
