#include "collab/order.h"

#include <algorithm>

namespace loom::collab {
namespace {

template <class T>
void GetBytes(wire::Reader& in, T& into) {
  const ByteView raw = in.Raw(into.bytes.size());
  std::copy(raw.begin(), raw.end(), into.bytes.begin());
}

void PutOrder(wire::Writer& out, const Order& order) {
  out.Int(order.number);
  out.Bool(order.revert.has_value());
  out.Int(order.revert.value_or(0));
  out.Var(order.settings);
  out.Raw(order.owner.bytes);
}

void PutSeal(wire::Writer& out, const Seal& seal) {
  out.Int(seal.era);
  out.Bool(seal.end);
  out.Raw(seal.owner.bytes);
}

}  // namespace

Bytes Order::Text(const RunId& run) const {
  wire::Writer out;
  out.Id(run);
  PutOrder(out, *this);
  return std::move(out).Take();
}

void Order::Encode(wire::Writer& out) const {
  PutOrder(out, *this);
  out.Raw(signature.bytes);
}

Order Order::Decode(wire::Reader& in) {
  Order order;
  order.number = in.Int<std::uint64_t>();
  const bool reverts = in.Bool();
  const Round target = in.Int<Round>();
  if (reverts) {
    order.revert = target;
  } else if (target != 0) {
    in.Fail("a round to return to in an order that does not return");
  }
  order.settings = ToBytes(in.Var(kMaxSettingsBytes));
  GetBytes(in, order.owner);
  GetBytes(in, order.signature);
  return order;
}

Bytes Seal::Text(const RunId& run) const {
  wire::Writer out;
  out.Id(run);
  PutSeal(out, *this);
  return std::move(out).Take();
}

void Seal::Encode(wire::Writer& out) const {
  PutSeal(out, *this);
  out.Raw(signature.bytes);
}

Seal Seal::Decode(wire::Reader& in) {
  Seal seal;
  seal.era = in.Int<Era>();
  seal.end = in.Bool();
  GetBytes(in, seal.owner);
  GetBytes(in, seal.signature);
  return seal;
}

}  // namespace loom::collab
