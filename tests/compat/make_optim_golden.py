"""Writes src/agreed/inner_golden.inc: weights after three steps of torch.optim.SGD and
torch.optim.Muon on inputs whose formula inner_test.cc repeats. PyTorch's Newton-Schulz runs in bf16;
here the same iteration runs in fp32.

    python3 tests/compat/make_optim_golden.py > src/agreed/inner_golden.inc
"""
import torch
import torch.optim._muon as torch_muon


def newton_schulz_fp32(grad, coefficients, steps, eps):
    a, b, c = coefficients
    turned = grad.size(0) > grad.size(1)
    x = grad.T.clone() if turned else grad.clone()
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if turned else x


def hashed(n, salt):
    """n numbers in [-1, 1), each a pure function of index and salt, exact in fp32."""
    i = torch.arange(n, dtype=torch.int64)
    h = ((i + 1) * 2654435761 + salt * 40503) % 2**32
    h = (h ^ (h >> 15)) * 2246822519 % 2**32
    h = (h ^ (h >> 13)) % 2**32
    return ((h >> 9).double() / 2**22 - 1.0).float()


def after_three_steps(make, rows, columns):
    n = rows * columns
    w = torch.nn.Parameter(hashed(n, 1).view(rows, columns))
    optimizer = make([w])
    for step in range(3):
        w.grad = hashed(n, 2 + step).view(rows, columns)
        optimizer.step()
    return ", ".join(f"{v:.9g}F" for v in w.detach().flatten().tolist())


def flag(value):
    return "true" if value else "false"


torch_muon._zeropower_via_newtonschulz = newton_schulz_fp32
print("// Made by tests/compat/make_optim_golden.py with PyTorch", torch.__version__.split("+")[0])
for momentum, nesterov, decay in [(0.0, False, 0.1), (0.9, False, 0.0), (0.9, False, 0.1), (0.8, True, 0.1)]:
    values = after_three_steps(
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=momentum, nesterov=nesterov, weight_decay=decay), 3, 7)
    print(f"{{InnerKind::kSgd, 3, 7, 0.05F, {momentum}F, {flag(nesterov)}, {decay}F, MuonScale::kOriginal,\n {{{values}}}}},")
for rows, columns, nesterov, decay, scale in [(5, 9, True, 0.1, "original"), (9, 5, True, 0.1, "original"),
                                              (6, 6, False, 0.0, "original"), (9, 4, True, 0.1, "match_rms_adamw")]:
    values = after_three_steps(
        lambda p: torch.optim.Muon(p, lr=0.05, momentum=0.95, nesterov=nesterov, weight_decay=decay,
                                   adjust_lr_fn=scale), rows, columns)
    name = "kOriginal" if scale == "original" else "kMatchRmsAdamW"
    print(f"{{InnerKind::kMuon, {rows}, {columns}, 0.05F, 0.95F, {flag(nesterov)}, {decay}F, MuonScale::{name},\n {{{values}}}}},")
