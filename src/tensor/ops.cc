// The operations beside products (linear.cc) and norms (norms.cc): each is one autograd Function
// with its hand-written gradient; see ops.h.
#include "tensor/ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tensor/backward.h"
#include "tensor/kernels.h"

namespace loom::tensor {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct SwiGluFunction : Function<SwiGluFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up) {
    ctx->save_for_backward({gate_up});
    const std::int64_t n = gate_up.size(1) / 2;
    if (!Plain(gate_up)) return at::silu(gate_up.narrow(1, 0, n)) * gate_up.narrow(1, n, n);
    at::Tensor y = at::empty({gate_up.size(0), n}, gate_up.options());
    kernels::SwiGlu(In(gate_up), Count(gate_up.size(0)), Count(n), Out(y));
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor gate_up = ctx->get_saved_variables()[0];
    const std::int64_t n = gate_up.size(1) / 2;
    at::Tensor dgate_up = at::empty_like(gate_up);
    if (Plain(gate_up)) {
      const at::Tensor dy = grads[0].contiguous();
      kernels::SwiGluBackward(In(dy), In(gate_up), Count(gate_up.size(0)), Count(n), Out(dgate_up));
    } else {
      const at::Tensor gate = gate_up.narrow(1, 0, n);
      dgate_up.narrow(1, 0, n).copy_(at::silu_backward(grads[0] * gate_up.narrow(1, n, n), gate));
      dgate_up.narrow(1, n, n).copy_(grads[0] * at::silu(gate));
    }
    return {dgate_up};
  }
};

kernels::HeadShape ToShape(const HeadCounts& c) {
  return {Count(c.batch), Count(c.length), Count(c.heads), Count(c.kv_heads), Count(c.dim)};
}

/// Rotation by halves; sign -1 turns back.
at::Tensor Rotate(const at::Tensor& x_BHTD, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t half = x_BHTD.size(3) / 2;
  const at::Tensor a = x_BHTD.narrow(3, 0, half);
  const at::Tensor b = x_BHTD.narrow(3, half, half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, 3);
}

/// What a Function's backward needs beside tensors and weights.
template <class T>
struct Held : torch::CustomClassHolder {
  explicit Held(T v) : value(std::move(v)) {}
  T value;
};
template <class T>
void Hold(AutogradContext* ctx, T value) {
  ctx->saved_data["held"] =
      c10::IValue::make_capsule(c10::make_intrusive<Held<T>>(std::move(value)));
}
template <class T>
const T& GetHeld(AutogradContext* ctx) {
  return static_cast<Held<T>*>(ctx->saved_data["held"].toCapsule().get())->value;
}

struct SplitRotateFunction : Function<SplitRotateFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& qkv, const at::Tensor& cos,
                               const at::Tensor& sin, const HeadCounts& c) {
    Hold(ctx, c);
    ctx->save_for_backward({cos, sin});
    if (Plain(qkv)) {
      at::Tensor q = at::empty({c.batch, c.heads, c.length, c.dim}, qkv.options());
      at::Tensor k = at::empty({c.batch, c.kv_heads, c.length, c.dim}, qkv.options());
      at::Tensor v = at::empty_like(k);
      kernels::SplitRotate(In(qkv), In(cos), In(sin), ToShape(c), Out(q), Out(k), Out(v));
      return {q, k, v};
    }
    const at::Tensor x_BNTD =
        qkv.view({c.batch, c.length, c.heads + 2 * c.kv_heads, c.dim}).transpose(1, 2);
    const at::Tensor cos_type = cos.to(qkv.scalar_type());
    const at::Tensor sin_type = sin.to(qkv.scalar_type());
    return {Rotate(x_BNTD.narrow(1, 0, c.heads), cos_type, sin_type),
            Rotate(x_BNTD.narrow(1, c.heads, c.kv_heads), cos_type, sin_type),
            x_BNTD.narrow(1, c.heads + c.kv_heads, c.kv_heads).contiguous()};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const HeadCounts& c = GetHeld<HeadCounts>(ctx);
    at::Tensor dqkv =
        at::empty({c.batch * c.length, (c.heads + 2 * c.kv_heads) * c.dim}, grads[0].options());
    if (Plain(grads[0])) {
      const at::Tensor dq = grads[0].contiguous();
      const at::Tensor dk = grads[1].contiguous();
      const at::Tensor dv = grads[2].contiguous();
      kernels::SplitRotateBackward(In(dq), In(dk), In(dv), In(saved[0]), In(saved[1]), ToShape(c),
                                   Out(dqkv));
    } else {
      const at::Tensor cos = saved[0].to(dqkv.scalar_type());
      const at::Tensor back = -saved[1].to(dqkv.scalar_type());
      const at::Tensor d_BNTD =
          dqkv.view({c.batch, c.length, c.heads + 2 * c.kv_heads, c.dim}).transpose(1, 2);
      d_BNTD.narrow(1, 0, c.heads).copy_(Rotate(grads[0], cos, back));
      d_BNTD.narrow(1, c.heads, c.kv_heads).copy_(Rotate(grads[1], cos, back));
      d_BNTD.narrow(1, c.heads + c.kv_heads, c.kv_heads).copy_(grads[2]);
    }
    return {dqkv, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct AddPositionsFunction : Function<AddPositionsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Weight& table,
                            std::int64_t first, std::int64_t length) {
    HoldWeights(ctx, {table});
    ctx->saved_data["first"] = first;
    ctx->saved_data["length"] = length;
    const at::Tensor x_BTW = x.view({-1, length, x.size(1)});
    return (x_BTW + table.value().narrow(0, first, length)).view_as(x);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor& dx = grads[0];
    const std::int64_t length = ctx->saved_data["length"].toInt();
    const at::Tensor& dtable = HeldWeights(ctx)[0].grad();
    if (dtable.defined()) {
      const at::Tensor dx_BTW = dx.reshape({-1, length, dx.size(1)}).to(at::kFloat);
      dtable.narrow(0, ctx->saved_data["first"].toInt(), length).add_(dx_BTW.sum(0));
    }
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct CheckpointFunction : Function<CheckpointFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Block& block) {
    ctx->save_for_backward({x});
    Hold(ctx, block);
    return block(x);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoGradMode with_gradients(true);
    const at::Tensor x = ctx->get_saved_variables()[0].detach().requires_grad_(true);
    GetHeld<Block>(ctx)(x).backward(grads[0]);
    return {x.grad(), at::Tensor()};
  }
};

}  // namespace

