#include "node/node_messages.h"

#include <algorithm>

namespace loom::node {
namespace {

constexpr std::size_t kMaxRecord = 8U << 20;
constexpr std::size_t kMaxListBytes = 64U << 20;

}  // namespace

std::uint16_t TypeOf(const NodeMessage& message) {
  return static_cast<std::uint16_t>(kFirstNodeType + message.index());
}

bool IsNodeType(std::uint16_t type) {
  return type >= kFirstNodeType && type < kFirstNodeType + std::variant_size_v<NodeMessage>;
}

Bytes EncodeNodeMessage(const NodeMessage& message) {
  wire::Writer out;
  if (const auto* run = std::get_if<RunRecord>(&message)) {
    out.Var(run->record);
  } else if (const auto* get = std::get_if<GetPieces>(&message)) {
    out.Id(get->object);
  } else if (const auto* pieces = std::get_if<Pieces>(&message)) {
    out.Id(pieces->object);
    out.Var(pieces->list.Encode());
  } else if (const auto* addresses = std::get_if<Addresses>(&message)) {
    out.Count(addresses->entries.size());
    for (const auto& entry : addresses->entries) {
      out.Id(entry.peer);
      out.Text(entry.address.ToString());
    }
  }
  if (const auto* delegate = std::get_if<Delegate>(&message))
    return EncodeDelegation(delegate->delegation);
  return std::move(out).Take();
}

Bytes EncodeDelegation(const swarm::Delegation& delegation) {
  wire::Writer out;
  out.Raw(delegation.owner.View());
  out.Raw(delegation.member.View());
  out.Int(static_cast<std::uint64_t>(delegation.until));
  out.Bool(delegation.may_grant_vote);
  out.Raw(delegation.signature.View());
  return std::move(out).Take();
}

Result<swarm::Delegation> DecodeDelegation(ByteView bytes) {
  wire::Reader in(bytes);
  swarm::Delegation delegation;
  const auto take = [&](auto& field) {
    const ByteView raw = in.Raw(field.bytes.size());
    std::copy(raw.begin(), raw.end(), field.bytes.begin());
  };
  take(delegation.owner);
  take(delegation.member);
  delegation.until = static_cast<std::int64_t>(in.Int<std::uint64_t>() & INT64_MAX);
  delegation.may_grant_vote = in.Bool();
  take(delegation.signature);
  LOOM_RETURN_IF_ERROR(in.Finish("delegation"));
  return delegation;
}

Result<NodeMessage> DecodeNodeMessage(std::uint16_t type, ByteView bytes) {
  wire::Reader in(bytes);
  switch (type - kFirstNodeType) {
    case 0:
      LOOM_RETURN_IF_ERROR(in.Finish("get_run"));
      return NodeMessage(GetRun{});
    case 1: {
      RunRecord run{ToBytes(in.Var(kMaxRecord))};
      LOOM_RETURN_IF_ERROR(in.Finish("run_record"));
      return NodeMessage(std::move(run));
    }
    case 2: {
      GetPieces get{in.GetId<HashTag>()};
      LOOM_RETURN_IF_ERROR(in.Finish("get_pieces"));
      return NodeMessage(get);
    }
    case 3: {
      Pieces pieces;
      pieces.object = in.GetId<HashTag>();
      const Bytes list = ToBytes(in.Var(kMaxListBytes));
      LOOM_RETURN_IF_ERROR(in.Finish("pieces"));
      LOOM_ASSIGN(pieces.list, store::PieceList::Decode(list));
      if (pieces.list.Root() != pieces.object) {
        return MakeError(Code::kCorrupt, "pieces: they do not make the object that was asked for");
      }
      return NodeMessage(std::move(pieces));
    }
    case 4: {
      Addresses addresses;
      const std::size_t count = in.Count(kMaxToldAddresses, 36);
      for (std::size_t i = 0; i < count && in.ok(); ++i) {
        Addresses::Entry entry;
        entry.peer = in.GetId<PeerTag>();
        auto address = swarm::ParseAddress(in.Text(swarm::kMaxHostLength + 16));
        if (!address) continue;
        entry.address = *address;
        addresses.entries.push_back(std::move(entry));
      }
      LOOM_RETURN_IF_ERROR(in.Finish("addresses"));
      return NodeMessage(std::move(addresses));
    }
    case 5: {
      LOOM_ASSIGN(const swarm::Delegation delegation, DecodeDelegation(bytes));
      return NodeMessage(Delegate{delegation});
    }
    default:
      return MakeError(Code::kInvalid, fmt::format("unknown message type {}", type));
  }
}

}  // namespace loom::node
