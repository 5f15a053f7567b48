#include "node/node_messages.h"

#include <algorithm>

#include "net/hello.h"

namespace loom::node {
namespace {

constexpr std::size_t kMaxRecord = 8U << 20;
constexpr std::size_t kMaxListBytes = 64U << 20;
constexpr std::size_t kMaxAddressText = swarm::kMaxHostLength + 16;
constexpr std::size_t kMaxText = 512;

Result<DialedBack> ReadDialedBack(wire::Reader& in) {
  DialedBack back;
  const auto address = swarm::ParseAddress(in.Text(kMaxAddressText));
  if (address) {
    back.address = *address;
  } else {
    in.Fail("no address");
  }
  const auto outcome = in.Int<std::uint8_t>();
  const auto step = in.Int<std::uint8_t>();
  const auto code = in.Int<std::uint8_t>();
  if (outcome > static_cast<std::uint8_t>(DialedBack::Outcome::kNotTried) ||
      step > static_cast<std::uint8_t>(net::DialStep::kHello) ||
      code > static_cast<std::uint8_t>(Code::kInternal)) {
    in.Fail("an unknown outcome");
  }
  back.text = net::CleanText(in.Text(kMaxText));
  LOOM_RETURN_IF_ERROR(in.Finish("dialed_back"));
  back.outcome = static_cast<DialedBack::Outcome>(outcome);
  back.step = static_cast<net::DialStep>(step);
  back.code = static_cast<Code>(code);
  return back;
}

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
  } else if (const auto* view = std::get_if<View>(&message)) {
    out.Int(static_cast<std::uint64_t>(view->now));
    out.Text(view->address);
  } else if (const auto* back = std::get_if<DialBack>(&message)) {
    out.Text(back->address.ToString());
  } else if (const auto* dialed = std::get_if<DialedBack>(&message)) {
    out.Text(dialed->address.ToString());
    out.Int(static_cast<std::uint8_t>(dialed->outcome));
    out.Int(static_cast<std::uint8_t>(dialed->step));
    out.Int(static_cast<std::uint8_t>(dialed->code));
    out.Text(net::CleanText(dialed->text));
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
        auto address = swarm::ParseAddress(in.Text(kMaxAddressText));
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
    case 6:
      LOOM_RETURN_IF_ERROR(in.Finish("get_view"));
      return NodeMessage(GetView{});
    case 7: {
      View view;
      view.now = static_cast<std::int64_t>(in.Int<std::uint64_t>() & INT64_MAX);
      view.address = net::CleanText(in.Text(kMaxAddressText));
      LOOM_RETURN_IF_ERROR(in.Finish("view"));
      return NodeMessage(std::move(view));
    }
    case 8: {
      const std::string text(in.Text(kMaxAddressText));
      LOOM_RETURN_IF_ERROR(in.Finish("dial_back"));
      LOOM_ASSIGN(swarm::Address address, swarm::ParseAddress(text));
      return NodeMessage(DialBack{std::move(address)});
    }
    case 9: {
      LOOM_ASSIGN(DialedBack back, ReadDialedBack(in));
      return NodeMessage(std::move(back));
    }
    default:
      return MakeError(Code::kInvalid, fmt::format("unknown message type {}", type));
  }
}

}  // namespace loom::node
