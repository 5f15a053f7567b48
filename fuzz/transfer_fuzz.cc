// Messages of the transfer, decoded and then fed to a fetcher and a donor that are in the middle of
// something: no message makes them crash, store wrong bytes or ask a donor that is not there.
#include "swarm/transfer.h"

#include <algorithm>

#include "crypto/hash.h"
#include "fuzz/fuzz.h"

namespace loom {
namespace {

PeerId Peer(std::uint8_t i) {
  PeerId id;
  id.bytes[0] = static_cast<std::byte>(i % 3);
  return id;
}

void Check(const swarm::Fetcher::Effects& effects) {
  for (const swarm::FetchEffect& effect : effects) {
    if (const auto* stored = std::get_if<swarm::StoreObject>(&effect)) {
      fuzz::Expect(crypto::Sha256(*stored->bytes) == stored->id, "only right bytes are stored");
    }
  }
}

template <class Message>
std::optional<Message> Accepted(ByteView bytes) {
  auto message = Message::Decode(bytes);
  if (!message.ok()) {
    fuzz::ExpectGoodError(message.error());
    return std::nullopt;
  }
  fuzz::Accept();
  wire::Writer out;
  message.value().Encode(out);
  fuzz::Expect(std::ranges::equal(bytes, out.bytes()),
               "an accepted message is written back as it was read");
  return std::move(message).value();
}

}  // namespace
}  // namespace loom

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  swarm::Fetcher fetcher({.seed = 1});
  swarm::Donor donor({.peer_bytes = 1000, .peer_requests = 4}, [](const Hash& id) {
    return id.bytes[0] == std::byte{1} ? std::optional<std::uint32_t>(100) : std::nullopt;
  });
  std::vector<swarm::ObjectRef> wanted;
  for (std::uint8_t i = 0; i < 8; ++i) {
    const std::byte content[1] = {static_cast<std::byte>(i)};
    wanted.push_back({crypto::Sha256(content), 1});
  }
  Time now{};
  Check(fetcher.Want(wanted, nullptr, now).value());
  Check(fetcher.AddDonor(Peer(0), std::nullopt, now));
  Check(fetcher.AddDonor(Peer(1), std::nullopt, now));
  // The input is a list of {action, length, bytes}.
  for (std::size_t at = 0; at + 2 <= size;) {
    const std::uint8_t action = data[at];
    const std::size_t length = std::min<std::size_t>(data[at + 1], size - at - 2);
    const ByteView bytes = fuzz::View(data + at + 2, length);
    at += 2 + length;
    now += std::chrono::milliseconds(action) * 40;
    const PeerId peer = Peer(static_cast<std::uint8_t>(action >> 4));
    switch (action % 6) {
      case 0:
        if (auto message = Accepted<swarm::ObjectData>(bytes)) {
          Check(fetcher.OnData(peer, *message, now));
        }
        break;
      case 1:
        if (auto message = Accepted<swarm::NotHere>(bytes)) {
          Check(fetcher.OnNotHere(peer, *message, now));
        }
        break;
      case 2:
        if (auto message = Accepted<swarm::GetObjects>(bytes)) {
          (void)donor.OnGet(peer, *message);
          for (const Hash& id : message->ids) {
            (void)donor.Found(peer, id, MakeBlob(Bytes(100)));
          }
          fuzz::Expect(donor.outstanding(peer) <= 1000, "a donor's bound holds");
        }
        break;
      case 3:
        Check(fetcher.AddDonor(peer, std::nullopt, now));
        break;
      case 4:
        Check(fetcher.RemoveDonor(peer, now));
        break;
      default:
        Check(fetcher.Tick(now));
    }
  }
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  Script script;
  const auto add = [&](std::size_t action, const auto& message) {
    wire::Writer out;
    message.Encode(out);
    script.Byte(action).Byte(out.bytes().size()).Raw(out.bytes());
  };
  for (std::uint8_t i = 0; i < 8; ++i) {
    const Bytes content = {static_cast<std::byte>(i)};
    const Hash id = crypto::Sha256(content);
    add(16U * (i % 3U), swarm::ObjectData{id, MakeBlob(content)});
    if (i == 3) add(19, swarm::NotHere{{id}, true});
    if (i == 4) add(2, swarm::GetObjects{{Hash{{std::byte{1}}}, id}});
  }
  script.Byte(5).Byte(0).Byte(240).Byte(0);
  seeds.Add("session", script);
}
