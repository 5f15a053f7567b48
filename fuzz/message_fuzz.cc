// Every message of rounds, as a peer may send it: what is accepted is written back byte for byte,
// and what travels inside one (records, bodies, invites, relayed messages) is decoded, too. The
// input is a frame: a u16 type, then the payload.
#include "collab/messages.h"

#include <algorithm>

#include "fuzz/fuzz.h"
#include "fuzz/seeds/samples.h"
#include "swarm/invite.h"

namespace loom::fuzz {
namespace {

template <class T>
void Inside(const Result<T>& inner) {
  if (!inner.ok()) ExpectGoodError(inner.error());
}

void Look(const collab::Message& message) {
  (void)collab::IsBulk(message);
  Expect(!collab::MessageName(message).empty(), "every message has a name");
  if (const auto* record = std::get_if<collab::RecordMessage>(&message)) {
    Inside(collab::Record::Decode(record->record));
  } else if (const auto* proposal = std::get_if<collab::ProposalMessage>(&message)) {
    Inside(collab::Body::Decode(proposal->body));
  } else if (const auto* report = std::get_if<collab::SealReport>(&message)) {
    Inside(collab::Body::Decode(report->body));
  } else if (const auto* ask = std::get_if<collab::JoinAsk>(&message)) {
    Inside(swarm::ParseInvite(ask->invite));
  } else if (const auto* relay = std::get_if<collab::Relay>(&message)) {
    Inside(collab::DecodeMessage(relay->type, MakeBlob(relay->payload)));
    Expect(!relay->Text().empty(), "a relayed message has a text to sign");
  } else if (const auto* commitment = std::get_if<collab::Commitment>(&message)) {
    (void)commitment->Id();
    (void)commitment->samples();
    (void)commitment->tokens();
  }
}

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  const auto type = in.Int<std::uint16_t>();
  const ByteView payload = in.Rest();
  const Result<collab::Message> message = collab::DecodeMessage(type, MakeBlob(ToBytes(payload)));
  if (!message.ok()) {
    fuzz::ExpectGoodError(message.error());
    return 0;
  }
  fuzz::Expect(collab::TypeOf(message.value()) == type, "a message keeps its type");
  fuzz::Expect(std::ranges::equal(collab::EncodeMessage(message.value()), payload),
               "an accepted message is written back byte for byte");
  fuzz::Look(message.value());
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  for (const collab::Message& message : SampleMessages()) {
    seeds.Add(std::string(collab::MessageName(message)),
              Script().Int(collab::TypeOf(message)).Raw(collab::EncodeMessage(message)));
  }
}
