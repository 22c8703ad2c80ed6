import torch


def gae(token_level_rewards, values, response_mask, gamma, lam):
    rows, rets = [], []
    for r, v, m in zip(token_level_rewards, values, response_mask):
        nxt = acc = torch.zeros((), dtype=v.dtype)
        row = []
        for t in range(len(r) - 1, -1, -1):
            if m[t]:
                acc = r[t] + gamma * nxt - v[t] + gamma * lam * acc
                nxt = v[t]
            row.insert(0, acc)
        a = torch.stack(row)
        rets.append(a + v)
        k = int(m.sum())
        mean = a[m].mean() if k else 0.0
        var = a[m].var() if k > 1 else 0.0
        rows.append((a - mean) / torch.sqrt(torch.as_tensor(var, dtype=v.dtype) + 1e-8))
    return torch.stack(rows), torch.stack(rets)