at::Tensor SwiGlu(const at::Tensor& gate_up_R2F) { return SwiGluFunction::apply(gate_up_R2F); }

std::array<at::Tensor, 3> SplitRotate(const at::Tensor& qkv_RN, const at::Tensor& cos_TE,
                                      const at::Tensor& sin_TE, const HeadCounts& counts) {
  variable_list qkv = SplitRotateFunction::apply(qkv_RN, cos_TE, sin_TE, counts);
  return {std::move(qkv[0]), std::move(qkv[1]), std::move(qkv[2])};
}

at::Tensor Embed(const at::Tensor& ids_R, const Weight& table_VW) {
  return table_VW.value().index_select(0, ids_R);
}

at::Tensor AddPositions(const at::Tensor& x_RW, const Weight& table_PW, std::int64_t first,
                        std::int64_t length) {
  return AddPositionsFunction::apply(x_RW, table_PW, first, length);
}

void EmbedBackward(const at::Tensor& ids_R, const at::Tensor& dx_RW, const Weight& table_VW) {
  at::Tensor grad = table_VW.grad();
  if (!grad.defined()) return;
  if (grad.device().is_cpu()) {
    const at::Tensor dx = dx_RW.to(at::kFloat).contiguous();
    kernels::ScatterAdd(In(dx), ids_R.const_data_ptr<std::int64_t>(), Count(dx.size(0)),
                        Count(dx.size(1)), Out(grad));
  } else {
    grad.index_put_({ids_R}, dx_RW.to(at::kFloat), /*accumulate=*/true);
  }
}

double CrossEntropyHead(const at::Tensor& h_RW, const at::Tensor& targets_R,
                        const Weight& weight_VW, std::int64_t chunk, float scale, float z_loss,
                        at::Tensor* dh) {
  const at::NoGradGuard no_grad;
  const bool backward = scale != 0.0f;
  if (backward) *dh = at::empty_like(h_RW);
  std::vector<double> nll(Count(std::min(chunk, h_RW.size(0))));
  double sum = 0;
  for (std::int64_t first = 0; first < h_RW.size(0); first += chunk) {
    const std::int64_t rows = std::min(chunk, h_RW.size(0) - first);
    const at::Tensor h = h_RW.narrow(0, first, rows);
    at::Tensor logits = at::mm(h, weight_VW.value().t()).to(at::kFloat);
    if (Plain(logits)) {
      kernels::CrossEntropy(Out(logits), targets_R.const_data_ptr<std::int32_t>() + first,
                            Count(rows), Count(logits.size(1)), scale, z_loss, nll.data());
      for (std::int64_t r = 0; r < rows; ++r) sum += nll[Count(r)];
    } else {
      const at::Tensor targets = targets_R.narrow(0, first, rows).to(logits.device(), at::kLong);
      const at::Tensor counted = (targets >= 0).unsqueeze(1);
      const at::Tensor index = targets.clamp_min(0).unsqueeze(1);
      const at::Tensor log_p = at::log_softmax(logits, 1);
      sum -= (log_p.gather(1, index) * counted).to(at::kDouble).sum().item<double>();
      if (backward) {
        const at::Tensor log_z = at::logsumexp(logits, {1}, true);
        logits = log_p.exp();
        if (z_loss != 0.0f) logits.mul_(log_z.mul(2 * z_loss).add(1));
        logits.scatter_add_(1, index, at::full_like(index, -1.0, at::kFloat));
        logits.mul_(counted).mul_(scale);
      }
    }
    if (backward) {
      const at::Tensor dlogits = logits.to(h.scalar_type());
      dh->narrow(0, first, rows).copy_(at::mm(dlogits, weight_VW.value()));
      AddProduct(weight_VW.grad(), dlogits.t(), h);
    }
  }
  return sum;
}

at::Tensor Checkpoint(Block block, const at::Tensor& x) {
  return CheckpointFunction::apply(x, std::move(block));
}

}  // namespace loom::tensor
