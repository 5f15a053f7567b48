// What nodes say to each other outside of rounds, and the delegation as a folder keeps it.
// Addresses that mean nothing are left out on the way in, so it is the second reading that must be
// stable. The input is a frame: a u16 type, then the payload.
#include "node/node_messages.h"

#include <algorithm>

#include "collab/record.h"
#include "fuzz/fuzz.h"
#include "fuzz/seeds/samples.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  if (const auto delegation = node::DecodeDelegation(fuzz::View(data, size)); delegation.ok()) {
    (void)swarm::VerifyDelegation(delegation.value(), {});
    const Bytes bytes = node::EncodeDelegation(delegation.value());
    const auto again = node::DecodeDelegation(bytes);
    fuzz::Expect(again.ok() && again.value() == delegation.value(),
                 "a delegation keeps its fields");
    fuzz::Accept();
  }
  fuzz::Input in(data, size);
  const auto type = in.Int<std::uint16_t>();
  const Result<node::NodeMessage> message = node::DecodeNodeMessage(type, in.Rest());
  if (!message.ok()) {
    fuzz::ExpectGoodError(message.error());
    return 0;
  }
  fuzz::Expect(node::IsNodeType(type) && node::TypeOf(message.value()) == type,
               "a message keeps its type");
  const Bytes bytes = node::EncodeNodeMessage(message.value());
  const auto again = node::DecodeNodeMessage(type, bytes);
  fuzz::Expect(again.ok() && node::EncodeNodeMessage(again.value()) == bytes,
               "a decoded message encodes to itself");
  if (const auto* run = std::get_if<node::RunRecord>(&message.value()))
    (void)collab::Record::Decode(run->record);
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  const auto add = [&](std::string name, const node::NodeMessage& message) {
    seeds.Add(std::move(name),
              Script().Int(node::TypeOf(message)).Raw(node::EncodeNodeMessage(message)));
  };
  const store::PieceList pieces = store::PieceList::Of(AsBytes("one piece"));
  const auto delegation =
      swarm::MakeDelegation(SampleKey(1), {}, SampleKey(2).public_key(), 1'900'000'000, true);
  node::Addresses addresses;
  addresses.entries.push_back({SampleKey(2).id(), {"node.example", 4001}});
  addresses.entries.push_back({SampleKey(3).id(), {"2001:db8::1", 4001}});
  add("get_run", node::GetRun{});
  add("run_record", node::RunRecord{SampleRecord().Encode()});
  add("get_pieces", node::GetPieces{pieces.Root()});
  add("pieces", node::Pieces{pieces.Root(), pieces});
  add("addresses", addresses);
  add("delegate", node::Delegate{delegation});
  add("get_view", node::GetView{});
  add("view", node::View{1'700'000'000, "192.0.2.1:4001"});
  add("dial_back", node::DialBack{{"node.example", 4001}});
  add("dialed_back", node::DialedBack{{"node.example", 4001},
                                      node::DialedBack::Outcome::kFailed,
                                      net::DialStep::kConnect,
                                      Code::kTimeout,
                                      "no answer"});
  seeds.Add("delegation", node::EncodeDelegation(delegation));
}
